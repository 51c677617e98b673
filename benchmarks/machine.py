"""The machine that the benchmarks run on, and its restriction by `--isa` and `--cores`.

Both options change this process, so that every process that it starts inherits them.
"""

import argparse
import os
import pathlib
import platform
from typing import Any

from keras_transformer.checks import require

# With these variables, libraries compute as on a processor with AVX2 at most.
AVX2_ENVIRONMENT = {
    # The oneDNN of TensorFlow, PyTorch and CTranslate2.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # TensorFlow itself leaves oneDNN's operations off where there is neither VNNI nor AMX.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    # Compiled searches.
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    # MKL, which computes the float32 products of PyTorch and all products of CTranslate2.
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    # PyTorch's own kernels, and those that torch.compile writes.
    "ATEN_CPU_CAPABILITY": "avx2",
    # CTranslate2's own kernels.
    "CT2_FORCE_CPU_ISA": "AVX2",
}
# Why contenders in bfloat16 are skipped with `--isa avx2`.
NO_BFLOAT16 = "with oneDNN limited to AVX2, bfloat16 products fail"


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `restrict` applies: `--isa` and `--cores`."""
    parser.add_argument(
        "--isa", choices=("avx2",), help="the newest instructions to use (default: all)"
    )
    parser.add_argument(
        "--cores", type=int, metavar="N", help="use only the first N cores (default: all)"
    )


def restrict(isa: str | None, cores: int | None) -> None:
    """Restricts this process and all processes that it starts from now on.

    Call it before anything is computed.

    Raises:
        ConfigError: There are fewer cores.
    """
    if cores is not None:
        available = sorted(os.sched_getaffinity(0))
        rule = f"from 1 to {len(available)}, the number of cores that this process may use"
        require(1 <= cores <= len(available), "--cores", rule, cores)
        os.sched_setaffinity(0, available[:cores])
    if isa == "avx2":
        os.environ.update(AVX2_ENVIRONMENT)


def is_limited_to_avx2() -> bool:
    """Returns whether `--isa avx2` is in force."""
    return AVX2_ENVIRONMENT.items() <= os.environ.items()


def machine() -> dict[str, Any]:
    """Describes the machine and its restrictions.

    `isa` is None if all instructions of the processor may be used.
    """
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line for line in lines if "model name" in line]
    return {
        "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
        "isa": "AVX2" if is_limited_to_avx2() else None,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def restrictions() -> str:
    """Returns limited instructions and the number of cores as text, such as "AVX2, 1 core"."""
    cores = len(os.sched_getaffinity(0))
    instructions = "AVX2, " if is_limited_to_avx2() else ""
    return f"{instructions}{cores} core{'s' if cores > 1 else ''}"

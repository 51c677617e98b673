"""How the processors of a machine are used: division of cores, and the precision."""

import contextlib
import logging
import os
import pathlib
import re
from typing import Literal

import tensorflow as tf

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
# Linux' name of the instructions that multiply bfloat16 matrices.
_AMX = "amx_bf16"
# What ONEDNN_MAX_CPU_ISA may name without taking these instructions away.
_ISAS_WITH_AMX = (
    "ALL",
    "DEFAULT",
    "AVX512_CORE_AMX",
    "AVX512_CORE_AMX_FP16",
    "AVX10_1_512_AMX",
    "AVX10_1_512_AMX_FP16",
)

_log = logging.getLogger(__name__)


def kind_of_device() -> str:
    """Returns what TensorFlow computes on in this process: "GPU" if it sees one, else "CPU"."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def log_device() -> None:
    """Logs what TensorFlow computes on in this process."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        _log.info(f"device: CPU, cores: {num_cores()}")
        return
    names = set()
    for gpu in gpus:
        details = tf.config.experimental.get_device_details(gpu)
        names.add(str(details.get("device_name", "unknown")))
    _log.info(f"device: {len(gpus)} GPU ({', '.join(sorted(names))})")


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    # macOS has no affinity.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def divide_cores(most_parts: int) -> int:
    """Divides the cores among computations that run side by side.

    Call it before TensorFlow does anything else. Most operations of a small model are too small to
    be split across all cores themselves.

    Returns:
        How many computations should run side by side: at most one per core that this process may
        use, and one if there is a GPU. If TensorFlow is already running, its threads stay as they
        are.
    """
    cores = num_cores()
    parts = min(most_parts, cores)
    if parts < 2 or tf.config.list_physical_devices("GPU"):
        return 1
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_inter_op_parallelism_threads(parts)
        tf.config.threading.set_intra_op_parallelism_threads(cores // parts)
    return parts


def choose_precision(
    training: bool = False,
) -> tuple[Literal["float32", "bfloat16", "float16"], str]:
    """Chooses the precision for this machine's devices by their instructions, never by the clock.

    The same machine and the same settings always give the same precision. A CPU computes in
    bfloat16 if it multiplies matrices of it (Intel's AMX): instructions for vectors of bfloat16
    (AVX-512) gain about as much as the conversions between operations take. A GPU says by its
    compute capability whether it multiplies bfloat16, or at least float16, which is chosen for
    training only, since this scales its gradients.

    Returns:
        The precision, and the reason for it.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = map(tf.config.experimental.get_device_details, gpus)
        major, minor = min(gpu.get("compute_capability") or (0, 0) for gpu in details)
        return _precision_of_gpu(major, minor, training)
    if _AMX not in _cpu_instructions():
        return "float32", "this CPU has no instructions that multiply bfloat16 matrices (AMX)"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() or "DEFAULT"
    if limit not in _ISAS_WITH_AMX:
        return "float32", f"ONEDNN_MAX_CPU_ISA={limit} turns off this CPU's AMX instructions"
    switch = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")
    if switch.lower() in ("0", "false"):
        return "float32", f"TF_ENABLE_ONEDNN_OPTS={switch} turns off this CPU's AMX instructions"
    return "bfloat16", "this CPU has instructions that multiply bfloat16 matrices (AMX)"


def _precision_of_gpu(
    major: int, minor: int, training: bool
) -> tuple[Literal["float32", "bfloat16", "float16"], str]:
    """Chooses the precision for a compute capability.

    NVIDIA's GPUs multiply bfloat16 from 8.0 on (Ampere), and float16 from 7.0 on (Volta).
    """
    capability = f"compute capability {major}.{minor}"
    if major >= 8:
        return "bfloat16", f"this GPU ({capability}) multiplies bfloat16 matrices"
    if major >= 7 and training:
        reason = f"this GPU ({capability}) multiplies float16 matrices, but not bfloat16 ones"
        return "float16", f"{reason}, which need 8.0"
    reason = f"this GPU ({capability}) does not multiply bfloat16 matrices, which need 8.0"
    return "float32", f"{reason}, nor float16 ones, which need 7.0" if training else reason


def _cpu_instructions() -> set[str]:
    """Returns the flags that Linux lists for the first core; none on other systems."""
    try:
        text = _CPU_INFO.read_text("utf-8", "replace")
    except OSError:
        return set()
    line = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(line[1].split()) if line else set()

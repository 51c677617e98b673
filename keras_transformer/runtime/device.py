"""Chooses the number of threads and the precision for the machine's processors."""

import contextlib
import logging
import os
import pathlib
import re
from typing import Literal

import tensorflow as tf

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
# CPU flag on Linux for instructions that multiply bfloat16 matrices.
_AMX = "amx_bf16"
# Values of ONEDNN_MAX_CPU_ISA that keep these instructions enabled.
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
    """Returns the kind of device that TensorFlow uses: "GPU" if it finds a GPU, otherwise "CPU"."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def log_device() -> None:
    """Logs the devices that TensorFlow uses."""
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
    # macOS does not support CPU affinity.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def divide_cores(most_parts: int) -> int:
    """Divides the cores among parallel computations.

    Call this function before TensorFlow starts, because its thread settings cannot change later.
    Most operations of a small model are too small to use all cores.

    Returns:
        The number of computations to run in parallel: at most `most_parts` and the number of cores
        that this process may use, and 1 if there is a GPU.
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
    """Chooses the precision by the instruction sets of this machine's devices.

    The choice does not depend on timing, so the same machine with the same settings always uses the
    same precision. CPUs use bfloat16 if they have instructions for bfloat16 matrix products
    (Intel AMX). Vector instructions for bfloat16 (AVX-512) are not enough, because conversions
    between operations take about as much time as the instructions save. GPUs use bfloat16 or
    float16 according to their compute capability. float16 is only used for training, where loss
    scaling is available.

    Returns:
        A tuple of the precision and the reason for the choice.
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

    NVIDIA GPUs support bfloat16 matrix products from compute capability 8.0 (Ampere), and float16
    products from 7.0 (Volta).
    """
    capability = f"compute capability {major}.{minor}"
    if major >= 8:
        return "bfloat16", f"this GPU ({capability}) multiplies bfloat16 matrices"
    if major >= 7 and training:
        reason = f"this GPU ({capability}) multiplies float16 matrices"
        return "float16", f"{reason}, but bfloat16 needs compute capability 8.0"
    reason = f"this GPU ({capability}) does not multiply bfloat16 matrices, which need 8.0"
    return "float32", f"{reason}, nor float16 ones, which need 7.0" if training else reason


def _cpu_instructions() -> set[str]:
    """Returns the CPU flags of the first core on Linux, or an empty set on other systems."""
    try:
        text = _CPU_INFO.read_text("utf-8", "replace")
    except OSError:
        return set()
    line = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(line[1].split()) if line else set()

"""How the processors of a machine are used: division of cores, and the fastest precision."""

import contextlib
import logging
import os
import timeit
from typing import Literal

import tensorflow as tf

from ..config import TransformerConfig

# On a CPU, bfloat16 slows down the operations between the products, so products must be this much
# faster.
_MIN_RATIO = 2.0
# What ONEDNN_MAX_CPU_ISA may name without taking away the instructions for bfloat16. TensorFlow
# does not know of the limit, and ends the process when it asks for a product that oneDNN then
# cannot compute.
_ISAS_WITH_BFLOAT16 = (
    "DEFAULT",
    "AVX512_CORE_BF16",
    "AVX512_CORE_FP16",
    "AVX512_CORE_AMX",
    "AVX512_CORE_AMX_FP16",
)
_MOST_MULTIPLICATIONS = 2**28

_log = logging.getLogger(__name__)


def kind_of_device() -> str:
    """Returns what TensorFlow computes on in this process: "GPU" if it sees one, else "CPU"."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def log_device() -> None:
    """Logs what TensorFlow computes on in this process."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        _log.info(f"device: CPU, cores: {_num_cores()}")
        return
    names = set()
    for gpu in gpus:
        details = tf.config.experimental.get_device_details(gpu)
        names.add(str(details.get("device_name", "unknown")))
    _log.info(f"device: {len(gpus)} GPU ({', '.join(sorted(names))})")


def _num_cores() -> int:
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
    cores = _num_cores()
    parts = min(most_parts, cores)
    if parts < 2 or tf.config.list_physical_devices("GPU"):
        return 1
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_inter_op_parallelism_threads(parts)
        tf.config.threading.set_intra_op_parallelism_threads(cores // parts)
    return parts


def choose_precision(
    config: TransformerConfig, num_rows: int, training: bool = False
) -> tuple[Literal["float32", "bfloat16", "float16"], str]:
    """Chooses the precision in which a model is faster on this machine's devices.

    The model computes `num_rows` tokens at a time. A GPU says by its compute capability whether it
    multiplies bfloat16, or at least float16, which is chosen for training only, since this scales
    its gradients. On a CPU, one product of the model's feed-forward networks is timed in float32
    and bfloat16, which takes a few milliseconds.

    Returns:
        The precision, and the reason for it.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        # NVIDIA's GPUs multiply bfloat16 from 8.0 on (Ampere), and float16 from 7.0 on (Volta).
        details = map(tf.config.experimental.get_device_details, gpus)
        major, minor = min(gpu.get("compute_capability") or (0, 0) for gpu in details)
        reason = (
            f"the GPU's compute capability is {major}.{minor}; products in bfloat16 came with 8.0"
        )
        if major >= 8:
            return "bfloat16", reason
        if not training:
            return "float32", reason
        reason += ", those in float16 with 7.0"
        return ("float16", reason) if major >= 7 else ("float32", reason)
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() or "DEFAULT"
    if limit not in _ISAS_WITH_BFLOAT16:
        return "float32", f"ONEDNN_MAX_CPU_ISA={limit} leaves out the instructions for bfloat16"
    num_rows = max(min(num_rows, _MOST_MULTIPLICATIONS // (config.d_model * config.d_ff)), 1)
    shape = num_rows, config.d_model, config.d_ff
    ratio = _time_product(*shape, "float32") / _time_product(*shape, "bfloat16")
    measured = f"matrix products in bfloat16 are {ratio:.1f} times as fast on this CPU"
    if ratio >= _MIN_RATIO:
        return "bfloat16", measured
    return "float32", f"{measured}, not {_MIN_RATIO:.0f} times"


def _time_product(num_rows: int, num_inputs: int, num_outputs: int, dtype: str) -> float:
    """The seconds of the fastest of a few products."""
    inputs = tf.ones((num_rows, num_inputs), dtype)
    kernel = tf.ones((num_inputs, num_outputs), dtype)
    return min(timeit.repeat(lambda: tf.matmul(inputs, kernel), repeat=6, number=1))

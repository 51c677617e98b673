"""Whether a device multiplies bfloat16 faster than float32."""

import os
import time
from typing import Any, NamedTuple

import tensorflow as tf

from .config import Precision, TransformerConfig

# bfloat16 also makes the operations between the products slower, on a CPU: it has to win by this much.
_MIN_RATIO = 2.0
# The first GPUs with products in bfloat16: NVIDIA's Ampere.
_COMPUTE_CAPABILITY = (8, 0)
# What ONEDNN_MAX_CPU_ISA may name without taking away the instructions for bfloat16. TensorFlow does not know of the
# limit, and ends the process when it asks for a product that oneDNN then cannot compute.
_ISAS_WITH_BFLOAT16 = ("DEFAULT", "AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16")
_MOST_MULTIPLICATIONS = 2**28


class ChosenPrecision(NamedTuple):
    """A precision, and why.

    Attributes:
        precision: "float32" or "bfloat16".
        reason: str.
    """

    precision: Precision
    reason: str


def choose_precision(config: TransformerConfig, num_rows: int) -> ChosenPrecision:
    """Chooses the precision in which a model is faster on the devices of this machine.

    A GPU says by its compute capability whether it multiplies bfloat16. On a CPU, one product of the model's
    feed-forward networks is timed in both precisions, which takes a few milliseconds.

    Args:
        config: TransformerConfig.
        num_rows: int. Tokens that are computed together.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return _choose_on_gpus([tf.config.experimental.get_device_details(gpu) for gpu in gpus])
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() or "DEFAULT"
    if limit not in _ISAS_WITH_BFLOAT16:
        return ChosenPrecision("float32", f"ONEDNN_MAX_CPU_ISA={limit} leaves out the instructions for bfloat16")
    num_rows = max(min(num_rows, _MOST_MULTIPLICATIONS // (config.d_model * config.d_ff)), 1)
    shape = num_rows, config.d_model, config.d_ff
    seconds = {dtype: _time_product(*shape, dtype) for dtype in ("float32", "bfloat16")}
    ratio = seconds["float32"] / seconds["bfloat16"]
    precision: Precision = "bfloat16" if ratio >= _MIN_RATIO else "float32"
    sizes = " x ".join(f"{size:,}" for size in shape)
    measured = f"on this CPU a matrix product of {sizes} is {ratio:.1f} times as fast in bfloat16 as in float32"
    rule = "" if precision == "bfloat16" else f", and bfloat16 pays from {_MIN_RATIO:.0f} times"
    return ChosenPrecision(precision, measured + rule)


def _choose_on_gpus(details: list[dict[str, Any]]) -> ChosenPrecision:
    lowest = min(gpu.get("compute_capability") or (0, 0) for gpu in details)
    precision: Precision = "bfloat16" if lowest >= _COMPUTE_CAPABILITY else "float32"
    capabilities = [".".join(map(str, numbers)) for numbers in (lowest, _COMPUTE_CAPABILITY)]
    return ChosenPrecision(
        precision, "the GPU's compute capability is {}; products in bfloat16 came with {}".format(*capabilities)
    )


def _time_product(num_rows: int, num_inputs: int, num_outputs: int, dtype: str) -> float:
    """The seconds of the fastest of a few products."""
    inputs, kernel = tf.ones((num_rows, num_inputs), dtype), tf.ones((num_inputs, num_outputs), dtype)
    seconds = []
    for _ in range(6):
        begin = time.perf_counter()
        tf.matmul(inputs, kernel)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)

"""Scaled dot-product attention (section 3.2.1) as functions of queries, keys and values.

The head axis comes before the length axis: queries are (batch, num_heads, target length, key_dim).
There may be fewer key-value heads than query heads; several query heads then share a key-value
head.
"""

import math

import keras
from keras import ops

from ..tensors import Dimension, Tensor, reshape_inferring

# Added to the scores of masked positions. This is half of the lowest float32 number, so a masked
# score of up to 1e37 becomes far lower than any unmasked score above -1e37, and the sum never
# overflows.
HIDDEN = -1.7e38


def attention_weights(
    queries: Tensor,  # (batch, num_heads, target length, key_dim)
    keys: Tensor,  # (batch, num_key_value_heads, source length, key_dim)
    mask: Tensor | None = None,  # bool, broadcasts to (batch, num_heads, target, source length)
    bias: Tensor | None = None,  # broadcasts to (batch, num_heads, target length, source length)
) -> Tensor:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim) + bias)` (equation 1) in float32 or higher precision.

    A masked position has a weight of 0 if its score is at most 1e37. If a mask hides every
    position, all weights are 0.

    Returns:
        (batch, num_heads, target length, source length), with the dtype of the queries.
    """
    queries = ops.multiply(queries, queries.shape[-1] ** -0.5)
    scores = product_of_heads(queries, ops.transpose(keys, (0, 1, 3, 2)))
    dtype = keras.backend.result_type(scores.dtype, "float32")
    scores = ops.cast(scores, dtype)
    if bias is not None:
        scores = scores + ops.cast(bias, dtype)
    if mask is None:
        return ops.cast(ops.softmax(scores), queries.dtype)
    # Add instead of using `ops.where`, which is slower on TensorFlow.
    weights = ops.softmax(scores + (1 - ops.cast(mask, dtype)) * HIDDEN)
    # If every position is masked, the softmax is not 0, so set the weights to 0.
    has_any = ops.cast(ops.any(mask, axis=-1, keepdims=True), dtype)
    return ops.cast(weights * has_any, queries.dtype)


def product_of_heads(
    left: Tensor,  # (batch, num_heads, length, n)
    right: Tensor,  # (batch, num_key_value_heads, n, m)
) -> Tensor:
    """Returns the matrix product of each head, (batch, num_heads, length, m)."""
    num_heads, num_right_heads = left.shape[1], right.shape[1]
    if num_heads == num_right_heads:
        return ops.matmul(left, right)
    # The query heads of a group are consecutive: stack their rows in a single product instead of
    # repeating `right`.
    batch, _, length, width = ops.shape(left)
    group_rows = num_heads // num_right_heads * length
    rows = reshape_inferring(left, (batch, num_right_heads, group_rows, width))
    product = ops.matmul(rows, right)
    return reshape_inferring(product, (batch, num_heads, length, ops.shape(right)[-1]))


def is_fused_faster(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Returns whether the backend's fused operation supports these tensors and is faster."""
    match keras.backend.backend():
        case "jax":
            # cuDNN's operation, on GPUs in half precision. With a mask, its gradient supports only
            # even lengths.
            dtype = keras.backend.standardize_dtype(queries.dtype)
            lengths = (queries.shape[2], keys.shape[2])
            return (
                dtype in ("float16", "bfloat16")
                and all(length is not None and length % 2 == 0 for length in lengths)
                and keys.shape[-1] == values.shape[-1]
                and any(
                    device.startswith(("gpu", "cuda"))
                    for device in keras.distribution.list_devices()
                )
            )
        case "torch":
            # For grouped queries, PyTorch copies the keys. On a CPU, this costs more than the fused
            # operation saves.
            is_grouped = queries.shape[1] != keys.shape[1]
            return not is_grouped or ops.convert_to_tensor(queries).device.type != "cpu"
        case _:
            return False


def fused_attention(
    queries: Tensor,  # (batch, num_heads, target length, key_dim)
    keys: Tensor,  # (batch, num_key_value_heads, source length, key_dim)
    values: Tensor,  # (batch, num_key_value_heads, source length, value_dim)
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
) -> Tensor:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim) + bias) V` in a single operation.

    The weights are not stored. If a mask hides every position, the output is 0.

    Args:
        mask: see `attention_weights`.
        bias: see `attention_weights`.
        is_causal: bool. Whether the operation creates a causal mask itself. If so, pass neither a
            mask nor a bias. Defaults to False.
        flash_attention: bool or None. Whether to use flash attention. None uses it if possible.

    Returns:
        (batch, target length, num_heads, value_dim).
    """
    backend = keras.backend.backend()
    has_any = None
    if mask is not None:
        has_any = ops.any(mask, axis=-1, keepdims=True)
        # The softmax of a fully masked row would be NaN: unmask the row, and set it to 0 later.
        mask = ops.logical_or(mask, ops.logical_not(has_any))
    if mask is not None and (bias is not None or backend == "torch"):
        # The operation accepts a mask or a bias, but not both. On PyTorch, Keras would add a finite
        # number to masked scores, which is not low enough in float16.
        bias = ops.zeros((), queries.dtype) if bias is None else ops.cast(bias, queries.dtype)
        bias = ops.where(mask, bias, -math.inf)
        mask = None
    if backend == "torch":
        if keys.shape[1] == 1:
            shape = (ops.shape(keys)[0], queries.shape[1], *ops.shape(keys)[2:3])
            keys = ops.broadcast_to(keys, (*shape, keys.shape[-1]))
            values = ops.broadcast_to(values, (*shape, values.shape[-1]))
        # PyTorch decides itself whether to use flash attention. Keras' check for it breaks compiled
        # graphs.
        flash_attention = bool(flash_attention)
    if backend == "jax" and mask is not None:
        # cuDNN broadcasts a mask over sequences and heads, but not over queries.
        mask = per_head(mask)
        batch, num_heads = ops.shape(mask)[:2]
        mask = ops.broadcast_to(mask, (batch, num_heads, ops.shape(queries)[2], ops.shape(keys)[2]))
    heads = ops.dot_product_attention(
        ops.transpose(queries, (0, 2, 1, 3)),
        ops.transpose(keys, (0, 2, 1, 3)),
        ops.transpose(values, (0, 2, 1, 3)),
        mask=mask,
        bias=bias,
        is_causal=is_causal,
        scale=queries.shape[-1] ** -0.5,
        flash_attention=flash_attention,
    )
    if has_any is None:
        return heads
    return ops.where(ops.transpose(per_head(has_any), (0, 2, 1, 3)), heads, 0)


def split_heads(
    projected: Tensor,  # (..., num_heads * width)
    batch: Dimension,
    length: Dimension,
    num_heads: int,
) -> Tensor:
    """Splits features into heads, (batch, num_heads, length, width)."""
    width = projected.shape[-1] // num_heads
    if num_heads == 1:
        # There is nothing to swap, and tf2onnx would infer a wrong shape for such a swap.
        return reshape_inferring(projected, (batch, 1, length, width))
    return swap_heads(reshape_inferring(projected, (batch, length, num_heads, width)))


def swap_heads(heads: Tensor) -> Tensor:
    """Swaps the head and length axes: (batch, a, b, width) becomes (batch, b, a, width)."""
    batch, second, third, width = ops.shape(heads)
    if isinstance(second, int) and isinstance(third, int) and 1 in (second, third):
        # One of the axes has size 1, as in a step of greedy search, so reshape without a copy.
        return reshape_inferring(heads, (batch, third, second, width))
    return ops.transpose(heads, (0, 2, 1, 3))


def per_head(mask: Tensor) -> Tensor:
    """Adds the head axis to a mask (batch, target length, source length) if it is missing."""
    return mask if len(mask.shape) == 4 else ops.expand_dims(mask, -3)

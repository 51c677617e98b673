"""Scaled dot-product attention (section 3.2.1 of the paper) as pure functions of tensors.

There may be fewer heads of keys and values than of queries: then the queries of several heads attend to the same keys.
"""

from typing import Annotated

import keras
from keras import ops

from ...shapes import reshape_inferring
from ...tensors import Tensor

# Added to masked scores in float32 or better, where its exponential is exactly 0.
_MASKED = -1e9


def attention_weights(
    queries: Annotated[Tensor, "(batch, num_heads, target length, key_dim)"],
    keys: Annotated[Tensor, "(batch, num_key_value_heads, source length, key_dim)"],
    mask: Annotated[Tensor, "bool, broadcasts to (batch, num_heads, target length, source length)"] | None = None,
    bias: Annotated[Tensor, "broadcasts to (batch, num_heads, target length, source length)"] | None = None,
) -> Annotated[Tensor, "float32 (batch, num_heads, target length, source length)"]:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim) + bias)`, equation 1, in float32 or better.

    Args:
        queries: Q.
        keys: K.
        mask: True = attend. Defaults to None: attend to everything.
        bias: what is added to the scores. Defaults to None.

    Returns:
        The weights. A row whose mask is all False is all zeros.
    """
    queries = ops.multiply(queries, queries.shape[-1] ** -0.5)
    scores = _product_of_heads(queries, ops.transpose(keys, (0, 1, 3, 2)))  # (batch, num_heads, target, source)
    dtype = keras.backend.result_type(scores.dtype, "float32")
    scores = ops.cast(scores, dtype)
    if bias is not None:
        scores = scores + ops.cast(bias, dtype)
    if mask is None:
        return ops.softmax(scores)
    weights = ops.softmax(scores + ops.cast(ops.where(mask, 0.0, _MASKED), dtype))
    # Softmax of a row that is masked everywhere is uniform.
    return weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), dtype)


def weighted_sums(
    weights: Annotated[Tensor, "(batch, num_heads, target length, source length)"],
    values: Annotated[Tensor, "(batch, num_key_value_heads, source length, value_dim)"],
) -> Annotated[Tensor, "(batch, num_heads, target length, value_dim)"]:
    """Computes each head's sums of values.

    Args:
        weights: of `attention_weights`.
        values: V.
    """
    return _product_of_heads(weights, values)


def _product_of_heads(left: Tensor, right: Tensor) -> Tensor:
    # (batch, num_heads, length, n) times (batch, num_key_value_heads, n, m)
    num_heads, num_right_heads = left.shape[1], right.shape[1]
    if num_heads == num_right_heads:
        return ops.matmul(left, right)
    # The heads of one group follow each other: their rows are rows of one product, and nothing is repeated.
    batch, _, length, width = ops.shape(left)
    rows = reshape_inferring(left, (batch, num_right_heads, num_heads // num_right_heads * length, width))
    product = ops.matmul(rows, right)
    return reshape_inferring(product, (batch, num_heads, length, ops.shape(right)[-1]))

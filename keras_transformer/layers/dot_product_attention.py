"""Scaled dot-product attention (section 3.2.1 of the paper) as a pure function of tensors."""

from typing import Annotated

from keras import ops

from ..tensors import Tensor

# Added to masked scores in float32, where its exponential is exactly 0.
_MASKED = -1e9


def attention_weights(
    queries: Annotated[Tensor, "(batch, num_heads, target length, key_dim)"],
    keys: Annotated[Tensor, "(batch, num_heads, source length, key_dim)"],
    mask: Annotated[Tensor, "bool, broadcasts to (batch, num_heads, target length, source length)"] | None = None,
) -> Annotated[Tensor, "float32 (batch, num_heads, target length, source length)"]:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim))`, equation 1, in float32.

    Args:
        queries: Q.
        keys: K.
        mask: True = attend. Defaults to None: attend to everything.

    Returns:
        The weights. A row whose mask is all False is all zeros.
    """
    queries = ops.multiply(queries, queries.shape[-1] ** -0.5)
    scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))  # (batch, num_heads, target, source)
    scores = ops.cast(scores, "float32")
    if mask is None:
        return ops.softmax(scores)
    weights = ops.softmax(scores + ops.where(mask, 0.0, _MASKED))
    # Softmax of a row that is masked everywhere is uniform.
    return weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32")

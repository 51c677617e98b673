"""Scaled dot-product attention (section 3.2.1 of the paper) as a pure function of tensors."""

from typing import Any

from keras import ops

# Added to masked scores in float32, where its exponential is exactly 0.
_MASKED = -1e9


def attention_weights(queries: Any, keys: Any, mask: Any = None) -> Any:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim))`, equation 1, in float32.

    Args:
        queries: (batch, num_heads, target length, key_dim).
        keys: (batch, num_heads, source length, key_dim).
        mask: bool, broadcasts to (batch, num_heads, target length, source length); True = attend. Defaults to
            None: attend to everything.

    Returns:
        float32 (batch, num_heads, target length, source length). A row whose mask is all False is all zeros.
    """
    queries = ops.multiply(queries, queries.shape[-1] ** -0.5)
    scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))  # (batch, num_heads, target, source)
    scores = ops.cast(scores, "float32")
    if mask is None:
        return ops.softmax(scores)
    weights = ops.softmax(scores + ops.where(mask, 0.0, _MASKED))
    # Softmax of a row that is masked everywhere is uniform.
    return weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32")

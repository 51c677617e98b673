"""Selection by index in each row of a batch."""

from typing import Any

import keras
from keras import ops

from .shapes import reshape_inferring


def gather_in_rows(values: Any, indices: Any) -> Any:
    """Returns values[b, indices[b, i]] for every b and i.

    Args:
        values: (batch, n, ...).
        indices: int32 (batch, m), from 0 to n - 1.

    Returns:
        (batch, m, ...).
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # One operation: `keras.ops` adds ten more, for negative indices and to broadcast.
        return tf.gather(values, indices, batch_dims=1)
    batch, n = ops.shape(values)[:2]
    rows = ops.arange(batch, dtype="int32")[:, None] * n + indices
    # Not -1 for the rows: values may be empty.
    selected = ops.take(ops.reshape(values, (batch * n, *values.shape[2:])), rows, axis=0)
    # JAX returns empty values as they are, whatever the indices.
    return reshape_inferring(selected, (*ops.shape(indices), *values.shape[2:]))

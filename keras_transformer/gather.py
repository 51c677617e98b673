"""Selection by index, with fewer operations on TensorFlow than `keras.ops`."""

from typing import Annotated

import keras
from keras import ops

from .tensors import Tensor, reshape_inferring


def gather_in_rows(
    values: Annotated[Tensor, "(batch, n, ...)"], indices: Annotated[Tensor, "int32 (batch, m)"]
) -> Annotated[Tensor, "(batch, m, ...)"]:
    """Returns values[b, indices[b, i]] for every b and i, with indices from 0 to n - 1."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # `keras.ops` would add ten operations, for negative indices and for broadcasting.
        return tf.gather(values, indices, batch_dims=1)
    batch, n = ops.shape(values)[:2]
    rows = ops.arange(batch, dtype="int32")[:, None] * n + indices
    # Do not use -1 as the number of rows, because values may be empty.
    selected = ops.take(ops.reshape(values, (batch * n, *values.shape[2:])), rows, axis=0)
    # If values are empty, JAX returns them unchanged, for any indices.
    return reshape_inferring(selected, (*ops.shape(indices), *values.shape[2:]))


def take_rows(
    values: Annotated[Tensor, "(n, ...)"], indices: Annotated[Tensor, "int32 (...)"]
) -> Tensor:
    """Returns values[i] for every index i, with indices from 0 to n - 1."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # `keras.ops` would add operations for negative indices.
        return tf.gather(values, indices)
    return ops.take(values, indices, axis=0)


def first_maximum(values: Annotated[Tensor, "(..., n)"]) -> Annotated[Tensor, "int32 (...)"]:
    """Returns the index of the highest value along the last axis; ties go to the lower index."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # `keras.ops` would copy all values, to distinguish 0.0 from -0.0.
        return tf.argmax(values, axis=-1, output_type=tf.int32)
    return ops.argmax(values, axis=-1)

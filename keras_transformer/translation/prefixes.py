"""The beginnings that translations are given, as tokens."""

from typing import Annotated

import tensorflow as tf


def left_padded(token_ids: tf.RaggedTensor) -> Annotated[tf.Tensor, "int32 (batch, length)"]:
    """Returns rows that end together, with -1 before the shorter ones."""
    padded = token_ids.to_tensor(-1)
    lengths, length = tf.cast(token_ids.row_lengths(), tf.int32), tf.shape(padded)[1]
    places = tf.range(length) - (length - lengths[:, None])
    return tf.where(places >= 0, tf.gather(padded, tf.maximum(places, 0), batch_dims=1), -1)

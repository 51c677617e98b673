"""The loss of guided alignment: a head of attention to the source learns which token each token comes from."""

from typing import Annotated

import tensorflow as tf

from keras_transformer.losses import SMALLEST_PROBABILITY
from keras_transformer.tensors import Tensor


def alignment_loss(
    attention: Annotated[Tensor, "(batch, target length, source length)"],
    links: Annotated[Tensor, "int32 (batch, target length)"],
) -> Annotated[Tensor, "float32 ()"]:
    """Computes the sum of the cross-entropy of attention weights, over the tokens that have a link.

    Args:
        attention: weights that sum to 1 for each target token.
        links: the place of the source token that a target token comes from, from 1; 0 for none.

    Example:
        >>> float(alignment_loss(tf.constant([[[0.5, 0.5], [0.25, 0.75]]]), tf.constant([[0, 1]])))
        1.3862943649291992
    """
    weights = tf.gather(tf.cast(attention, tf.float32), tf.maximum(links - 1, 0), batch_dims=2)
    losses = -tf.math.log(tf.maximum(weights, SMALLEST_PROBABILITY))
    return tf.reduce_sum(tf.where(links > 0, losses, 0.0))

"""An exponential moving average of the weights, which is what is validated and saved."""

from collections.abc import Sequence
from typing import Annotated

import keras
import tensorflow as tf

from keras_transformer.tensors import Tensor


def update_average(
    averages: Sequence[keras.Variable],
    weights: Sequence[keras.Variable],
    decay: float,
    step: Annotated[Tensor, "int ()"],
) -> None:
    """Moves the averages towards the weights: `average = d * average + (1 - d) * weight`.

    With `d = min(decay, step / (step + 9))` the first average is the first weights, and an average of few steps covers
    about the last tenth of them, so that it is not held back by weights that have learned nothing.

    Call it in a replica context, after the update of the weights.

    Args:
        averages: list of variables.
        weights: list of variables with the same shapes.
        decay: float. The highest d.
        step: How many averages there were before; 0 for the first.
    """
    step = tf.cast(step, "float32")
    decay = tf.minimum(decay, step / (step + 9))

    def move(average: tf.Variable, weight: Tensor, decay: Tensor) -> None:
        # Exact where both are equal, as for weights that are not trained, and where the decay is 0.
        average.assign(weight + decay * (average - weight))

    def move_all(strategy: tf.distribute.Strategy, decay: Tensor) -> None:
        for average, weight in zip(averages, weights, strict=True):
            strategy.extended.update(average.value, move, args=(weight.value, decay), group=False)

    tf.distribute.get_replica_context().merge_call(move_all, args=(decay,))

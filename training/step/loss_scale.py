"""Dynamic loss scaling: float16 has a small range, 6e-8 to 65,504 (Micikevicius et al. 2018, arXiv 1710.03740)."""

import math
from collections.abc import Sequence
from typing import Annotated

import keras
import tensorflow as tf

from keras_transformer.tensors import Tensor

# The usual figures: the first scale of the mean loss, and how many good steps double it.
_FIRST_OF_MEAN = 2.0**15
_GOOD_STEPS = 2000
# A larger scale would take the gradient of a logit, which is up to 1, out of float16's range.
_HIGHEST = 2.0**15


class LossScale:
    """What every token's loss is multiplied by before gradients are rounded to float16, and divided by after that.

    It is a power of two, so that the scaling itself rounds nothing. It doubles after 2,000 good steps in a row and is
    halved after a step whose gradient has a number that is not finite; such a step changes no weights.

    Under a strategy, make it within the strategy's scope.

    Args:
        tokens_per_batch: int. At first, the scale of the mean over so many tokens is 2^15 (within a factor of √2).
    """

    def __init__(self, tokens_per_batch: int) -> None:
        first = 2.0 ** round(math.log2(_FIRST_OF_MEAN / tokens_per_batch))
        # Here the mean loss is not scaled any more; what overflows now is itself too large.
        self._lowest = first / _FIRST_OF_MEAN
        self._scale = _variable(first, "float32", "loss_scale")
        self._good_steps = _variable(0, "int32", "good_steps")
        self._skipped_steps = _variable(0, "int32", "skipped_steps")

    @property
    def variables(self) -> list[keras.Variable]:
        return [self._scale, self._good_steps, self._skipped_steps]

    @property
    def value(self) -> Annotated[Tensor, "()"]:
        """The scale."""
        return tf.convert_to_tensor(self._scale)

    @property
    def skipped_steps(self) -> int:
        """How many steps were skipped since training started."""
        return int(keras.ops.convert_to_numpy(self._skipped_steps))

    def is_exhausted(self) -> bool:
        """Returns whether gradients overflow whatever the scale, which then is not the reason."""
        return float(keras.ops.convert_to_numpy(self._scale)) <= self._lowest

    def update(self, gradients: Annotated[Sequence[Tensor], "of the shapes of the variables"]) -> list[Tensor]:
        """Adjusts the scale to the gradient of a step, and marks a gradient with which the step is to be skipped.

        Args:
            gradients: list of float32 tensors, divided by the scale; on several replicas, the same on each.

        Returns:
            The gradients, or NaN in place of each of their elements if one of them is not finite: `Adam` skips it.
        """
        is_finite = tf.math.is_finite(tf.linalg.global_norm(gradients))
        good_steps = tf.where(is_finite, self._good_steps.value + 1, 0)
        factor = tf.where(is_finite, tf.where(good_steps < _GOOD_STEPS, 1.0, 2.0), 0.5)
        self._scale.assign(tf.clip_by_value(self._scale.value * factor, self._lowest, _HIGHEST))
        self._good_steps.assign(good_steps % _GOOD_STEPS)
        self._skipped_steps.assign_add(tf.cast(~is_finite, "int32"))
        return [tf.where(is_finite, gradient, math.nan) for gradient in gradients]


def _variable(value: float, dtype: str, name: str) -> keras.Variable:
    # All replicas assign the same.
    return keras.Variable(value, dtype=dtype, trainable=False, aggregation="only_first_replica", name=name)

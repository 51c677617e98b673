"""Adam (section 5.3), learning rate schedules, loss scaling in float16, and averaged weights."""

import math
from collections.abc import Sequence
from typing import Annotated

import keras
import tensorflow as tf

from keras_transformer.config import TrainingConfig
from keras_transformer.schedules import WarmupInverseSqrt
from keras_transformer.tensors import Tensor

# Common values: the initial scale of the mean loss, and the number of good steps after which the
# scale doubles.
_FIRST_OF_MEAN = 2.0**15
_GOOD_STEPS = 2000
# With a larger scale, the gradient of a logit, which is up to 1, would exceed float16's range.
_HIGHEST = 2.0**15


def learning_rate(
    d_model: int, config: TrainingConfig
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate schedule of a configuration: linear warmup, then its `decay`.

    By default, the peak is the paper's value, `(d_model * warmup_steps) ** -0.5`.
    """
    warmup_steps = config.warmup_steps
    paper_peak = (d_model * warmup_steps) ** -0.5
    peak = config.peak_learning_rate or paper_peak
    if config.decay == "inverse_sqrt":
        return WarmupInverseSqrt(d_model, warmup_steps, scale=peak / paper_peak)
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=max(config.steps - warmup_steps, 1),
        # The learning rate at the end, as a fraction of the peak.
        alpha=1.0 if config.decay == "constant" else 0.0,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )


class Adam(keras.optimizers.Optimizer):
    """Keras' `Adam`, implemented with TensorFlow's Adam kernel.

    The kernel makes one pass over each variable instead of ten. Call `apply_sum` instead of
    `apply`.

    Args:
        beta_1: Decay of the mean of the gradients. Defaults to 0.9.
        beta_2: Decay of the mean of the squared gradients. Defaults to 0.999.
        epsilon: Constant that is added to the square root of the mean of the squared gradients.
            Defaults to 1e-7.
        skip_nan: Whether to keep a variable and its moments, bit for bit, if its gradient contains
            NaN. The step still counts. Defaults to False.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        skip_nan: bool = False,
    ) -> None:
        super().__init__(learning_rate, name="adam")
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.skip_nan = skip_nan

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if not self.built:
            super().build(variables)
            self.momentums, self.velocities = self.add_optimizer_variables(
                variables, ["momentum", "velocity"]
            )

    def apply_sum(
        self,
        gradients: Annotated[Sequence[Tensor], "of the shapes of the variables"],
        variables: Sequence[keras.Variable],
    ) -> None:
        """Updates variables with gradients that are already summed over all replicas.

        Call it in a replica context. `apply` would sum the gradients again, and send them over the
        network twice. Pass the same gradients on every replica, and the variables for which the
        optimizer was built.
        """

        def update_all(
            strategy: tf.distribute.Strategy, gradients: Sequence[Tensor], learning_rate: Tensor
        ) -> None:
            for variable, momentum, velocity, gradient in zip(
                variables, self.momentums, self.velocities, gradients, strict=True
            ):
                strategy.extended.update(
                    variable.value,
                    self._update,
                    args=(momentum.value, velocity.value, gradient, learning_rate),
                    group=False,
                )

        replica = tf.distribute.get_replica_context()
        replica.merge_call(update_all, args=(gradients, tf.convert_to_tensor(self.learning_rate)))
        self.iterations.assign_add(1)

    def _update(
        self,
        variable: tf.Variable,
        momentum: tf.Variable,
        velocity: tf.Variable,
        gradient: Tensor,
        learning_rate: Tensor,
    ) -> None:
        dtype = variable.dtype
        steps = tf.cast(self.iterations.value + 1, dtype)
        gradient = tf.cast(gradient, dtype)
        learning_rate = tf.cast(learning_rate, dtype)
        beta_1 = tf.cast(self.beta_1, dtype)
        beta_2 = tf.cast(self.beta_2, dtype)
        beta1_power = tf.pow(beta_1, steps)
        beta2_power = tf.pow(beta_2, steps)
        if self.skip_nan:
            # A step under a strategy must not use `tf.cond`.
            is_nan = tf.reduce_any(tf.math.is_nan(gradient))
            gradient = tf.where(is_nan, 0.0, gradient)
            learning_rate = tf.where(is_nan, 0.0, learning_rate)
            beta_1 = tf.where(is_nan, 1.0, beta_1)
            beta_2 = tf.where(is_nan, 1.0, beta_2)
        # `handle` is undocumented, so tests/training/step checks the results of the kernel.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.handle,
            v=velocity.handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=learning_rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class LossScale:
    """The factor by which every token's loss is multiplied in float16.

    The loss of every token is multiplied by the scale. The gradients are divided by the scale after
    they are rounded to float16, whose range is only 6e-8 to 65,504. The scale is a power of two, so
    scaling causes no rounding errors. The scale is doubled after 2,000 consecutive steps with
    finite gradients, and halved after a step whose gradient contains NaN or infinity. Such a step
    changes no weights.

    Under a distribution strategy, create the object in the scope of the strategy.

    Args:
        tokens_per_batch: Number of tokens in a batch. The initial scale of the mean loss over this
            many tokens is 2^15, within a factor of √2.
    """

    def __init__(self, tokens_per_batch: int) -> None:
        first = 2.0 ** round(math.log2(_FIRST_OF_MEAN / tokens_per_batch))
        # At this scale, the mean loss is no longer scaled. If a gradient still overflows, the
        # unscaled gradient is too large.
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
        """The number of skipped steps since training started."""
        return int(keras.ops.convert_to_numpy(self._skipped_steps))

    def is_exhausted(self) -> bool:
        """Returns whether the scale is at its minimum, so overflows have another cause."""
        return float(keras.ops.convert_to_numpy(self._scale)) <= self._lowest

    def update(
        self, gradients: Annotated[Sequence[Tensor], "of the shapes of the variables"]
    ) -> list[Tensor]:
        """Adjusts the scale based on the gradients of a step.

        Args:
            gradients: Gradients in float32, divided by the scale. They must be the same on every
                replica.

        Returns:
            The gradients. If any element is NaN or infinite, all elements are NaN, so `Adam` skips
            the step.
        """
        is_finite = tf.math.is_finite(tf.linalg.global_norm(gradients))
        good_steps = tf.where(is_finite, self._good_steps.value + 1, 0)
        factor = tf.where(is_finite, tf.where(good_steps < _GOOD_STEPS, 1.0, 2.0), 0.5)
        self._scale.assign(tf.clip_by_value(self._scale.value * factor, self._lowest, _HIGHEST))
        self._good_steps.assign(good_steps % _GOOD_STEPS)
        self._skipped_steps.assign_add(tf.cast(~is_finite, "int32"))
        return [tf.where(is_finite, gradient, math.nan) for gradient in gradients]


def _variable(value: float, dtype: str, name: str) -> keras.Variable:
    # All replicas assign the same value.
    return keras.Variable(
        value, dtype=dtype, trainable=False, aggregation="only_first_replica", name=name
    )


def update_average(
    averages: Sequence[keras.Variable],
    weights: Sequence[keras.Variable],
    decay: float,
    step: Annotated[Tensor, "int ()"],
) -> None:
    """Moves the averages toward the weights: `average = d * average + (1 - d) * weight`.

    The decay is `d = min(decay, step / (step + 9))`. The first average equals the first weights.
    After a few steps, the average covers about the last tenth of the steps, so untrained weights
    have little effect on it.

    Call it in a replica context, after the update of the weights.

    Args:
        decay: Maximum of d.
        step: Number of previous averages, 0 for the first average.
    """
    step = tf.cast(step, "float32")
    decay = tf.minimum(decay, step / (step + 9))

    def move(average: tf.Variable, weight: Tensor, decay: Tensor) -> None:
        # This formula is exact if average and weight are equal, as for frozen weights, or if the
        # decay is 0.
        average.assign(weight + decay * (average - weight))

    def move_all(strategy: tf.distribute.Strategy, decay: Tensor) -> None:
        for average, weight in zip(averages, weights, strict=True):
            strategy.extended.update(average.value, move, args=(weight.value, decay), group=False)

    tf.distribute.get_replica_context().merge_call(move_all, args=(decay,))

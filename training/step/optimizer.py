"""Adam (section 5.3 of the paper), its learning rate, and the moving average of the weights."""

from collections.abc import Sequence
from typing import Annotated

import keras
import tensorflow as tf

from keras_transformer.config import TrainingConfig
from keras_transformer.schedules import WarmupInverseSqrt
from keras_transformer.tensors import Tensor


def learning_rate(d_model: int, config: TrainingConfig) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the schedule of a configuration: linear warmup to the peak, then its `decay`.

    Args:
        d_model: width of the model, on which the paper's peak depends.
        config: its `warmup_steps`, `peak_learning_rate`, `decay` and `steps` are used.
    """
    warmup_steps = config.warmup_steps
    paper_peak = (d_model * warmup_steps) ** -0.5
    peak = config.peak_learning_rate or paper_peak
    if config.decay == "inverse_sqrt":
        return WarmupInverseSqrt(d_model, warmup_steps, scale=peak / paper_peak)
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=max(config.steps - warmup_steps, 1),
        # The share of the peak that is left at the end.
        alpha=1.0 if config.decay == "constant" else 0.0,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )


class Adam(keras.optimizers.Optimizer):
    """Keras' `Adam`, computed by TensorFlow's own kernel: one pass over each variable instead of ten.

    Call `apply_sum` instead of `apply`.

    Args:
        learning_rate: float or `keras.optimizers.schedules.LearningRateSchedule`.
        beta_1: float. Decay of the mean of the gradients. Defaults to 0.9.
        beta_2: float. Decay of the mean of their squares. Defaults to 0.999.
        epsilon: float. Defaults to 1e-7.
        skip_nan: bool. Whether a gradient of NaN leaves a variable and its moments as they are, bit for bit; the step
            still counts. Defaults to False.
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
            self.momentums, self.velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def apply_sum(
        self,
        gradients: Annotated[Sequence[Tensor], "of the shapes of the variables"],
        variables: Sequence[keras.Variable],
    ) -> None:
        """Updates variables, in a replica context, with gradients that were already summed over all replicas.

        `apply` would sum them again, and send them over the network twice.

        Args:
            gradients: the same on every replica.
            variables: those for which the optimizer was built.
        """

        def update_all(strategy: tf.distribute.Strategy, gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
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
        steps = tf.cast(self.iterations.value + 1, variable.dtype)
        gradient, learning_rate = tf.cast(gradient, variable.dtype), tf.cast(learning_rate, variable.dtype)
        beta_1, beta_2 = (tf.cast(beta, variable.dtype) for beta in (self.beta_1, self.beta_2))
        beta1_power, beta2_power = tf.pow(beta_1, steps), tf.pow(beta_2, steps)
        if self.skip_nan:
            # Not `tf.cond`, which a step under a strategy may not use.
            is_nan = tf.reduce_any(tf.math.is_nan(gradient))
            gradient, learning_rate = (tf.where(is_nan, 0.0, number) for number in (gradient, learning_rate))
            beta_1, beta_2 = (tf.where(is_nan, 1.0, beta) for beta in (beta_1, beta_2))
        # `handle` is not documented; tests/training/step checks the kernel's numbers.
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
        averages: variables of the same shapes as the weights.
        weights: what is averaged.
        decay: the highest d.
        step: how many averages there were before; 0 for the first.
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

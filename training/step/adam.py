"""Adam (section 5.3 of the paper) in one operation for each variable."""

from typing import Any

import keras
import tensorflow as tf


class Adam(keras.optimizers.Adam):
    """Keras' `Adam` by TensorFlow's own kernel: the same numbers, in one pass over the data instead of ten.

    Args:
        skip_nan: bool. Whether a gradient of NaN leaves a variable and its moments as they are, bit for bit; the step
            still counts. Defaults to False.
        *args, **kwargs: as for `keras.optimizers.Adam`.
    """

    def __init__(self, *args: Any, skip_nan: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.skip_nan = skip_nan

    def apply_sum(self, gradients: list[Any], variables: list[Any]) -> None:
        """Updates variables, in a replica context, with gradients that were summed over all replicas before.

        `apply` would sum them again, and send them over the network twice.

        Args:
            gradients: list of tensors, the same on every replica.
            variables: list of keras.Variable, for which the optimizer was built.
        """

        def update_all(strategy: tf.distribute.Strategy, gradients: list[Any], learning_rate: Any) -> None:
            for gradient, variable in zip(gradients, variables, strict=True):
                strategy.extended.update(
                    variable.value,
                    lambda variable, gradient, rate: self.update_step(gradient, variable, rate),
                    args=(gradient, learning_rate),
                    group=False,
                )

        replica = tf.distribute.get_replica_context()
        replica.merge_call(update_all, args=(gradients, tf.convert_to_tensor(self.learning_rate)))
        self.iterations.assign_add(1)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        steps = tf.cast(self.iterations.value + 1, variable.dtype)
        gradient, learning_rate = tf.cast(gradient, variable.dtype), tf.cast(learning_rate, variable.dtype)
        beta_1, beta_2 = (tf.cast(beta, variable.dtype) for beta in (self.beta_1, self.beta_2))
        beta1_power, beta2_power = tf.pow(beta_1, steps), tf.pow(beta_2, steps)
        if self.skip_nan:
            # Not a condition: under a strategy, a step may have none.
            is_nan = tf.reduce_any(tf.math.is_nan(gradient))
            gradient, learning_rate = (tf.where(is_nan, 0.0, number) for number in (gradient, learning_rate))
            beta_1, beta_2 = (tf.where(is_nan, 1.0, beta) for beta in (beta_1, beta_2))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=learning_rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )

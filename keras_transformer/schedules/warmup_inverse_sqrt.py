"""The learning rate schedule of section 5.3 of the paper."""

from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from ..checks import positive_float, positive_int
from ..tensors import Dimension, Tensor

if TYPE_CHECKING:
    # Type checkers expect a float as the learning rate of Keras' optimizers.
    LearningRateSchedule = Any
else:
    LearningRateSchedule = keras.optimizers.schedules.LearningRateSchedule


@keras.saving.register_keras_serializable("keras_transformer")
class WarmupInverseSqrt(LearningRateSchedule):
    """Linear warmup, then decay with the inverse square root of the step (section 5.3, equation 3).

    The learning rate is `scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`, where
    the first update is step 1.

    Args:
        d_model: int. Width of the model.
        warmup_steps: int. Number of updates until the learning rate peaks. Defaults to 4000, as in
            the paper.
        scale: float. Factor by which the learning rate is multiplied. Defaults to 1, as in the
            paper.

    Call arguments:
        step: int scalar. The number of updates so far.

    Returns:
        float32 (). The learning rate of the next update.

    Raises:
        ConfigError: An argument is invalid.

    Example:
        >>> schedule = WarmupInverseSqrt(d_model=512, warmup_steps=4000)
        >>> round(float(schedule(3999)), 7)
        0.0006988
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, *, scale: float = 1.0) -> None:
        self.d_model = positive_int("d_model", d_model)
        self.warmup_steps = positive_int("warmup_steps", warmup_steps)
        self.scale = positive_float("scale", scale)

    def __call__(self, step: Dimension) -> Tensor:
        # Keras counts updates from 0, the paper from 1.
        step = ops.cast(step, "float32") + 1.0
        rate = ops.minimum(ops.power(step, -0.5), step * self.warmup_steps**-1.5)
        return self.scale * self.d_model**-0.5 * rate

    def get_config(self) -> dict[str, Any]:
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}

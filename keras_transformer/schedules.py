"""The learning rate of section 5.3 of the paper."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_transformer")
class WarmupInverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warmup, then decay with the inverse root of the step (section 5.3, equation 3).

    `scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)`, the first update being step 1.

    Args:
        d_model: width of the model.
        warmup_steps: updates until the highest rate; the paper's is 4,000.
        scale: a factor on the whole; 1 in the paper.

    Raises:
        ValueError: an argument is not positive.

    Example:
        >>> schedule = WarmupInverseSqrt(d_model=512, warmup_steps=4000)
        >>> round(float(schedule(3999)), 7)
        0.0006988
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        for name, value in (("d_model", d_model), ("warmup_steps", warmup_steps), ("scale", scale)):
            if value <= 0:
                raise ValueError(f"{name} must be positive; received {name}={value}")
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        # Keras counts updates from 0, the paper from 1.
        step = ops.cast(step, "float32") + 1.0
        rate = ops.minimum(ops.power(step, -0.5), step * self.warmup_steps**-1.5)
        return self.scale * self.d_model**-0.5 * rate

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}

"""Learning-rate schedules by their names in the configuration; a new one goes here."""

import keras

from keras_transformer.config import TrainingConfig
from keras_transformer.schedules import WarmupInverseSqrt


def learning_rate(d_model: int, config: TrainingConfig) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the schedule of a configuration: linear warmup to the peak, then its `decay`.

    Args:
        d_model: int. Width of the model, on which the paper's peak depends.
        config: TrainingConfig.
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

"""The mean of several checkpoints (section 6.1 of the paper)."""

import os
import pathlib

import numpy as np

from keras_transformer.files import replacing
from keras_transformer.model_dir import ModelDir, load_weights
from keras_transformer.models import build_transformer
from keras_transformer.rules import ConfigError, require

from .checkpoints import best_steps, read_progress


def average_checkpoints(
    model_dir: str | os.PathLike[str] | ModelDir, *, last: int | None = None, best: int | None = None
) -> list[pathlib.Path]:
    """Averages checkpoints of a model directory, which then translates with the average.

    Args:
        model_dir: str, path or ModelDir.
        last: int or None. How many of the last checkpoints, or all if there are fewer. Defaults to the
            configuration's `average_last`, or 5 if that is 0, unless `best` is given.
        best: int or None. How many of the checkpoints that are best on the validation text, instead of the last.

    Returns:
        The paths of the averaged checkpoints.

    Raises:
        ConfigError: Both numbers are given, one is not positive, or there are no checkpoints.
    """
    model_dir = ModelDir(model_dir)
    config = model_dir.read_config()
    require(last is None or best is None, "last", "None if best is given", last)
    for name, number in (("last", last), ("best", best)):
        require(number is None or number > 0, name, "positive", number)
    checkpoints = model_dir.checkpoints()
    steps = list(checkpoints)[-(last or config.training.average_last or 5) :]
    if best is not None:
        steps = best_steps(read_progress(model_dir), checkpoints, best)
    if not steps:
        scored = "" if best is None else " whose validation score is known"
        raise ConfigError(f"{model_dir}: no checkpoints to average{scored}")
    model = build_transformer(config.model, dtype="float32")
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for step in steps:
        load_weights(model, checkpoints[step])
        for sum_, weight in zip(sums, model.get_weights(), strict=True):
            sum_ += weight
    model.set_weights([sum_ / len(steps) for sum_ in sums])
    with replacing(model_dir.average_path) as path:
        model.save_weights(path)
    return [checkpoints[step] for step in steps]

"""The mean of several checkpoints (section 6.1 of the paper)."""

import logging
import os
import pathlib

import numpy as np

from keras_transformer.config.rules import require
from keras_transformer.errors import ConfigError, DamagedFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import remove_leftovers
from keras_transformer.model_dir.weights_file import load_weights, save_weights
from keras_transformer.models import build_transformer

from .checkpoints import best_steps
from .state import read_progress

_log = logging.getLogger(__name__)


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
        The paths of the averaged checkpoints. A damaged one is left out, and a warning says so.

    Raises:
        ConfigError: Both numbers are given, one is not positive, or there are no checkpoints.
        DamagedFileError: All checkpoints are damaged.
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
    remove_leftovers(model_dir.path)
    model = build_transformer(config.model, dtype="float32")
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    averaged, damaged = [], []
    for path in (checkpoints[step] for step in steps):
        try:
            load_weights(model, path)
        except DamagedFileError as error:
            damaged.append(error)
            continue
        averaged.append(path)
        for sum_, weight in zip(sums, model.get_weights(), strict=True):
            sum_ += weight
    if not averaged:
        raise damaged[0]
    for reason in damaged:
        _log.warning(f"{reason}; it is left out of the average")
    model.set_weights([sum_ / len(averaged) for sum_ in sums])
    save_weights(model, model_dir.average_path)
    return averaged

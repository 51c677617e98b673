"""The checkpoints of a training run: which are saved, kept and best, and their mean (section 6.1 of the paper)."""

import logging
import os
import pathlib
from collections.abc import Iterable

import numpy as np

from keras_transformer.errors import ConfigError, DamagedFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import load_weights, save_weights
from keras_transformer.model_dir.files import remove_with_checksum
from keras_transformer.models import Transformer, build_transformer
from keras_transformer.rules import require

from .state import RunState, read_progress

_log = logging.getLogger(__name__)


def save_checkpoint(model_dir: ModelDir, model: Transformer, state: RunState) -> None:
    """Saves the weights after the last validation, also as the best ones if they are."""
    save_weights(model, model_dir.checkpoint_path(state.step))
    if state.validations_since_best == 0:
        save_weights(model, model_dir.best_path)


def forget_outdated(model_dir: ModelDir, state: RunState, num_last: int, num_best: int) -> set[int]:
    """Forgets the scores of all checkpoints but the last and the best ones, and returns their steps."""
    checkpoints = model_dir.checkpoints()
    # A run that went back to an earlier state has left checkpoints of later steps.
    past = [step for step in checkpoints if step <= state.step]
    kept = past[-num_last:] + _best_steps(state, past, num_best)
    state.scores = {step: state.scores[step] for step in kept if step in state.scores}
    return set(checkpoints).difference(kept)


def delete_outdated(model_dir: ModelDir, steps: Iterable[int]) -> None:
    """Deletes checkpoints, and the average, which is one of earlier checkpoints."""
    for step in steps:
        remove_with_checksum(model_dir.checkpoint_path(step))
    remove_with_checksum(model_dir.average_path)


def average_checkpoints(
    model_dir: str | os.PathLike[str] | ModelDir, *, last: int | None = None, best: int | None = None
) -> list[pathlib.Path]:
    """Averages checkpoints of a model directory, which then translates with the average.

    Args:
        model_dir: the directory, or its path.
        last: how many of the last checkpoints, or all if there are fewer. Defaults to the configuration's
            `average_last`, or 5 if that is 0, unless `best` is given.
        best: how many of the checkpoints that are best on the validation text, instead of the last.

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
        steps = _best_steps(read_progress(model_dir), checkpoints, best)
    if not steps:
        scored = "" if best is None else " whose validation score is known"
        raise ConfigError(f"{model_dir}: no checkpoints to average{scored}")
    model = build_transformer(config.model, dtype="float32")
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    averaged, damages = [], []
    for path in (checkpoints[step] for step in steps):
        try:
            load_weights(model, path)
        except DamagedFileError as error:
            damages.append(error)
            continue
        averaged.append(path)
        for sum_, weight in zip(sums, model.get_weights(), strict=True):
            sum_ += weight
    if not averaged:
        raise damages[0]
    for damage in damages:
        _log.warning(f"{damage}; it is left out of the average")
    model.set_weights([sum_ / len(averaged) for sum_ in sums])
    save_weights(model, model_dir.average_path)
    return averaged


def _best_steps(state: RunState, checkpoints: Iterable[int], number: int) -> list[int]:
    """Returns the steps of the checkpoints with the highest scores, the best first."""
    scored = [step for step in checkpoints if step in state.scores]
    return sorted(scored, key=lambda step: state.scores[step], reverse=True)[:number]

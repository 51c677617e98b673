"""Saves and restores the state of a training run and its checkpoints, and averages checkpoints.

`training_state.npz` contains the last state, from which you can resume a run. The previous state is
kept, too. Section 6.1 of the paper averages checkpoints.
"""

import dataclasses
import json
import logging
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.checks import positive_int, require
from keras_transformer.errors import ConfigError, DamagedFileError, InvalidFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import load_weights, require_fitting, save_weights
from keras_transformer.model_dir.files import (
    reading_archive,
    remove_with_checksum,
    rename_with_checksum,
    replacing_with_checksum,
)
from keras_transformer.models import Transformer, build_transformer

from ..step.model import TrainingStep
from ..text.corpus import TextFingerprint
from .devices import Workers

_log = logging.getLogger(__name__)
# A row of the log, which contains the values of a validation by name.
Row = dict[str, float]


@dataclasses.dataclass
class RunState:
    """The progress of a training run."""

    # The number of updates so far.
    step: int = 0
    # The highest validation score so far (see ranking.py): BLEU, or the negative perplexity.
    best_score: float = -math.inf
    # The number of validations since the highest score.
    validations_since_best: int = 0
    # The scores of the checkpoints that are kept, by step.
    scores: dict[int, float] = dataclasses.field(default_factory=dict)
    # The log, with a row for each validation.
    rows: list[Row] = dataclasses.field(default_factory=list)
    # If the run stopped between two validations: the sum of the loss over the tokens since the last
    # validation, and the number of these tokens.
    loss_sums: list[float] = dataclasses.field(default_factory=list)
    # The fingerprints of the training text ("train") and the validation text ("valid").
    text: dict[str, TextFingerprint] = dataclasses.field(default_factory=dict)

    @property
    def perplexity_of_best(self) -> float:
        """The perplexity of the validation with the highest score."""
        if self.validations_since_best >= len(self.rows):
            return math.inf
        return self.rows[-1 - self.validations_since_best]["val_perplexity"]

    def forget_scores(self) -> None:
        """Resets the best score, because scores on different texts cannot be compared."""
        self.best_score = -math.inf
        self.validations_since_best = 0
        self.scores = {}


def save_training_state(
    model_dir: ModelDir, values: Mapping[str, np.ndarray], state: RunState
) -> None:
    """Saves the state of a training run, and keeps the previous state under another name.

    If the state cannot be written, both existing states are kept.
    """
    # Store a dict as JSON, because NumPy would pickle it.
    fields: dict[str, Any] = {**values, "progress": json.dumps(dataclasses.asdict(state)).encode()}
    path, previous = model_dir.training_state_path, model_dir.previous_state_path
    with replacing_with_checksum(path, previous) as temporary, open(temporary, "wb") as file:
        np.savez(file, **fields)


def save_validation(
    model_dir: ModelDir, model: TrainingStep, values: Mapping[str, np.ndarray], state: RunState
) -> None:
    """Saves a checkpoint and the training state, and deletes old checkpoints.

    If `state.validations_since_best` is 0, this checkpoint is also saved as the best checkpoint.
    """
    save_weights(model.model_to_save, model_dir.checkpoint_path(state.step))
    if state.validations_since_best == 0:
        save_weights(model.model_to_save, model_dir.best_path)
    checkpoints = model_dir.checkpoints()
    # A run that continued from an earlier state may have left checkpoints of later steps.
    past = [step for step in checkpoints if step <= state.step]
    kept = past[-model.config.keep_checkpoints :]
    kept += _best_steps(state, past, model.config.average_best)
    state.scores = {step: state.scores[step] for step in kept if step in state.scores}
    # Save the state before deleting checkpoints. A run that is killed here resumes from the last
    # state and repeats the steps since then.
    save_training_state(model_dir, values, state)
    for step in checkpoints.keys() - kept:
        remove_with_checksum(model_dir.checkpoint_path(step))
    # The average in the directory is outdated, because it does not include this checkpoint.
    remove_with_checksum(model_dir.average_path)


def read_progress(model_dir: ModelDir) -> RunState:
    """Returns the progress of the training in a model directory.

    If there is no training state, returns a new `RunState`.

    Raises:
        DamagedFileError: The training state is damaged, and there is no earlier state.
    """
    return _read_last_state(model_dir, {})[1]


def restore_training_state(
    model_dir: ModelDir, model: TrainingStep, workers: Workers, init_from: ModelDir | None = None
) -> RunState:
    """Restores a model and its optimizer from the last saved state, or prepares a new run.

    If the state is damaged, the previous state is used, and a warning is logged. The chief reads
    the state. The other workers receive its variables, even if nothing has been saved yet.

    Args:
        init_from: The model whose weights the training starts with. Defaults to None: the current
            weights of `model`.

    Raises:
        DamagedFileError: All saved states are damaged.
        InvalidFileError: The state or the weights in `init_from` do not fit the model.
    """
    state = RunState()
    if workers.is_chief:
        path, state = _read_last_state(model_dir, named_variables(model))
        if path == model_dir.previous_state_path:
            rename_with_checksum(path, model_dir.training_state_path)
        if init_from is not None and not state.step:
            path = init_from.load_weights(model.transformer)
            _log.info(f"training starts with the weights of {path}")
    if workers.number > 1:
        _share(state, list(named_variables(model).values()), workers)
    return state


def _share(state: RunState, variables: Sequence[keras.Variable], workers: Workers) -> None:
    """Copies the chief's variables, and the shared parts of its state, to all workers."""
    arrays = [keras.ops.convert_to_numpy(variable) for variable in variables]
    content = b""
    if workers.is_chief:
        content = b"".join(array.tobytes() for array in arrays)
    content = workers.from_chief(content)
    begin = 0
    for variable, array in zip(variables, arrays, strict=True):
        values = np.frombuffer(content, array.dtype, array.size, begin)
        variable.assign(values.reshape(array.shape))
        begin += array.nbytes
    names = ("step", "loss_sums", "text")
    fields = workers.from_chief(json.dumps({name: getattr(state, name) for name in names}).encode())
    for name, value in json.loads(fields).items():
        setattr(state, name, value)


def _read_last_state(
    model_dir: ModelDir, variables: Mapping[str, keras.Variable]
) -> tuple[pathlib.Path, RunState]:
    errors = []
    # If the run was killed between the two renames, only the previous state exists.
    for path in (model_dir.training_state_path, model_dir.previous_state_path):
        if path.is_file():
            try:
                state = _read_state(path, variables)
            except DamagedFileError as error:
                errors.append(error)
                continue
            if errors:
                _log.warning(f"{errors[0]}; {path.name} from step {state.step:,} is used instead")
            return path, state
    if errors:
        raise DamagedFileError(
            f"{errors[0]}. There is no earlier state; remove it to start training again"
        )
    return model_dir.training_state_path, RunState()


def _read_state(path: pathlib.Path, variables: Mapping[str, keras.Variable]) -> RunState:
    with reading_archive(path, "the training state") as arrays:
        # Read the progress first, because it is small. If it is damaged, no variable is assigned.
        state = RunState(**json.loads(bytes(arrays["progress"])))
        # JSON stores the steps, which are keys, as strings.
        state.scores = {int(step): score for step, score in state.scores.items()}
        # A file without a checksum may have been written by another program.
        numbers = [
            state.step,
            state.best_score,
            state.validations_since_best,
            *state.loss_sums,
            *state.scores.values(),
        ]
        for row in state.rows:
            numbers += [row["step"], *row.values()]
        numbers += [fingerprint["lines"] for fingerprint in state.text.values()]
        are_numbers = all(isinstance(number, int | float) for number in numbers)
        if not are_numbers or not isinstance(state.step, int):
            raise ValueError("its progress has values of other types")
        for name, variable in variables.items():
            if name.startswith("loss_scale.") and name not in arrays:
                continue  # The run used another precision before.
            array = arrays.get(name)
            if array is None or not _fits(array, variable):
                raise InvalidFileError(
                    f"{path}: the training state does not fit the model "
                    f"({variable.path} is missing, or has another shape or type)"
                )
            variable.assign(array)
        return state


def _fits(array: np.ndarray, variable: keras.Variable) -> bool:
    return array.shape == tuple(variable.shape) and array.dtype == variable.dtype


def named_variables(model: TrainingStep) -> dict[str, keras.Variable]:
    """Returns the variables to save: weights, dropout seeds, averages, optimizer, loss scale.

    The names consist of the owner and a number, because Keras' own names differ between processes.
    """
    owners = {
        "model": model.transformer,
        "optimizer": model.optimizer,
        "averaged": model.averaged,
        "loss_scale": model.loss_scale,
    }
    return {
        f"{name}.{number}": variable
        for name, owner in owners.items()
        if owner is not None
        for number, variable in enumerate(owner.variables)
    }


def average_checkpoints(
    model_dir: str | os.PathLike[str] | ModelDir,
    *,
    last: int | None = None,
    best: int | None = None,
) -> list[pathlib.Path]:
    """Averages checkpoints of a model directory, and uses the average for translation.

    Training uses `average_if_better` instead, and so does the command `average` if you pass a
    validation text.

    Args:
        model_dir: The directory or its path.
        last: Number of last checkpoints to average, or all if there are fewer. Defaults to the
            configuration's `average_last`, or 5 if that is 0, unless `best` is given.
        best: Number of best checkpoints on the validation text to average instead.

    Returns:
        The paths of the averaged checkpoints. Damaged checkpoints are left out, with a warning.

    Raises:
        ConfigError: Both `last` and `best` are set, one of them is not positive, or there are no
            checkpoints.
        DamagedFileError: All checkpoints are damaged.
    """
    model_dir = ModelDir(model_dir)
    model, averaged = load_average(model_dir, last=last, best=best)
    save_weights(model, model_dir.average_path)
    return averaged


def load_average(
    model_dir: ModelDir, *, last: int | None = None, best: int | None = None
) -> tuple[Transformer, list[pathlib.Path]]:
    """Returns a model with the average weights of checkpoints, and the paths of the checkpoints.

    See `average_checkpoints`.
    """
    last = positive_int("last", last, optional=True)
    best = positive_int("best", best, optional=True)
    require(last is None or best is None, "last", "None if best is given", last)
    config = model_dir.read_config()
    checkpoints = model_dir.checkpoints()
    number = last or config.training.average_last or 5
    steps = list(checkpoints)[-number:]
    if best is not None:
        steps = _best_steps(read_progress(model_dir), checkpoints, best)
    if not steps:
        scored = "" if best is None else " whose validation score is known"
        raise ConfigError(f"{model_dir}: no checkpoints to average{scored}")
    for step in steps:
        require_fitting(checkpoints[step], config.model)
    model = build_transformer(config.model, dtype="float32")
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    averaged = []
    damages = []
    for step in steps:
        path = checkpoints[step]
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
    return model, averaged


def _best_steps(state: RunState, checkpoints: Iterable[int], number: int) -> list[int]:
    """Returns the steps of the checkpoints with the highest scores, the best first."""
    scored = [step for step in checkpoints if step in state.scores]
    perplexities = {row["step"]: row["val_perplexity"] for row in state.rows}
    # Perplexity breaks ties between checkpoints with the same BLEU.
    ranks = {step: (state.scores[step], -perplexities.get(step, math.inf)) for step in scored}
    return sorted(scored, key=lambda step: ranks[step], reverse=True)[:number]

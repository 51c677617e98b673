"""What a training run saves in order to be resumed: `training_state.npz`, and the one before it."""

import dataclasses
import json
import logging
import math
import pathlib
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.errors import ConfigError, DamagedFileError, Error
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.checksums import (
    rename_with_checksum,
    replacing_with_checksum,
    require_undamaged,
)

from ..text.fingerprint import Fingerprint
from .divergence import diverged
from .workers import Workers

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class Progress:
    """How far a training run is.

    Args:
        step: int. Updates so far.
        best_score: float. The highest score of a validation so far: BLEU, or minus the perplexity.
        validations_since_best: int. Validations since then.
        scores: dict. The scores of the checkpoints that are kept, by their steps.
        rows: list of dict or None. The rows of the log, one for each validation; None if version 0.1 wrote the
            state, which kept them in the log only.
        loss_sums: list of float. Sums of the mean loss since the last validation, if the run stopped between two.
        text: dict. The fingerprint of the text; empty if version 0.1 wrote the state.
    """

    step: int = 0
    best_score: float = -math.inf
    validations_since_best: int = 0
    scores: dict[int, float] = dataclasses.field(default_factory=dict)
    rows: list[dict[str, Any]] | None = dataclasses.field(default_factory=list)
    loss_sums: list[float] = dataclasses.field(default_factory=list)
    text: Fingerprint = dataclasses.field(default_factory=dict)


def finite_variables(model: keras.Model, model_dir: ModelDir, progress: Progress) -> dict[str, np.ndarray]:
    """Returns the values of all variables of a compiled model and its optimizer, to be saved.

    Raises:
        FloatingPointError: One of them is not finite; the message says what to do.
    """
    arrays = {name: keras.ops.convert_to_numpy(variable) for name, variable in _named_variables(model)}
    for array in arrays.values():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise diverged("a weight is NaN or infinite", model, model_dir, progress.step)
    return arrays


def save_training_state(model_dir: ModelDir, variables: dict[str, np.ndarray], progress: Progress) -> None:
    """Saves the state of a training; the one before is kept under another name.

    Args:
        model_dir: ModelDir.
        variables: dict, from `finite_variables`.
        progress: Progress.

    Raises:
        OSError: The state cannot be written; those before stay.
    """
    fields = dataclasses.asdict(progress)
    scores = fields.pop("scores")
    fields["scored_steps"], fields["scores"] = list(scores), list(scores.values())
    for name in ("rows", "text"):
        # Bytes of JSON: NumPy would pickle a list of dicts.
        fields[name] = json.dumps(fields[name]).encode()
    path, previous = model_dir.training_state_path, model_dir.previous_state_path
    with replacing_with_checksum(path, previous) as temporary, open(temporary, "wb") as file:
        np.savez(file, **{**variables, **fields})


def read_progress(model_dir: ModelDir) -> Progress:
    """Reads how far the training of a model directory is; not at all if it has no training state.

    Raises:
        ConfigError: The training state is damaged, and there is none before it.
    """
    return _read_last_state(model_dir, [])[1]


def restore_training_state(
    model_dir: ModelDir, model: keras.Model, workers: Workers, init_from: ModelDir | None = None
) -> Progress:
    """Sets a compiled model and its optimizer to the last saved state, or to where the training begins.

    If the state is damaged, the one before takes its place, and a warning says so. The chief reads it; the other
    workers get its variables, also if nothing was saved yet.

    Args:
        model_dir: ModelDir.
        model: keras.Model, compiled.
        workers: Workers.
        init_from: ModelDir or None. Whose weights the training begins with. Defaults to None: those that the model has.

    Raises:
        ConfigError: No state is undamaged, or the state or the weights of `init_from` do not fit the model.
    """
    progress = Progress()
    if workers.is_chief:
        path, progress = _read_last_state(model_dir, list(_named_variables(model)))
        if path == model_dir.previous_state_path:
            rename_with_checksum(path, model_dir.training_state_path)
        if init_from is not None and not progress.step:
            _log.info(f"the training begins with the weights of {init_from.load_weights(model.transformer)}")
    if workers.number > 1:
        _share(progress, [variable for _, variable in _named_variables(model)], workers)
    return progress


def _share(progress: Progress, variables: list[Any], workers: Workers) -> None:
    """Sets the variables of all workers, and what they need to know of the progress, to those of the chief."""
    arrays = [keras.ops.convert_to_numpy(variable) for variable in variables]
    content = workers.from_chief(b"".join(array.tobytes() for array in arrays) if workers.is_chief else b"")
    begin = 0
    for variable, array in zip(variables, arrays, strict=True):
        values = np.frombuffer(content, array.dtype, array.size, begin)
        variable.assign(values.reshape(array.shape))
        begin += array.nbytes
    names = ("step", "loss_sums", "text")
    fields = workers.from_chief(json.dumps({name: getattr(progress, name) for name in names}).encode())
    for name, value in json.loads(fields).items():
        setattr(progress, name, value)


def _read_last_state(model_dir: ModelDir, variables: Sequence[tuple[str, Any]]) -> tuple[pathlib.Path, Progress]:
    damaged = []
    # Only the state before is there if the run was killed between the two renames.
    for path in (model_dir.training_state_path, model_dir.previous_state_path):
        if path.is_file():
            try:
                progress = _read_state(path, variables)
            except DamagedFileError as error:
                damaged.append(error)
                continue
            if damaged:
                _log.warning(f"{damaged[0]}; {path.name}, of step {progress.step:,}, is used instead")
            return path, progress
    if damaged:
        raise ConfigError(f"{damaged[0]}. No state before it is left; remove it to begin the training anew")
    return model_dir.training_state_path, Progress()


def _read_state(path: pathlib.Path, variables: Sequence[tuple[str, Any]]) -> Progress:
    try:
        require_undamaged(path)
        with np.load(path, allow_pickle=False) as state:
            for name, variable in variables:
                if name.startswith("loss_scale.") and name not in state:
                    continue  # The training was in another precision before.
                if name not in state or state[name].shape != tuple(variable.shape):
                    raise ConfigError(
                        f"{path}: the training state does not fit the model "
                        f"({variable.path} is missing or has another shape)"
                    )
                variable.assign(state[name])
            return _progress(state)
    except Error:
        raise
    except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise DamagedFileError(f"{path}: the training state is damaged ({error})") from None


def _progress(state: Any) -> Progress:
    progress = Progress(int(state["step"]), float(state["best_score"]), int(state["validations_since_best"]), rows=None)
    if "scores" in state:  # version 0.1 kept neither these
        progress.scores = dict(zip(state["scored_steps"].tolist(), state["scores"].tolist(), strict=True))
    if "rows" in state:  # nor these
        progress.rows, progress.text = (json.loads(bytes(state[name])) for name in ("rows", "text"))
        progress.loss_sums = state["loss_sums"].tolist()
    return progress


def _named_variables(model: keras.Model) -> Iterator[tuple[str, Any]]:
    # Weights, seeds of dropout, and the optimizer's moments and step; by number, since Keras gives layers new names
    # in every process.
    owners = {
        "model": model.transformer,
        "optimizer": model.optimizer,
        "averaged": model.averaged,
        "loss_scale": model.loss_scale,
    }
    for name, owner in owners.items():
        if owner is not None:
            for number, variable in enumerate(owner.variables):
                yield f"{name}.{number}", variable

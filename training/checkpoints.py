"""What a training run leaves behind, so that nothing is lost when it stops."""

import csv
import dataclasses
import math

import keras
import numpy as np

from keras_transformer.config import ConfigError
from keras_transformer.files import replacing

# What checkpoints are ranked by: the column of the log, and whether more of it is better.
RANKINGS = {"perplexity": ("val_perplexity", -1), "bleu": ("val_bleu", 1)}


@dataclasses.dataclass
class Progress:
    """How far a training run is.

    Attributes:
        step: updates done.
        best_score: the highest on the validation text so far: BLEU, or perplexity times -1.
        validations_since_best: how many validations were not better than the best.
    """

    step: int = 0
    best_score: float = -math.inf
    validations_since_best: int = 0


class SaveCheckpoints(keras.callbacks.Callback):
    """After each validation: the weights, the best weights if these are, and the state for going on.

    It comes after the callback that writes the log.

    Args:
        model_dir: a `ModelDir`.
        training: a `TrainingConfig`.
        progress: a `Progress`, kept up to date.
    """

    def __init__(self, model_dir, training, progress):
        super().__init__()
        self.model_dir = model_dir
        self.training = training
        self.progress = progress

    def on_epoch_end(self, epoch, logs=None):
        training, progress, transformer = self.training, self.progress, self.model.transformer
        progress.step = logs["step"]
        # An average of checkpoints before this one is out of date.
        self.model_dir.average_path.unlink(missing_ok=True)
        with replacing(self.model_dir.checkpoint_path(progress.step)) as path:
            transformer.save_weights(path)
        column, sign = RANKINGS[training.validate_by]
        score = sign * float(logs[column])
        progress.validations_since_best += 1
        if score > progress.best_score or not self.model_dir.best_path.exists():
            progress.best_score = score
            progress.validations_since_best = 0
            with replacing(self.model_dir.best_path) as path:
                transformer.save_weights(path)
        # The state is last: a run that ends before this line repeats the steps since the state before.
        with replacing(self.model_dir.training_state_path) as path, open(path, "wb") as file:
            np.savez(file, **_state(self.model), **dataclasses.asdict(progress))
        kept = self.model_dir.checkpoints()[-training.keep_checkpoints :]
        if training.average_best:
            kept += best_checkpoints(self.model_dir, training.validate_by, training.average_best)
        for path in set(self.model_dir.checkpoints()).difference(kept):
            path.unlink()
        self.model.stop_training = is_out_of_patience(progress, training)


def is_out_of_patience(progress, training):
    """Whether a run ends because its validations no longer get better."""
    return training.patience is not None and progress.validations_since_best >= training.patience


def best_checkpoints(model_dir, validate_by, number):
    """Paths of the best checkpoints that stand, by the validations in the log, the best first."""
    column, sign = RANKINGS[validate_by]
    scores = {}
    with open(model_dir.log_path, newline="") as file:
        for row in csv.DictReader(file):
            scores[model_dir.checkpoint_path(int(row["step"]))] = sign * float(row[column])
    standing = [path for path in model_dir.checkpoints() if path in scores]
    return sorted(standing, key=scores.get, reverse=True)[:number]


def restore_training_state(model_dir, model):
    """Sets a compiled model and its optimizer to the last saved state, if there is one.

    Returns:
        Its `Progress`.

    Raises:
        ConfigError: the state does not fit the model.
    """
    path = model_dir.training_state_path
    if not path.is_file():
        return Progress()
    with np.load(path, allow_pickle=False) as state:
        for name, variable in _named_variables(model):
            if name not in state or state[name].shape != tuple(variable.shape):
                raise ConfigError(
                    f"{path}: the state does not fit the model ({variable.path} is missing or of other shape)"
                )
            variable.assign(state[name])
        return Progress(
            int(state["step"]), float(state["best_score"]), int(state["validations_since_best"])
        )


def _named_variables(model):
    # Weights, the seeds of dropout, and the optimizer's moments and step. By number, since Keras numbers names anew in
    # every process.
    for owner, variables in (
        ("model", model.transformer.variables),
        ("optimizer", model.optimizer.variables),
    ):
        for number, variable in enumerate(variables):
            yield f"{owner}.{number}", variable


def _state(model):
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in _named_variables(model)}

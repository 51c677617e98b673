"""What a training run saves, and how it resumes."""

import dataclasses
import math
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_transformer.config import TrainingConfig
from keras_transformer.files import replacing
from keras_transformer.model_dir import ModelDir
from keras_transformer.rules import ConfigError

# What checkpoints are ranked by: a metric of the validation, and the sign that makes more of it better.
_RANKINGS = {"perplexity": ("val_perplexity", -1), "bleu": ("val_bleu", 1)}


@dataclasses.dataclass
class Progress:
    """How far a training run is.

    Args:
        step: int. Updates so far.
        best_score: float. The highest score of a validation so far: BLEU, or minus the perplexity.
        validations_since_best: int. Validations since then.
        scores: dict. The scores of the checkpoints that are kept, by their steps.
    """

    step: int = 0
    best_score: float = -math.inf
    validations_since_best: int = 0
    scores: dict[int, float] = dataclasses.field(default_factory=dict)


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves, after each validation, the weights, the best weights if these are, and the state for resuming.

    It goes after the callbacks that add to the log.

    Args:
        model_dir: ModelDir.
        config: TrainingConfig.
        progress: Progress, which is kept up to date.
    """

    def __init__(self, model_dir: ModelDir, config: TrainingConfig, progress: Progress) -> None:
        super().__init__()
        self.model_dir = model_dir
        self.config = config
        self.progress = progress

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        progress, transformer = self.progress, self.model.transformer
        metric, sign = _RANKINGS[self.config.validate_by]
        progress.step = logs["step"]
        progress.scores[progress.step] = score = sign * float(logs[metric])
        # An average of earlier checkpoints is out of date.
        self.model_dir.average_path.unlink(missing_ok=True)
        with replacing(self.model_dir.checkpoint_path(progress.step)) as path:
            transformer.save_weights(path)
        progress.validations_since_best += 1
        if score > progress.best_score or not self.model_dir.best_path.exists():
            progress.best_score = score
            progress.validations_since_best = 0
            with replacing(self.model_dir.best_path) as path:
                transformer.save_weights(path)
        outdated = self._forget_outdated()
        # The state comes last but for what is deleted: a run that ends before repeats the steps since the last state.
        self._save_state()
        for step in outdated:
            self.model_dir.checkpoint_path(step).unlink()
        self.model.stop_training = is_out_of_patience(progress, self.config)

    def _forget_outdated(self) -> set[int]:
        """The steps of the checkpoints that need not be kept, whose scores are forgotten."""
        checkpoints = self.model_dir.checkpoints()
        kept = list(checkpoints)[-self.config.keep_checkpoints :]
        kept += best_steps(self.progress, checkpoints, self.config.average_best)
        self.progress.scores = {step: self.progress.scores[step] for step in kept if step in self.progress.scores}
        return set(checkpoints).difference(kept)

    def _save_state(self) -> None:
        arrays = {name: keras.ops.convert_to_numpy(variable) for name, variable in _named_variables(self.model)}
        progress = dataclasses.asdict(self.progress)
        scores = progress.pop("scores")
        progress["scored_steps"], progress["scores"] = list(scores), list(scores.values())
        with replacing(self.model_dir.training_state_path) as path, open(path, "wb") as file:
            np.savez(file, **arrays, **progress)


def is_out_of_patience(progress: Progress, config: TrainingConfig) -> bool:
    """Returns whether training ends because validations no longer get better."""
    return config.patience is not None and progress.validations_since_best >= config.patience


def best_steps(progress: Progress, checkpoints: Iterable[int], number: int) -> list[int]:
    """Returns the steps of the checkpoints with the highest scores, the best first."""
    scored = [step for step in checkpoints if step in progress.scores]
    return sorted(scored, key=lambda step: progress.scores[step], reverse=True)[:number]


def read_progress(model_dir: ModelDir) -> Progress:
    """Reads how far the training of a model directory is; not at all if it has no training state.

    Raises:
        ConfigError: The training state is damaged.
    """
    return _read_state(model_dir, ())


def restore_training_state(model_dir: ModelDir, model: keras.Model) -> Progress:
    """Sets a compiled model and its optimizer to the last saved state, if there is one.

    Raises:
        ConfigError: The state is damaged, or does not fit the model.
    """
    return _read_state(model_dir, _named_variables(model))


def _read_state(model_dir: ModelDir, variables: Iterable[tuple[str, Any]]) -> Progress:
    path = model_dir.training_state_path
    if not path.is_file():
        return Progress()
    try:
        with np.load(path, allow_pickle=False) as state:
            for name, variable in variables:
                if name not in state or state[name].shape != tuple(variable.shape):
                    raise ConfigError(
                        f"{path}: the training state does not fit the model "
                        f"({variable.path} is missing or has another shape)"
                    )
                variable.assign(state[name])
            scores = {}
            if "scores" in state:  # version 0.1 did not keep them here
                scores = dict(zip(state["scored_steps"].tolist(), state["scores"].tolist(), strict=True))
            return Progress(
                int(state["step"]), float(state["best_score"]), int(state["validations_since_best"]), scores
            )
    except ConfigError:
        raise
    except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: the training state is damaged ({error})") from None


def _named_variables(model: keras.Model) -> Iterator[tuple[str, Any]]:
    # Weights, seeds of dropout, and the optimizer's moments and step; by number, since Keras gives layers new names
    # in every process.
    for owner, variables in (("model", model.transformer.variables), ("optimizer", model.optimizer.variables)):
        for number, variable in enumerate(variables):
            yield f"{owner}.{number}", variable

"""The checkpoints of a training run: which are saved, which are kept, and what ranks them."""

from collections.abc import Iterable, Mapping

from keras_transformer.config import TrainingConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import remove_with_checksum
from keras_transformer.model_dir.weights_file import save_weights
from keras_transformer.models import Transformer

from .state import RunState

# What checkpoints are ranked by: a metric of the validation, and the sign that makes more of it better.
_RANKINGS = {"perplexity": ("val_perplexity", -1), "bleu": ("val_bleu", 1)}


def score_of(logs: Mapping[str, float], config: TrainingConfig) -> float:
    """Returns by what a validation is ranked: the higher, the better."""
    metric, sign = _RANKINGS[config.validate_by]
    return sign * float(logs[metric])


def save_checkpoint(model_dir: ModelDir, model: Transformer, state: RunState) -> None:
    """Saves the weights after the last validation, also as the best ones if they are."""
    save_weights(model, model_dir.checkpoint_path(state.step))
    if state.validations_since_best == 0 or not model_dir.best_path.exists():
        save_weights(model, model_dir.best_path)


def forget_outdated(model_dir: ModelDir, state: RunState, config: TrainingConfig) -> set[int]:
    """Forgets the scores of the checkpoints that need not be kept, and returns their steps."""
    checkpoints = model_dir.checkpoints()
    # A run that had to go back to an earlier state has left some that are yet to come.
    past = [step for step in checkpoints if step <= state.step]
    kept = past[-config.keep_checkpoints :]
    kept += best_steps(state, past, config.average_best)
    state.scores = {step: state.scores[step] for step in kept if step in state.scores}
    return set(checkpoints).difference(kept)


def delete_outdated(model_dir: ModelDir, steps: Iterable[int]) -> None:
    """Deletes checkpoints, and the average, which is one of earlier checkpoints."""
    for step in steps:
        remove_with_checksum(model_dir.checkpoint_path(step))
    remove_with_checksum(model_dir.average_path)


def is_out_of_patience(state: RunState, config: TrainingConfig) -> bool:
    """Returns whether training ends because validations no longer get better."""
    return config.patience is not None and state.validations_since_best >= config.patience


def best_steps(state: RunState, checkpoints: Iterable[int], number: int) -> list[int]:
    """Returns the steps of the checkpoints with the highest scores, the best first."""
    scored = [step for step in checkpoints if step in state.scores]
    return sorted(scored, key=lambda step: state.scores[step], reverse=True)[:number]

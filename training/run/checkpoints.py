"""When a training run saves, what it keeps, and when it stops."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras

from keras_transformer.config import TrainingConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.checksums import remove_with_checksum
from keras_transformer.model_dir.weights_file import save_weights

from .interruption import Interruption
from .state import Progress, finite_variables, save_training_state
from .workers import Workers

# What checkpoints are ranked by: a metric of the validation, and the sign that makes more of it better.
_RANKINGS = {"perplexity": ("val_perplexity", -1), "bleu": ("val_bleu", 1)}


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
        progress = self.progress
        variables = finite_variables(self.model, self.model_dir, progress)
        metric, sign = _RANKINGS[self.config.validate_by]
        progress.step = logs["step"]
        progress.rows = [*(progress.rows or []), {"epoch": epoch, **logs}]
        progress.scores[progress.step] = score = sign * float(logs[metric])
        save_weights(self.model.validated, self.model_dir.checkpoint_path(progress.step))
        progress.validations_since_best += 1
        if score > progress.best_score or not self.model_dir.best_path.exists():
            progress.best_score = score
            progress.validations_since_best = 0
            save_weights(self.model.validated, self.model_dir.best_path)
        outdated = self._forget_outdated()
        # The state comes last but for what is deleted: a run that ends before repeats the steps since the last state.
        save_training_state(self.model_dir, variables, progress)
        for step in outdated:
            remove_with_checksum(self.model_dir.checkpoint_path(step))
        # An average of earlier checkpoints is out of date.
        remove_with_checksum(self.model_dir.average_path)
        self.model.stop_training = is_out_of_patience(progress, self.config)

    def _forget_outdated(self) -> set[int]:
        """The steps of the checkpoints that need not be kept, whose scores are forgotten."""
        checkpoints = self.model_dir.checkpoints()
        # A run that had to go back to an earlier state has left some that are yet to come.
        past = [step for step in checkpoints if step <= self.progress.step]
        kept = past[-self.config.keep_checkpoints :]
        kept += best_steps(self.progress, past, self.config.average_best)
        self.progress.scores = {step: self.progress.scores[step] for step in kept if step in self.progress.scores}
        return set(checkpoints).difference(kept)


class StopTogether(keras.callbacks.Callback):
    """Stops all workers after the same step: when the chief is out of patience, or when any of them gets a signal.

    After a signal the chief saves the training state of the step, or of the validation that ends with it, and training
    is interrupted. This callback goes after all others.

    Args:
        model_dir: ModelDir.
        progress: Progress, which is kept up to date.
        interruption: Interruption.
        workers: Workers.
    """

    def __init__(self, model_dir: ModelDir, progress: Progress, interruption: Interruption, workers: Workers) -> None:
        super().__init__()
        self.model_dir = model_dir
        self.progress = progress
        self.interruption = interruption
        self.workers = workers

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        # Keras has just reset the sums; a run that was stopped between two validations goes on with its own.
        with self.model.distribute_strategy.scope():
            for variable, value in zip(self.model.mean_loss.variables, self.progress.loss_sums):
                variable.assign(value)
        self.progress.loss_sums = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.interruption.is_awaited = True
        # After the last step comes a validation, and a state is saved then.
        is_last = batch + 1 == self.params["steps"]
        if self.workers.number == 1:
            must_stop = self.interruption.signal is not None
        else:
            must_stop = float(self.model.stop_requests) > 0
            if self.interruption.signal is not None:
                # All workers see it in the next step.
                self.model.stop_request.assign(1.0)
        if must_stop and not is_last:
            self._save()
            self._stop()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        self.progress.step = self.interruption.saved_step = logs["step"]
        self.model.stop_training = self.workers.any(self.model.stop_training)
        if self.workers.any(self.interruption.signal is not None):
            self._stop()

    def _save(self) -> None:
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        # All workers take part in reading the sums.
        sums = [float(keras.ops.convert_to_numpy(variable)) for variable in self.model.mean_loss.variables]
        if self.workers.is_chief:
            variables = finite_variables(self.model, self.model_dir, self.progress)
            progress = dataclasses.replace(self.progress, step=step, loss_sums=sums)
            save_training_state(self.model_dir, variables, progress)
        self.progress.step = step

    def _stop(self) -> None:
        # The others wait until the chief has saved.
        self.workers.any(False)
        self.interruption.saved_step = self.progress.step
        self.interruption.is_of_another_worker = self.interruption.signal is None
        raise KeyboardInterrupt


def is_out_of_patience(progress: Progress, config: TrainingConfig) -> bool:
    """Returns whether training ends because validations no longer get better."""
    return config.patience is not None and progress.validations_since_best >= config.patience


def best_steps(progress: Progress, checkpoints: Iterable[int], number: int) -> list[int]:
    """Returns the steps of the checkpoints with the highest scores, the best first."""
    scored = [step for step in checkpoints if step in progress.scores]
    return sorted(scored, key=lambda step: progress.scores[step], reverse=True)[:number]

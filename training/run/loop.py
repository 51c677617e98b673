"""What happens in a training run after each step and after each validation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import keras

from keras_transformer.config import Config
from keras_transformer.model_dir import ModelDir
from keras_transformer.tensors import Tensor

from ..step.model import TrainingModel
from .checkpoints import delete_outdated, forget_outdated, is_out_of_patience, save_checkpoint, score_of
from .divergence import require_finite_step, require_finite_validation
from .interruption import Interruption
from .log import write_log
from .progress_report import ProgressReport
from .state import Row, RunState, finite_variables, save_training_state
from .validation import Sample, TranslatedText, measure_progress
from .workers import Workers


@dataclasses.dataclass
class TrainingRun:
    """What a training run consists of.

    Args:
        model: TrainingModel, compiled.
        config: Config.
        model_dir: ModelDir.
        state: RunState, which is kept up to date.
        workers: Workers.
        interruption: Interruption.
    """

    model: TrainingModel
    config: Config
    model_dir: ModelDir
    state: RunState
    workers: Workers
    interruption: Interruption


class TrainingLoop(keras.callbacks.CallbackList):
    """The callback of `fit`: `after_step` and `after_validation` list what happens, in order.

    `fit` is called several times in a run. The user's callbacks see one training: `on_train_begin` comes once, and
    `finish` calls `on_train_end`.

    Args:
        run: TrainingRun.
        report: ProgressReport.
        measure_bleu: function that translates the validation text, or None if nothing is ranked by BLEU.
        callbacks: the user's callbacks.
    """

    def __init__(
        self,
        run: TrainingRun,
        report: ProgressReport,
        measure_bleu: Callable[[], TranslatedText] | None,
        callbacks: Sequence[keras.callbacks.Callback],
    ) -> None:
        super().__init__(list(callbacks), add_history=True, model=run.model)
        self.run = run
        self.report = report
        self.measure_bleu = measure_bleu
        self._has_started = False
        self._is_asked_to_stop = False
        self._last_logs: Row = {}

    def before_first_step(self) -> None:
        """Prepares for the steps until the next validation. Keras has just reset its sums."""
        run = self.run
        # A run that was stopped between two validations continues with its own sums.
        with run.model.strategy.scope():
            for variable, value in zip(run.model.mean_loss.variables, run.state.loss_sums):
                variable.assign(value)
        run.state.loss_sums = []
        self.report.before_first_step()

    def after_step(self, batch: int, logs: Row) -> None:
        """The loss is the mean since the last validation."""
        run = self.run
        run.interruption.is_awaited = True
        require_finite_step(logs["loss"], run.model, run.model_dir, run.state.step)
        self.report.after_step(logs["loss"], run.model)
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)
        if run.model.stop_training:
            # Wait for the validation: here Keras would stop this worker alone.
            self._is_asked_to_stop, run.model.stop_training = True, False
        # After the last step comes the validation, which saves and stops.
        is_last = batch + 1 == self.params["steps"]
        if self._must_interrupt() and not is_last:
            self._save_between_validations()
            self._interrupt()

    def after_validation(self, epoch: int, logs: Row) -> None:
        """The logs are losses and metrics; what is measured here is added to them."""
        run, state, training = self.run, self.run.state, self.run.config.training
        require_finite_validation(logs["val_loss"], run.model, run.model_dir, state.step)
        logs.update(measure_progress(run.model))
        samples: Sequence[Sample] = ()
        if self.measure_bleu is not None:
            logs["val_bleu"], samples = self.measure_bleu()
        if run.workers.is_chief:
            variables = finite_variables(run.model, run.model_dir, state.step)
            score = score_of(logs, training)
            is_best = score > state.best_score or not run.model_dir.best_path.exists()
            state.add_validation({"epoch": epoch, **logs}, score, is_best)
            save_checkpoint(run.model_dir, run.model.validated, state)
            outdated = forget_outdated(run.model_dir, state, training)
            # Save the state before deleting anything: a run that ends before repeats the steps since the last state.
            save_training_state(run.model_dir, variables, state)
            delete_outdated(run.model_dir, outdated)
            write_log(run.model_dir, state.rows or [], samples)
            self.report.after_validation(logs)
        state.step = run.interruption.saved_step = int(logs["step"])
        for callback in self.callbacks:
            callback.on_epoch_end(epoch, logs)
        must_stop = self._is_asked_to_stop or run.model.stop_training or is_out_of_patience(state, training)
        run.model.stop_training = run.workers.any(must_stop)
        if run.workers.any(run.interruption.signal is not None):
            self._interrupt()

    def finish(self) -> None:
        """Tells the user's callbacks that training has ended. An error or a signal ends it without this."""
        super().on_train_end(self._last_logs)

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        if not self._has_started:
            self._has_started = True
            super().on_train_begin(logs)

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Does nothing: `fit` may be called again."""

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self.before_first_step()
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Tensor]) -> None:
        self.after_step(batch, _numbers(logs))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Tensor]) -> None:
        self._last_logs = _numbers(logs)
        self.after_validation(epoch, self._last_logs)

    def _must_interrupt(self) -> bool:
        """Returns whether all workers stop after this step because one of them has received a signal."""
        model, has_signal = self.run.model, self.run.interruption.signal is not None
        if self.run.workers.number == 1:
            return has_signal
        must_interrupt = float(keras.ops.convert_to_numpy(model.stop_requests)) > 0
        if has_signal:
            # All workers see it in the next step.
            model.stop_request.assign(1.0)
        return must_interrupt

    def _save_between_validations(self) -> None:
        run, step = self.run, self.run.model.num_updates
        # All workers take part in reading the sums.
        sums = [float(keras.ops.convert_to_numpy(variable)) for variable in run.model.mean_loss.variables]
        if run.workers.is_chief:
            variables = finite_variables(run.model, run.model_dir, run.state.step)
            save_training_state(run.model_dir, variables, dataclasses.replace(run.state, step=step, loss_sums=sums))
        run.state.step = step

    def _interrupt(self) -> None:
        run = self.run
        # The others wait until the chief has saved.
        run.workers.any(False)
        run.interruption.saved_step = run.state.step
        run.interruption.is_of_another_worker = run.interruption.signal is None
        raise KeyboardInterrupt


def _numbers(logs: Mapping[str, Tensor]) -> Row:
    return {name: float(keras.ops.convert_to_numpy(value)) for name, value in sorted(logs.items())}

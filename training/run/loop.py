"""The training loop, which runs the steps and validates, saves and reports the results."""

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.errors import DivergedError
from keras_transformer.model_dir import ModelDir

from ..step.model import Batch, TrainingStep
from .devices import Workers
from .interruption import Interruption
from .ranking import is_better, score_of
from .report import MeasuredBleu, ProgressReport, Sample, write_log
from .state import Row, RunState, named_variables, save_training_state, save_validation

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class TrainingRun:
    model: TrainingStep
    model_dir: ModelDir
    state: RunState  # the last saved state
    workers: Workers
    interruption: Interruption
    # Translates the validation text and measures BLEU. None if BLEU does not rank checkpoints.
    measure_bleu: Callable[[], MeasuredBleu] | None

    def is_out_of_patience(self) -> bool:
        """Returns whether training ends because the validation score has stopped improving."""
        patience = self.model.config.patience
        return patience is not None and self.state.validations_since_best >= patience


def run_loop(
    run: TrainingRun,
    train_dataset: tf.data.Dataset,
    valid_dataset: tf.data.Dataset,
    num_valid: int,
    report: ProgressReport,
    user_callbacks: Sequence[keras.callbacks.Callback],
) -> None:
    """Trains until the last step, or until patience, a callback or a signal ends the run.

    Callbacks see each validation as the end of an epoch. If an error or a signal ends the run,
    `on_train_end` is not called.

    Args:
        train_dataset: Infinite dataset. For each batch, it yields the share of each replica of this
            process, one after another.
        valid_dataset: Infinite dataset in the same format. It repeats after `num_valid` batches.

    Raises:
        DivergedError: A loss or a weight is NaN or infinite, or float16 gradients overflow even at
            the lowest loss scale. The values of this step are not saved.
        KeyboardInterrupt: This process or another worker received a signal. The state is saved
            before the error is raised.
    """
    model = run.model
    config = model.config
    state = run.state
    interruption = run.interruption
    distribute = model.strategy.distribute_datasets_from_function
    train_batches = iter(distribute(lambda _: train_dataset))
    valid_batches = iter(distribute(lambda _: valid_dataset))
    callbacks = keras.callbacks.CallbackList(list(user_callbacks), add_history=True, model=model)
    num_epochs = math.ceil(config.steps / config.validate_every)
    model.stop_training = False
    must_stop = False
    interruption.saved_step = state.step
    callbacks.on_train_begin()
    logs: Row = {}
    while not must_stop:
        epoch, num_done = divmod(state.step, config.validate_every)
        num_steps = min(config.validate_every - num_done, config.steps - state.step)
        callbacks.set_params({"steps": num_steps, "epochs": num_epochs, "verbose": 0})
        callbacks.on_epoch_begin(epoch)
        report.before_first_step()
        # Continue the sums of a run that was stopped between two validations.
        total_loss, num_tokens = state.loss_sums or (0.0, 0.0)
        state.loss_sums = []
        for i in range(num_steps):
            callbacks.on_train_batch_begin(i)
            step = model.update(train_batches, requests_stop=interruption.signal is not None)
            interruption.is_awaited = True
            total_loss += step.loss * step.num_tokens
            num_tokens += step.num_tokens
            loss = total_loss / num_tokens
            _require_finite(run, "loss", loss)
            # `loss` is not scaled, so it can be finite even if the float16 gradients overflow.
            if model.loss_scale is not None and model.loss_scale.is_exhausted():
                raise _diverged(
                    run, "the gradient is NaN or infinite, even at the lowest scale of the loss"
                )
            report.after_step(loss, model)
            callbacks.on_train_batch_end(i, {"loss": loss})
            must_stop = must_stop or model.stop_training
            if run.workers.number == 1:
                is_interrupted = interruption.signal is not None
            else:
                # All workers learn about a signal in the next step.
                is_interrupted = step.num_stop_requests > 0
            # After the last step, the validation saves the state.
            if is_interrupted and i + 1 < num_steps:
                _save_state(run, [total_loss, num_tokens])
                _interrupt(run)
        logs = {"loss": loss, **_validate(run, valid_batches, num_valid, callbacks)}
        if run.workers.is_chief:
            doubt = _finish_validation(run, epoch, logs)
            report.after_validation(logs, doubt)
        state.step = int(logs["step"])
        interruption.saved_step = state.step
        # `CallbackList` would convert the step to a float.
        for callback in callbacks.callbacks:
            callback.on_epoch_end(epoch, logs)
        if model.stop_training or run.is_out_of_patience() or state.step == config.steps:
            must_stop = True
        must_stop = run.workers.any(must_stop)
        if run.workers.any(interruption.signal is not None):
            _interrupt(run)
    interruption.is_awaited = False
    # A signal may have arrived after the last check.
    if interruption.signal is not None:
        raise KeyboardInterrupt
    callbacks.on_train_end(logs)
    if run.is_out_of_patience():
        _log.info(
            f"stopped after step {state.step:,}: {config.patience} validations without a new best"
        )
    elif state.step < config.steps:
        _log.info(
            f"stopped after step {state.step:,} by a callback; run the same command to resume"
        )


def _validate(
    run: TrainingRun,
    batches: Iterator[Batch],
    num_batches: int,
    callbacks: keras.callbacks.CallbackList,
) -> Row:
    """Returns the loss and metrics on the validation text, except BLEU and chrF.

    The result also contains the step, the learning rate and, in float16, the number of skipped
    steps.
    """
    model = run.model
    callbacks.on_test_begin()
    for metric in model.validation_metrics:
        metric.reset_state()
    for i in range(num_batches):
        callbacks.on_test_batch_begin(i)
        model.validate(batches)
        callbacks.on_test_batch_end(i)
    values = {
        metric.name: float(keras.ops.convert_to_numpy(metric.result()))
        for metric in model.validation_metrics
    }
    callbacks.on_test_end(values)
    _require_finite(run, "validation loss", values["loss"])
    logs: Row = {f"val_{name}": value for name, value in values.items()}
    logs["step"] = model.num_updates
    logs["learning_rate"] = model.learning_rate
    if model.loss_scale is not None:
        logs["skipped_steps"] = model.loss_scale.skipped_steps
    return logs


def _finish_validation(run: TrainingRun, epoch: int, logs: Row) -> str:
    """Measures BLEU if it ranks checkpoints, adds it to the logs, and saves everything.

    Returns the reason why BLEU cannot rank this checkpoint, or an empty string.
    """
    model_dir = run.model_dir
    state = run.state
    bleu: float | None = None
    doubt = ""
    samples: list[Sample] = []
    if run.measure_bleu is not None:
        bleu, chrf, doubt, samples = run.measure_bleu()
        logs["val_bleu"] = bleu
        logs["val_chrf"] = chrf
    values = _finite_values(run)
    perplexity = logs["val_perplexity"]
    score = score_of(perplexity, bleu, doubt)
    is_new_best = not model_dir.best_path.exists() or is_better(
        score, perplexity, state.best_score, state.perplexity_of_best
    )
    state.step = int(logs["step"])
    state.rows = [*state.rows, {"epoch": epoch, **logs}]
    state.scores[state.step] = score
    state.validations_since_best += 1
    if is_new_best:
        state.best_score = score
        state.validations_since_best = 0
    save_validation(model_dir, run.model, values, state)
    write_log(model_dir, state.rows, samples)
    return doubt


def _save_state(run: TrainingRun, loss_sums: list[float]) -> None:
    state = dataclasses.replace(run.state, step=run.model.num_updates, loss_sums=loss_sums)
    if run.workers.is_chief:
        save_training_state(run.model_dir, _finite_values(run), state)
    run.state.step = state.step


def _interrupt(run: TrainingRun) -> None:
    # All workers wait here until the chief has saved.
    run.workers.any(False)
    run.interruption.saved_step = run.state.step
    run.interruption.is_of_another_worker = run.interruption.signal is None
    raise KeyboardInterrupt


def _finite_values(run: TrainingRun) -> dict[str, np.ndarray]:
    values = {
        name: keras.ops.convert_to_numpy(variable)
        for name, variable in named_variables(run.model).items()
    }
    if not all(np.isfinite(array).all() for array in values.values()):
        raise _diverged(run, "a weight is NaN or infinite")
    return values


def _require_finite(run: TrainingRun, name: str, value: float) -> None:
    if not math.isfinite(value):
        raise _diverged(run, f"the {name} is {value}")


def _diverged(run: TrainingRun, what: str) -> DivergedError:
    """Returns the error that ends the run.

    The message explains which value is not finite, what is kept, and how to continue.
    """
    step = run.state.step
    kept = f"The state after step {step:,} is kept in {run.model_dir}"
    if not step:
        kept = "Nothing was saved before"
    checkpoint = run.model_dir.checkpoint_path(step)
    if checkpoint.is_file():
        kept += f", with its checkpoint {checkpoint.name}"
    return DivergedError(
        f"training diverged in step {run.model.num_updates:,}, "
        f"at the learning rate {run.model.learning_rate:.2e}: {what}. "
        f"{kept}; resume from there with a lower rate: --set training.peak_learning_rate=..."
    )

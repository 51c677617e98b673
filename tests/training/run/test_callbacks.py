"""`train(callbacks=...)`: a user's callbacks see every log, and can stop the run, which then can be
resumed."""

import csv

import keras
import pytest
from test_training import logged, train_here
from training_runs import differences

from keras_transformer.model_dir import ModelDir
from keras_transformer.training.run.state import read_progress

# Three calls of `fit` on what is left after step 2: to 3, to 6, and to 8.
SHORT = (
    *(
        "training.steps=8",
        "training.validate_every=3",
        "training.keep_checkpoints=3",
        "training.average_last=2",
    ),
    *("training.warmup_steps=3", "training.decay=inverse_sqrt", "model.dropout=0.1"),
)


class Record(keras.callbacks.Callback):
    """Keeps what it is called with."""

    def __init__(self, model_dir):
        super().__init__()
        self.model_dir = model_dir
        self.calls, self.losses, self.logs, self.saved = [], [], [], []

    def on_train_begin(self, logs=None):
        self.calls.append("train begins")

    def on_train_end(self, logs=None):
        self.calls.append("train ends")
        self.end = logs

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch} of {self.params['epochs']}: {self.params['steps']} steps")

    def on_train_batch_end(self, batch, logs):
        self.losses.append(logs["loss"])

    def on_epoch_end(self, epoch, logs):
        self.logs.append(dict(logs))
        self.saved.append(read_progress(ModelDir(self.model_dir)).step)
        with open(self.model_dir / "log.csv", newline="") as file:
            self.row = list(csv.DictReader(file))[-1]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run, and what a callback has seen of it."""
    directory = tmp_path_factory.mktemp("straight") / "model"
    record = Record(directory)
    return train_here(directory, *SHORT, callbacks=[record]), record


@pytest.fixture(scope="module")
def straight(recorded):
    # Looking on changes nothing: runs without a callback are compared with this one.
    return recorded[0]


@pytest.mark.slow
def test_callbacks_see_every_log_after_it_is_saved(recorded):
    model_dir, record = recorded
    epochs = [f"epoch {number} of 3: {steps} steps" for number, steps in enumerate((3, 3, 2))]
    assert record.calls == ["train begins", *epochs, "train ends"]
    assert record.saved == [3, 6, 8]
    columns = {"loss", "val_loss", "val_perplexity", "val_accuracy", "step", "learning_rate"}
    for name in columns:
        assert [logs[name] for logs in record.logs] == logged(model_dir, name)
    assert all(logs.keys() == columns and isinstance(logs["step"], int) for logs in record.logs)
    assert record.row == {
        "epoch": "2",
        **{name: str(number) for name, number in record.logs[-1].items()},
    }
    assert record.end == record.logs[-1]
    # The mean since the last validation, after each step.
    assert len(record.losses) == 8
    assert [record.losses[i] for i in (2, 5, 7)] == logged(model_dir, "loss")


@pytest.mark.slow
def test_the_logs_have_bleu_and_skipped_steps_if_there_are_any(tmp_path):
    record = Record(tmp_path / "model")
    brief = ("training.steps=2", "training.average_last=0")
    ranked = ("training.validate_by=bleu", "training.precision=float16")
    model_dir = train_here(tmp_path / "model", *brief, *ranked, callbacks=[record])
    for name in ("val_bleu", "skipped_steps"):
        assert [logs[name] for logs in record.logs] == logged(model_dir, name)


class Stop(keras.callbacks.Callback):
    """Asks to stop when a method of Keras' callbacks is called for the n-th time."""

    def __init__(self, method, calls):
        super().__init__()
        self.left = calls
        setattr(self, method, self.count)

    def count(self, *arguments, **options):
        self.left -= 1
        if not self.left:
            self.model.stop_training = True


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, calls, step",
    [
        ("on_train_begin", 1, 3),
        ("on_train_batch_begin", 1, 3),
        ("on_train_batch_end", 4, 6),
        ("on_train_batch_end", 6, 6),
        ("on_test_end", 2, 6),
        ("on_epoch_end", 1, 3),
    ],
)
def test_a_callback_stops_the_run_which_resumes_bit_for_bit(
    straight, tmp_path, capsys, method, calls, step
):
    model_dir = train_here(tmp_path / "model", *SHORT, callbacks=[Stop(method, calls)])
    lines = capsys.readouterr().err.splitlines()
    assert f"stopped after step {step} by a callback; run the same command to resume" in lines
    assert logged(model_dir, "step")[-1] == step and list(model_dir.checkpoints())[-1] == step
    train_here(tmp_path / "model", *SHORT)
    output = capsys.readouterr().err
    assert f"resuming after step {step}" in output and "stopped" not in output
    assert differences(model_dir.path, straight.path) == []


@pytest.mark.slow
def test_keras_early_stopping_works(tmp_path, capsys):
    # Nothing gets better by 100 than it was first.
    callback = keras.callbacks.EarlyStopping("val_loss", min_delta=100.0, patience=1)
    model_dir = train_here(
        tmp_path / "model", *SHORT, "training.validate_every=2", callbacks=[callback]
    )
    assert logged(model_dir, "step") == [2, 4]
    assert "stopped after step 4 by a callback" in capsys.readouterr().err


@pytest.mark.slow
def test_an_error_in_a_callback_ends_the_run_after_it_was_saved(straight, tmp_path):
    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            raise RuntimeError("no connection")

    with pytest.raises(RuntimeError, match="no connection"):
        train_here(tmp_path / "model", *SHORT, callbacks=[Fail()])
    model_dir = train_here(tmp_path / "model", *SHORT)
    assert differences(model_dir.path, straight.path) == []

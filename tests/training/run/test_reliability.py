"""Nothing on disk is lost: a disturbed training run ends with one clear line and resumes from the
last state."""

import contextlib
import dataclasses
import io
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import test_training
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_training import PAIRS, TINY, load_model, logged, pairs
from training_runs import differences, leftovers

from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.errors import (
    ConfigError,
    DamagedFileError,
    DivergedError,
    InvalidFileError,
    LockedError,
)
from keras_transformer.export.publishing import publish
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import load_weights, save_weights
from keras_transformer.model_dir.files import (
    locked,
    remove_leftovers,
    rename_with_checksum,
    replacing,
    replacing_with_checksum,
    require_undamaged,
    temporary_beside,
)
from keras_transformer.models import build_transformer
from keras_transformer.text import Corpus, Shard
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run import loop, trainer
from keras_transformer.training.run.devices import Workers, make_strategy
from keras_transformer.training.run.interruption import Interruption
from keras_transformer.training.run.report import ProgressReport
from keras_transformer.training.run.state import (
    average_checkpoints,
    read_progress,
    restore_training_state,
)
from keras_transformer.training.run.trainer import train
from keras_transformer.training.step import model as step_model
from keras_transformer.training.step.model import build_training_step
from keras_transformer.training.text.corpus import read_text
from keras_transformer.training.text.filters import HeldOut

# Three validations.
OVERRIDES = (
    *("training.steps=9", "training.validate_every=3", "training.keep_checkpoints=3"),
    *("training.average_last=2", "training.warmup_steps=3"),
    # The rate does not depend on the number of steps.
    "training.decay=inverse_sqrt",
)


def train_here(model_dir, *overrides, **options):
    return test_training.train_here(model_dir, *OVERRIDES, *overrides, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train_here(tmp_path_factory.mktemp("undisturbed") / "model")


@pytest.fixture
def copy(undisturbed, tmp_path):
    return ModelDir(shutil.copytree(undisturbed.path, tmp_path / "copy"))


@pytest.fixture
def averaged(copy):
    """A copy that translates with an average."""
    average_checkpoints(copy, last=2)
    return copy


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A training that ended after the second of its three validations."""
    return train_here(tmp_path_factory.mktemp("interrupted") / "model", "training.steps=6")


@pytest.fixture
def unfinished(interrupted, tmp_path):
    return ModelDir(shutil.copytree(interrupted.path, tmp_path / "unfinished"))


def assert_as_if_undisturbed(model_dir, undisturbed):
    assert differences(model_dir.path, undisturbed.path) == []
    assert leftovers(model_dir.path) == []


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


# Files


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert contents(tmp_path) == {path: b"before"}


def test_an_error_while_a_file_is_written_names_the_file(tmp_path, limit_file_sizes):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(OSError, match="File too large") as error, replacing(path) as temporary:
        limit_file_sizes(10_000)
        temporary.write_bytes(bytes(20_000))
    limit_file_sizes(resource.RLIM_INFINITY)
    assert error.value.filename == str(path)
    assert contents(tmp_path) == {path: b"before"}


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_folder_in_which_nothing_can_be_created_is_an_error(is_directory):
    path = pathlib.Path("/proc/file")
    with pytest.raises(FileNotFoundError) as error, temporary_beside(path, is_directory):
        pass
    assert error.value.filename == str(path)


def test_leftovers_are_removed_unless_a_process_holds_them(tmp_path):
    (tmp_path / ".writing-12-file").write_text("half")
    (tmp_path / ".writing-12-token-ids").mkdir()
    (tmp_path / ".writing-12-token-ids" / "0.source.ids").write_text("half")
    with (
        temporary_beside(tmp_path / "file") as file,
        temporary_beside(tmp_path / "folder", is_directory=True) as folder,
    ):
        remove_leftovers(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([file, folder])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [True, False])
def test_a_lock_that_is_a_symbolic_link_is_refused_and_not_followed(tmp_path, exists):
    target, lock = tmp_path / "thesis.txt", tmp_path / ".train.lock"
    if exists:
        target.write_text("all of it")
    lock.symlink_to(target)
    with (
        pytest.raises(ConfigError, match="received a symbolic link; remove it"),
        locked(lock, "another training run uses this directory"),
    ):
        pass
    assert lock.is_symlink() and target.exists() == exists
    assert not exists or target.read_text() == "all of it"


def test_a_lock_that_is_a_hard_link_leaves_the_other_name_alone(tmp_path):
    other, lock = tmp_path / "thesis.txt", tmp_path / ".train.lock"
    other.write_text("all of it")
    lock.hardlink_to(other)
    with locked(lock, "another training run uses this directory"):
        assert lock.read_text().startswith("process ")
        with (
            pytest.raises(LockedError, match="another training run uses this directory: process "),
            locked(lock, "another training run uses this directory"),
        ):
            pass
    assert other.read_text() == "all of it" and not lock.exists()


def test_a_lock_that_is_a_pipe_or_a_folder_is_refused(tmp_path):
    lock = tmp_path / ".train.lock"
    for make, remove in ((os.mkfifo, os.unlink), (os.mkdir, os.rmdir)):
        make(lock)
        with (
            pytest.raises(ConfigError, match="must be a regular file"),
            locked(lock, "another training run uses this directory"),
        ):
            pass
        remove(lock)


def test_at_every_instant_a_file_has_its_checksum(tmp_path, monkeypatch):
    path, previous = tmp_path / "file", tmp_path / "previous"
    rename, left = os.rename, 0

    def rename_or_be_killed(*arguments):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        rename(*arguments)

    def write(content):
        with replacing_with_checksum(path, previous) as temporary:
            temporary.write_text(content)

    write("first")
    monkeypatch.setattr(os, "rename", rename_or_be_killed)
    for number in [*range(6), 100]:
        left = number
        with contextlib.suppress(KeyboardInterrupt):
            write(f"after {number} renames")
        for file in (path, previous):
            if file.exists():
                require_undamaged(file)
        assert path.exists() or previous.exists()
    assert path.read_text() == "after 100 renames"
    assert len(path.with_name("file.sha256").read_text().splitlines()) == 1


@pytest.mark.slow
def test_checksums_are_those_of_sha256sum(averaged):
    names = [path.name for path in averaged.path.glob("*.sha256")]
    expected = ["average.weights.h5", "best.weights.h5", "tokenizer.model", "training_state.npz"]
    assert sorted(names) == sorted(
        f"{name}.sha256" for name in [*expected, "training_state.previous.npz"]
    )
    check = subprocess.run(
        ["sha256sum", "--check", "--quiet", *names], cwd=averaged.path, capture_output=True
    )
    assert check.returncode == 0, check.stdout


# Two at once


@pytest.mark.slow
def test_a_second_training_names_the_first_and_touches_nothing(unfinished):
    token_ids = unfinished.path / "token-ids"
    with (
        locked(unfinished.lock_path, "another training run uses this directory"),
        temporary_beside(token_ids, is_directory=True),
    ):
        before = contents(unfinished.path)
        holder = f"process {os.getpid()} on {socket.gethostname()}, since 2"
        with pytest.raises(
            LockedError, match=f"another training run uses this directory: {holder}"
        ):
            train_here(unfinished.path)
        assert contents(unfinished.path) == before
    assert not unfinished.lock_path.exists()


@pytest.mark.slow
def test_the_lock_of_a_killed_training_is_not_held(unfinished, undisturbed):
    unfinished.lock_path.write_text("process 1 on another, since 2026-01-01")
    train_here(unfinished.path)
    assert_as_if_undisturbed(unfinished, undisturbed)


def test_two_exports_at_once_get_two_versions(tmp_path):
    def write(directory):
        (directory / "model").write_text("first")
        if not list(tmp_path.glob("[0-9]*")):
            second = publish(tmp_path, None, lambda other: (other / "model").write_text("second"))
            assert second == tmp_path / "1"

    assert publish(tmp_path, None, write) == tmp_path / "2"
    assert contents(tmp_path) == {tmp_path / "1/model": b"second", tmp_path / "2/model": b"first"}


# Divergence


@pytest.mark.slow
def test_a_training_that_diverges_stops_and_resumes_at_a_sane_rate(
    unfinished, undisturbed, monkeypatch
):
    before = contents(unfinished.path)
    with pytest.raises(DivergedError) as error, monkeypatch.context() as patch:
        # Far above what a recipe may name, so that so small a model diverges at once.
        rate = keras.optimizers.schedules.ExponentialDecay(1e29, 1, 1.0)
        patch.setattr(step_model, "learning_rate", lambda d_model, training: rate)
        train_here(unfinished.path)
    message = str(error.value)
    assert "training diverged in step 8, at the learning rate 1.00e+29: the loss is nan" in message
    assert (
        f"The state after step 6 is kept in {unfinished}, with its checkpoint "
        f"step-00000006.weights.h5" in message
    )
    after = contents(unfinished.path)
    changed = {path.name for path in before if before[path] != after.get(path)}
    assert changed == {"config.yaml"} and after.keys() == before.keys()
    train_here(unfinished.path)
    assert_as_if_undisturbed(unfinished, undisturbed)


@pytest.mark.slow
def test_a_weight_that_is_not_finite_is_never_saved(tmp_path, monkeypatch):
    validate = loop._validate

    def break_weight(run, *arguments):
        logs = validate(run, *arguments)
        weight = run.model.transformer.weights[0]
        weight.assign(weight * np.nan)
        return logs

    # After the losses were computed.
    monkeypatch.setattr(loop, "_validate", break_weight)
    with pytest.raises(
        DivergedError, match="in step 1, at .*: a weight is NaN or infinite. Nothing was saved"
    ):
        train_here(tmp_path / "model", "training.steps=1")
    assert not list((tmp_path / "model").rglob("*.h5"))
    assert not list((tmp_path / "model").rglob("*.npz"))


def write_nan(model_dir, path):
    model = load_model(model_dir)
    model.weights[0].assign(model.weights[0] * np.nan)
    save_weights(model, path)


@pytest.mark.slow
def test_weights_that_are_not_finite_are_neither_used_nor_averaged(averaged, capsys):
    write_nan(averaged, averaged.average_path)
    load_model(averaged)
    (warning,) = capsys.readouterr().err.splitlines()
    assert "average.weights.h5: weights are NaN or infinite" in warning
    assert warning.endswith("best.weights.h5 is used instead")
    write_nan(averaged, averaged.checkpoint_path(9))
    assert average_checkpoints(averaged, last=2) == [averaged.checkpoint_path(6)]
    assert "step-00000009.weights.h5: weights are NaN or infinite" in capsys.readouterr().err


# Signals


@pytest.fixture
def default_signals():
    """Sets SIGINT and SIGTERM to what a shell gives to a command in the foreground."""
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt(monkeypatch, owner, name, step, number):
    """Sends a signal when a function of a class or module is called for the step-th time."""
    calls, original = 0, getattr(owner, name)

    def send_signal(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, send_signal)


@pytest.mark.slow
@pytest.mark.parametrize(
    "owner, name, count, number, code, step",
    [
        pytest.param(
            ProgressReport, "after_step", 5, signal.SIGTERM, 143, 5, id="within an interval"
        ),
        pytest.param(
            ProgressReport, "after_step", 6, signal.SIGINT, 130, 6, id="last step of an interval"
        ),
        pytest.param(loop, "_validate", 1, signal.SIGTERM, 143, 3, id="validation"),
        pytest.param(Workers, "any", 7, signal.SIGTERM, 143, 9, id="after the last check"),
        pytest.param(
            keras.callbacks.CallbackList, "on_train_end", 1, signal.SIGINT, 130, 9, id="end"
        ),
    ],
)
def test_a_signal_stops_after_a_step_that_is_saved(
    default_signals,
    undisturbed,
    tmp_path,
    monkeypatch,
    capsys,
    owner,
    name,
    count,
    number,
    code,
    step,
):
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        interrupt(patch, owner, name, count, number)
        with Interruption() as interruption:
            train_here(tmp_path / "model", interruption=interruption)
    assert stopped.value.code == code
    expected = (
        f"stopped by {number.name} after step {step}, which is saved; run the same command "
        f"to resume"
    )
    assert capsys.readouterr().err.splitlines()[-1] == expected
    assert signal.getsignal(number) == signal.SIG_DFL
    assert_as_if_undisturbed(train_here(tmp_path / "model"), undisturbed)


def test_a_signal_before_the_first_step_leaves_no_folder(
    default_signals, tmp_path, monkeypatch, capsys
):
    interrupt(monkeypatch, trainer, "plan_texts", 1, signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped, Interruption() as interruption:
        train_here(tmp_path / "model", interruption=interruption)
    assert stopped.value.code == 143
    assert capsys.readouterr().err.splitlines()[-1] == "stopped by SIGTERM before its first step"
    assert not (tmp_path / "model").exists()


def test_a_signal_that_is_ignored_stays_ignored(default_signals):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.signal is None
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_a_second_signal_ends_the_process_at_once(default_signals):
    with Interruption() as interruption:
        interruption.is_awaited = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.signal is signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL


def test_the_exit_codes_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "130 after SIGINT, 143 after SIGTERM" in " ".join(capsys.readouterr().out.split())


# Full disks


@pytest.mark.slow
def test_a_full_disk_ends_a_training_in_one_line_and_the_last_state_stays(
    unfinished, monkeypatch, limit_file_sizes
):
    average_checkpoints(unfinished, last=2)
    before = contents(unfinished.path)
    save = loop.save_validation

    def save_to_full_disk(*arguments):
        limit_file_sizes(20_000)
        save(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_validation", save_to_full_disk)
        with pytest.raises(OSError, match="File too large") as error:
            train_here(unfinished.path)
    limit_file_sizes(resource.RLIM_INFINITY)
    assert error.value.filename == str(unfinished.checkpoint_path(9))
    # Neither the state, nor what translates.
    kept = [
        "training_state.npz",
        "training_state.previous.npz",
        "best.weights.h5",
        "average.weights.h5",
        "log.csv",
    ]
    assert [before[unfinished.path / name] for name in kept] == [
        (unfinished.path / name).read_bytes() for name in kept
    ]
    assert leftovers(unfinished.path) == []


@pytest.mark.slow
def test_a_full_disk_leaves_the_average_that_there_was(averaged, limit_file_sizes, fails):
    before = contents(averaged.path)
    limit_file_sizes(20_000)
    message = fails("average", "--model-dir", averaged, "--last", "3")
    limit_file_sizes(resource.RLIM_INFINITY)
    assert message == f"keras-transformer average: error: {averaged.average_path}: File too large"
    assert contents(averaged.path) == before


# Damaged files


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_state_gives_way_to_the_one_before(unfinished, undisturbed, capsys, damage):
    damage(unfinished.training_state_path)
    train_here(unfinished.path)
    lines = capsys.readouterr().err.splitlines()
    (warning,) = [line for line in lines if "warning" in line]
    assert "training_state.npz: the file is damaged" in warning
    assert warning.endswith("training_state.previous.npz from step 3 is used instead")
    assert "resuming after step 3" in lines
    assert_as_if_undisturbed(unfinished, undisturbed)


@pytest.mark.slow
def test_a_run_that_was_killed_between_two_states_resumes(unfinished, undisturbed, capsys):
    rename_with_checksum(unfinished.training_state_path, unfinished.previous_state_path)
    train_here(unfinished.path)
    output = capsys.readouterr().err
    assert "resuming after step 6" in output and "warning" not in output
    assert_as_if_undisturbed(unfinished, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04", b"not an archive"])
def test_a_damaged_state_without_one_before_is_named(unfinished, content):
    path = unfinished.training_state_path
    if content is None:
        flip(path)
        message = r"training_state.npz: the file is damaged, its SHA-256 .*training_state.npz"
    else:
        # Copied by hand, without a checksum.
        path.write_bytes(content)
        path.with_name("training_state.npz.sha256").unlink()
        message = "training_state.npz: the training state is damaged"
    unfinished.previous_state_path.unlink()
    before = contents(unfinished.path)
    for use in (
        lambda: train_here(unfinished.path),
        lambda: average_checkpoints(unfinished, best=1),
    ):
        with pytest.raises(DamagedFileError, match=message) as error:
            use()
        assert "\n" not in str(error.value) and "pickle" not in str(error.value)
    assert contents(unfinished.path) == before


def rewrite(path, **changes):
    with np.load(path) as state:
        arrays = {name: state[name] for name in state.files}
    path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
    np.savez(path, **{**arrays, **changes})


@pytest.mark.parametrize(
    "progress",
    [
        *(
            b"",
            b"7",
            b"[" * 100_000,
            b'{"step": 6}}',
            b'{"steps": 6}',
            b"\xff{}",
            b'{"step": "6"}',
            b'{"step": 6.5}',
        ),
        *(
            b'{"rows": [{"loss": 1}]}',
            b'{"rows": ["row"]}',
            b'{"scores": [1]}',
            b'{"text": {"train": 1}}',
        ),
    ],
    ids=lambda progress: repr(progress[:30]),
)
def test_a_state_whose_progress_is_damaged_gives_way_to_the_one_before(
    unfinished, capsys, progress
):
    rewrite(unfinished.training_state_path, progress=progress)
    assert read_progress(unfinished).step == 3
    (warning,) = capsys.readouterr().err.splitlines()
    assert f"{unfinished.training_state_path}: the training state is damaged (" in warning
    assert warning.endswith("training_state.previous.npz from step 3 is used instead")


def test_variables_of_another_type_or_size_are_noticed(unfinished, capsys):
    config = unfinished.read_config()
    model = build_training_step(config.model, config.training, make_strategy())
    path = unfinished.training_state_path
    shape = model.transformer.variables[0].shape
    for value in (np.full(shape, "x"), np.zeros(shape, "int32"), np.zeros(3, "float32")):
        rewrite(path, **{"model.0": value})
        with pytest.raises(
            InvalidFileError,
            match="does not fit the model .* is missing, or has another shape or ty",
        ):
            restore_training_state(unfinished, model, Workers(model.strategy))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**50,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, header.getvalue() if name == "model.0.npy" else content)
    path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
    assert restore_training_state(unfinished, model, Workers(model.strategy)).step == 3
    assert f"{path}: the training state is damaged (" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [flip, pytest.param(truncate, marks=pytest.mark.slow)])
def test_damaged_weights_give_way_to_the_next_best(averaged, capsys, damage):
    damage(averaged.average_path)
    translator = Translator.load(averaged.path)
    (warning,) = capsys.readouterr().err.splitlines()
    assert (
        "average.weights.h5: the file is damaged" in warning
        and "best.weights.h5 is used instead" in warning
    )
    assert isinstance(translator([pairs(0, 1).source[0]])[0], str)
    damage(averaged.best_path)
    load_model(averaged)
    assert (
        capsys.readouterr().err.splitlines()[0].endswith("step-00000009.weights.h5 is used instead")
    )
    for path in averaged.checkpoints().values():
        damage(path)
    with pytest.raises(DamagedFileError, match="average.weights.h5: the file is damaged"):
        load_model(averaged)


def test_a_damaged_file_without_a_checksum_is_noticed_too(averaged, capsys):
    for path in averaged.path.rglob("*.sha256"):
        path.unlink()
    load_model(averaged)
    truncate(averaged.average_path)
    # Damage the nodes that have the names of a group, which h5py reads after it has opened the
    # file.
    averaged.best_path.write_bytes(averaged.best_path.read_bytes().replace(b"SNOD", b"node"))
    load_model(averaged)
    warning = capsys.readouterr().err
    assert "average.weights.h5: the file cannot be read" in warning
    assert "best.weights.h5: the file is damaged" in warning


def test_average_leaves_out_a_damaged_checkpoint(copy, capsys):
    flip(copy.checkpoint_path(6))
    assert average_checkpoints(copy, last=3) == [copy.checkpoint_path(3), copy.checkpoint_path(9)]
    (warning,) = capsys.readouterr().err.splitlines()
    assert (
        "step-00000006.weights.h5: the file is damaged" in warning
        and "left out of the average" in warning
    )


def test_a_damaged_tokenizer_is_named(copy):
    flip(copy.path / "tokenizer.model")
    for use in (lambda: Translator.load(copy.path), lambda: train_here(copy.path)):
        with pytest.raises(InvalidFileError, match="tokenizer.model: the file is damaged"):
            use()


@pytest.mark.slow
def test_weights_must_be_exactly_those_of_the_configuration(copy):
    config = copy.read_config().model
    for num_layers, other in ((1, 2), (2, 1)):
        written, read = (
            build_transformer(dataclasses.replace(config, num_layers=n))
            for n in (num_layers, other)
        )
        save_weights(written, copy.best_path)
        with pytest.raises(
            InvalidFileError, match="best.weights.h5: these weights do not fit the model"
        ):
            load_weights(read, copy.best_path)


# Another text


@pytest.mark.slow
def test_another_text_is_noticed_and_may_be_allowed(unfinished):
    before = contents(unfinished.path)
    text, less = pairs(0, 360), pairs(0, 350)
    swapped = dataclasses.replace(text, source=text.target, target=text.source)
    with pytest.raises(
        ConfigError,
        match="started with another text: the training text has source and target swapped",
    ):
        train_here(unfinished.path, text=swapped)
    lines = (
        r"the training text has another source and target \(350 lines, 360 "
        r"before\).*--allow-changed-text"
    )
    with pytest.raises(ConfigError, match=lines):
        train_here(unfinished.path, text=less)
    assert contents(unfinished.path) == before
    train_here(unfinished.path, text=less, allow_changed_text=True)
    assert list(unfinished.checkpoints())[-1] == 9
    # From now on, this is the text.
    train_here(unfinished.path, text=less)


@pytest.mark.slow
def test_a_text_with_filters_weights_and_held_out_pairs_resumes_exactly(tmp_path, capsys):
    overrides = (*TINY, *OVERRIDES, "training.subword_dropout=0.1", "training.subword_samples=2")

    def train_on_corpora(name, steps, *weights):
        config = load_recipe(
            "demo", [*overrides, f"training.steps={steps}", f"data.weights=[{', '.join(weights)}]"]
        )
        config = dataclasses.replace(
            config, data=dataclasses.replace(config.data, remove_duplicates=True)
        )
        corpora = [
            Corpus("many", [Shard(*zip(*PAIRS), "en", "de")]),
            Corpus("few", [Shard(*zip(*PAIRS[:50]), "", "")]),
        ]
        keras.utils.set_random_seed(config.training.seed)
        train_pairs, valid_pairs = read_text(corpora, config.data, HeldOut(size=40))
        train(config, train_pairs, valid_pairs, tmp_path / name, make_strategy())

    # All of the second corpus are duplicates; some of the first are held out.
    train_on_corpora("straight", 6, "1.5", "1")
    assert (
        "filters removed 50 of 450 sentence pairs: 50 by remove_duplicates"
        in capsys.readouterr().err
    )
    train_on_corpora("resumed", 3, "1.5", "1")
    with pytest.raises(
        ConfigError,
        match="started with another text: the training text has another source and target",
    ):
        train_on_corpora("resumed", 6, "2", "1")
    train_on_corpora("resumed", 6, "1.5", "1")
    assert differences(tmp_path / "resumed", tmp_path / "straight") == []


def test_a_directory_that_lost_its_configuration_is_left_as_it_is(unfinished):
    unfinished.config_path.unlink()
    before = contents(unfinished.path)
    with pytest.raises(
        ConfigError, match="has training_state.npz of an earlier training run, but no config.yaml"
    ):
        train_here(unfinished.path)
    assert contents(unfinished.path) == before


def test_a_directory_that_lost_its_states_is_left_as_it_is(unfinished):
    for path in (unfinished.training_state_path, unfinished.previous_state_path):
        path.unlink()
    before = contents(unfinished.path)
    with pytest.raises(ConfigError, match="no training_state.npz to resume from"):
        train_here(unfinished.path)
    assert contents(unfinished.path) == before


@pytest.mark.slow
def test_a_run_that_was_killed_in_its_first_validation_starts_over(unfinished, undisturbed):
    for path in (unfinished.training_state_path, unfinished.previous_state_path):
        path.unlink()
    first, *others = unfinished.checkpoints().values()
    for path in others:
        path.unlink()
    shutil.copy(first, unfinished.best_path)
    train_here(unfinished.path)
    assert_as_if_undisturbed(unfinished, undisturbed)


@pytest.mark.slow
def test_the_path_of_a_directory_need_not_be_utf_8(undisturbed, tmp_path):
    directory = tmp_path / "caf\udce9"
    train_here(directory)
    assert_as_if_undisturbed(ModelDir(directory), undisturbed)


# The log, and files that are not ours


def curves(directory):
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    # Which are there if BLEU is measured.
    assert "translations" not in accumulator.Tags()["tensors"]
    return {
        tag: [event.step for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_a_killed_training_loses_no_row_and_repeats_none(unfinished, undisturbed, capsys):
    # Killed after the log, and the event files of a later step, were written; the state is damaged,
    # and gives way.
    log = undisturbed.log_path.read_text()
    unfinished.log_path.write_text(log + log.splitlines()[-1])
    shutil.copytree(undisturbed.tensorboard_path, unfinished.tensorboard_path, dirs_exist_ok=True)
    flip(unfinished.training_state_path)
    train_here(unfinished.path)
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warning.endswith("training_state.previous.npz from step 3 is used instead")
    assert_whole_log(unfinished, undisturbed)
    assert_as_if_undisturbed(unfinished, undisturbed)


@pytest.mark.slow
def test_a_training_that_was_killed_before_it_wrote_its_log_writes_it_later(
    unfinished, undisturbed
):
    unfinished.log_path.unlink()
    for path in unfinished.tensorboard_path.rglob("*0000000006*"):
        path.unlink()
    # It was writing the point when it was killed.
    (unfinished.tensorboard_path / "train" / ".writing-12-events").write_text("half")
    train_here(unfinished.path)
    assert_whole_log(unfinished, undisturbed)
    assert leftovers(unfinished.path) == []


def assert_whole_log(model_dir, undisturbed):
    assert model_dir.log_path.read_text() == undisturbed.log_path.read_text()
    assert logged(model_dir, "step") == [3, 6, 9]
    for run, tags in (
        ("train", {"loss", "learning_rate"}),
        ("validation", {"loss", "perplexity", "accuracy"}),
    ):
        steps = curves(model_dir.tensorboard_path / run)
        assert steps == {tag: [3, 6, 9] for tag in tags}


@pytest.mark.slow
def test_files_of_the_user_are_neither_lost_nor_fatal(undisturbed, tmp_path, capsys):
    directory = tmp_path / "model"
    (directory / "tensorboard").mkdir(parents=True)
    names = [
        "log.csv",
        "vocab.txt",
        "tokenizer.model",
        "best.weights.h5",
        "average.weights.h5",
        "tensorboard/mine",
    ]
    for name in names:
        (directory / name).write_text(f"my {name}")
    train_here(directory)
    output = capsys.readouterr().err
    for name in names:
        # A name that training does not need stays.
        kept = directory / (name if name in ("vocab.txt", "tensorboard/mine") else f"{name}.1")
        assert kept.read_text() == f"my {name}"
        if kept.name != (directory / name).name:
            assert (
                f"{directory / name} does not belong to this training; renamed to {name}.1"
                in output.splitlines()
            )
    Translator.load(directory)
    for path in (path for path in directory.iterdir() if path.suffix == ".1"):
        path.unlink()
    assert_as_if_undisturbed(ModelDir(directory), undisturbed)


def test_a_directory_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as error:
        train_here(tmp_path / "file" / "model")
    assert error.value.filename == str(tmp_path / "file" / "model")


@pytest.mark.slow
def test_the_saved_model_that_does_not_fit_on_the_disk_is_named(
    copy, tmp_path, limit_file_sizes, fails
):
    output = tmp_path / "servable"
    limit_file_sizes(20_000)
    message = fails("export", "--model-dir", copy, "--output", output, "--signatures", "score")
    limit_file_sizes(resource.RLIM_INFINITY)
    assert f"{output}: the SavedModel cannot be written" in message
    assert list(output.iterdir()) == []


def test_an_interruption_that_keras_makes_an_error_of_its_own_is_one():
    with pytest.raises(SystemExit) as ended, Interruption():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise RuntimeError(
                "Exception encountered when calling MultiHeadAttention.call()"
            ) from None
    assert ended.value.code == 143


def test_an_error_that_follows_a_signal_which_is_awaited_is_shown():
    with pytest.raises(OSError, match="No space left"), Interruption() as interruption:
        interruption.is_awaited = True
        signal.raise_signal(signal.SIGTERM)
        raise OSError("No space left on device")


def test_a_signal_that_interrupts_a_destructor_is_received_without_a_traceback(monkeypatch):
    class Destroyed:
        def __init__(self, destroy):
            self.destroy = destroy

        def __del__(self):
            self.destroy()

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(unraisable.exc_type))
    with Interruption() as interruption:
        Destroyed(lambda: signal.raise_signal(signal.SIGTERM))
        assert interruption.signal is signal.SIGTERM
        Destroyed(lambda: 1 / 0)
    assert shown == [ZeroDivisionError]

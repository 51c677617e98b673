"""Files of pairs that a model makes: whole or not there, and the same after any interruption."""

import json
import pathlib
import subprocess
import sys

import pytest
from keras_transformer.training.synthesis import pair_files
from keras_transformer.training.synthesis.pair_files import made_of, write_pairs

from keras_transformer.errors import ConfigError, InvalidFileError, LockedError
from keras_transformer.model_dir.files import locked

LINES = [f"line {number}" for number in range(10)]
SETTINGS = {"seed": 1}

# Kills itself at each instant at which something on the disk changes, and is run again.
KILLED_AND_RESUMED = """
import itertools, os, pathlib, signal
from keras_transformer.training.synthesis import pair_files

pair_files.LINES_PER_BLOCK = 3
made = []

def make(first, lines):
    made.append(first)
    pairs = [(f"{first + i} of {text}", text) for i, (text,) in enumerate(lines)]
    return pair_files.made_of(pairs, [False] * len(lines))

def write(directory):
    pair_files.write_pairs(directory / "bt", {}, ((f"line {i}",) for i in range(10)), make)

def texts(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}

def run(directory, last):
    names = ["fsync", "rename", "unlink"]
    countdown = itertools.count(last, -1)
    for name in names:
        def call(*arguments, function=getattr(os, name), **options):
            if next(countdown) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        setattr(os, name, call)
    write(directory)

expected = pathlib.Path("whole")
expected.mkdir()
write(expected)
assert texts(expected).keys() == {"bt.source", "bt.target", "bt.json"}
for last in itertools.count():
    directory = pathlib.Path(f"killed-{last}")
    directory.mkdir()
    child = os.fork()
    if not child:
        run(directory, last)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert texts(directory) == texts(expected)
        break
    # A part of a line, as a kill leaves it.
    unfinished = directory / "bt.unfinished"
    if unfinished.exists():
        unfinished.write_bytes(unfinished.read_bytes() + b'{"lines": "0')
    made.clear()
    write(directory)
    assert texts(directory) == texts(expected), (last, texts(directory))
print(last)
"""


@pytest.fixture
def three_lines_per_block(monkeypatch):
    monkeypatch.setattr(pair_files, "LINES_PER_BLOCK", 3)


def upper(first, lines):
    return made_of([(text.upper(), text) for (text,) in lines], [False] * len(lines))


def write(path, lines=LINES, settings=SETTINGS, make=upper):
    write_pairs(path, settings, ((line,) for line in lines), make)


def interrupted(path, blocks):
    """Writes so many blocks."""

    def make(first, lines):
        if first == 3 * blocks:
            raise KeyboardInterrupt
        return upper(first, lines)

    with pytest.raises(KeyboardInterrupt):
        write(path, make=make)


def test_a_process_that_is_killed_at_any_instant_leaves_what_can_be_resumed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AND_RESUMED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 12


def test_a_resumed_run_makes_only_what_is_missing(tmp_path, three_lines_per_block):
    interrupted(tmp_path / "bt", blocks=2)
    assert [path.name for path in tmp_path.iterdir()] == ["bt.unfinished"]
    made = []

    def make(first, lines):
        made.append((first, len(lines)))
        return upper(first, lines)

    write(tmp_path / "bt", make=make)
    assert made == [(6, 3), (9, 1)]
    assert (tmp_path / "bt.source").read_text().splitlines() == [line.upper() for line in LINES]
    assert (tmp_path / "bt.target").read_text().splitlines() == LINES
    write(tmp_path / "bt", make=None)  # Complete.


def test_what_cannot_be_trained_on_is_left_out_and_counted(tmp_path, caplog):
    made = made_of([("a", "b"), ("", "b"), ("c", " "), ("d\ne", "f"), ("g", "h")], [False] * 4 + [True])
    assert made == ([("a", "b"), ("d e", "f")], 2, 1)
    write(tmp_path / "bt", make=lambda first, lines: made)
    assert (tmp_path / "bt.source").read_text() == "a\nd e\n"
    assert json.loads((tmp_path / "bt.json").read_text()) == {
        "settings": SETTINGS,
        "pairs": 2,
        "empty": 2,
        "too_long": 1,
    }
    with pytest.raises(ConfigError, match="no pair is left: 1 are empty on one side, 0 are longer than the model"):
        write(tmp_path / "none", make=lambda first, lines: made_of([("", "x")], [False]))


@pytest.mark.parametrize(
    "lines, settings, message",
    [
        (
            LINES,
            {"seed": 2},
            "bt.unfinished: these pairs were made with seed=1; received seed=2. Give the same options",
        ),
        (LINES, {}, "bt.unfinished: these pairs were made with seed=1; received seed=None. Give the same options"),
        (
            LINES[:4] + ["x"] + LINES[5:],
            SETTINGS,
            "bt.unfinished: the text has changed after line 3; give the same one",
        ),
        (LINES[:3], SETTINGS, "bt.unfinished: the text ends after line 3, earlier than before; give the same one"),
    ],
)
def test_a_run_is_resumed_with_the_same_text_and_options_only(
    tmp_path, three_lines_per_block, lines, settings, message
):
    interrupted(tmp_path / "bt", blocks=2)
    with pytest.raises(ConfigError) as error:
        write(tmp_path / "bt", lines, settings)
    assert message in str(error.value)
    write(tmp_path / "bt")
    if settings != SETTINGS:
        with pytest.raises(ConfigError, match="bt.json: these pairs were made with seed=1; received seed="):
            write(tmp_path / "bt", lines, settings)


def test_a_file_of_another_kind_and_another_process_are_one_line(tmp_path):
    (tmp_path / "bt.unfinished").write_text("a line\n")
    with pytest.raises(InvalidFileError, match="bt.unfinished: not a file of pairs that are made; received 'a line"):
        write(tmp_path / "bt")
    with (
        locked(pathlib.Path(tmp_path / "other.lock"), "test"),
        pytest.raises(LockedError, match="another process writes these pairs: process "),
    ):
        write(tmp_path / "other")

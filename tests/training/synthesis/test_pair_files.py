"""Files of pairs that a model makes: whole or not there, and the same after any interruption."""

import json
import pathlib

import pytest
from fresh_process import run_python

from keras_transformer.errors import ConfigError, InvalidFileError, LockedError
from keras_transformer.model_dir.files import locked
from keras_transformer.training.synthesis import translated_pairs
from keras_transformer.training.synthesis.translated_pairs import made_of, write_pairs

LINES = [f"line {number}" for number in range(10)]
SETTINGS = {"seed": 1}

# Kills itself at each instant at which something on the disk changes, and is run again.
KILLED_AND_RESUMED = """
import itertools, os, pathlib, signal
from keras_transformer.training.synthesis import translated_pairs

translated_pairs.LINES_PER_BLOCK = 3
made = []

def make(first, lines):
    made.append(first)
    pairs = [(f"{first + i} of {text}", text) for i, (text, _) in enumerate(lines)]
    return translated_pairs.made_of(pairs, [False] * len(lines))

def write(directory):
    translated_pairs.write_pairs(directory / "bt", {}, [(f"line {i}", "") for i in range(10)], make)

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
    monkeypatch.setattr(translated_pairs, "LINES_PER_BLOCK", 3)


def upper(first, lines):
    return made_of([(text.upper(), text) for text, _ in lines], [False] * len(lines))


def write(path, lines=LINES, settings=SETTINGS, make=upper):
    write_pairs(path, settings, [(line, "") for line in lines], make)


def interrupted(path, blocks):
    """Writes so many blocks."""

    def make(first, lines):
        if first == 3 * blocks:
            raise KeyboardInterrupt
        return upper(first, lines)

    with pytest.raises(KeyboardInterrupt):
        write(path, make=make)


def test_a_process_that_is_killed_at_any_instant_leaves_what_can_be_resumed(tmp_path):
    assert int(run_python("-c", KILLED_AND_RESUMED, cwd=tmp_path)) > 12


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
    made = made_of(
        [("a", "b"), ("", "b"), ("c", " "), ("d\ne", "f"), ("g", "h")], [False] * 4 + [True]
    )
    assert made == ([("a", "b"), ("d e", "f")], 2, 1)
    write(tmp_path / "bt", make=lambda first, lines: made)
    assert (tmp_path / "bt.source").read_text() == "a\nd e\n"
    record = json.loads((tmp_path / "bt.json").read_text())
    assert (record["pairs"], record["empty"], record["too_long"]) == (2, 2, 1)
    assert record["settings"] == {**SETTINGS, "text": record["settings"]["text"]}
    with pytest.raises(
        ConfigError, match="no pair is left: 1 are empty on one side, 0 are longer than the model"
    ):
        write(tmp_path / "none", make=lambda first, lines: made_of([("", "x")], [False]))


CHANGES = [
    (LINES, {"seed": 2}, "with seed=1; received seed=2. Give the same text and options"),
    (LINES, {}, "with seed=1; received seed=None. Give the same text and options"),
    (LINES[:4] + ["x"] + LINES[5:], SETTINGS, "of another text. Give the same text and options"),
    (LINES[:3], SETTINGS, "of another text. Give the same text and options"),
]


@pytest.mark.parametrize("lines, settings, message", CHANGES)
def test_a_run_is_resumed_and_complete_with_the_same_text_and_options_only(
    tmp_path, three_lines_per_block, lines, settings, message
):
    interrupted(tmp_path / "bt", blocks=2)
    with pytest.raises(ConfigError) as error:
        write(tmp_path / "bt", lines, settings)
    assert f"bt.unfinished: these pairs were made {message}" in str(error.value)
    write(tmp_path / "bt")
    with pytest.raises(ConfigError) as error:
        write(tmp_path / "bt", lines, settings)
    assert f"bt.json: these pairs were made {message}" in str(error.value)


def test_pairs_are_complete_only_if_they_are_there_as_they_were_written(tmp_path):
    write(tmp_path / "bt")
    (tmp_path / "bt.target").write_text("a line\n")
    with pytest.raises(
        InvalidFileError, match="bt.target: the file has changed since it was written; to make"
    ):
        write(tmp_path / "bt")
    (tmp_path / "bt.source").unlink()
    with pytest.raises(
        InvalidFileError, match="bt.source: the file is missing; to make the pairs again, remove"
    ):
        write(tmp_path / "bt")


def test_a_text_that_changes_while_it_is_translated_is_noticed(tmp_path):
    with pytest.raises(ConfigError, match="the text has changed while it was translated"):
        write_pairs(tmp_path / "bt", SETTINGS, iter([("read", "once")]), upper)
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_kind_and_another_process_are_one_line(tmp_path):
    for content in (b"a line\n", b"a line \xff\n", b'{"settings": 5}\n'):
        (tmp_path / "bt.unfinished").write_bytes(content)
        with pytest.raises(
            InvalidFileError, match="bt.unfinished: not a record of translated pairs; received '"
        ):
            write(tmp_path / "bt")
    with (
        locked(pathlib.Path(tmp_path / ".other.lock"), "test"),
        pytest.raises(LockedError, match="another process is writing these pairs: process "),
    ):
        write(tmp_path / "other")

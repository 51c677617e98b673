"""Standard streams: slow, closed, full."""

import os
import subprocess
import sys
import threading
import tracemalloc

import pytest

from keras_transformer.errors import StreamError
from keras_transformer.runtime import standard_streams
from keras_transformer.runtime.standard_streams import MAX_LINE_BYTES, arriving_lines


@pytest.fixture
def standard_input(monkeypatch):
    """Makes a file descriptor standard input."""
    opened = []

    def use(number):
        opened.append(os.fdopen(number))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield use
    for file in opened:
        file.close()


@pytest.fixture
def pipe(standard_input):
    """A writer of standard input."""
    reading, writing = os.pipe()
    standard_input(reading)
    with os.fdopen(writing, "wb", buffering=0) as file:
        yield file


def read_file(standard_input, tmp_path, content, most=1024):
    (tmp_path / "text").write_bytes(content)
    standard_input(os.open(tmp_path / "text", os.O_RDONLY))
    return list(arriving_lines(most))


def test_a_line_is_given_when_its_writer_waits(pipe):
    blocks = arriving_lines(1024)
    for line in (b"one", b"two", b""):
        pipe.write(line + b"\n")
        assert next(blocks) == [line]
    pipe.write(b"three\nfour\nfi")
    assert next(blocks) == [b"three", b"four"]
    pipe.write(b"ve\n")
    assert next(blocks) == [b"five"]
    pipe.write(b"six")
    pipe.close()
    assert list(blocks) == [[b"six"]]


def test_a_file_is_given_in_whole_blocks(standard_input, tmp_path):
    lines = [b"%d" % i * (i % 7) for i in range(2500)]
    blocks = read_file(standard_input, tmp_path, b"\n".join(lines) + b"\n")
    assert [len(block) for block in blocks] == [1024, 1024, 452]
    assert sum(blocks, []) == lines


def test_a_pipe_whose_writer_does_not_wait_is_given_in_whole_blocks(pipe, monkeypatch):
    # Other processes may keep the writer from running for a while, which is no pause.
    monkeypatch.setattr(standard_streams, "_SECONDS_OF_PAUSE", 60.0)
    lines = [b"a line of some length, number %d" % i for i in range(20_000)]

    def write():
        pipe.write(b"\n".join(lines))
        pipe.close()

    writing = threading.Thread(target=write)
    writing.start()
    blocks = list(arriving_lines(1024))
    writing.join()
    assert sum(blocks, []) == lines
    assert [len(block) for block in blocks] == [1024] * 19 + [544]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"\n\n", [b"", b""]),
        (b"one", [b"one"]),
        (b"one\r\ntwo\r\n", [b"one\r", b"two\r"]),
        (b"one\ntwo\n\n", [b"one", b"two", b""]),
        (b"\xff\x00\xe2\x80\xa8\n", [b"\xff\x00\xe2\x80\xa8"]),
        # Longer than a read.
        (b"x" * 1_000_000 + b"\n" + b"y" * 70_000, [b"x" * 1_000_000, b"y" * 70_000]),
        (b"x" * 65_535 + b"\n" + b"y" * 65_536 + b"\n", [b"x" * 65_535, b"y" * 65_536]),
    ],
    ids=[
        "nothing",
        "empty line",
        "empty lines",
        "no end",
        "CRLF",
        "last empty",
        "bytes",
        "long",
        "ends of reads",
    ],
)
def test_lines_are_divided_at_line_feeds_alone(standard_input, tmp_path, content, lines):
    assert sum(read_file(standard_input, tmp_path, content), []) == lines


def test_a_line_has_a_limit_and_the_lines_before_it_are_given(standard_input, tmp_path):
    (tmp_path / "text").write_bytes(
        b"one\n" + b"x" * MAX_LINE_BYTES + b"\ntwo\n" + b"y" * (MAX_LINE_BYTES + 1) + b"\nthree\n"
    )
    standard_input(os.open(tmp_path / "text", os.O_RDONLY))
    blocks = arriving_lines(2)
    assert next(blocks) == [b"one", b"x" * MAX_LINE_BYTES]
    assert next(blocks) == [b"two"]
    with pytest.raises(
        StreamError, match="^standard input: line 4 must have at most 1,048,576 bytes; it has more$"
    ):
        next(blocks)


def test_long_lines_are_given_in_small_blocks(standard_input, tmp_path):
    lines = [b"x" * 300_000] * 20
    blocks = read_file(standard_input, tmp_path, b"\n".join(lines))
    assert sum(blocks, []) == lines and {len(block) for block in blocks} == {4}


def test_an_endless_line_takes_little_memory_and_time(standard_input):
    standard_input(os.open("/dev/zero", os.O_RDONLY))
    tracemalloc.start()
    with pytest.raises(
        StreamError, match="^standard input: line 1 must have at most 1,048,576 bytes; it has more$"
    ):
        list(arriving_lines(1024))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_LINE_BYTES


def run(code, redirection):
    """Runs Python code in a separate process with redirected streams; returns its exit code, output
    and errors."""
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, code]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return result.returncode, result.stdout, result.stderr


# A command that says something and writes a line, without TensorFlow.
COMMAND = """
from keras_transformer.commands.main import COMMANDS, main
from keras_transformer.runtime.progress import say
from keras_transformer.runtime.standard_streams import write_lines
def run(options):
    say("said")
    write_lines(["written"])
COMMANDS["train"] = COMMANDS["train"]._replace(run=run)
main(["train", "--model-dir", "m"])
"""


def test_a_full_standard_output_is_one_line():
    error = "keras-transformer train: error: standard output: No space left on device\n"
    assert run(COMMAND, ">/dev/full") == (1, "", "said\n" + error)


def test_what_is_said_to_a_closed_or_full_standard_error_is_lost_and_the_work_is_done():
    assert run(COMMAND, "2>&-") == (0, "written\n", "")
    assert run(COMMAND, "2>/dev/full") == (0, "written\n", "")


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path):
    code = f"""
import os
from keras_transformer.commands.main import COMMANDS, main
from keras_transformer.runtime.progress import say
def run(options):
    with open({str(tmp_path / "file")!r}, "w") as file:
        say("said")
        os.write(2, b"by a library")
        assert file.fileno() > 2
COMMANDS["train"] = COMMANDS["train"]._replace(run=run)
main(["train", "--model-dir", "m"])
"""
    assert run(code, "<&- >&- 2>&-") == (0, "", "")
    assert (tmp_path / "file").read_text() == ""


def test_a_reader_that_leaves_early_ends_the_command_without_a_word():
    code = COMMAND.replace('["written"]', "map(str, range(100_000))")
    assert run(code, "| head -1") == (0, "0\n", "said\n")

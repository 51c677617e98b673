"""Standard input, output and error of a command.

They may be closed, full, slow, endless, or used interactively.
"""

import contextlib
import itertools
import os
import select
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ..errors import StreamError

# The longest line, without its line break. No sentence is that long, and an endless line must not
# fill the memory.
MAX_LINE_BYTES = 2**20
_BYTES_PER_READ = 2**16
# A writer that pauses for so long waits for an answer. A fast writer does not, and the delay is not
# noticed.
_SECONDS_OF_PAUSE = 0.02


def occupy_closed_streams() -> None:
    """Opens the null device in place of closed streams.

    Otherwise the next file that is opened, such as a checkpoint, would get the number of a closed
    stream, and with it what C++ libraries write to standard error. Reading from closed standard
    input, or writing to closed standard output, remains an error.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The null device gets the lowest free number, which is this one.
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def standard_input() -> BinaryIO:
    """Returns standard input; a StreamError if it is closed."""
    if sys.stdin is None:
        raise StreamError("standard input is closed")
    return sys.stdin.buffer


def arriving_lines(
    most: int, file: BinaryIO | None = None, name: str = "standard input"
) -> Iterator[list[bytes]]:
    r"""Reads a file in blocks: the lines that have arrived when the writer pauses.

    Lines come without their "\n". A file on a disk, or a writer that does not wait, is read in
    blocks of `most` lines, or of fewer if they are long.

    Args:
        file: an open file; standard input if it is None.
        name: what errors call it.

    Raises:
        StreamError: The file is closed or cannot be read, or a line is longer than 1 MiB. The lines
            before it have been given.
    """
    number = (standard_input() if file is None else file).fileno()
    lines: list[bytes] = []
    num_given = 0
    # The beginning of a line whose end has not arrived yet.
    unfinished = b""
    while chunk := _read(number, name):
        *whole, unfinished = (unfinished + chunk).split(b"\n")
        lines += itertools.takewhile(lambda line: len(line) <= MAX_LINE_BYTES, whole)
        is_too_long = any(len(line) > MAX_LINE_BYTES for line in [*whole, unfinished])
        while lines:
            is_full = len(lines) >= most or sum(map(len, lines)) > MAX_LINE_BYTES
            if not is_too_long and not is_full and _arrives_soon(number):
                break
            block = lines[:most]
            del lines[:most]
            num_given += len(block)
            yield block
        if is_too_long:
            raise StreamError(
                f"{name}: line {num_given + 1} must have at most {MAX_LINE_BYTES:,} bytes; "
                "it has more"
            )
    # The last line may have no line break.
    if unfinished:
        lines.append(unfinished)
    if lines:
        yield lines


def _arrives_soon(number: int) -> bool:
    """Returns whether more can be read before the writer has paused."""
    readable, _, _ = select.select([number], [], [], _SECONDS_OF_PAUSE)
    return bool(readable)


def _read(number: int, name: str) -> bytes:
    select.select([number], [], [])
    try:
        return os.read(number, _BYTES_PER_READ)
    except OSError as error:
        raise StreamError(f"{name}: {error.strerror}") from None


def write_lines(
    lines: Iterable[str], file: BinaryIO | None = None, name: str = "standard output"
) -> None:
    """Writes lines to a file in UTF-8, at once.

    Bytes of a path that are not UTF-8 are written as they are.

    Args:
        file: an open file; standard output if it is None.
        name: what errors call it.

    Raises:
        BrokenPipeError: The reader closed the stream.
        StreamError: The lines cannot be written for another reason.
    """
    file = sys.stdout.buffer if file is None else file
    try:
        file.writelines(f"{line}\n".encode(errors="surrogateescape") for line in lines)
        file.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StreamError(f"{name}: {error.strerror}") from None


def discard_unwritten() -> None:
    """Discards output that could not be written, which Python would try again when it exits."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discards the output of C++ code on standard error.

    TensorFlow, for example, remarks that there are no GPUs. Python's own errors are raised as
    always.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null)

"""Reads and writes the standard streams of a command.

The streams may be closed, full, slow, endless or interactive.
"""

import contextlib
import itertools
import os
import select
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ..errors import StreamError

# Number of lines that commands translate or score at a time. It limits the memory for a block, and
# the number of lines that are translated again after an interruption.
LINES_PER_BLOCK = 1024
# Maximum size of a line without its line break, so that an endless line does not fill the memory.
MAX_LINE_BYTES = 2**20
_BYTES_PER_READ = 2**16
# A writer that pauses for this long is assumed to be waiting for an answer. The delay is too short
# to notice.
_SECONDS_OF_PAUSE = 0.02


def occupy_closed_streams() -> None:
    """Opens the null device for every closed standard stream.

    Otherwise, the next open file, such as a checkpoint, would get the descriptor of a closed
    stream, and C++ libraries would write their messages for standard error to that file. Reading
    from closed standard input or writing to closed standard output remains an error.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # `os.open` returns the lowest free descriptor, which is this one.
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def standard_input() -> BinaryIO:
    """Returns standard input.

    Raises:
        StreamError: If standard input is closed.
    """
    if sys.stdin is None:
        raise StreamError("standard input is closed")
    return sys.stdin.buffer


def arriving_lines(
    most: int, file: BinaryIO | None = None, name: str = "standard input"
) -> Iterator[list[bytes]]:
    r"""Yields lines in blocks, each with the lines that have arrived when the writer pauses.

    Lines do not include "\n". If the input is a file on disk, or the writer does not pause, blocks
    have `most` lines, or fewer if the lines are long.

    Args:
        most: maximum number of lines in a block.
        file: open file. Defaults to None: standard input.
        name: name of the file for error messages.

    Raises:
        StreamError: If the file is closed or cannot be read, or a line is longer than 1 MiB. The
            preceding lines are yielded first.
    """
    number = (standard_input() if file is None else file).fileno()
    lines: list[bytes] = []
    num_given = 0
    # Start of a line that has not fully arrived.
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
    """Returns whether more data arrives before the pause is long enough to end a block."""
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
    """Writes lines to a file in UTF-8 and flushes it.

    Bytes of paths that are not UTF-8 are written unchanged.

    Args:
        file: open file. Defaults to None: standard output.
        name: name of the file for error messages.

    Raises:
        BrokenPipeError: If the reader has closed the stream.
        StreamError: If the lines cannot be written for another reason.
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
    """Discards output that could not be written, so that Python does not write it again on exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discards messages of C++ code on standard error while the block runs.

    For example, TensorFlow reports that there are no GPUs. Python exceptions are raised as usual.
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

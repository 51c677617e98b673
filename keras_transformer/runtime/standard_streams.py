"""Standard input, output and error of a command, which may be closed, full, slow, or spoken to line by line."""

import os
import select
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ..errors import ConfigError

_BYTES_PER_READ = 1 << 16
# A writer that pauses for so long waits for an answer. A fast one is not taken for it, and nobody notices the delay.
_SECONDS_OF_PAUSE = 0.02


def occupy_closed_streams() -> None:
    """Opens what is closed, so that no other file gets the number of a standard stream, and what is written to it.

    To read from closed standard input or to write to closed standard output stays an error.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free.
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def standard_input() -> BinaryIO:
    """Returns standard input.

    Raises:
        ConfigError: It is closed.
    """
    if sys.stdin is None:
        raise ConfigError("standard input is closed")
    return sys.stdin.buffer


def arriving_lines(most: int) -> Iterator[list[bytes]]:
    r"""Reads standard input in blocks: the lines that have arrived when the writer pauses, without their "\n".

    A file, or a writer that does not wait, is read in blocks of `most` lines.

    Args:
        most: int. Most lines of a block.

    Raises:
        ConfigError: Standard input is closed, or cannot be read.
    """
    number = standard_input().fileno()
    lines: list[bytes] = []
    # Of a line whose end has not arrived.
    parts: list[bytes] = []
    while chunk := _read(number):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for part in others:
            lines.append(b"".join(parts))
            parts = [part]
        while len(lines) >= most:
            yield lines[:most]
            del lines[:most]
        if lines and not select.select([number], [], [], _SECONDS_OF_PAUSE)[0]:
            yield lines
            lines = []
    # The last line needs no end.
    if any(parts):
        lines.append(b"".join(parts))
    if lines:
        yield lines


def _read(number: int) -> bytes:
    select.select([number], [], [])
    try:
        return os.read(number, _BYTES_PER_READ)
    except OSError as error:
        raise ConfigError(f"standard input: {error.strerror}") from None


def write_lines(lines: Iterable[str]) -> None:
    """Writes lines to standard output in UTF-8, at once.

    Raises:
        ConfigError: They cannot be written.
        BrokenPipeError: Nobody reads them.
    """
    try:
        sys.stdout.buffer.writelines(f"{line}\n".encode() for line in lines)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"standard output: {error.strerror}") from None


def discard_unwritten() -> None:
    """Discards what could not be written to standard output; Python would fail to write it again when it exits."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

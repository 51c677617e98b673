"""Lines of text files, which may be compressed, divided into shards, or pipes."""

import codecs
import contextlib
import functools
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import zstandard

from keras_transformer.errors import ConfigError
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.runtime.standard_streams import standard_input

# What is compressed so well that it is a thousand times as long takes 4 MB of memory at a time.
_COMPRESSED_BYTES_PER_READ = 4096


class Reread(Iterable[str]):
    """Lines that are not held in memory, but read again in each iteration.

    Args:
        read: Callable. Returns an iterator over the lines.
    """

    def __init__(self, read: Callable[[], Iterator[str]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[str]:
        return self._read()


def read_lines(path: str | os.PathLike[str]) -> Iterable[str]:
    r"""Reads a text file, decompressed where its name ends in `.gz`, `.xz` or `.zst`.

    A line ends at "\n" and nowhere else, so that no Unicode separator inside a sentence shifts all later lines against
    the other language. A "\r" before it and a byte order mark are dropped.

    Args:
        path: str or path of a file in UTF-8; "-" is standard input.

    Returns:
        The lines without their ends, for any number of iterations. The lines of a file on disk are read anew in each;
        those of a pipe are read here and held in memory, because it can be read only once.

    Raises:
        ConfigError: The file cannot be read, or a line, which the message gives by its number, is not UTF-8. For a file
            on disk this is found when it is iterated.

    Example:
        >>> list(read_lines("train.en"))
        ['A dog runs .', 'Two women sit on a bench .']
    """
    if path != "-" and os.path.isfile(path):
        return Reread(functools.partial(_lines, path))
    with ProgressBar(f"reading {name_of(path)}", "lines") as bar:
        return list(bar.count(_lines(path)))


def name_of(path: str | os.PathLike[str]) -> str:
    """Returns what messages call a text file."""
    return "standard input" if path == "-" else os.fspath(path)


def shards_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the files that a path or a pattern stands for.

    Args:
        path: str or path of a file, or a pattern with `*`, `?` or `[`, such as "news-*.en.gz". A file whose name is
            the pattern itself goes before.

    Returns:
        The files by what stands in place of the pattern's wildcards, from the first to the last of them, and in this
        order: "01" of "news-01.en.gz".

    Raises:
        ConfigError: No file matches the pattern.
    """
    path = os.fspath(path)
    if not glob.has_magic(path) or os.path.exists(path):
        return {"": path}
    before = re.search(r"[*?[]", path)
    after = re.search(r"[^]*?]*$", path)
    assert before and after
    files = [found for found in glob.glob(path) if not os.path.isdir(found)]
    if not files:
        raise ConfigError(f"{path}: no file matches this pattern")
    return dict(sorted((file[before.start() : len(file) - len(after[0])], file) for file in files))


def _open(path: str | os.PathLike[str]) -> Any:
    if path == "-":
        return contextlib.nullcontext(standard_input())
    name = os.fspath(path)
    if name.endswith(".gz"):
        return gzip.open(path, "rb")
    if name.endswith(".xz"):
        return lzma.open(path, "rb")
    if name.endswith(".zst"):
        return io.BufferedReader(_Zstandard(path), io.DEFAULT_BUFFER_SIZE)
    return open(path, "rb")


class _Zstandard(io.RawIOBase):
    """Decompresses frames of Zstandard; the package's own reader takes a file that was cut off for a whole one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._frame: Any = None
        self._compressed = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._compressed = self._compressed or self._file.read(_COMPRESSED_BYTES_PER_READ)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("Compressed file ended before the end of a frame was reached")
                return 0
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            self._text = memoryview(self._frame.decompress(self._compressed))
            self._compressed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        size = min(len(buffer), len(self._text))
        buffer[:size], self._text = self._text[:size], self._text[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _lines(path: str | os.PathLike[str]) -> Iterator[str]:
    number = 0
    try:
        with _open(path) as file:
            if file.peek(3)[:3] == codecs.BOM_UTF8:
                file.read(3)
            for line in file:
                number += 1
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name_of(path)}: line {number} is not valid UTF-8: {error.reason} "
            f"0x{error.object[error.start]:02x} at byte {error.start + 1} of the line"
        ) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise ConfigError(f"{name_of(path)}: {getattr(error, 'strerror', None) or error}") from None

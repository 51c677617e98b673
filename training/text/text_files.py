"""Lines of text files, which may be compressed, divided into shards, or pipes."""

import codecs
import contextlib
import functools
import glob
import gzip
import io
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar, cast

import zstandard

from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.runtime.standard_streams import MAX_LINE_BYTES, standard_input

Item = TypeVar("Item")

_BYTES_PER_READ = 2**16
# Zstandard makes up to 32,768 bytes of one, so that a read takes at most 64 MB of memory.
_COMPRESSED_BYTES_PER_READ = 2048


class Reread(Iterable[Item]):
    """Lines, or pairs of lines, that are not held in memory, but read again in each iteration."""

    def __init__(self, read: Callable[[], Iterator[Item]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Item]:
        return self._read()


class CountedReread(Reread[str], Collection[str]):
    """Lines that are read again in each iteration, and whose number is known."""

    def __init__(self, read: Callable[[], Iterator[str]], number: int) -> None:
        super().__init__(read)
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __contains__(self, line: object) -> bool:
        return any(line == other for other in self)


def read_lines(path: str | os.PathLike[str]) -> Iterable[str]:
    r"""Reads lines of UTF-8, decompressed if the name ends in `.gz`, `.xz` or `.zst`; "-" is standard input.

    A line ends at "\n" and nowhere else, so that no Unicode separator inside a sentence shifts all later lines against
    the other language. A "\r" before it and a byte order mark are dropped. The lines of a file on disk are read again
    in each iteration; those of a pipe are read here and held in memory, because it can be read only once.

    Raises:
        ConfigError: The file cannot be opened.
        InvalidFileError: The file is damaged, or one of its lines is not UTF-8 or has more than 1 MiB; the message
            gives its number. For a file on disk, errors are raised when it is iterated.

    Example:
        >>> list(read_lines("train.en"))
        ['A dog runs .', 'Two women sit on a bench .']
    """
    if path != "-" and os.path.isfile(path):
        return Reread(functools.partial(_lines, path))
    with ProgressBar(f"reading {name_of(path)}", "lines") as bar:
        return list(bar.count(_lines(path)))


def read_texts(paths: Iterable[str | os.PathLike[str]]) -> Iterable[str]:
    """Reads text files, or those of patterns, one after another, each as `read_lines` does."""
    texts = [read_lines(file) for path in paths for file in shards_of(path).values()]
    return Reread(lambda: itertools.chain.from_iterable(texts))


def name_of(path: str | os.PathLike[str]) -> str:
    return "standard input" if path == "-" else os.fspath(path)


def shards_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the files that a path, or a pattern with `*`, `?` or `[` such as "news-*.en.gz", stands for.

    If there is a file whose name is the pattern itself, it stands for that file. The files are sorted by the text in
    place of the pattern's wildcards, from the first to the last, such as "01" of "news-01.en.gz", which is their key.

    Raises:
        ConfigError: No file matches the pattern.
    """
    path = os.fspath(path)
    if not glob.has_magic(path) or os.path.exists(path):
        return {"": path}
    before = re.search(r"[*?[]", path)
    after = re.search(r"[^]*?]*$", path)
    assert before and after
    files = [file for file in glob.glob(path) if not os.path.isdir(file)]
    if not files:
        raise ConfigError(f"{path}: no file matches this pattern")
    return dict(sorted((file[before.start() : len(file) - len(after[0])], file) for file in files))


def _chunks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Reads what a file holds, decompressed."""
    name = os.fspath(path)
    if name.endswith(".zst"):
        yield from _zstandard_chunks(name)
        return
    openers: dict[str, Callable[..., io.BufferedIOBase]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile}
    open_file = openers.get(name[-3:], open)
    standard = cast(io.BufferedIOBase, standard_input()) if path == "-" else None
    with contextlib.nullcontext(standard) if standard else open_file(name, "rb") as file:
        while chunk := file.read1(_BYTES_PER_READ):
            yield chunk


def _zstandard_chunks(name: str) -> Iterator[bytes]:
    """Decompresses frames of Zstandard; the package's own reader accepts a file that was cut off as a whole one."""
    frame: zstandard.ZstdDecompressionObj | None = None
    with open(name, "rb") as file:
        while compressed := file.read(_COMPRESSED_BYTES_PER_READ):
            while compressed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                text = frame.decompress(compressed)
                yield from (text[begin : begin + _BYTES_PER_READ] for begin in range(0, len(text), _BYTES_PER_READ))
                compressed = frame.unused_data
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("Compressed file ended before the end of a frame was reached")


def _lines(path: str | os.PathLike[str]) -> Iterator[str]:
    number = 0
    try:
        for block in _blocks(_chunks(path)):
            # All lines but the first are shorter than a read.
            if len(block) > MAX_LINE_BYTES and block.find(b"\n", 0, MAX_LINE_BYTES + 1) < 0:
                raise InvalidFileError(
                    f"{name_of(path)}: line {number + 1} must have at most {MAX_LINE_BYTES:,} bytes; it has more"
                )
            lines: Iterable[str]
            try:
                lines = block.decode("utf-8").split("\n")
            except UnicodeDecodeError:
                lines = (line.decode("utf-8") for line in block.split(b"\n"))
            for line in lines:
                number += 1
                yield line
    except UnicodeDecodeError as error:
        raise InvalidFileError(
            f"{name_of(path)}: line {number + 1} is not valid UTF-8: {error.reason} "
            f"0x{error.object[error.start]:02x} at byte {error.start + 1} of the line"
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise InvalidFileError(f"{name_of(path)}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{name_of(path)}: {error.strerror or error}") from None


def _blocks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    r"""Joins chunks to whole lines, many at a time, without the end of the last one and "\r" before the ends.

    The part of a line that is longer than allowed is a block too.
    """
    rest = next(chunks, b"")
    while len(rest) < len(codecs.BOM_UTF8) and (chunk := next(chunks, b"")):
        rest += chunk
    chunk, rest = rest.removeprefix(codecs.BOM_UTF8), b""
    while chunk:
        whole, end, rest = (rest + chunk).rpartition(b"\n")
        if end:
            yield whole.replace(b"\r\n", b"\n").removesuffix(b"\r")
        # The additional byte may be the "\r" of a line end.
        if len(rest) > MAX_LINE_BYTES + 1:
            yield rest
        chunk = next(chunks, b"")
    if rest:
        yield rest.removesuffix(b"\r")

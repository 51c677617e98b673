"""Reads lines of text from files and pipes. Files may be compressed and divided into shards."""

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
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar, cast

import zstandard

from ..checks import shown
from ..errors import ConfigError, InvalidFileError
from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import MAX_LINE_BYTES, standard_input

Item = TypeVar("Item")
Path = str | os.PathLike[str]

# Endings of the names of compressed files.
COMPRESSED = (".gz", ".xz", ".zst")
_BYTES_PER_READ = 2**16
# The memory that the lines of a pipe may take, including Python's overhead. It is enough for about
# 20 million sentences.
_MAX_BYTES_IN_MEMORY = 4 * 2**30
# Zstandard decompresses a byte to at most 32,768 bytes, so a read takes at most 64 MB of memory.
_COMPRESSED_BYTES_PER_READ = 2048


class Reread(Iterable[Item]):
    """Lines, or pairs of lines, that are read again in each iteration instead of kept in memory."""

    def __init__(self, read: Callable[[], Iterator[Item]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Item]:
        return self._read()


class CountedReread(Reread[str], Collection[str]):
    """Lines that are read again in each iteration, with a known number of lines."""

    def __init__(self, read: Callable[[], Iterator[str]], number: int) -> None:
        super().__init__(read)
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __contains__(self, line: object) -> bool:
        return any(line == other for other in self)


def read_lines(path: Path) -> Iterable[str]:
    r"""Reads lines of UTF-8 from a file or a pipe; "-" is standard input.

    Files whose names end in `.gz`, `.xz` or `.zst` are decompressed. Only "\n" ends a line, because
    a Unicode separator inside a sentence would misalign all later lines with the other language. A
    "\r" before the "\n" and a byte order mark are dropped. A file on disk is read again in each
    iteration. A pipe can be read only once, so its lines are read immediately and held in memory.

    Raises:
        ConfigError: The file cannot be opened.
        InvalidFileError: The file is damaged, a line is not UTF-8 or has more than 1 MiB (the
            message contains the number of the line), or the lines of a pipe take more than 4 GiB of
            memory. Errors in a file on disk are raised when you iterate over the lines.

    Example:
        >>> list(read_lines("train.en"))
        ['A dog runs .', 'Two women sit on a bench .']
    """
    if path != "-" and os.path.isfile(path):
        return Reread(functools.partial(read_lines_once, path))
    with ProgressBar(f"reading {name_of(path)}", "lines") as bar:
        return list(bar.count(_limited(path)))


def _limited(path: Path) -> Iterator[str]:
    """Reads the lines of a pipe up to the memory limit, because a pipe may never end."""
    size = 0
    for line in read_lines_once(path):
        size += sys.getsizeof(line)
        if size > _MAX_BYTES_IN_MEMORY:
            raise InvalidFileError(
                f"{name_of(path)}: text of a pipe is held in memory and must take at most "
                f"{_MAX_BYTES_IN_MEMORY / 2**30:g} GiB there; write it to a file, which may be "
                "compressed"
            )
        yield line


def read_texts(paths: Iterable[Path]) -> Iterable[str]:
    """Reads the lines of several files or patterns, one after another, like `read_lines`."""
    texts = [read_lines(file) for path in paths for file in shards_of(path).values()]
    return Reread(lambda: itertools.chain.from_iterable(texts))


def name_of(path: Path) -> str:
    return "standard input" if path == "-" else os.fspath(path)


def shards_of(path: Path) -> dict[str, str]:
    """Returns the files that match a path or a pattern such as "news-*.en.gz".

    The wildcards are `*`, `?` and `[`. If the pattern itself is the name of a file, it matches only
    that file. The key of a file is the text that replaces the wildcards, from the first wildcard to
    the last, such as "01" for "news-01.en.gz". Files are sorted by key.

    Raises:
        ConfigError: No file matches the pattern.
    """
    path = os.fspath(path)
    if not glob.has_magic(path) or os.path.exists(path):
        return {"": path}
    # `glob` drops the second of two slashes before a wildcard, which would shift the keys.
    pattern = re.sub("/+", "/", path)
    before = re.split(r"[*?[]", pattern)[0]
    after = re.split(r"[]*?]", pattern)[-1]
    files = [file for file in glob.glob(pattern) if not os.path.isdir(file)]
    if not files:
        raise ConfigError(f"{path}: no file matches this pattern")
    return dict(sorted((file[len(before) : len(file) - len(after)], file) for file in files))


def _chunks(path: Path) -> Iterator[bytes]:
    """Yields the decompressed content of a file."""
    name = os.fspath(path)
    if name.endswith(".zst"):
        yield from _zstandard_chunks(name)
        return
    if name.endswith(".xz"):
        yield from _xz_chunks(name)
        return
    open_file: Callable[..., io.BufferedIOBase] = gzip.GzipFile if name.endswith(".gz") else open
    file: contextlib.AbstractContextManager[io.BufferedIOBase]
    if path == "-":
        # Keep standard input open.
        file = contextlib.nullcontext(cast(io.BufferedIOBase, standard_input()))
    else:
        file = open_file(name, "rb")
    with file as opened:
        while chunk := opened.read1(_BYTES_PER_READ):
            yield chunk


def _xz_chunks(name: str) -> Iterator[bytes]:
    """Decompresses the streams of an .xz file, and raises an error for any other content.

    `lzma.LZMAFile` would treat a damaged stream after the first stream as the end of the file.
    Zeros are allowed between and after streams if their number is a multiple of four (section 2.2
    of the .xz file format).
    """
    stream: lzma.LZMADecompressor | None = None
    has_stream, num_zeros = False, 0
    with open(name, "rb") as file:
        while compressed := file.read(_BYTES_PER_READ):
            while compressed:
                if stream is None:
                    following = compressed.lstrip(b"\0") if has_stream else compressed
                    num_zeros += len(compressed) - len(following)
                    compressed = following
                    if not compressed:
                        break
                    _require_xz_padding(num_zeros)
                    # The first stream may also be in the older .lzma format.
                    kind = lzma.FORMAT_XZ if has_stream else lzma.FORMAT_AUTO
                    stream = lzma.LZMADecompressor(kind)
                    has_stream, num_zeros = True, 0
                yield stream.decompress(compressed, _BYTES_PER_READ)
                while not (stream.eof or stream.needs_input):
                    yield stream.decompress(b"", _BYTES_PER_READ)
                compressed = stream.unused_data
                stream = None if stream.eof else stream
    if stream is not None or not has_stream:
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")
    _require_xz_padding(num_zeros)


def _require_xz_padding(num_zeros: int) -> None:
    if num_zeros % 4:
        raise EOFError(
            f"the zeros after a stream must be a multiple of four; received {num_zeros:,}"
        )


def _zstandard_chunks(name: str) -> Iterator[bytes]:
    """Decompresses Zstandard frames, and raises an EOFError if the last frame is incomplete.

    The package's own reader accepts incomplete frames.
    """
    frame: zstandard.ZstdDecompressionObj | None = None
    with open(name, "rb") as file:
        while compressed := file.read(_COMPRESSED_BYTES_PER_READ):
            while compressed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                text = frame.decompress(compressed)
                yield from (
                    text[begin : begin + _BYTES_PER_READ]
                    for begin in range(0, len(text), _BYTES_PER_READ)
                )
                compressed = frame.unused_data
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("Compressed file ended before the end of a frame was reached")


def read_lines_once(path: Path) -> Iterator[str]:
    """Reads lines like `read_lines`, but only once and without holding them in memory."""
    number = 0
    try:
        # A decompressor may return an empty chunk before the end. Skip it, because an empty chunk
        # marks the end for `_blocks`.
        for block in _blocks(filter(None, _chunks(path))):
            # Only the first line of a block can be longer than a read.
            if len(block) > MAX_LINE_BYTES and block.find(b"\n", 0, MAX_LINE_BYTES + 1) < 0:
                raise InvalidFileError(
                    f"{name_of(path)}: line {number + 1} must have at most {MAX_LINE_BYTES:,} "
                    f"bytes; it has more"
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
    except InvalidFileError:
        raise
    except ValueError as error:
        # The name contains a zero byte.
        raise ConfigError(f"{shown(name_of(path))}: {error}") from None


def _blocks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    r"""Joins chunks into blocks of whole lines, without the line end of each block's last line.

    A "\r" before the end of a line is removed. If a line is longer than allowed, its beginning
    becomes a block.
    """
    chunk = next(chunks, b"")
    # The first chunk may be the byte order mark alone, or a part of it.
    while len(chunk) <= len(codecs.BOM_UTF8) and (more := next(chunks, b"")):
        chunk += more
    chunk = chunk.removeprefix(codecs.BOM_UTF8)
    rest = b""
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

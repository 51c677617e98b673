"""Reads lines and sentence pairs from files, pipes and tensorflow-datasets.

Files may be compressed and divided into shards.
"""

import codecs
import contextlib
import difflib
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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import zstandard

from keras_transformer.checks import shown
from keras_transformer.config.values import listed
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.runtime.standard_streams import MAX_LINE_BYTES, standard_input

Item = TypeVar("Item")
Path = str | os.PathLike[str]

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


class Shard(NamedTuple):
    """A part of a corpus, which is read again in each iteration. Messages use the names."""

    source: Iterable[str]
    target: Iterable[str]
    source_name: str
    target_name: str

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs.

        Raises:
            ConfigError: A file cannot be opened.
            InvalidFileError: A side is empty, is not text, or has more sentences than the other
                side. The message contains both numbers.
        """
        sources, targets = iter(self.source), iter(self.target)
        for number, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
            if source is not None and target is not None:
                yield source, target
                continue
            if number == 0:
                name = self.source_name if source is None else self.target_name
                raise InvalidFileError(f"{name}: the file is empty")
            # One side has ended. The other side has this line and the remaining lines.
            num_sources = number if source is None else number + 1 + sum(1 for _ in sources)
            num_targets = number if target is None else number + 1 + sum(1 for _ in targets)
            raise InvalidFileError(
                "source and target must have the same number of lines: "
                f"{self.source_name} has {num_sources}, {self.target_name} has {num_targets}"
            )


class Corpus(NamedTuple):
    """A parallel text in one or several shards, with a name for messages."""

    name: str
    shards: list[Shard]


def text_corpora(sources: Sequence[Path], targets: Sequence[Path]) -> list[Corpus]:
    """Opens text files in which lines with the same number are translations of each other.

    The files of a pattern such as "news-*.en.gz" are the shards of a corpus. The translation of a
    shard is the file that has the same text in place of the wildcards. If no two names match, the
    files are paired in the order of their names.

    Raises:
        ConfigError: A pattern matches no file, a file has no partner, or a pipe cannot be opened.
        InvalidFileError: A pipe contains something other than text.

    Example:
        >>> [corpus.name for corpus in text_corpora(["train.en"], ["train.de"])]
        ['train.en, train.de']
    """
    if len(sources) != len(targets):
        raise ConfigError(
            "source and target must have the same number of files; "
            f"received {len(sources)} ({_listed(sources)}) and {len(targets)} ({_listed(targets)})"
        )
    return [_text_corpus(source, target) for source, target in zip(sources, targets, strict=True)]


def read_lines_or_pairs(
    sources: Sequence[Path], targets: Sequence[Path] | None
) -> Iterable[tuple[str, str]]:
    """Reads the sentence pairs of text files, which are paired as in `text_corpora`.

    Without target files, the text is in a single language, and all targets are empty.
    """
    if targets is None:
        texts = read_texts(sources)
        return Reread(lambda: ((source, "") for source in texts))
    shards = [shard for corpus in text_corpora(sources, targets) for shard in corpus.shards]
    return Reread(lambda: itertools.chain.from_iterable(shard.pairs() for shard in shards))


def _text_corpus(source: Path, target: Path) -> Corpus:
    source_files, target_files = shards_of(source), shards_of(target)
    without_partner = _without_partner(source_files, target_files)
    if without_partner:
        raise ConfigError(
            "the files of source and target must pair up: "
            f"{name_of(source)} matches {len(source_files)}, "
            f"{name_of(target)} matches {len(target_files)}; "
            f"without a partner: {_listed(without_partner)}"
        )
    shards = []
    for source_file, target_file in zip(source_files.values(), target_files.values(), strict=True):
        lines = read_lines(source_file), read_lines(target_file)
        shards.append(Shard(*lines, name_of(source_file), name_of(target_file)))
    return Corpus(f"{name_of(source)}, {name_of(target)}", shards)


def _without_partner(sources: dict[str, str], targets: dict[str, str]) -> list[str]:
    """Returns the files for which the other side has no file with the same key; see `shards_of`."""
    if sources.keys() & targets.keys():
        return [
            *(file for key, file in sources.items() if key not in targets),
            *(file for key, file in targets.items() if key not in sources),
        ]
    # Without common keys, files are paired in order, so the last files are left over.
    num_pairs = min(len(sources), len(targets))
    return [*list(sources.values())[num_pairs:], *list(targets.values())[num_pairs:]]


def _listed(paths: Sequence[Path]) -> str:
    return listed(sorted(map(name_of, paths)))


def paired_corpora(paths: Sequence[Path]) -> list[Corpus]:
    """Opens text files in which each line contains a sentence, a tab and its translation.

    A path may be a pattern, as for `text_corpora`.
    """
    return [
        Corpus(name_of(path), [_paired_shard(file) for file in shards_of(path).values()])
        for path in paths
    ]


def _paired_shard(path: Path) -> Shard:
    lines = read_lines(path)
    name = name_of(path)

    def read(side: int) -> Iterator[str]:
        for number, line in enumerate(lines, start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise InvalidFileError(
                    f"{name}: line {number} must have exactly one tab; received {shown(line)}"
                )
            yield columns[side]

    source = Reread(functools.partial(read, 0))
    target = Reread(functools.partial(read, 1))
    return Shard(source, target, name, name)


def tfds_corpus(name: str, split: str, data_dir: Path | None = None) -> Corpus:
    """Opens a dataset of text pairs in tensorflow-datasets, such as "ted_hrlr_translate/pt_to_en".

    Pairs are in the order of the dataset, and its supervised keys define which language is the
    source. If the dataset is not on disk, it is downloaded first. The default directory is the
    default of tensorflow-datasets (`TFDS_DATA_DIR` or `~/tensorflow_datasets`).

    Raises:
        ConfigError: The dataset, configuration or split does not exist; the dataset does not
            contain pairs of texts; or it is not on disk and could not be downloaded.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except Exception as error:  # a dataset's own code may raise any type
        dataset = name.partition("/")[0].partition(":")[0]
        known = tfds.list_builders(with_community_datasets=False)
        if dataset not in known:
            nearest = difflib.get_close_matches(dataset, known, cutoff=0.5)
            if nearest:
                hint = f"the nearest names are {', '.join(nearest)}"
            else:
                hint = "no name is similar"
            raise ConfigError(f"there is no dataset {dataset!r}; {hint}") from error
        configs = ", ".join(tfds.builder_cls(dataset).builder_configs) or "none"
        raise ConfigError(
            f"cannot open the dataset {name!r}, the configurations of {dataset} are {configs} "
            f"({_one_line(error)})"
        ) from error
    texts = [
        key
        for key, feature in builder.info.features.items()
        if isinstance(feature, tfds.features.Text)
    ]
    languages = builder.info.supervised_keys
    if not (languages and len(languages) == 2 and all(key in texts for key in languages)):
        raise ConfigError(
            f"{name} is not a dataset of text pairs: its supervised pair is {languages}, "
            f"its texts are {', '.join(texts) or 'none'}"
        )
    # Without a network, ten retries with doubling pauses would take 205 s, and no option changes
    # them. A test counts the retries, in case a release of tensorflow-datasets renames this.
    downloader.MAX_RETRIES = 4
    try:
        # tensorflow-datasets prints its progress on standard output, which is for results.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:
        raise ConfigError(
            f"{name} is not on disk in {builder.data_dir} and could not be downloaded: "
            f"{_one_line(error)}"
        ) from error
    try:
        examples = builder.as_dataset(split=split, as_supervised=True, shuffle_files=False)
    except Exception as error:  # the parser of splits raises any type
        raise ConfigError(
            f"{name} has no split {split!r}, it has {', '.join(sorted(builder.info.splits))} "
            f"({_one_line(error)})"
        ) from error

    def read(side: int) -> Iterator[str]:
        for texts in examples.map(lambda *pair: pair[side]).batch(1024).as_numpy_iterator():
            yield from (text.decode("utf-8") for text in texts)

    source = Reread(functools.partial(read, 0))
    target = Reread(functools.partial(read, 1))
    corpus_name = f"{name}, {split}"
    return Corpus(corpus_name, [Shard(source, target, corpus_name, corpus_name)])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

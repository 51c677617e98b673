"""Sentence pairs, from two text files or from tensorflow-datasets."""

import codecs
import contextlib
import dataclasses
import difflib
import functools
import gzip
import os
import sys
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from keras_transformer.progress import ProgressBar
from keras_transformer.rules import ConfigError
from keras_transformer.standard_streams import standard_input


@dataclasses.dataclass(frozen=True)
class SentencePairs:
    """A parallel text: the i-th sentence of `target` translates the i-th of `source`.

    Args:
        source: collection of str. A list, or `Sentences` that are read again in each iteration.
        target: collection of str, as many.
        name: str. What messages call this text.
    """

    source: Collection[str]
    target: Collection[str]
    name: str

    def __len__(self) -> int:
        return len(self.source)


class Sentences(Collection[str]):
    """Sentences that are not held in memory, but read again in each iteration.

    Args:
        read: Callable. Returns an iterator over the sentences. It is called once at the start, to count them.
        name: str. What messages call them.
    """

    def __init__(self, read: Callable[[], Iterator[str]], name: str) -> None:
        self._read = read
        with ProgressBar(f"reading {name}", "lines") as bar:
            self._number = sum(1 for _ in bar.count(read()))

    def __iter__(self) -> Iterator[str]:
        return self._read()

    def __len__(self) -> int:
        return self._number

    def __contains__(self, sentence: object) -> bool:
        return any(sentence == other for other in self)


def read_lines(path: str | os.PathLike[str]) -> Collection[str]:
    r"""Reads a text file, gzip-compressed where its name ends in `.gz`.

    A line ends at "\n" and nowhere else, so that no Unicode separator inside a sentence shifts all later lines against
    the other language. A "\r" before it and a byte order mark are dropped.

    Args:
        path: str or path of a file in UTF-8; "-" is standard input.

    Returns:
        The lines without their ends, for any number of iterations. The lines of a file on disk are not held in
        memory; those of a pipe are, because it can be read only once.

    Raises:
        ConfigError: The file cannot be read, or a line, which the message gives by its number, is not UTF-8.

    Example:
        >>> list(read_lines("train.en"))
        ['A dog runs .', 'Two women sit on a bench .']
    """
    if path != "-" and os.path.isfile(path):
        return Sentences(functools.partial(_lines, path), os.fspath(path))
    with ProgressBar(f"reading {name_of(path)}", "lines") as bar:
        return list(bar.count(_lines(path)))


def name_of(path: str | os.PathLike[str]) -> str:
    """Returns what messages call a text file."""
    return "standard input" if path == "-" else os.fspath(path)


def _open(path: str | os.PathLike[str]) -> Any:
    if path == "-":
        return contextlib.nullcontext(standard_input())
    return gzip.open(path, "rb") if os.fspath(path).endswith(".gz") else open(path, "rb")


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
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{name_of(path)}: {getattr(error, 'strerror', None) or error}") from None


def read_pairs(source_path: str | os.PathLike[str], target_path: str | os.PathLike[str]) -> SentencePairs:
    """Reads two text files of which lines with the same number are translations of each other.

    Args:
        source_path: str or path of the sentences, one per line, as `read_lines` reads them.
        target_path: str or path of their translations.

    Raises:
        ConfigError: A file cannot be read or is empty, or the numbers of lines differ.
    """
    source, target = read_lines(source_path), read_lines(target_path)
    source_name, target_name = name_of(source_path), name_of(target_path)
    for name, lines in ((source_name, source), (target_name, target)):
        if not len(lines):
            raise ConfigError(f"{name}: the file is empty")
    if len(source) != len(target):
        raise ConfigError(
            "source and target must have the same number of lines: "
            f"{source_name} has {len(source)}, {target_name} has {len(target)}"
        )
    return SentencePairs(source, target, f"{source_name}, {target_name}")


def load_tfds(name: str, split: str, data_dir: str | os.PathLike[str] | None = None) -> SentencePairs:
    """Loads sentence pairs from tensorflow-datasets, in the dataset's own order.

    The dataset's information says which language is the source. A dataset that is already prepared on disk needs no
    network; any other is downloaded first.

    Args:
        name: str. A dataset of text pairs, such as "ted_hrlr_translate/pt_to_en".
        split: str. "train", "validation", "train[:10%]", ...
        data_dir: str or path of the directory for datasets. Defaults to that of tensorflow-datasets (`TFDS_DATA_DIR`,
            or else `~/tensorflow_datasets`).

    Raises:
        ConfigError: There is no such dataset, configuration or split; it does not hold pairs of texts; or it is not
            on disk and could not be downloaded.
    """
    builder = _builder(name, data_dir)
    texts = [key for key, feature in builder.info.features.items() if _is_text(feature)]
    languages = builder.info.supervised_keys
    if not (languages and len(languages) == 2 and all(key in texts for key in languages)):
        raise ConfigError(
            f"{name} is not a dataset of text pairs: its supervised pair is {languages}, "
            f"its texts are {', '.join(texts) or 'none'}"
        )
    _prepare(builder, name)
    try:
        dataset = builder.as_dataset(split=split, as_supervised=True, shuffle_files=False)
    except Exception as error:  # the parser of splits raises any type
        raise ConfigError(
            f"{name} has no split {split!r}, it has {', '.join(sorted(builder.info.splits))} ({_one_line(error)})"
        ) from error

    source, target = (Sentences(functools.partial(_texts, dataset, side), f"{name}, {split}") for side in (0, 1))
    pairs = SentencePairs(source, target, f"{name}, {split}")
    if not len(pairs):
        raise ConfigError(f"{name}: the split {split!r} is empty")
    return pairs


def _texts(dataset: Any, side: int) -> Iterator[str]:
    for texts in dataset.map(lambda *pair: pair[side]).batch(1024).as_numpy_iterator():
        yield from (text.decode("utf-8") for text in texts)


def _builder(name: str, data_dir: str | os.PathLike[str] | None) -> Any:
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except Exception as error:  # a dataset's own code may raise any type
        dataset = name.partition("/")[0].partition(":")[0]
        known = tfds.list_builders(with_community_datasets=False)
        if dataset not in known:
            nearest = difflib.get_close_matches(dataset, known, cutoff=0.5)
            exists = f"the nearest names are {', '.join(nearest)}" if nearest else "nor one like it"
            raise ConfigError(f"there is no dataset {dataset!r}: {exists}") from error
        configs = ", ".join(tfds.builder_cls(dataset).builder_configs) or "none"
        raise ConfigError(
            f"cannot open the dataset {name!r}, the configurations of {dataset} are {configs} ({_one_line(error)})"
        ) from error


def _is_text(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Text)


def _prepare(builder: Any, name: str) -> None:
    from tensorflow_datasets.core.download import downloader

    # Ten retries with doubling pauses would make a machine without a network wait for 205 s.
    downloader.MAX_RETRIES = 4
    try:
        # It prints progress on standard output, which is for the results of a command.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:  # a dataset's own code may raise any type
        raise ConfigError(
            f"{name} is not on disk in {builder.data_dir} and could not be downloaded: {_one_line(error)}"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

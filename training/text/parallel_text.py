"""Where sentence pairs come from: text files in pairs, files with pairs in each line, and tensorflow-datasets."""

import contextlib
import difflib
import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.rules import shown

from .text_files import Reread, name_of, read_lines, read_texts, shards_of

Path = str | os.PathLike[str]


class Shard(NamedTuple):
    """A part of a corpus, which is read again each time; messages name its sides."""

    source: Iterable[str]
    target: Iterable[str]
    source_name: str
    target_name: str

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs.

        Raises:
            ConfigError: A file cannot be opened.
            InvalidFileError: A side is empty or is not text, or has more sentences than the other; the message says how
                many.
        """
        sides = iter(self.source), iter(self.target)
        for number, (source, target) in enumerate(itertools.zip_longest(*sides)):
            if source is not None and target is not None:
                yield source, target
                continue
            if not number:
                raise InvalidFileError(f"{self.source_name if source is None else self.target_name}: the file is empty")
            longer = number + 1 + sum(1 for _ in sides[source is None])
            num_sources, num_targets = (number, longer) if source is None else (longer, number)
            raise InvalidFileError(
                "source and target must have the same number of lines: "
                f"{self.source_name} has {num_sources}, {self.target_name} has {num_targets}"
            )


class Corpus(NamedTuple):
    """A parallel text in one or several shards, which is read again each time; messages call it by its name."""

    name: str
    shards: list[Shard]


def text_corpora(sources: Sequence[Path], targets: Sequence[Path]) -> list[Corpus]:
    """Opens text files in which lines with the same number are translations of each other.

    The files of a pattern such as "news-*.en.gz" are the shards of one corpus. A shard's translation is the file with
    the same text in place of the wildcards; if no names have such a text in common, the order of the names decides.

    Raises:
        ConfigError: A pattern matches no file, a file has no partner, or a pipe cannot be opened.
        InvalidFileError: A pipe holds something other than text.

    Example:
        >>> [corpus.name for corpus in text_corpora(["train.en"], ["train.de"])]
        ['train.en, train.de']
    """
    if len(sources) != len(targets):
        raise ConfigError(
            f"source and target must be given as many files; received {len(sources)} ({_listed(sources)}) and "
            f"{len(targets)} ({_listed(targets)})"
        )
    return [_text_corpus(source, target) for source, target in zip(sources, targets, strict=True)]


def read_lines_or_pairs(sources: Sequence[Path], targets: Sequence[Path] | None) -> Iterable[tuple[str, str]]:
    """Reads pairs of text files as `text_corpora` does, or those of one language, whose targets then are empty."""
    if targets is None:
        texts = read_texts(sources)
        return Reread(lambda: ((source, "") for source in texts))
    shards = [shard for corpus in text_corpora(sources, targets) for shard in corpus.shards]
    return Reread(lambda: itertools.chain.from_iterable(shard.pairs() for shard in shards))


def _text_corpus(source: Path, target: Path) -> Corpus:
    files = shards_of(source), shards_of(target)
    if without_partner := _without_partner(*files):
        parts = [f"{name_of(path)} matches {len(matches)}" for path, matches in zip((source, target), files)]
        raise ConfigError(
            f"the files of source and target must pair up: {', '.join(parts)}; without a partner: "
            f"{_listed(without_partner)}"
        )
    shards = [
        Shard(read_lines(source_file), read_lines(target_file), name_of(source_file), name_of(target_file))
        for source_file, target_file in zip(*(side.values() for side in files), strict=True)
    ]
    return Corpus(f"{name_of(source)}, {name_of(target)}", shards)


def _without_partner(sources: dict[str, str], targets: dict[str, str]) -> list[str]:
    """The files that have none on the other side with the same text in place of the pattern's wildcards."""
    if sources.keys() & targets.keys():
        return [
            file for key in sources.keys() ^ targets.keys() for side in (sources, targets) if (file := side.get(key))
        ]
    # Names without a common part are paired in order, so the last ones are left over.
    longer, shorter = sorted((list(sources.values()), list(targets.values())), key=len, reverse=True)
    return longer[len(shorter) :]


def _listed(paths: Sequence[Path]) -> str:
    names = sorted(map(name_of, paths))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def paired_corpora(paths: Sequence[Path]) -> list[Corpus]:
    r"""Opens text files with a sentence, a tab and its translation in each line; for paths, see `text_corpora`."""
    return [Corpus(name_of(path), [_paired_shard(file) for file in shards_of(path).values()]) for path in paths]


def _paired_shard(path: Path) -> Shard:
    lines, name = read_lines(path), name_of(path)

    def read(side: int) -> Iterator[str]:
        for number, line in enumerate(lines, start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise InvalidFileError(f"{name}: line {number} must have exactly one tab; received {shown(line)}")
            yield columns[side]

    source, target = (Reread(functools.partial(read, side)) for side in (0, 1))
    return Shard(source, target, name, name)


def tfds_corpus(name: str, split: str, data_dir: Path | None = None) -> Corpus:
    """Opens a dataset of text pairs, such as "ted_hrlr_translate/pt_to_en", in the dataset's own order.

    The dataset's information says which language is the source. A dataset that is not prepared on disk yet is
    downloaded first. The default directory is that of tensorflow-datasets (`TFDS_DATA_DIR` or
    `~/tensorflow_datasets`).

    Raises:
        ConfigError: There is no such dataset, configuration or split; it does not hold pairs of texts; or it is not
            on disk and could not be downloaded.
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
            exists = f"the nearest names are {', '.join(nearest)}" if nearest else "no name is similar"
            raise ConfigError(f"there is no dataset {dataset!r}; {exists}") from error
        configs = ", ".join(tfds.builder_cls(dataset).builder_configs) or "none"
        raise ConfigError(
            f"cannot open the dataset {name!r}, the configurations of {dataset} are {configs} ({_one_line(error)})"
        ) from error
    texts = [key for key, feature in builder.info.features.items() if isinstance(feature, tfds.features.Text)]
    languages = builder.info.supervised_keys
    if not (languages and len(languages) == 2 and all(key in texts for key in languages)):
        raise ConfigError(
            f"{name} is not a dataset of text pairs: its supervised pair is {languages}, "
            f"its texts are {', '.join(texts) or 'none'}"
        )
    # Its ten retries with doubling pauses make a machine without a network wait for 205 s, and no option changes them.
    # A test counts the retries, in case a release of tensorflow-datasets renames this.
    downloader.MAX_RETRIES = 4
    try:
        # tensorflow-datasets prints progress on standard output, which is for the results of a command.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:
        raise ConfigError(
            f"{name} is not on disk in {builder.data_dir} and could not be downloaded: {_one_line(error)}"
        ) from error
    try:
        examples = builder.as_dataset(split=split, as_supervised=True, shuffle_files=False)
    except Exception as error:  # the parser of splits raises any type
        raise ConfigError(
            f"{name} has no split {split!r}, it has {', '.join(sorted(builder.info.splits))} ({_one_line(error)})"
        ) from error

    def read(side: int) -> Iterator[str]:
        for texts in examples.map(lambda *pair: pair[side]).batch(1024).as_numpy_iterator():
            yield from (text.decode("utf-8") for text in texts)

    source, target = (Reread(functools.partial(read, side)) for side in (0, 1))
    corpus_name = f"{name}, {split}"
    return Corpus(corpus_name, [Shard(source, target, corpus_name, corpus_name)])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

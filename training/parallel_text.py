"""Where sentence pairs come from: text files in pairs, and files with pairs in each line."""

import functools
import glob
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from keras_transformer.rules import ConfigError, shown

from .text_files import Reread, name_of, read_lines, shards_of

Path = str | os.PathLike[str]


class Shard(NamedTuple):
    """A part of a corpus that has not been read yet, and may be read any number of times.

    Attributes:
        source: iterable of str.
        target: iterable of str, which must be as many.
        source_name: str. What messages call the source.
        target_name: str. What messages call the target.
    """

    source: Iterable[str]
    target: Iterable[str]
    source_name: str
    target_name: str

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs.

        Raises:
            ConfigError: A side cannot be read, or has more sentences than the other; the message says how many.
        """
        sides = iter(self.source), iter(self.target)
        for number, (source, target) in enumerate(itertools.zip_longest(*sides)):
            if source is None or target is None:
                self._refuse(number, 1 + sum(1 for _ in sides[source is None]), is_source_shorter=source is None)
            yield source, target

    def _refuse(self, shorter: int, more: int, is_source_shorter: bool) -> NoReturn:
        sizes = (shorter, shorter + more) if is_source_shorter else (shorter + more, shorter)
        if not shorter:
            raise ConfigError(f"{self.source_name if is_source_shorter else self.target_name}: the file is empty")
        raise ConfigError(
            "source and target must have the same number of lines: "
            f"{self.source_name} has {sizes[0]}, {self.target_name} has {sizes[1]}"
        )


class Corpus(NamedTuple):
    """A parallel text that has not been read yet, in one or several shards.

    Attributes:
        name: str. What messages call it.
        shards: list of Shard.
    """

    name: str
    shards: list[Shard]


def text_corpora(sources: Sequence[Path], targets: Sequence[Path]) -> list[Corpus]:
    """Opens text files of which lines with the same number are translations of each other.

    Args:
        sources: paths, each that of a file as `read_lines` reads it, or a pattern such as "news-*.en.gz", whose files
            are the shards of one corpus.
        targets: as many paths of the translations. Patterns must match as many files as those of `sources`.

    Raises:
        ConfigError: A pattern matches no file, or what is paired does not have the same number of files.

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


def _text_corpus(source: Path, target: Path) -> Corpus:
    files = shards_of(source), shards_of(target)
    if len(files[0]) != len(files[1]):
        parts = [f"{name_of(path)} matches {len(found)}" for path, found in zip((source, target), files, strict=True)]
        raise ConfigError(
            f"source and target must have the same number of files: {', '.join(parts)}; "
            f"without a partner: {_listed(_without_partner(source, target, *files))}"
        )
    shards = [
        Shard(read_lines(one), read_lines(other), name_of(one), name_of(other))
        for one, other in zip(*files, strict=True)
    ]
    return Corpus(f"{name_of(source)}, {name_of(target)}", shards)


def _without_partner(source: Path, target: Path, sources: list[str], targets: list[str]) -> list[str]:
    """The files for which the other pattern matches none with the same text in place of its wildcards."""
    matched = [_matched(pattern, files) for pattern, files in ((source, sources), (target, targets))]
    if not matched[0].keys() & matched[1].keys():
        # The names have nothing in common: the last ones are too many.
        return max(sources, targets, key=len)[min(len(sources), len(targets)) :]
    return [file for key in matched[0].keys() ^ matched[1].keys() for side in matched if (file := side.get(key))]


def _matched(pattern: Path, files: list[str]) -> dict[str, str]:
    """The files by what stands in place of a pattern's wildcards, from the first to the last of them."""
    name = os.fspath(pattern)
    before = next((place for place, character in enumerate(name) if glob.has_magic(character)), len(name))
    after = next((place for place, character in enumerate(reversed(name)) if character in "*?]"), 0)
    return {file[before : len(file) - after]: file for file in files}


def _listed(paths: Sequence[Path]) -> str:
    names = sorted(map(name_of, paths))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def paired_corpora(paths: Sequence[Path]) -> list[Corpus]:
    r"""Opens text files with a sentence, a tab and its translation in each line.

    Args:
        paths: paths of files or patterns, as for `text_corpora`.

    Raises:
        ConfigError: A pattern matches no file.
    """
    return [Corpus(name_of(path), [_paired_shard(file) for file in shards_of(path)]) for path in paths]


def _paired_shard(path: Path) -> Shard:
    lines, name = read_lines(path), name_of(path)
    source, target = (Reread(functools.partial(_column, lines, side, name)) for side in (0, 1))
    return Shard(source, target, name, name)


def _column(lines: Iterable[str], side: int, name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise ConfigError(f"{name}: line {number} must have exactly one tab; received {shown(line)}")
        yield columns[side]

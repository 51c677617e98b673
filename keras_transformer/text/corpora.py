"""Opens parallel texts: pairs of text files, and files that contain both sides."""

import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..checks import shown
from ..config.values import listed
from ..errors import ConfigError, InvalidFileError
from .lines import COMPRESSED, Path, Reread, name_of, read_lines, shards_of


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


def open_corpora(
    sources: Sequence[Path] = (), targets: Sequence[Path] = (), pairs: Sequence[Path] = ()
) -> list[Corpus]:
    """Opens files of sentence pairs.

    A path may also be a pattern such as "news-*.en.gz". The files that match it are the shards of a
    corpus. Files may be compressed (.gz, .xz, .zst).

    Args:
        sources: text files with one sentence per line.
        targets: text files with their translations: lines with the same number are a pair. The
            translation of a shard is the file that has the same text in place of the wildcards. If
            no two names match, the files are paired in the order of their names.
        pairs: files that contain both sides. `FORMATS` maps the ending of a name to the format. A
            file with any other name has a pair on each line: a sentence, a tab and its translation.

    Returns:
        The corpora of text files in the order of `sources`, followed by those of `pairs`.

    Raises:
        ConfigError: A pattern matches no file, a file has no partner, or a pipe cannot be opened.
        InvalidFileError: A pipe contains something other than text.

    Example:
        >>> [corpus.name for corpus in open_corpora(["train.en"], ["train.de"])]
        ['train.en, train.de']
    """
    corpora = _text_corpora(sources, targets)
    for path in pairs:
        shards = [_shard_of_pairs(file) for file in shards_of(path).values()]
        corpora.append(Corpus(name_of(path), shards))
    return corpora


def pairs_of(corpora: Sequence[Corpus]) -> Iterable[tuple[str, str]]:
    """Returns the pairs of several corpora, one after another, which can be iterated again."""
    shards = [shard for corpus in corpora for shard in corpus.shards]
    return Reread(lambda: itertools.chain.from_iterable(shard.pairs() for shard in shards))


def _text_corpora(sources: Sequence[Path], targets: Sequence[Path]) -> list[Corpus]:
    if len(sources) != len(targets):
        raise ConfigError(
            "source and target must have the same number of files; "
            f"received {len(sources)} ({_listed(sources)}) and {len(targets)} ({_listed(targets)})"
        )
    return [_text_corpus(source, target) for source, target in zip(sources, targets, strict=True)]


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


def _shard_of_pairs(path: Path) -> Shard:
    name = os.fspath(path)
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    read = FORMATS.get(pathlib.PurePath(name).suffix, tab_separated_pairs)
    pairs = read(path)
    source = Reread(lambda: (source for source, _ in pairs))
    target = Reread(lambda: (target for _, target in pairs))
    return Shard(source, target, name_of(path), name_of(path))


def tab_separated_pairs(path: Path) -> Iterable[tuple[str, str]]:
    """Reads pairs from lines that contain a sentence, a tab and its translation."""
    lines = read_lines(path)

    def read() -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines, start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise InvalidFileError(
                    f"{name_of(path)}: line {number} must have exactly one tab; "
                    f"received {shown(line)}"
                )
            yield columns[0], columns[1]

    return Reread(read)


# Formats of files that contain both sides, by the ending of the name without `.gz`, `.xz` or
# `.zst`. A function opens a file and returns its pairs, which can be iterated several times.
FORMATS: dict[str, Callable[[Path], Iterable[tuple[str, str]]]] = {
    ".tsv": tab_separated_pairs,
}

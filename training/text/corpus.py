"""Reads, filters and weights sentence pairs for training."""

import dataclasses
import functools
import hashlib
import itertools
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypedDict, TypeVar

import numpy as np

from keras_transformer.checks import require
from keras_transformer.config import DataConfig
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.runtime.progress import ProgressBar, counted
from keras_transformer.text import Corpus, CountedReread, Shard, open_corpora

from .filters import Filter, HeldOut, Pair, Scores, filters_of, judge

_log = logging.getLogger(__name__)

Texts = TypeVar("Texts", bound=tuple[str, ...])

_PAIRS_AT_A_TIME = 2**15
# Chunks of ordinary text are shorter, but each line of an adversarial text may be a mebibyte long.
_CHARACTERS_AT_A_TIME = 2**26
_PAIRS_PER_COUNT = 64


@dataclasses.dataclass(frozen=True)
class SentencePairs:
    """A parallel text: the i-th sentence of `target` translates the i-th of `source`.

    Args:
        source: collection of str. A list, or sentences that are read again in each iteration.
        target: collection of str. The translation of each source.
        name: str. The name of this text in messages.
        weights: tuple of (int, float). For each group of consecutive pairs, the number of pairs and
            their weight, which is the number of times that they are used in an epoch. Defaults to
            (), which uses all pairs once.
        tags: tuple of (int, str). For each group of consecutive pairs, the number of pairs and the
            tag in front of their sources, or "" for no tag. Defaults to (), which means no tags.
    """

    source: Collection[str]
    target: Collection[str]
    name: str
    weights: tuple[tuple[int, float], ...] = ()
    tags: tuple[tuple[int, str], ...] = ()

    def __len__(self) -> int:
        return len(self.source)


def pairs_per_epoch(pairs: SentencePairs) -> int:
    """Returns the number of pairs in an epoch, or its expected value if weights are fractional."""
    if not pairs.weights:
        return len(pairs)
    return round(sum(number * weight for number, weight in pairs.weights))


def pairs_of_epoch(pairs: SentencePairs, epoch: int) -> Iterator[tuple[str, str, str]]:
    """Yields the pairs of an epoch with their tags.

    A pair that is used several times is repeated immediately. If a weight is fractional, the epoch,
    counted from 0, determines which pairs are used once more.

    Example:
        >>> weights = ((1, 2), (1, 1))  # the first pair twice, the second one once
        >>> pairs = SentencePairs(["one", "two"], ["eins", "zwei"], "numbers", weights)
        >>> list(pairs_of_epoch(pairs, epoch=0))
        [('one', 'eins', ''), ('one', 'eins', ''), ('two', 'zwei', '')]
    """
    tag_runs = pairs.tags or ((len(pairs), ""),)
    tags = itertools.chain.from_iterable(itertools.repeat(tag, number) for number, tag in tag_runs)
    tagged = zip(pairs.source, pairs.target, tags, strict=True)
    if not pairs.weights:
        return tagged
    counts = itertools.chain.from_iterable(
        _counts(number, weight, seed=[epoch, corpus])
        for corpus, (number, weight) in enumerate(pairs.weights)
    )
    return itertools.chain.from_iterable(map(itertools.repeat, tagged, counts))


def _counts(number: int, weight: float, seed: list[int]) -> Iterator[int]:
    """Yields the number of times that each pair is used."""
    whole, fraction = divmod(weight, 1)
    random = np.random.default_rng(seed)
    for begin in range(0, number, _PAIRS_AT_A_TIME):
        chances = random.random(min(_PAIRS_AT_A_TIME, number - begin))
        yield from (int(whole) + (chances < fraction)).tolist()


class JudgedPairs(NamedTuple):
    """Consecutive pairs of a shard, with the verdicts of the filters."""

    pairs: list[Pair]
    # uint8 (n,): 0 for a pair that is kept, or the number, from 1, of the filter that removes it
    verdicts: np.ndarray
    corpus: int  # the number of the corpus, from 0
    shard: Shard
    first_line: int  # the number of the first pair in the shard, from 1


def judged_pairs(
    corpora: Sequence[Corpus],
    filters: list[Filter],
    score_paths: Sequence[str | None] | None = None,
) -> Iterator[JudgedPairs]:
    """Reads all pairs of a text once, and yields them with the verdicts of the filters.

    Raises the same errors as `read_text`.

    Args:
        score_paths: For each corpus, the path of its scores, or None if it has no scores. Defaults
            to None, which means no scores.
    """
    with ProgressBar(f"reading {name_of_text(corpora)}", "sentence pairs") as bar:
        for number, corpus in enumerate(corpora):
            is_empty = True
            path = score_paths[number] if score_paths else None
            scores = None if path is None else Scores(path, corpus.name)
            for shard in corpus.shards:
                pairs = shard.pairs()
                first_line = 1
                for chunk in in_chunks(pairs, _PAIRS_AT_A_TIME):
                    verdicts = judge(filters, chunk, scores.take(len(chunk)) if scores else None)
                    yield JudgedPairs(chunk, verdicts, number, shard, first_line)
                    first_line += len(chunk)
                    bar.advance(len(chunk))
                    is_empty = False
            if is_empty:
                name = corpus.shards[0].source_name if len(corpus.shards) == 1 else corpus.name
                raise InvalidFileError(f"{name}: the text is empty")
            if scores:
                scores.finish()


def in_chunks(pairs: Iterator[Texts], size: int = 8192) -> Iterator[list[Texts]]:
    """Divides pairs, or other tuples of texts, into chunks of `size`.

    Chunks are smaller if sentences are very long.
    """
    chunk: list[Texts] = []
    num_characters = 0
    while next_pairs := list(itertools.islice(pairs, min(_PAIRS_PER_COUNT, size - len(chunk)))):
        chunk += next_pairs
        num_characters += sum(map(len, itertools.chain.from_iterable(next_pairs)))
        if len(chunk) == size or num_characters >= _CHARACTERS_AT_A_TIME:
            yield chunk
            chunk = []
            num_characters = 0
    if chunk:
        yield chunk


def name_of_text(corpora: Sequence[Corpus]) -> str:
    more = f" and {len(corpora) - 1} more" if len(corpora) > 1 else ""
    return corpora[0].name + more


def require_one_for_each(corpora: Sequence[Corpus], data: DataConfig) -> None:
    """Raises a ConfigError if weights, tags or scores are set, but not for each corpus."""
    for name, values, what in (
        ("weights", data.weights, "number"),
        ("tags", data.tags, "tag or null"),
        ("scores", data.scores, "file or null"),
    ):
        if values is not None:
            rule = f"a list of one {what} for each corpus, here {len(corpora)}"
            require(len(values) == len(corpora), f"data.{name}", rule, values)


def read_text(
    corpora: Sequence[Corpus], data: DataConfig | None = None, held_out: HeldOut | None = None
) -> tuple[SentencePairs, SentencePairs | None]:
    """Reads a text once, and returns the training pairs and, if requested, the held-out pairs.

    `data` defines the filters, weights and tags. The log shows how many pairs are removed by
    filters or held out. Files on disk are not kept in memory, but held-out pairs are. In addition,
    each pair takes one byte of memory while the text is read, and one bit afterwards.

    Raises:
        ConfigError: A file cannot be opened, no pair is left, or `data.weights`, `data.tags` or
            `data.scores` does not have a value for each corpus.
        InvalidFileError: A corpus is empty, its sides have different numbers of lines, there is not
            exactly one score for each pair, or a file is not text.
    """
    data = data or DataConfig()
    name = name_of_text(corpora)
    require_one_for_each(corpora, data)
    filters = filters_of(data)
    sizes = [0] * len(corpora)
    verdicts = bytearray()
    for part in judged_pairs(corpora, filters, data.scores):
        verdicts += part.verdicts.tobytes()
        if held_out:
            kept = np.flatnonzero(part.verdicts == 0)
            held_out.add([part.pairs[place] for place in kept], sum(sizes) + kept)
        sizes[part.corpus] += len(part.pairs)
    if filters:
        _report_left_out(filters, np.bincount(np.frombuffer(verdicts, np.uint8)), name)
    is_kept = np.frombuffer(verdicts, np.uint8) == 0
    valid_pairs = _hold_out(held_out, is_kept, sizes, data, name) if held_out else None
    sizes_kept = [int(part.sum()) for part in np.split(is_kept, np.cumsum(sizes)[:-1])]
    bits = np.packbits(is_kept)

    def read(side: int) -> Iterator[str]:
        sentences = itertools.chain.from_iterable(
            shard[side] for corpus in corpora for shard in corpus.shards
        )
        blocks = (
            bits[begin : begin + _PAIRS_AT_A_TIME]
            for begin in range(0, len(bits), _PAIRS_AT_A_TIME)
        )
        selectors = itertools.chain.from_iterable(
            np.unpackbits(block).tobytes() for block in blocks
        )
        yield from itertools.compress(sentences, selectors)
        # If all sentences were read, the only selectors left are the zeros that pad the last byte.
        if any(selectors):
            raise InvalidFileError(f"{name}: the text has become shorter since it was first read")

    source = CountedReread(functools.partial(read, 0), sum(sizes_kept))
    target = CountedReread(functools.partial(read, 1), sum(sizes_kept))
    weights = tuple(zip(sizes_kept, data.weights)) if data.weights else ()
    pairs = SentencePairs(source, target, name, weights, _tag_runs(sizes_kept, data))
    return pairs, valid_pairs


def read_valid_text(corpora: Sequence[Corpus], data: DataConfig) -> SentencePairs:
    """Reads a validation text with the tags in `data.valid_tags`.

    Raises:
        ConfigError: A file cannot be opened, or `data.valid_tags` does not have a value for each
            corpus. You can leave out `data.valid_tags` unless all training corpora have a tag.
        InvalidFileError: As in `read_text`.
    """
    tags = data.valid_tags
    if tags is not None or None not in (data.tags or [None]):
        rule = f"a list of one tag or null for each corpus to validate on, here {len(corpora)}"
        require(tags is not None and len(tags) == len(corpora), "data.valid_tags", rule, tags)
    return read_text(corpora, DataConfig(tags=tags))[0]


def read_pairs(
    source_path: str | os.PathLike[str], target_path: str | os.PathLike[str]
) -> SentencePairs:
    """Reads two text files in which lines with the same number are translations of each other.

    The files may be compressed.

    Raises:
        ConfigError: A file cannot be opened.
        InvalidFileError: A file is empty or is not text, or the numbers of lines differ.
    """
    return read_text(open_corpora([source_path], [target_path]))[0]


def _report_left_out(filters: list[Filter], counts: np.ndarray, name: str) -> None:
    total = counts.sum()
    reasons = [f"{count:,} by {filter_}" for filter_, count in zip(filters, counts[1:]) if count]
    if not counts[0]:
        raise ConfigError(
            f"{name}: filters leave none of the {total:,} sentence pairs: {', '.join(reasons)}"
        )
    by = f": {', '.join(reasons)}" if reasons else ""
    _log.info(f"filters removed {total - counts[0]:,} of {counted(total, 'sentence pair')}{by}")


def _hold_out(
    held_out: HeldOut, is_kept: np.ndarray, sizes: list[int], data: DataConfig, name: str
) -> SentencePairs:
    """Returns the held-out pairs, and sets `is_kept` to False for them."""
    pairs, places_of_pairs = held_out.finish()
    places = list(itertools.chain.from_iterable(places_of_pairs))
    is_kept[places] = False
    num_copies = len(places) - len(pairs)
    if num_copies == 0:
        copies = ""
    elif num_copies == 1:
        copies = " and another copy of them"
    else:
        copies = f" and {num_copies:,} more copies of them"
    _log.info(f"held out {counted(len(pairs), 'sentence pair')}{copies} to validate on")
    if not is_kept.any():
        raise ConfigError(f"{name}: all sentence pairs are held out; none are left to train on")
    tags = _tag_runs([], data)
    if data.tags:
        # Keep the pairs of each corpus together.
        first_places = [places[0] for places in places_of_pairs]
        corpus_of = np.searchsorted(np.cumsum(sizes), first_places, side="right")
        pairs = [pairs[number] for number in np.argsort(corpus_of, kind="stable")]
        tags = _tag_runs(np.bincount(corpus_of, minlength=len(sizes)).tolist(), data)
    name = f"{len(pairs):,} pairs held out of {name}"
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    return SentencePairs(sources, targets, name, tags=tags)


def _tag_runs(numbers: list[int], data: DataConfig) -> tuple[tuple[int, str], ...]:
    return tuple((number, tag or "") for number, tag in zip(numbers, data.tags or (), strict=False))


class TextFingerprint(TypedDict):
    """The number of lines of a text, and the SHA-256 of the lines on each side."""

    lines: int
    source: str
    target: str


class TextHash:
    """Computes the fingerprint of a parallel text that is read in chunks."""

    def __init__(self) -> None:
        self._num_lines = 0
        self._source = hashlib.sha256()
        self._target = hashlib.sha256()

    def add(self, sources: Iterable[str], targets: Sequence[str]) -> None:
        self._source.update(_encoded_lines(sources))
        self._target.update(_encoded_lines(targets))
        self._num_lines += len(targets)

    def fingerprint(self) -> TextFingerprint:
        return {
            "lines": self._num_lines,
            "source": self._source.hexdigest(),
            "target": self._target.hexdigest(),
        }


def _encoded_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def fingerprint_of(pairs: Iterable[Pair]) -> TextFingerprint:
    text = TextHash()
    for chunk in in_chunks(iter(pairs)):
        text.add(*zip(*chunk))
    return text.fingerprint()

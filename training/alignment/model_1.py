"""IBM Model 1 (Brown et al., 1993) of subwords, in both directions, and of words that translate
each other.

Each token of one side comes from one token of the other, any of them with the same probability
beforehand. The end token, with which every sentence ends, takes the place of the empty word: what
has no translation comes from it.

The probabilities are learned by expectation maximization. A pass over the text counts how often
each pair of tokens is expected to be linked; the counts, divided by their sums, are the
probabilities of the next pass. Only tokens that share a sentence pair have an entry.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import regex

from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.tokenizers.placeholders import IN_A_WORD

from ..text.corpus import SentencePairs, in_chunks

PASSES = 5
# What bounds memory: pairs of tokens whose probabilities are kept, 16 bytes each, and links looked
# at together.
_CAPACITY = 2**24
_LINKS_PER_BLOCK = 2**21
# A key is a pair of token ids.
_SOURCE = 2**32
# Probability with which words that translate each other come from each other, in both directions.
_MIN_PROBABILITY = 0.1
# A word in a larger share of the sentences says too little to be a term.
_MAX_SHARE = 0.05
_MAX_WORDS = 3
# What bounds memory and time: pairs of sentences that are learned from, words of a sentence.
_MAX_PAIRS = 200_000
_WORDS_PER_SENTENCE = 256

_WORD = regex.compile(IN_A_WORD)
# What may be between the words of a phrase.
_BETWEEN = regex.compile(r"[ \-'’]")
# The number of the empty word, with which a sentence ends as with an end token, and of words that
# are not known.
_EMPTY, _UNKNOWN = 0, 1

Keys = Annotated[np.ndarray, "int64 (n,), ascending"]


class Links(NamedTuple):
    """All pairs of a source token and a target token that share one of some sentence pairs."""

    keys: np.ndarray  # int64 (num_links,), the two tokens
    source_places: (
        np.ndarray
    )  # int64 (num_links,), the place of the source token among all of these sentence pairs
    target_places: np.ndarray  # int64 (num_links,), likewise


class Counts(NamedTuple):
    """How often pairs of tokens are expected to be linked; or the probabilities that follow."""

    keys: np.ndarray  # int64 (n,), ascending, see `source_ids` and `target_ids`
    forward: np.ndarray  # float32 (n,), if each target token comes from one source token
    backward: np.ndarray  # float32 (n,), if each source token comes from one target token

    @property
    def source_ids(self) -> Annotated[np.ndarray, "int64 (n,)"]:
        return self.keys // _SOURCE

    @property
    def target_ids(self) -> Annotated[np.ndarray, "int64 (n,)"]:
        return self.keys % _SOURCE

    def probabilities(self) -> "Counts":
        """Returns the probability of each target token given a source token, and the other way
        round."""
        return Counts(
            self.keys, _share(self.forward, self.source_ids), _share(self.backward, self.target_ids)
        )


class Sentences(NamedTuple):
    """One side of some sentence pairs."""

    token_ids: np.ndarray  # int (num_tokens,), of all sentences end to end, each with its end token
    lengths: np.ndarray  # int (num_sentences,)

    def part(self, begin: int, end: int) -> "Sentences":
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        return Sentences(self.token_ids[ends[begin] : ends[end]], self.lengths[begin:end])


def links_of(source: Sentences, target: Sentences) -> Links:
    """Returns all links of sentence pairs.

    Example:
        >>> links = links_of(Sentences(np.array([7, 3]), np.array([2])), Sentences(np.array([9, 8, 3]), np.array([3])))
        >>> links.source_places.tolist(), links.target_places.tolist()
        ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    """
    source_lengths, target_lengths = source.lengths.astype("int64"), target.lengths.astype("int64")
    # Each source token has as many links as its sentence's translation has tokens.
    links_per_token = np.repeat(target_lengths, source_lengths)
    source_places = np.repeat(np.arange(len(source.token_ids)), links_per_token)
    first_links = np.cumsum(links_per_token) - links_per_token
    first_targets = np.repeat(np.cumsum(target_lengths) - target_lengths, source_lengths)
    target_places = np.arange(len(source_places)) + np.repeat(
        first_targets - first_links, links_per_token
    )
    keys = (
        source.token_ids.astype("int64")[source_places] * _SOURCE + target.token_ids[target_places]
    )
    return Links(keys, source_places, target_places)


def in_blocks(
    source: Sentences, target: Sentences, max_links: int = _LINKS_PER_BLOCK
) -> Iterator[tuple[Sentences, Sentences]]:
    """Divides sentence pairs into blocks with at most as many links, or of one pair, in their
    order."""
    num_links = np.cumsum(source.lengths.astype("int64") * target.lengths)
    begin = 0
    while begin < len(num_links):
        before = num_links[begin - 1] if begin else 0
        end = max(int(np.searchsorted(num_links, before + max_links, side="right")), begin + 1)
        yield source.part(begin, end), target.part(begin, end)
        begin = end


def expected_counts(links: Links, probabilities: Counts | None) -> Counts:
    """Returns how often each pair of tokens is expected to be linked, given what a pass before
    found.

    A pair without a probability has 0; without any probabilities, all are equal.
    """
    keys, places = np.unique(links.keys, return_inverse=True)
    forward = backward = np.ones(len(keys), "float32")
    if probabilities is not None:
        forward, backward = _look_up(probabilities, keys)
    return Counts(
        keys,
        np.bincount(places, _share(forward[places], links.target_places), len(keys)).astype(
            "float32"
        ),
        np.bincount(places, _share(backward[places], links.source_places), len(keys)).astype(
            "float32"
        ),
    )


def count_links(
    parts: Iterable[tuple[Sentences, Sentences]], probabilities: Counts | None, bar: ProgressBar
) -> Counts:
    """Makes a pass over the parts of a text: sums the expected counts of all sentence pairs."""
    table = CountTable(_CAPACITY)
    for source, target in parts:
        for block in in_blocks(source, target):
            table.add(expected_counts(links_of(*block), probabilities))
        bar.advance(len(source.lengths))
    return table.total()


def learn_probabilities(
    read: Callable[[], Iterable[tuple[Sentences, Sentences]]], num_pairs: int, task: str
) -> Counts:
    """Learns the probabilities of a text, of which `read` returns the parts once for each pass, in
    five passes."""
    probabilities = None
    with ProgressBar(task, "sentence pairs", PASSES * num_pairs) as bar:
        for _ in range(PASSES):
            probabilities = count_links(read(), probabilities, bar).probabilities()
    assert probabilities is not None  # There is at least one pass.
    return probabilities


def best_links(
    source: Sentences, target: Sentences, probabilities: Counts
) -> Iterator[list[tuple[int, int]]]:
    """Finds the most probable links of sentence pairs: those on which both directions agree,
    without end tokens.

    Yields:
        For each pair the places of tokens in source and target, in the order of the source.
    """
    links = links_of(source, target)
    forward, backward = _look_up(probabilities, links.keys)
    is_best = _is_best(forward, links.target_places) & _is_best(backward, links.source_places)
    first_source, first_target = (
        np.cumsum(side.lengths) - side.lengths for side in (source, target)
    )
    sentences = np.repeat(np.arange(len(source.lengths)), source.lengths)[links.source_places]
    places = (
        links.source_places - first_source[sentences],
        links.target_places - first_target[sentences],
    )
    for side, place in zip((source, target), places, strict=True):
        is_best &= place < side.lengths[sentences] - 1
    chosen = np.stack(places, axis=1)[is_best]
    numbers = np.bincount(sentences[is_best], minlength=len(source.lengths))
    for part in np.split(chosen, np.cumsum(numbers)[:-1]):
        yield [(int(source_place), int(target_place)) for source_place, target_place in part]


def _is_best(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Whether a value is the highest of its group; ties go to the first, and no value of a group of
    zeros is chosen."""
    order = np.lexsort((-values, groups))
    firsts = order[
        np.flatnonzero(
            np.concatenate([[True], groups[order][1:] != groups[order][:-1]])[: len(order)]
        )
    ]
    is_best = np.zeros(len(values), "bool")
    is_best[firsts] = values[firsts] > 0
    return is_best


class CountTable:
    """The sum of counts, of at most `capacity` pairs of tokens: those of the rarest pairs are left
    out.

    It holds half as many more.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._total = Counts(np.zeros(0, "int64"), np.zeros(0, "float32"), np.zeros(0, "float32"))
        # Counts of pairs of tokens that are not in the total yet.
        self._new: list[Counts] = []

    def add(self, counts: Counts) -> None:
        places, is_known = _find(self._total.keys, counts.keys)
        for total, added in zip(self._total[1:], counts[1:], strict=True):
            total[places[is_known]] += added[is_known]
        is_new = ~is_known & (counts.forward + counts.backward > 0)
        self._new.append(Counts(*(column[is_new] for column in counts)))
        if sum(len(counts.keys) for counts in self._new) > self._capacity // 2:
            self.total()

    def total(self) -> Counts:
        keys, *counts = (np.concatenate(columns) for columns in zip(self._total, *self._new))
        self._new.clear()
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
        self._total = Counts(
            keys[firsts], *(np.add.reduceat(column[order], firsts) for column in counts)
        )
        if len(firsts) > self._capacity:
            highest = np.maximum(self._total.forward, self._total.backward)
            kept = np.sort(np.argpartition(-highest, self._capacity)[: self._capacity])
            self._total = Counts(*(column[kept] for column in self._total))
        return self._total


def _look_up(counts: Counts, keys: np.ndarray) -> np.ndarray:
    places, is_known = _find(counts.keys, keys)
    values = np.zeros((2, len(keys)), "float32")
    values[:, is_known] = counts.forward[places[is_known]], counts.backward[places[is_known]]
    return values


def _find(keys: Keys, wanted: Keys) -> tuple[np.ndarray, np.ndarray]:
    """The places of some keys among others, and whether they are there."""
    if not len(keys):
        return np.zeros(len(wanted), "int64"), np.zeros(len(wanted), "bool")
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted


def _share(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values divided by the sums of their groups; 0 where the sum is 0."""
    sums = np.bincount(groups, values)[groups]
    return np.divide(
        values, sums, out=np.zeros(len(values), "float32"), where=sums > 0, casting="same_kind"
    )


class Term(NamedTuple):
    """A word or phrase of a source, from its first character to before `end`, and its
    translation."""

    begin: int
    end: int
    translation: str


@dataclasses.dataclass(frozen=True)
class Lexicon:
    """Words that translate each other.

    Args:
        numbers: for each language, its words in lower case, and their numbers, from 2.
        probabilities: those of the words that translate each other.

    Example:
        >>> pairs = SentencePairs(["a dog", "dogs", "a tree"], ["ein Hund", "Hunde", "ein Baum"], "text")
        >>> list(learn_lexicon(pairs, max_share=1).terms(["the dog"], ["der Hund"]))
        [[Term(begin=4, end=7, translation='Hund')]]
    """

    numbers: tuple[dict[str, int], dict[str, int]]
    probabilities: Counts

    def terms(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[list[Term]]:
        """Finds the words and phrases of sources whose translation is in the target, in their
        order.

        Each of two words is the most probable translation of the other in this pair of sentences.
        Up to three that follow each other on both sides in the same order are a phrase.
        """
        words = [[list(_words(text)) for text in texts] for texts in (sources, targets)]
        numbered = [
            _numbered(side, numbers) for side, numbers in zip(words, self.numbers, strict=True)
        ]
        links = itertools.chain.from_iterable(
            best_links(*block, self.probabilities) for block in in_blocks(numbered[0], numbered[1])
        )
        for source, target, source_words, target_words, pair_links in zip(
            sources, targets, *words, links, strict=True
        ):
            yield list(_phrases(source, target, source_words, target_words, pair_links))


def learn_lexicon(pairs: SentencePairs, max_share: float = _MAX_SHARE) -> Lexicon:
    """Learns the words of a text that translate each other, from at most 200,000 of its pairs.

    Words in a larger share of the sentences than `max_share` are left out.
    """
    step = -(-len(pairs) // _MAX_PAIRS) or 1
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    parts: list[tuple[Sentences, Sentences]] = []
    sampled = itertools.islice(zip(pairs.source, pairs.target), 0, None, step)
    for chunk in in_chunks(sampled):
        sides = [[list(_words(text)) for text in texts] for texts in zip(*chunk)]
        for side, known in zip(sides, numbers, strict=True):
            for word in itertools.chain.from_iterable(side):
                known.setdefault(word.text, len(known) + _UNKNOWN + 1)
        source, target = (
            _numbered(side, known) for side, known in zip(sides, numbers, strict=True)
        )
        parts.append((source, target))
    num_pairs = sum(len(source.lengths) for source, _ in parts)
    probabilities = learn_probabilities(lambda: parts, num_pairs, "aligning words")
    is_strong = np.minimum(probabilities.forward, probabilities.backward) >= _MIN_PROBABILITY
    for ids, known, sentences in zip(
        (probabilities.source_ids, probabilities.target_ids),
        numbers,
        zip(*parts, strict=True),
        strict=True,
    ):
        shares = _shares(sentences, len(known) + _UNKNOWN + 1)
        is_strong &= (ids > _UNKNOWN) & (shares[ids] <= max_share)
    return Lexicon(numbers, Counts(*(column[is_strong] for column in probabilities)))


class _Word(NamedTuple):
    text: str  # in lower case
    begin: int
    end: int


def _words(text: str) -> Iterator[_Word]:
    matches = itertools.islice(_WORD.finditer(text), _WORDS_PER_SENTENCE)
    return (_Word(match.group().lower(), match.start(), match.end()) for match in matches)


def _numbered(sentences: Iterable[list[_Word]], numbers: dict[str, int]) -> Sentences:
    rows = [[*(numbers.get(word.text, _UNKNOWN) for word in words), _EMPTY] for words in sentences]
    return Sentences(
        np.fromiter(itertools.chain.from_iterable(rows), "int32"),
        np.array([len(row) for row in rows], "int64"),
    )


def _shares(parts: Sequence[Sentences], number: int) -> Annotated[np.ndarray, "float (number,)"]:
    """In which share of the sentences words are."""
    counts = np.zeros(number)
    for part in parts:
        sentences = np.repeat(np.arange(len(part.lengths)), part.lengths)
        counts += np.bincount(
            np.unique(sentences * number + part.token_ids) % number, minlength=number
        )
    return counts / max(sum(len(part.lengths) for part in parts), 1)


def _phrases(
    source: str,
    target: str,
    source_words: list[_Word],
    target_words: list[_Word],
    links: list[tuple[int, int]],
) -> Iterator[Term]:
    begin = 0
    while begin < len(links):
        end = begin + 1
        while (
            end < min(len(links), begin + _MAX_WORDS)
            and _follows(source, source_words, links[end - 1][0], links[end][0])
            and _follows(target, target_words, links[end - 1][1], links[end][1])
        ):
            end += 1
        (first_source, first_target), (last_source, last_target) = links[begin], links[end - 1]
        translation = target[target_words[first_target].begin : target_words[last_target].end]
        yield Term(source_words[first_source].begin, source_words[last_source].end, translation)
        begin = end


def _follows(text: str, words: list[_Word], first: int, second: int) -> bool:
    return (
        second == first + 1
        and _BETWEEN.fullmatch(text[words[first].end : words[second].begin]) is not None
    )

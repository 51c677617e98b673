"""IBM Model 1 (Brown et al., 1993) for subword tokens and for words.

The model assumes that each token of a sentence comes from one token of the sentence in the other
language, and that all of those tokens are equally likely a priori. Every sentence ends with the end
token, which serves as the empty word: tokens without a translation come from it.

The probabilities are learned by expectation maximization. A pass over the text counts how often
each pair of tokens is expected to be linked. The counts divided by their sums are the probabilities
for the next pass. Only tokens that occur together in a sentence pair are counted.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import regex

from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.tokenizers.words import WORD

from ..text.corpus import SentencePairs, in_chunks

PASSES = 5
# Limits on memory use: the number of token pairs to keep the probabilities of, 16 bytes each, and
# the number of links in a block.
_CAPACITY = 2**24
_LINKS_PER_BLOCK = 2**21
# A key is source_id * _SOURCE + target_id.
_SOURCE = 2**32
# Two words translate each other if both translation probabilities are at least this.
_MIN_PROBABILITY = 0.1
# Words that occur in a larger share of the sentences are too common to be terms.
_MAX_SHARE = 0.05
_MAX_WORDS = 3
# Limits on memory use and time: sentence pairs to learn from, and words per sentence.
_MAX_PAIRS = 200_000
_WORDS_PER_SENTENCE = 256

_WORD = regex.compile(WORD)
# Text that may separate the words of a phrase. Scripts without spaces need no separator.
_BETWEEN = regex.compile(r"[ \-'’]?")
# The ids of the empty word, which ends every sentence, and of unknown words.
_EMPTY, _UNKNOWN = 0, 1

Keys = Annotated[np.ndarray, "int64 (n,), ascending"]


class Links(NamedTuple):
    """All pairs of a source token and a target token in the same sentence pair."""

    keys: np.ndarray  # int64 (num_links,), the keys of the token pairs
    # int64 (num_links,), the position of each token among all tokens of its side
    source_places: np.ndarray
    target_places: np.ndarray


class Counts(NamedTuple):
    """Expected numbers of links between pairs of tokens, or the resulting probabilities."""

    keys: np.ndarray  # int64 (n,), ascending, see `source_ids` and `target_ids`
    forward: np.ndarray  # float32 (n,), assuming each target token comes from one source token
    backward: np.ndarray  # float32 (n,), assuming each source token comes from one target token

    @property
    def source_ids(self) -> Annotated[np.ndarray, "int64 (n,)"]:
        return self.keys // _SOURCE

    @property
    def target_ids(self) -> Annotated[np.ndarray, "int64 (n,)"]:
        return self.keys % _SOURCE

    def probabilities(self) -> "Counts":
        """Returns the probabilities of target tokens given source tokens, and vice versa."""
        forward = _share(self.forward, self.source_ids)
        backward = _share(self.backward, self.target_ids)
        return Counts(self.keys, forward, backward)


class Sentences(NamedTuple):
    """The sources or the targets of several sentence pairs."""

    token_ids: np.ndarray  # int (num_tokens,), all sentences with their end tokens
    lengths: np.ndarray  # int (num_sentences,)

    def part(self, begin: int, end: int) -> "Sentences":
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        return Sentences(self.token_ids[ends[begin] : ends[end]], self.lengths[begin:end])


def links_of(source: Sentences, target: Sentences) -> Links:
    """Returns the links between all tokens of each sentence pair.

    Example:
        >>> source = Sentences(np.array([7, 3]), np.array([2]))
        >>> target = Sentences(np.array([9, 8, 3]), np.array([3]))
        >>> links = links_of(source, target)
        >>> links.source_places.tolist(), links.target_places.tolist()
        ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    """
    source_lengths = source.lengths.astype("int64")
    target_lengths = target.lengths.astype("int64")
    # Each source token is linked to every token of the other sentence.
    links_per_token = np.repeat(target_lengths, source_lengths)
    source_places = np.repeat(np.arange(len(source.token_ids)), links_per_token)
    first_links = np.cumsum(links_per_token) - links_per_token
    first_targets = np.repeat(np.cumsum(target_lengths) - target_lengths, source_lengths)
    offsets = np.repeat(first_targets - first_links, links_per_token)
    target_places = np.arange(len(source_places)) + offsets
    source_ids = source.token_ids.astype("int64")[source_places]
    keys = source_ids * _SOURCE + target.token_ids[target_places]
    return Links(keys, source_places, target_places)


def in_blocks(
    source: Sentences, target: Sentences, max_links: int = _LINKS_PER_BLOCK
) -> Iterator[tuple[Sentences, Sentences]]:
    """Divides sentence pairs into blocks of at most `max_links` links, or of a single pair."""
    num_links = np.cumsum(source.lengths.astype("int64") * target.lengths)
    begin = 0
    while begin < len(num_links):
        before = num_links[begin - 1] if begin else 0
        end = max(int(np.searchsorted(num_links, before + max_links, side="right")), begin + 1)
        yield source.part(begin, end), target.part(begin, end)
        begin = end


def expected_counts(links: Links, probabilities: Counts | None) -> Counts:
    """Returns how often each pair of tokens is expected to be linked, given probabilities.

    Pairs that are not in `probabilities` have probability 0. If `probabilities` is None, all pairs
    are equally likely.
    """
    keys, places = np.unique(links.keys, return_inverse=True)
    forward = backward = np.ones(len(keys), "float32")
    if probabilities is not None:
        forward, backward = _look_up(probabilities, keys)
    forward_shares = _share(forward[places], links.target_places)
    backward_shares = _share(backward[places], links.source_places)
    return Counts(
        keys,
        np.bincount(places, forward_shares, len(keys)).astype("float32"),
        np.bincount(places, backward_shares, len(keys)).astype("float32"),
    )


def count_links(
    parts: Iterable[tuple[Sentences, Sentences]], probabilities: Counts | None, bar: ProgressBar
) -> Counts:
    """Sums the expected counts of all sentence pairs in one pass over a text."""
    table = CountTable(_CAPACITY)
    for source, target in parts:
        for block in in_blocks(source, target):
            table.add(expected_counts(links_of(*block), probabilities))
        bar.advance(len(source.lengths))
    return table.total()


def learn_probabilities(
    read: Callable[[], Iterable[tuple[Sentences, Sentences]]], num_pairs: int, task: str
) -> Counts:
    """Learns the probabilities of a text in five passes. `read` returns the parts of the text."""
    probabilities = None
    with ProgressBar(task, "sentence pairs", PASSES * num_pairs) as bar:
        for _ in range(PASSES):
            probabilities = count_links(read(), probabilities, bar).probabilities()
    assert probabilities is not None  # There is at least one pass.
    return probabilities


def best_links(
    source: Sentences, target: Sentences, probabilities: Counts
) -> Iterator[list[tuple[int, int]]]:
    """Finds the links of sentence pairs that are most probable in both directions.

    End tokens have no links.

    Yields:
        For each sentence pair, the positions of linked tokens in source and target, in source
        order.
    """
    for forward, backward in links_both_ways(source, target, probabilities):
        yield sorted(forward & backward)


def links_both_ways(
    source: Sentences, target: Sentences, probabilities: Counts
) -> Iterator[tuple[set[tuple[int, int]], set[tuple[int, int]]]]:
    """Finds the most probable links of sentence pairs in each direction.

    End tokens have no links.

    Yields:
        For each sentence pair, two sets of positions in source and target. The first set links each
        target token to the source token that it comes from. The second set links each source token
        to the target token that it comes from.
    """
    links = links_of(source, target)
    forward, backward = _look_up(probabilities, links.keys)
    forward_best = _is_best(forward, links.target_places)
    backward_best = _is_best(backward, links.source_places)
    sides = [
        _by_sentence(source, target, links, is_best) for is_best in (forward_best, backward_best)
    ]
    yield from zip(*sides, strict=True)


def _by_sentence(
    source: Sentences, target: Sentences, links: Links, is_best: np.ndarray
) -> Iterator[set[tuple[int, int]]]:
    sentences = np.repeat(np.arange(len(source.lengths)), source.lengths)[links.source_places]
    first_source = np.cumsum(source.lengths) - source.lengths
    first_target = np.cumsum(target.lengths) - target.lengths
    source_places = links.source_places - first_source[sentences]
    target_places = links.target_places - first_target[sentences]
    is_best = is_best & (source_places < source.lengths[sentences] - 1)
    is_best &= target_places < target.lengths[sentences] - 1
    chosen = np.stack([source_places, target_places], axis=1)[is_best]
    numbers = np.bincount(sentences[is_best], minlength=len(source.lengths))
    for part in np.split(chosen, np.cumsum(numbers)[:-1]):
        yield {(int(source_place), int(target_place)) for source_place, target_place in part}


def _is_best(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Returns whether each value is the highest of its group.

    Ties go to the first value. In a group of zeros, no value is chosen.
    """
    order = np.lexsort((-values, groups))
    firsts = order[_first_of_equals(groups[order])]
    is_best = np.zeros(len(values), "bool")
    is_best[firsts] = values[firsts] > 0
    return is_best


def _first_of_equals(ordered: np.ndarray) -> np.ndarray:
    """Returns the index of the first occurrence of each value in a sorted array."""
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    return np.flatnonzero(is_first[: len(ordered)])


class CountTable:
    """Sums the counts of pairs of tokens, and keeps at most `capacity` pairs.

    Pairs with the lowest counts are dropped. Up to 1.5 times `capacity` pairs are held in memory.
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
        firsts = _first_of_equals(keys)
        sums = [np.add.reduceat(column[order], firsts) for column in counts]
        self._total = Counts(keys[firsts], *sums)
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
    """Returns the position of each wanted key in `keys`, and whether `keys` contains it."""
    if not len(keys):
        return np.zeros(len(wanted), "int64"), np.zeros(len(wanted), "bool")
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted


def _share(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Returns values divided by the sums of their groups, or 0 if the sum is 0."""
    sums = np.bincount(groups, values)[groups]
    shares = np.zeros(len(values), "float32")
    return np.divide(values, sums, out=shares, where=sums > 0, casting="same_kind")


class Term(NamedTuple):
    """A word or phrase of a source with its translation."""

    begin: int  # position of the first character
    end: int  # position after the last character
    translation: str


@dataclasses.dataclass(frozen=True)
class Lexicon:
    """Words and their translations.

    Args:
        numbers: For each language, the id of each word in lower case. Ids start at 2.
        probabilities: Translation probabilities of pairs of words that translate each other.
        one_way: Translation probabilities of pairs of words that are likely translations in at
            least one direction, including frequent words.

    Example:
        >>> sources, targets = ["a dog", "dogs", "a tree"], ["ein Hund", "Hunde", "ein Baum"]
        >>> lexicon = learn_lexicon(SentencePairs(sources, targets, "text"), max_share=1)
        >>> list(lexicon.terms(["the dog"], ["der Hund"]))
        [[Term(begin=4, end=7, translation='Hund')]]
    """

    numbers: tuple[dict[str, int], dict[str, int]]
    probabilities: Counts
    one_way: Counts

    def terms(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[list[Term]]:
        """Finds the words and phrases of sources whose translation is in the target.

        A word and its translation are each the most probable translation of the other in this
        sentence pair. Up to three such words that follow each other on both sides in the same order
        form a phrase. In scripts without spaces, the phrase includes adjacent characters that come
        from its words. Terms are in source order.
        """
        source_words = [list(_words(text)) for text in sources]
        target_words = [list(_words(text)) for text in targets]
        source_numbers, target_numbers = self.numbers
        numbered = (
            _numbered(source_words, source_numbers),
            _numbered(target_words, target_numbers),
        )

        def in_sentences(
            find: Callable[..., Iterator[Any]], probabilities: Counts
        ) -> Iterator[Any]:
            return itertools.chain.from_iterable(
                find(*block, probabilities) for block in in_blocks(*numbered)
            )

        links = in_sentences(best_links, self.probabilities)
        both_ways = in_sentences(links_both_ways, self.one_way)
        for pair in zip(
            sources, targets, source_words, target_words, links, both_ways, strict=True
        ):
            yield list(_phrases(*pair))


def learn_lexicon(pairs: SentencePairs, max_share: float = _MAX_SHARE) -> Lexicon:
    """Learns which words of a text translate each other, from at most 200,000 of its pairs.

    Words that occur in a larger share of the sentences than `max_share` are not terms.
    """
    step = -(-len(pairs) // _MAX_PAIRS) or 1
    source_numbers: dict[str, int] = {}
    target_numbers: dict[str, int] = {}
    parts: list[tuple[Sentences, Sentences]] = []
    sampled = itertools.islice(zip(pairs.source, pairs.target), 0, None, step)
    for chunk in in_chunks(sampled):
        sources, targets = zip(*chunk)
        source = _numbered_anew(sources, source_numbers)
        target = _numbered_anew(targets, target_numbers)
        parts.append((source, target))
    num_pairs = sum(len(source.lengths) for source, _ in parts)
    probabilities = learn_probabilities(lambda: parts, num_pairs, "aligning words")

    def is_term(ids: np.ndarray, sentences: list[Sentences], num_words: int) -> np.ndarray:
        shares = _shares(sentences, num_words + _UNKNOWN + 1)
        return (ids > _UNKNOWN) & (shares[ids] <= max_share)

    is_strong = np.minimum(probabilities.forward, probabilities.backward) >= _MIN_PROBABILITY
    sources_of_parts = [source for source, _ in parts]
    targets_of_parts = [target for _, target in parts]
    is_strong &= is_term(probabilities.source_ids, sources_of_parts, len(source_numbers))
    is_strong &= is_term(probabilities.target_ids, targets_of_parts, len(target_numbers))
    is_one_way = np.maximum(probabilities.forward, probabilities.backward) >= _MIN_PROBABILITY
    is_one_way &= (probabilities.source_ids > _UNKNOWN) & (probabilities.target_ids > _UNKNOWN)
    terms, one_way = (
        Counts(*(column[is_chosen] for column in probabilities))
        for is_chosen in (is_strong, is_one_way)
    )
    return Lexicon((source_numbers, target_numbers), terms, one_way)


class _Word(NamedTuple):
    text: str  # in lower case
    begin: int
    end: int


def _words(text: str) -> Iterator[_Word]:
    matches = itertools.islice(_WORD.finditer(text), _WORDS_PER_SENTENCE)
    return (_Word(match.group().lower(), match.start(), match.end()) for match in matches)


def _numbered_anew(texts: Iterable[str], numbers: dict[str, int]) -> Sentences:
    """Converts the words of texts to ids. New words are assigned the next free ids."""
    sentences = [list(_words(text)) for text in texts]
    for word in itertools.chain.from_iterable(sentences):
        numbers.setdefault(word.text, len(numbers) + _UNKNOWN + 1)
    return _numbered(sentences, numbers)


def _numbered(sentences: Iterable[list[_Word]], numbers: dict[str, int]) -> Sentences:
    rows = [[*(numbers.get(word.text, _UNKNOWN) for word in words), _EMPTY] for words in sentences]
    word_ids = np.fromiter(itertools.chain.from_iterable(rows), "int32")
    return Sentences(word_ids, np.array([len(row) for row in rows], "int64"))


def _shares(parts: Sequence[Sentences], number: int) -> Annotated[np.ndarray, "float (number,)"]:
    """Returns, for each word, the share of the sentences that contain it."""
    counts = np.zeros(number)
    for part in parts:
        sentences = np.repeat(np.arange(len(part.lengths)), part.lengths)
        words_of_sentences = np.unique(sentences * number + part.token_ids)
        counts += np.bincount(words_of_sentences % number, minlength=number)
    return counts / max(sum(len(part.lengths) for part in parts), 1)


def _phrases(
    source: str,
    target: str,
    source_words: list[_Word],
    target_words: list[_Word],
    links: list[tuple[int, int]],
    both_ways: tuple[set[tuple[int, int]], set[tuple[int, int]]],
) -> Iterator[Term]:
    forward, backward = both_ways
    source_of = {target_place: source_place for source_place, target_place in forward}
    target_of = dict(backward)

    def extends(link: tuple[int, int], before: tuple[int, int]) -> bool:
        follows_in_source = _follows(source, source_words, before[0], link[0])
        return follows_in_source and _follows(target, target_words, before[1], link[1])

    begin = end_of_last = 0
    while begin < len(links):
        end = begin + 1
        while end < min(len(links), begin + _MAX_WORDS) and extends(links[end], links[end - 1]):
            end += 1
        sources, targets = ({link[side] for link in links[begin:end]} for side in (0, 1))
        # Extend the phrase on each side by the characters that come from its words on the other
        # side.
        first_source, last_source = _with_neighbors(source_words, sources, target_of, targets)
        first_target, last_target = _with_neighbors(target_words, targets, source_of, sources)
        translation = target[target_words[first_target].begin : target_words[last_target].end]
        if first_source >= end_of_last:
            place = source_words[first_source].begin
            yield Term(place, source_words[last_source].end, translation)
            end_of_last = last_source + 1
        while begin < len(links) and (begin < end or links[begin][0] < end_of_last):
            begin += 1


def _with_neighbors(
    words: list[_Word], places: set[int], partners: dict[int, int], others: set[int]
) -> tuple[int, int]:
    """Extends a phrase by adjacent characters, and returns its first and its last position.

    Args:
        places: Positions of the words of the phrase, which are consecutive.
        partners: For each word, the position in the other language that it comes from.
        others: Positions of the phrase in the other language.
    """
    first, last = min(places), max(places)
    # Words that touch are characters of a script without spaces.
    while first > 0 and words[first - 1].end == words[first].begin:
        if partners.get(first - 1) not in others:
            break
        first -= 1
    while last + 1 < len(words) and words[last].end == words[last + 1].begin:
        if partners.get(last + 1) not in others:
            break
        last += 1
    return first, last


def _follows(text: str, words: list[_Word], first: int, second: int) -> bool:
    if second != first + 1:
        return False
    between = text[words[first].end : words[second].begin]
    return _BETWEEN.fullmatch(between) is not None

"""Words of two languages that translate each other, learned from a parallel text by IBM Model 1."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import regex

from keras_transformer.tokenizers.placeholders import IN_A_WORD

from ..text.corpus import SentencePairs, in_chunks
from .model_1 import Counts, Sentences, best_links, in_blocks, learn_probabilities

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
# The number of the empty word, with which a sentence ends as with an end token, and of words that are not known.
_EMPTY, _UNKNOWN = 0, 1


class Term(NamedTuple):
    """A word or phrase of a source, from its first character to before `end`, and its translation."""

    begin: int
    end: int
    translation: str


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

    def __init__(self, numbers: tuple[dict[str, int], dict[str, int]], probabilities: Counts) -> None:
        self._numbers = numbers
        self._probabilities = probabilities

    def terms(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[list[Term]]:
        """Finds the words and phrases of sources whose translation is in the target, in their order.

        Each of two words is the most probable translation of the other in this pair of sentences. Up to three that
        follow each other on both sides in the same order are a phrase.
        """
        words = [[list(_words(text)) for text in texts] for texts in (sources, targets)]
        numbered = [_numbered(side, numbers) for side, numbers in zip(words, self._numbers, strict=True)]
        links = itertools.chain.from_iterable(
            best_links(*block, self._probabilities) for block in in_blocks(numbered[0], numbered[1])
        )
        for source, target, source_words, target_words, pair_links in zip(sources, targets, *words, links, strict=True):
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
        source, target = (_numbered(side, known) for side, known in zip(sides, numbers, strict=True))
        parts.append((source, target))
    num_pairs = sum(len(source.lengths) for source, _ in parts)
    probabilities = learn_probabilities(lambda: parts, num_pairs, "aligning words")
    is_strong = np.minimum(probabilities.forward, probabilities.backward) >= _MIN_PROBABILITY
    for ids, known, sentences in zip(
        (probabilities.source_ids, probabilities.target_ids), numbers, zip(*parts, strict=True), strict=True
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
        np.fromiter(itertools.chain.from_iterable(rows), "int32"), np.array([len(row) for row in rows], "int64")
    )


def _shares(parts: Sequence[Sentences], number: int) -> Annotated[np.ndarray, "float (number,)"]:
    """In which share of the sentences words are."""
    counts = np.zeros(number)
    for part in parts:
        sentences = np.repeat(np.arange(len(part.lengths)), part.lengths)
        counts += np.bincount(np.unique(sentences * number + part.token_ids) % number, minlength=number)
    return counts / max(sum(len(part.lengths) for part in parts), 1)


def _phrases(
    source: str, target: str, source_words: list[_Word], target_words: list[_Word], links: list[tuple[int, int]]
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
    return second == first + 1 and _BETWEEN.fullmatch(text[words[first].end : words[second].begin]) is not None

"""Random changes to the training text, which differ in each epoch.

They imitate how users write, annotate terms with translations, and split words into different
subwords.
"""

import dataclasses
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated

import numpy as np
import regex
import sentencepiece
import tensorflow as tf

from keras_transformer.config.sections import AugmentConfig
from keras_transformer.tensors import Tensor
from keras_transformer.text import CountedReread
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.tokenizers.sentencepiece import escape
from keras_transformer.tokenizers.terms import annotated, escaped

from ..alignment.model_1 import Lexicon, Term
from ..text.corpus import SentencePairs, in_chunks
from ..text.filters import Pair

# This noncharacter replaces a span that must not change. Texts that contain it are not changed.
_SPAN = "\ufdd0"
_LETTERS_OF_A_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")
_FIRST_LETTER = regex.compile(r"(?<![\p{L}\p{M}\p{N}]['’]?)\p{L}")
_FINAL_PUNCTUATION = regex.compile(r"\s*[\p{Sentence_Terminal}…]+\s*$")
# Spaces next to a span do not change, because a URL is recognized only after a space.
_SPACE = regex.compile(rf"(?<=[^\s{_SPAN}]) (?=[^\s{_SPAN}])")
# One out of this many words gets a typo. One out of this many spaces is doubled or removed.
_ONE_OF = 10
_SHORTEST_WORD_WITH_TYPO = 3
_EMOJI = [chr(code) for code in range(0x1F600, 0x1F640)]
_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
# The maximum number of terms in a source that are annotated with their translations.
_MAX_TERMS = 4

Change = Callable[[str, str, random.Random], Pair]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Applies random changes to sentence pairs, as configured in `data.augment`.

    The change of a pair depends only on the seed, the epoch, and the number of the pair in the
    epoch. Spans that placeholders replace do not change.

    Example:
        >>> augmentation = Augmentation(AugmentConfig(upper_case=1), seed=1, spans=SpanFinder())
        >>> augmentation.augment([("See <b>a</b> street", "Sieh <b>eine</b> Straße")], epoch=0)
        [('SEE <b>A</b> STREET', 'SIEH <b>EINE</b> STRASSE')]
    """

    config: AugmentConfig
    seed: int
    spans: SpanFinder

    def text(self, pairs: SentencePairs) -> SentencePairs:
        """Returns a text with the changes of the first epoch, applied again in each iteration."""

        def read(side: int) -> Iterator[str]:
            for pair in self.pairs(zip(pairs.source, pairs.target, strict=True), epoch=0):
                yield pair[side]

        source = CountedReread(functools.partial(read, 0), len(pairs))
        target = CountedReread(functools.partial(read, 1), len(pairs))
        return dataclasses.replace(pairs, source=source, target=target)

    def pairs(self, pairs: Iterable[Pair], epoch: int) -> Iterator[Pair]:
        """Yields the changed pairs of an epoch."""
        first = 0
        for chunk in in_chunks(iter(pairs)):
            yield from self.augment(chunk, epoch, first)
            first += len(chunk)

    def augment(self, pairs: Sequence[Pair], epoch: int, first: int = 0) -> list[Pair]:
        """Returns consecutive pairs of an epoch with their changes.

        Args:
            pairs: Sources and targets. Use "" if there is no target. Pairs with a blank source do
                not change.
            epoch: The number of the epoch, from 0.
            first: The number of the first pair in the epoch. Defaults to 0.
        """
        augmented = list(pairs)
        drawn: dict[int, tuple[list[Change], random.Random]] = {}
        for place, (source, target) in enumerate(pairs):
            if not source.strip() or _SPAN in source + target:
                continue
            rng = random.Random(f"{self.seed} {epoch} {first + place}")
            changes = self._draw(rng)
            if changes:
                drawn[place] = changes, rng
        if not drawn:
            return augmented

        source_parts = self._parts([pairs[place][0] for place in drawn])
        target_parts = self._parts([pairs[place][1] for place in drawn])
        for number, (place, (changes, rng)) in enumerate(drawn.items()):
            # Every second part is a span. A single character replaces it while the text changes.
            source = _SPAN.join(source_parts[number][::2])
            target = _SPAN.join(target_parts[number][::2])
            for change in changes:
                source, target = change(source, target, rng)
            augmented[place] = (
                _with_spans(source, source_parts[number][1::2]),
                _with_spans(target, target_parts[number][1::2]),
            )
        return augmented

    def _parts(self, texts: list[str]) -> list[list[str]]:
        """Splits texts into parts that may change, alternating with spans."""
        divided = self.spans.parts(tf.constant(texts)).to_list()
        return [[part.decode() for part in parts] for parts in divided]

    def _draw(self, rng: random.Random) -> list[Change]:
        """Draws the changes of a pair, in the order in which they are applied."""
        shares = self.config
        # Always draw five numbers, so changing a share does not change the other draws.
        case, punctuation, typos, spaces, emoji = (rng.random() for _ in range(5))
        changes: list[Change] = []
        if punctuation < shares.no_final_punctuation:
            changes.append(_without_final_punctuation)
        if case < shares.upper_case:
            changes.append(_upper_case)
        elif case < shares.upper_case + shares.title_case:
            changes.append(_title_case)
        elif case < shares.upper_case + shares.title_case + shares.lower_case:
            changes.append(_lower_case)
        if typos < shares.typos:
            changes.append(_with_typos)
        if spaces < shares.spaces:
            changes.append(_with_wrong_spaces)
        if emoji < shares.emoji:
            changes.append(_with_emoji)
        return changes


def _with_spans(text: str, spans: Sequence[str]) -> str:
    between = text.split(_SPAN)
    return "".join(text + span for text, span in zip(between, [*spans, ""], strict=True))


def _upper_case(source: str, target: str, _: random.Random) -> Pair:
    if not _has_case(source):
        return source, target
    return source.upper(), target.upper()


def _title_case(source: str, target: str, _: random.Random) -> Pair:
    if not _has_case(source):
        return source, target
    return _with_title_case(source), _with_title_case(target)


def _with_title_case(text: str) -> str:
    return _FIRST_LETTER.sub(lambda letter: letter[0].title(), text)


def _lower_case(source: str, target: str, _: random.Random) -> Pair:
    if not _has_case(source):
        return source, target
    return source.lower(), target


def _has_case(text: str) -> bool:
    """Returns whether most letters have a case, unlike in a Chinese sentence with a Latin name."""
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(letter.lower() != letter.upper() for letter in letters) > len(letters)


def _without_final_punctuation(source: str, target: str, _: random.Random) -> Pair:
    short_source = _FINAL_PUNCTUATION.sub("", source)
    short_target = _FINAL_PUNCTUATION.sub("", target)
    # Keep a text that consists only of punctuation, or that ends without punctuation.
    if short_source in ("", source) or (target and not short_target):
        return source, target
    return short_source, short_target


def _with_typos(source: str, target: str, rng: random.Random) -> Pair:
    words = []
    for word in _LETTERS_OF_A_WORD.finditer(source):
        letters = regex.findall(r"\X", word[0])  # with their combining marks
        if len(letters) >= _SHORTEST_WORD_WITH_TYPO:
            words.append((word.span(), letters))
    for (begin, end), letters in _one_of_ten(words, rng):
        source = source[:begin] + "".join(_with_typo(letters, rng)) + source[end:]
    return source, target


def _with_typo(letters: list[str], rng: random.Random) -> list[str]:
    """Returns a word with a wrong, doubled or missing letter, or with two letters swapped."""
    place = _below(len(letters), rng)
    kind = _below(4, rng)
    if kind == 0 and (neighbors := _neighbors(letters[place])):
        return [*letters[:place], neighbors[_below(len(neighbors), rng)], *letters[place + 1 :]]
    if kind == 1:
        return [*letters[:place], letters[place], *letters[place:]]
    different = [at for at in range(len(letters) - 1) if letters[at] != letters[at + 1]]
    if kind == 2 and different:
        place = different[_below(len(different), rng)]
        return [*letters[:place], letters[place + 1], letters[place], *letters[place + 2 :]]
    return [*letters[:place], *letters[place + 1 :]]


def _neighbors(letter: str) -> str:
    """Returns the letters next to a letter on an English keyboard, in the same case.

    Letters that are not on the keyboard have no neighbors.
    """
    for row in _KEYBOARD:
        if (place := row.find(letter.lower())) >= 0:
            beside = row[max(place - 1, 0) : place] + row[place + 1 : place + 2]
            return beside.upper() if letter.isupper() else beside
    return ""


def _with_wrong_spaces(source: str, target: str, rng: random.Random) -> Pair:
    for space in _one_of_ten([space.start() for space in _SPACE.finditer(source)], rng):
        source = source[:space] + ("  ", "")[_below(2, rng)] + source[space + 1 :]
    return source, target


def _with_emoji(source: str, target: str, rng: random.Random) -> Pair:
    emoji = _EMOJI[_below(len(_EMOJI), rng)]
    # Three out of four emoji are added at the end.
    pattern = f"{emoji} {{}}" if rng.random() < 0.25 else f"{{}} {emoji}"
    return pattern.format(source), pattern.format(target) if target else target


def _one_of_ten(items: Sequence, rng: random.Random) -> list:
    """Draws a tenth of the items, rounded up, and returns them from the last to the first."""
    places = list(range(len(items)))
    number = -(-len(items) // _ONE_OF)
    chosen = [places.pop(_below(len(places), rng)) for _ in range(number)]
    return [items[place] for place in sorted(chosen, reverse=True)]


def _below(number: int, rng: random.Random) -> int:
    # Only `random()` is guaranteed to draw the same numbers in all Python releases.
    return int(rng.random() * number)


class TermAnnotation:
    """Annotates source terms with their translations, as a glossary does.

    A source is not annotated if it contains no known term, or only terms whose translations are
    longer than half of the target. Another source is annotated instead, if there is one.

    Args:
        share: The share of sources to annotate.
    """

    def __init__(self, lexicon: Lexicon, share: float, seed: int) -> None:
        self._lexicon = lexicon
        self._share = share
        self._random = np.random.default_rng(seed)
        # The number of sources that still have to be annotated.
        self._missing = 0

    def annotate(self, sources: Sequence[str], targets: Sequence[str]) -> list[str]:
        """Returns sources for `segment_annotated`. Some contain one to four annotated terms."""
        texts = [escaped(source) for source in sources]
        self._missing += int((self._random.random(len(sources)) < self._share).sum())
        order = self._random.permutation(len(sources)).tolist()
        while self._missing and order:
            places, order = order[: self._missing], order[self._missing :]
            chosen_sources = [sources[place] for place in places]
            chosen_targets = [targets[place] for place in places]
            terms_of = self._lexicon.terms(chosen_sources, chosen_targets)
            for place, terms in zip(places, terms_of, strict=True):
                if chosen := self._choose(terms, targets[place]):
                    texts[place] = _with_translations(sources[place], chosen)
                    self._missing -= 1
        return texts

    def _choose(self, terms: list[Term], target: str) -> list[Term]:
        """Chooses up to four terms whose translations add up to at most half of the target."""
        if not terms:
            return []
        number = self._random.integers(min(len(terms), _MAX_TERMS)) + 1
        chosen: list[Term] = []
        room = len(target) // 2
        for place in self._random.permutation(len(terms)):
            size = len(terms[place].translation)
            if len(chosen) < number and size <= room:
                chosen.append(terms[place])
                room -= size
        return sorted(chosen)


def _with_translations(source: str, terms: list[Term]) -> str:
    parts = []
    end = 0
    for term in terms:
        # The space before a term is part of the term, like the space before any word.
        begin = max(term.begin - 1, end) if source[: term.begin].endswith(" ") else term.begin
        parts.append(escaped(source[end:begin]))
        space = source[begin : term.begin]
        translation = space + escaped(term.translation)
        parts.append(annotated(escaped(source[begin : term.end]), translation))
        end = term.end
    parts.append(escaped(source[end:]))
    return "".join(parts)


class SubwordDropout(SentencePieceTokenizer):
    """A tokenizer for training that skips merges at random: BPE-dropout.

    See Provilkov et al. 2020, arXiv 1910.13267.

    Args:
        tokenizer: A tokenizer of kind "bpe".
        rate: The probability that a possible merge is skipped.

    Example:
        >>> sampler = SubwordDropout(tokenizer, rate=0.5, seed=1)
        >>> first = sampler.tokenize(["A dog runs through the park."]).to_list()
        >>> second = sampler.tokenize(["A dog runs through the park."]).to_list()
        >>> first != second
        True
    """

    is_random = True

    def __init__(self, tokenizer: SentencePieceTokenizer, rate: float, seed: int) -> None:
        super().__init__(tokenizer.file_content, tokenizer.normalization)
        self.rate = rate
        self.seed = seed
        self._calls = 0
        self._sampler = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.file_content)

    def segment(self, parts: Annotated[Tensor, "string (n,)"]) -> tf.RaggedTensor:
        lines = [escape(part.decode()) for part in np.asarray(parts)]
        # SentencePiece applies the seed only in new threads, and starts threads only for two lines
        # or more. The empty line ensures that there are two.
        sentencepiece.set_random_generator_seed((self.seed * 1_000_003 + self._calls) % 2**32)
        self._calls += 1
        *rows, _ = self._sampler.encode(
            [*lines, ""],
            out_type=int,
            enable_sampling=True,
            nbest_size=-1,
            alpha=self.rate,
            num_threads=1,
        )
        token_ids = tf.constant([token_id for row in rows for token_id in row], tf.int32)
        return tf.RaggedTensor.from_row_lengths(token_ids, [len(row) for row in rows])

"""Terms whose translation is given: how a source tells a model about them.

The translation is written beside the term, between pieces that no text is segmented into (Dinu et
al. 2019, "Training Neural Machine Translation to Apply Terminology Constraints"): `A {term} dog
{translation} Hund {/term} runs.` A model that was trained with such sources copies it, inflected or
not.
"""

import re
from collections.abc import Mapping
from typing import Annotated

import tensorflow as tf

from ..errors import ConfigError
from ..runtime.standard_streams import silenced
from ..tensors import Tensor
from .tokenizer import Texts, TokenIds, Tokenizer
from .words import WORD, with_marks

NUM_TERM_PIECES = 3

# Marks that are put into a text: one stands for the mark if the text has it already, one separates
# a term, its translation and the text around them, and one stands before and after each word.
_MARK = "\ufdd1"
_ESCAPED_MARK = _MARK + "\ufdd2"
_SEPARATOR = _MARK + "\ufdd3"
_WORD = _MARK + "\ufdd4"
# Large enough that two terms rarely share a number.
_NUM_HASHES = 2**63 - 1


def escaped(text: str) -> str:
    """Returns a text in which `annotated` may be put."""
    return text.replace(_MARK, _ESCAPED_MARK)


def annotated(term: str, translation: str) -> str:
    """Returns a term with its translation for `segment_annotated`; both are already escaped."""
    return f"{_SEPARATOR}{term}{_SEPARATOR}{translation}{_SEPARATOR}"


class Glossary:
    """Finds terms in texts and writes their translations beside them.

    A term is found where its words are whole words, written as in the glossary; its first letter
    may be a capital. In scripts without spaces between words, each character is a word. If several
    terms begin at the same place, the longest is found.

    Args:
        terms: the translation of each term.

    Raises:
        ConfigError: The terms are too many.

    Example:
        >>> glossary = Glossary({"dog": "Hund", "hot dog": "Wurst"})
        >>> glossary.translations(tf.constant(["Hot dog, dog, dogs"])).to_list()
        [[b'Wurst', b'Hund']]
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        capitalized = {_capitalized(term): translation for term, translation in terms.items()}
        translations = {}
        # A term with a capital of its own goes before one whose first letter became one.
        for term, translation in [*capitalized.items(), *terms.items()]:
            words = with_marks(escaped(term), _WORD)
            translations[words] = escaped(translation)
        keys = tf.strings.to_hash_bucket_fast(list(translations), _NUM_HASHES).numpy()
        order = keys.argsort()
        self._keys = keys[order]
        values = list(translations.values())
        self._translations = [values[place] for place in order]
        # In reverse order, a longer term comes before its beginning. RE2 also finds common
        # beginnings then, and needs less memory.
        alternatives = "|".join(map(re.escape, sorted(translations, reverse=True)))
        # The space before a term belongs to it, as to any word.
        self._pattern = f" ?(?:{alternatives})"
        try:
            with silenced():
                tf.strings.regex_replace("", self._pattern, "")
        except tf.errors.InvalidArgumentError:
            raise ConfigError(
                f"decoding.terms must be fewer or shorter; received {len(terms):,} terms"
            ) from None

    def translations(self, texts: Texts) -> Annotated[tf.RaggedTensor, "string (n, None)"]:
        """Returns the translations of the terms in texts, in their order."""
        parts, is_term = self._parts(texts)
        terms = tf.ragged.boolean_mask(parts, is_term)
        return terms.with_flat_values(_plain(self._look_up(terms.flat_values)))

    def annotate(self, texts: Texts) -> Texts:
        """Writes translations beside terms, for `segment_annotated`."""
        parts, is_term = self._parts(texts)
        flat = parts.flat_values
        space = tf.where(tf.strings.regex_full_match(flat, "(?s) .*"), " ", "")
        translation = self._look_up(flat)
        term = tf.strings.join([_SEPARATOR, flat, _SEPARATOR, space, translation, _SEPARATOR])
        flat = tf.strings.regex_replace(tf.where(is_term.flat_values, term, flat), _WORD, "")
        return tf.strings.reduce_join(parts.with_flat_values(flat), axis=1)

    def _parts(self, texts: Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """The parts of escaped texts, with marks around words, and which of them are terms."""
        words = tf.strings.regex_replace(texts, _MARK, _ESCAPED_MARK)
        words = tf.strings.regex_replace(words, WORD, rf"{_WORD}\0{_WORD}")
        separated = tf.strings.regex_replace(words, self._pattern, rf"{_SEPARATOR}\0{_SEPARATOR}")
        parts = tf.strings.split(separated, _SEPARATOR)
        return parts, tf.ragged.range(parts.row_lengths()) % 2 == 1

    def _look_up(self, terms: Tensor) -> Tensor:
        """The translations of terms; the result is arbitrary for texts that are no terms."""
        terms = tf.strings.regex_replace(terms, "^ ", "")
        keys = tf.strings.to_hash_bucket_fast(terms, _NUM_HASHES)
        places = tf.minimum(tf.searchsorted(self._keys, keys), len(self._keys) - 1)
        return tf.gather(tf.constant(self._translations), places)


def segment_annotated(tokenizer: Tokenizer, parts: Texts) -> TokenIds:
    """Splits parts of sources with annotated terms into subword ids.

    `Glossary.annotate` or `annotated` has put the translations beside the terms.
    """
    divided = tf.strings.split(parts, _SEPARATOR)
    # The parts repeat: text, a term, its translation.
    places = tf.ragged.range(divided.row_lengths()).flat_values
    follows = places > 0
    pieces = tokenizer.term_ids.start + tf.cast((places - 1) % NUM_TERM_PIECES, tf.int32)
    in_front = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(pieces, follows), tf.cast(follows, tf.int64)
    )
    ids = tf.concat([in_front, tokenizer.segment(_plain(divided.flat_values))], axis=1)
    row_splits = tf.gather(ids.row_splits, divided.row_splits)
    return tf.RaggedTensor.from_row_splits(ids.flat_values, row_splits, validate=False)


def _plain(texts: Tensor) -> Tensor:
    return tf.strings.regex_replace(texts, _ESCAPED_MARK, _MARK)


def _capitalized(term: str) -> str:
    first = term[0].upper()
    # "ß" becomes two letters.
    if len(first) > 1:
        return term
    return first + term[1:]

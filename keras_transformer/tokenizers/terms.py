"""Annotates sources with the translations of terms from a glossary.

The translation is inserted after the term, between special pieces (Dinu et al. 2019, "Training
Neural Machine Translation to Apply Terminology Constraints"):
`A {term} dog {translation} Hund {/term} runs.` A model that was trained with annotated sources
copies the translation and inflects it if necessary.
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

# Marks that are inserted into a text: an escape for the mark itself if the text already contains
# it, a separator between a term, its translation and the surrounding text, and a mark around every
# word.
_MARK = "\ufdd1"
_ESCAPED_MARK = _MARK + "\ufdd2"
_SEPARATOR = _MARK + "\ufdd3"
_WORD = _MARK + "\ufdd4"
# Large enough to make hash collisions between terms unlikely.
_NUM_HASHES = 2**63 - 1


def escaped(text: str) -> str:
    """Escapes a text, so that you can insert annotated terms (see `annotated`) into it."""
    return text.replace(_MARK, _ESCAPED_MARK)


def annotated(term: str, translation: str) -> str:
    """Returns an annotated term for `segment_annotated`. Both arguments must be escaped."""
    return f"{_SEPARATOR}{term}{_SEPARATOR}{translation}{_SEPARATOR}"


class Glossary:
    """Glossary that annotates the terms in texts with their translations.

    Terms match whole words, spelled as in the glossary or with a capital first letter. In scripts
    without spaces between words, every character is a word. If several terms start at the same
    position, the longest term matches.

    Args:
        terms: dict that maps terms to their translations.

    Raises:
        ConfigError: If there are too many terms.

    Example:
        >>> glossary = Glossary({"dog": "Hund", "hot dog": "Wurst"})
        >>> glossary.translations(tf.constant(["Hot dog, dog, dogs"])).to_list()
        [[b'Wurst', b'Hund']]
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        capitalized = {_capitalized(term): translation for term, translation in terms.items()}
        translations = {}
        # A term that is listed with a capital takes precedence over another term that is
        # capitalized.
        for term, translation in [*capitalized.items(), *terms.items()]:
            words = with_marks(escaped(term), _WORD)
            translations[words] = escaped(translation)
        keys = tf.strings.to_hash_bucket_fast(list(translations), _NUM_HASHES).numpy()
        order = keys.argsort()
        self._keys = keys[order]
        values = list(translations.values())
        self._translations = [values[place] for place in order]
        # In reverse order, a longer term precedes its prefixes. RE2 can also factor out common
        # prefixes, which saves memory.
        alternatives = "|".join(map(re.escape, sorted(translations, reverse=True)))
        # A term includes the space before it, like any word.
        self._pattern = f" ?(?:{alternatives})"
        try:
            with silenced():
                tf.strings.regex_replace("", self._pattern, "")
        except tf.errors.InvalidArgumentError:
            raise ConfigError(
                f"decoding.terms must have fewer or shorter terms; received {len(terms):,}"
            ) from None

    def translations(self, texts: Texts) -> Annotated[tf.RaggedTensor, "string (n, None)"]:
        """Returns the translations of the terms in texts, in order of occurrence."""
        parts, is_term = self._parts(texts)
        terms = tf.ragged.boolean_mask(parts, is_term)
        return terms.with_flat_values(_plain(self._look_up(terms.flat_values)))

    def annotate(self, texts: Texts) -> Texts:
        """Annotates terms with their translations for `segment_annotated`."""
        parts, is_term = self._parts(texts)
        flat = parts.flat_values
        space = tf.where(tf.strings.regex_full_match(flat, "(?s) .*"), " ", "")
        translation = self._look_up(flat)
        term = tf.strings.join([_SEPARATOR, flat, _SEPARATOR, space, translation, _SEPARATOR])
        flat = tf.strings.regex_replace(tf.where(is_term.flat_values, term, flat), _WORD, "")
        return tf.strings.reduce_join(parts.with_flat_values(flat), axis=1)

    def _parts(self, texts: Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the parts of escaped texts, with marks around words, and a mask of the terms."""
        words = tf.strings.regex_replace(texts, _MARK, _ESCAPED_MARK)
        words = tf.strings.regex_replace(words, WORD, rf"{_WORD}\0{_WORD}")
        separated = tf.strings.regex_replace(words, self._pattern, rf"{_SEPARATOR}\0{_SEPARATOR}")
        parts = tf.strings.split(separated, _SEPARATOR)
        return parts, tf.ragged.range(parts.row_lengths()) % 2 == 1

    def _look_up(self, terms: Tensor) -> Tensor:
        """Returns the translations of terms. For other texts, the result is arbitrary."""
        terms = tf.strings.regex_replace(terms, "^ ", "")
        keys = tf.strings.to_hash_bucket_fast(terms, _NUM_HASHES)
        places = tf.minimum(tf.searchsorted(self._keys, keys), len(self._keys) - 1)
        return tf.gather(tf.constant(self._translations), places)


def segment_annotated(tokenizer: Tokenizer, parts: Texts) -> TokenIds:
    """Segments parts of sources with annotated terms into subword ids.

    Annotate the terms with `Glossary.annotate` or `annotated`.
    """
    divided = tf.strings.split(parts, _SEPARATOR)
    # The parts repeat in the order text, term, translation.
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
    # Some capitals have two letters, such as "SS" for "ß".
    if len(first) > 1:
        return term
    return first + term[1:]

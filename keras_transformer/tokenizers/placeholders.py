"""Replaces spans that must stay unchanged with placeholders, inside the TensorFlow graph.

A vocabulary ends with `NUM_PLACEHOLDERS` pieces that never occur in segmented text. During
translation, they replace URLs, e-mail addresses, formats, tags and given terms.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import tensorflow as tf

from ..checks import require, shown
from ..config import DecodingConfig
from ..errors import ConfigError
from ..runtime.standard_streams import silenced
from ..tensors import Tensor
from .tokenizer import NUM_PLACEHOLDERS, Texts, Tokenizer
from .words import WORD, with_marks

# Marks are inserted around kept spans and words. They start with a character that Unicode reserves
# for internal use. If a text has this character, it is escaped with another reserved character,
# which no pattern matches as part of a word or an address.
MARK = "\ufdd0"
ESCAPED_MARK = MARK + "\ufdd5"
_KEPT = MARK + "k"
_WORD = MARK + "w"

_LETTERS = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{M}"
_IN_URL = rf"{_LETTERS}0-9\-._~:/?#@!$&'*+,;=%\[\]"
_URL = (
    rf"(?:(?:https?|ftp|HTTPS?|FTP)://|www\.)(?:[{_IN_URL}]|\([{_IN_URL}]*\))*"
    rf"(?:[{_LETTERS}0-9\-_~/#@$&*+=%]|\([{_IN_URL}]*\))"
)
_EMAIL = (
    rf"[{_LETTERS}0-9](?:[{_LETTERS}0-9._%+\-]*)"
    rf"@[{_LETTERS}0-9\-]+(?:\.[{_LETTERS}0-9\-]+)*\.[{_LETTERS}]{{2,}}"
)
_BRACES = r"[$%#]?(?:\{\{[^{}\r\n]*\}\}|\{[^{}\s\pZ]*\})"
# A format must not be followed by a letter. Otherwise, "50%ige" would contain a format.
_FORMAT = (
    r"%(?:%|(?:[0-9]+\$|\([A-Za-z0-9_.\-]+\))?[\-+0#]*(?:[0-9]+|\*)?(?:\.(?:[0-9]+|\*))?"
    r"(?:@|(?:hh?|ll?|[Lqjzt])?[sdifuxXoeEgGcp]\b))"
)
_TAG = r"</?[A-Za-z][^<>\r\n]*>"
_PATTERN = f"{_URL}|{_EMAIL}|{_BRACES}|{_FORMAT}|{_TAG}"
# White space, for use inside a character class.
SPACES = r"\s\v\x{85}\p{Z}"


class Divided(NamedTuple):
    """Texts divided at the spans that must stay unchanged.

    To restore the text, join texts and spans alternately.
    """

    # Text before, between and after the spans.
    texts: Annotated[Tensor, "string (n, NUM_PLACEHOLDERS + 1)"]
    # Spans in the order of the text, padded with "".
    spans: Annotated[Tensor, "string (n, NUM_PLACEHOLDERS)"]

    @property
    def numbers(self) -> Annotated[Tensor, "int32 (n, NUM_PLACEHOLDERS)"]:
        """The placeholder number of each span, from 0, or -1 if there is no span."""
        return tf.where(tf.equal(self.spans, ""), -1, tf.range(NUM_PLACEHOLDERS))


def span_finder(decoding: DecodingConfig, tokenizers: Iterable[Tokenizer]) -> "SpanFinder | None":
    """Returns the span finder for a configuration, or None if placeholders are disabled.

    Raises:
        ConfigError: If a vocabulary has no placeholders, or a term or pattern is invalid.
    """
    if not decoding.placeholders:
        return None
    rule = "false for a vocabulary without placeholders"
    for tokenizer in tokenizers:
        has_placeholders = len(tokenizer.placeholder_ids) == NUM_PLACEHOLDERS
        require(has_placeholders, "decoding.placeholders", rule, True)
    return SpanFinder.of(decoding)


class SpanFinder:
    """Finder of the spans of a text that must stay unchanged.

    Spans are URLs, e-mail addresses, `{names}` and `{{ names }}`, formats such as `%s` and `%1$d`,
    tags such as `<b>`, given terms if they are whole words, and matches of given patterns, which
    take precedence. Only the first `NUM_PLACEHOLDERS` spans of a text are kept. Later spans are
    treated as ordinary text.

    Args:
        terms: terms to keep, as in `decoding.keep`. Defaults to ().
        patterns: regular expressions in RE2 syntax, as in `decoding.placeholder_patterns`. Defaults
            to ().

    Raises:
        ConfigError: If a term is blank, there are too many terms, or a pattern is not valid in RE2,
            matches an empty text or is too large.

    Example:
        >>> divided = SpanFinder(["Kibo"]).divide(tf.constant(["Kibo: see https://a.org/b."]))
        >>> divided.spans[0, :3].numpy().tolist()
        [b'Kibo', b'https://a.org/b', b'']
    """

    def __init__(self, terms: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        for place, pattern in enumerate(patterns):
            _check_pattern(f"decoding.placeholder_patterns[{place}]", pattern)
        self._pattern = "|".join([*(f"(?:{pattern})" for pattern in patterns), _PATTERN])
        if not _is_pattern(self._pattern):
            raise ConfigError(
                "decoding.placeholder_patterns must have fewer or shorter patterns; "
                f"received {len(patterns):,}"
            )
        self._terms = None
        if terms:
            # If two terms start at the same position, the longer term matches.
            longest_first = sorted(set(terms), key=len, reverse=True)
            # Use `re.escape`, because RE2 rejects the no-break spaces that `regex.escape` escapes.
            self._terms = "|".join(re.escape(_in_words(term)) for term in longest_first)
            if not _is_pattern(self._terms):
                raise ConfigError(
                    f"decoding.keep must have fewer or shorter terms; received {len(terms):,}"
                )

    @classmethod
    def of(cls, decoding: DecodingConfig) -> "SpanFinder":
        """Returns the span finder for a configuration."""
        return cls(decoding.keep or (), decoding.placeholder_patterns or ())

    def divide(self, texts: Texts) -> Divided:
        """Divides texts at spans. Bytes that are not valid UTF-8 are replaced by U+FFFD."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        return _divided(self._marked(texts))

    def parts(self, texts: Texts) -> Annotated[tf.RaggedTensor, "string (n, None)"]:
        """Divides texts, which must be valid UTF-8, so that text and spans alternate."""
        return parts_between(_KEPT, self._marked(texts))

    def spans(self, texts: Sequence[str]) -> list[list[bytes]]:
        """Returns all spans of texts, including spans after the first `NUM_PLACEHOLDERS`."""
        valid_texts = tf.strings.unicode_transcode(list(texts), "UTF-8", "UTF-8", errors="replace")
        return [parts[1::2] for parts in self.parts(valid_texts).to_list()]

    def _marked(self, texts: Tensor) -> Tensor:
        marked = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
        marked = tf.strings.regex_replace(marked, self._pattern, rf"{_KEPT}\0{_KEPT}")
        # Restore an escaped mark if a pattern has matched only its first character.
        marked = tf.strings.regex_replace(
            marked, f"{MARK}((?:{_KEPT})+){ESCAPED_MARK[1]}", rf"{ESCAPED_MARK}\1"
        )
        if self._terms is None:
            return marked
        parts = tf.strings.split(marked, _KEPT)
        words = tf.strings.regex_replace(parts.flat_values, WORD, rf"{_WORD}\0{_WORD}")
        words = tf.strings.regex_replace(words, self._terms, rf"{_KEPT}\0{_KEPT}")
        between = tf.strings.regex_replace(words, _WORD, "")
        is_kept = tf.ragged.range(parts.row_lengths()).flat_values % 2 == 1
        kept = tf.strings.join([_KEPT, parts.flat_values, _KEPT])
        joined = parts.with_flat_values(tf.where(is_kept, kept, between))
        return tf.strings.reduce_join(joined, axis=1)


def _is_pattern(pattern: str) -> bool:
    """Returns whether RE2 accepts a pattern."""
    try:
        with silenced():
            tf.strings.regex_replace("", pattern, "")
    except tf.errors.InvalidArgumentError:
        return False
    return True


def _check_pattern(name: str, pattern: str) -> None:
    require(_is_pattern(pattern), name, "a regular expression of RE2", pattern)
    for text in ("", "a", "a 1.", ".", "\n"):
        inserted = tf.strings.regex_replace(text, f"(?:{pattern})", MARK)
        removed = tf.strings.regex_replace(text, f"(?:{pattern})", "")
        empty = tf.equal(removed, text) & tf.not_equal(inserted, text)
        require(not bool(empty), name, "a pattern that does not match an empty text", pattern)


def _in_words(term: str) -> str:
    if not term.strip():
        raise ConfigError(f"a term that is kept must not be blank; received {shown(term)}")
    escaped = term.strip().replace(MARK, ESCAPED_MARK)
    return with_marks(escaped, _WORD)


def parts_between(mark: str, marked: Texts) -> tf.RaggedTensor:
    """Splits texts at a mark. `MARK` must be escaped in the texts."""
    parts = tf.strings.split(marked, mark)
    return parts.with_flat_values(tf.strings.regex_replace(parts.flat_values, ESCAPED_MARK, MARK))


def _divided(marked: Tensor) -> Divided:
    parts = parts_between(_KEPT, marked)
    size = 2 * NUM_PLACEHOLDERS
    columns = parts[:, :size].to_tensor("", shape=[None, size])
    rest = tf.strings.reduce_join(parts[:, size:], axis=1)
    return Divided(tf.concat([columns[:, ::2], rest[:, None]], axis=1), columns[:, 1::2])


def _keeping(divided: Divided, is_kept: Annotated[Tensor, "bool (n, NUM_PLACEHOLDERS)"]) -> Divided:
    """Converts spans that are not kept back to text."""
    spans = tf.strings.regex_replace(divided.spans, MARK, ESCAPED_MARK)
    texts = tf.strings.regex_replace(divided.texts, MARK, ESCAPED_MARK)
    spans = tf.where(is_kept, tf.strings.join([_KEPT, spans, _KEPT]), spans)
    columns = tf.stack([texts, tf.pad(spans, [[0, 0], [0, 1]], constant_values="")], axis=2)
    return _divided(tf.strings.reduce_join(columns, axis=[2, 1]))


def in_common(
    source: Divided, target: Divided
) -> tuple[Divided, Divided, Annotated[Tensor, "int32 (n, 8)"]]:
    """Keeps spans that occur on both sides of a pair, and converts the other spans to text.

    If a span occurs more often on one side, the additional occurrences become text, too.

    Returns:
        A tuple of the source, the target, and the placeholder number of each target span, which is
        the number of the same span in the source.
    """
    partner = _partners(target, source)
    source_kept = tf.reduce_any(partner[:, None, :] == tf.range(NUM_PLACEHOLDERS)[:, None], axis=2)
    numbers = tf.cumsum(tf.cast(source_kept, tf.int32), axis=1, exclusive=True)
    target, target_numbers = _numbered(target, partner, numbers)
    return _keeping(source, source_kept), target, target_numbers


def numbered_as(
    source: Divided, target: Divided
) -> tuple[Divided, Annotated[Tensor, "int32 (n, 8)"]]:
    """Keeps target spans that also occur in the source, with their placeholders in the source."""
    return _numbered(target, _partners(target, source), source.numbers)


def _partners(target: Divided, source: Divided) -> Annotated[Tensor, "int32 (n, 8)"]:
    """Returns the index of each target span among the spans of its source, or -1.

    Equal spans are matched in order of occurrence.
    """

    def occurrences(spans: Tensor) -> Tensor:
        is_before = np.tri(NUM_PLACEHOLDERS, k=-1, dtype="int32")
        is_equal = tf.cast(tf.equal(spans[:, :, None], spans[:, None, :]), tf.int32)
        return tf.reduce_sum(is_equal * is_before, axis=2)

    is_same = tf.equal(target.spans[:, :, None], source.spans[:, None, :])
    target_occurrences = occurrences(target.spans)[:, :, None]
    is_same &= tf.equal(target_occurrences, occurrences(source.spans)[:, None, :])
    is_same &= tf.not_equal(target.spans, "")[:, :, None]
    places = tf.argmax(tf.cast(is_same, tf.int32), axis=2, output_type=tf.int32)
    return tf.where(tf.reduce_any(is_same, axis=2), places, -1)


def _numbered(target: Divided, partner: Tensor, numbers: Tensor) -> tuple[Divided, Tensor]:
    is_kept = partner >= 0
    partner_numbers = tf.gather(numbers, tf.maximum(partner, 0), batch_dims=1)
    kept_numbers = tf.ragged.boolean_mask(partner_numbers, is_kept)
    return _keeping(target, is_kept), kept_numbers.to_tensor(-1, shape=[None, NUM_PLACEHOLDERS])

"""Divides sentences that are too long for a model, inside the TensorFlow graph."""

from collections.abc import Callable

import tensorflow as tf

from ..tensors import Tensor
from ..tokenizers.placeholders import ESCAPED_MARK, MARK, SPACES, SpanFinder, parts_between
from ..tokenizers.tokenizer import Texts
from ..tokenizers.words import SIGNS, VIRAMAS, VOWELS_IN_FRONT
from .sentences import CLOSING, DIVISION, Parts, join_parts

# Patterns with their replacements, in the order of application.
Rules = tuple[tuple[str, str], ...]

_BETWEEN_GROUPS = rf"\1{DIVISION}\2"
_CLAUSES: Rules = (
    (rf"([,;:،؛–—၊፣፤][{CLOSING}]*[{SPACES}]+|[，、；：၊፣፤།][{SPACES}]*)", rf"\1{DIVISION}"),
)
_WORDS: Rules = ((rf"[{SPACES}]+", rf"\0{DIVISION}"),)
# Likely ends of phrases in scripts without spaces: after Japanese and Burmese particles and the
# dots between Tibetan syllables, and before Chinese, Thai, Lao and Khmer conjunctions.
_PHRASES: Rules = (
    (r"([はがをにでとへてば])([\p{Han}\p{Katakana}])", _BETWEEN_GROUPS),
    (r"(ပြီး|ကြောင့်|သည်|တယ်)(\p{L})", _BETWEEN_GROUPS),
    ("་", rf"\0{DIVISION}"),
    (
        r"(\p{Han})(但是|可是|不过|不過|因为|因為|所以|而且|并且|並且|如果|然后|然後|虽然|雖然|以及)",
        _BETWEEN_GROUPS,
    ),
    (r"(\p{Thai})(และ|แต่|เพราะ|ซึ่ง|ที่|เพื่อ|หรือ|ถ้า)", _BETWEEN_GROUPS),
    (r"(\p{Lao})(ແລະ|ແຕ່|ເພາະ|ເຊິ່ງ|ທີ່|ຫຼື)", _BETWEEN_GROUPS),
    (r"(\p{Khmer})(និង|ប៉ុន្តែ|ព្រោះ|ដែល|ហើយ)", _BETWEEN_GROUPS),
)

# Vowels in front of their Thai or Lao consonant, and Korean initials.
_BEFORE_LETTERS = VOWELS_IN_FRONT + r"\x{1100}-\x{115F}"
_TOGETHER: Rules = (
    (rf"{MARK}{DIVISION}({ESCAPED_MARK[1]})", rf"{MARK}\1"),
    (rf"\r{DIVISION}\n", r"\r\n"),
    (rf"{DIVISION}([{SIGNS}])", r"\1"),
    (rf"([{VIRAMAS}]\x{{200D}}?){DIVISION}(\p{{L}})", r"\1\2"),
    (rf"([{_BEFORE_LETTERS}]){DIVISION}", r"\1"),
    (rf"(\x{{200D}}){DIVISION}(\p{{S}})", r"\1\2"),
    # The two letters of a flag.
    (rf"([\x{{1F1E6}}-\x{{1F1FF}}]){DIVISION}([\x{{1F1E6}}-\x{{1F1FF}}])", r"\1\2"),
)
_CHARACTERS: Rules = (("(?s).", rf"\0{DIVISION}"), *_TOGETHER)
# As long as the parts fit, words and numbers are not divided, and no part starts with a comma.
_CHARACTERS_OR_WORDS: Rules = (
    (r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{M}\p{N}]+|(?s:.)", rf"\0{DIVISION}"),
    *_TOGETHER,
    (rf"{DIVISION}([{CLOSING},.!?…%，。、；：！？·・～ー])", r"\1"),
)


def divide_long_sentences(
    sentences: Parts,
    count_tokens: Callable[[Tensor], Tensor],
    max_tokens: int,
    spans: SpanFinder | None = None,
) -> Parts:
    """Divides long sentences into parts of similar length.

    A long sentence is divided at commas if possible, otherwise at spaces, at likely ends of
    phrases, or between characters, but never within a character. Short sentences stay unchanged.

    Args:
        sentences: sentences in valid UTF-8.
        count_tokens: function that accepts texts, string (n,), and returns their numbers of tokens,
            int (n,).
        max_tokens: maximum number of tokens in a part. A single character may have more.
        spans: finder of spans that are not divided.
    """
    for rules in (_CLAUSES, _WORDS):
        sentences = _divided(sentences, rules, count_tokens, max_tokens, spans, by_bytes=False)
    # The number of tokens of a character is estimated from its bytes. A part that is still too long
    # is divided again.
    for rules in (_PHRASES, _CHARACTERS_OR_WORDS, _CHARACTERS, _CHARACTERS):
        sentences = _divided(sentences, rules, count_tokens, max_tokens, spans, by_bytes=True)
    return sentences


def _divided(
    sentences: Parts,
    rules: Rules,
    count_tokens: Callable[[Tensor], Tensor],
    max_tokens: int,
    spans: SpanFinder | None,
    by_bytes: bool,
) -> Parts:
    """Divides long sentences at the positions given by rules."""
    texts = sentences.flat_values
    num_tokens = tf.cast(count_tokens(texts), tf.int64)
    is_long = num_tokens > max_tokens
    marked = _marked(tf.where(is_long, texts, ""), rules, spans)
    short = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
    # (number of sentences, None)
    pieces = parts_between(DIVISION, tf.where(is_long, marked, short))
    if by_bytes:
        sizes = pieces.with_flat_values(tf.strings.length(pieces.flat_values))
        sizes = tf.cast(sizes, tf.int64)
    else:
        sizes = pieces.with_flat_values(tf.cast(count_tokens(pieces.flat_values), tf.int64))
    totals = tf.reduce_sum(sizes, axis=1)
    # Aim for parts that are three quarters full, so that most parts fit. A piece belongs to the
    # part that contains its middle.
    num_parts = -(-4 * (num_tokens if by_bytes else totals) // (3 * max_tokens))
    num_parts = tf.where(is_long, tf.maximum(num_parts, 2), 1)
    sentence_of = pieces.value_rowids()
    starts = tf.cumsum(totals, exclusive=True)
    before = tf.cumsum(sizes.flat_values, exclusive=True) - tf.gather(starts, sentence_of)
    num_parts = tf.gather(num_parts, sentence_of)
    totals = tf.maximum(tf.gather(totals, sentence_of), 1)
    part_of = (2 * before + sizes.flat_values) * num_parts // (2 * totals)
    part_of = tf.minimum(part_of, num_parts - 1)
    # A piece starts a part if it is the first piece of its sentence or of the part. The last piece
    # may be empty.
    is_new = (part_of[1:] > part_of[:-1]) & tf.not_equal(pieces.flat_values[1:], "")
    begins = (sentence_of[1:] > sentence_of[:-1]) | is_new
    return join_parts(sentences.with_values(pieces).merge_dims(1, 2), begins)


def _marked(texts: Texts, rules: Rules, spans: SpanFinder | None) -> Tensor:
    """Marks the positions, outside of spans, at which texts may be divided."""

    def marked(texts: Tensor) -> Tensor:
        texts = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
        for pattern, replacement in rules:
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return texts

    if spans is None:
        return marked(texts)
    parts = spans.parts(texts)
    is_span = tf.ragged.range(parts.row_lengths()).flat_values % 2 == 1
    kept = tf.strings.regex_replace(parts.flat_values, MARK, ESCAPED_MARK)
    flat = tf.where(is_span, kept, marked(parts.flat_values))
    return tf.strings.reduce_join(parts.with_flat_values(flat), axis=1)

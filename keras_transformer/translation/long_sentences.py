"""Divides sentences that are too long for a model, in the TensorFlow graph."""

from collections.abc import Callable

import tensorflow as tf

from ..tensors import Tensor
from ..tokenizers.placeholders import ESCAPED_MARK, MARK, SPACES, SpanFinder, parts_between
from ..tokenizers.tokenizer import Texts
from .sentences import CLOSING, DIVISION, Parts, join_parts

# A pattern and what replaces it, in turn.
Rules = tuple[tuple[str, str], ...]

_BETWEEN_GROUPS = rf"\1{DIVISION}\2"
_CLAUSES: Rules = (
    (rf"([,;:،؛–—၊፣፤][{CLOSING}]*[{SPACES}]+|[，、；：၊፣፤།][{SPACES}]*)", rf"\1{DIVISION}"),
)
_WORDS: Rules = ((rf"[{SPACES}]+", rf"\0{DIVISION}"),)
# Where a phrase probably ends in scripts without spaces: after Japanese and Burmese particles and
# the dots between Tibetan syllables, and before Chinese, Thai, Lao and Khmer conjunctions.
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

# Characters that belong to the one before them: combining marks, Thai and Lao vowels, Korean
# vowels and finals, joiners, skin tones, and the tags of flags.
_SIGNS = (
    r"\p{M}\x{E30}\x{E32}\x{E33}\x{E45}\x{E46}\x{EB0}\x{EB2}\x{EB3}\x{EC6}\x{1160}-\x{11FF}"
    r"\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}\x{E0020}-\x{E007F}"
)
# They join the letters around them.
_VIRAMAS = r"\x{94D}\x{9CD}\x{A4D}\x{ACD}\x{B4D}\x{BCD}\x{C4D}\x{CCD}\x{D4D}\x{DCA}\x{1039}\x{17D2}"
# Vowels that stand in front of their Thai or Lao consonant, and Korean initials.
_BEFORE_LETTERS = r"\x{E40}-\x{E44}\x{EC0}-\x{EC4}\x{1100}-\x{115F}"
_TOGETHER: Rules = (
    (rf"{MARK}{DIVISION}({ESCAPED_MARK[1]})", rf"{MARK}\1"),
    (rf"\r{DIVISION}\n", r"\r\n"),
    (rf"{DIVISION}([{_SIGNS}])", r"\1"),
    (rf"([{_VIRAMAS}]\x{{200D}}?){DIVISION}(\p{{L}})", r"\1\2"),
    (rf"([{_BEFORE_LETTERS}]){DIVISION}", r"\1"),
    (rf"(\x{{200D}}){DIVISION}(\p{{S}})", r"\1\2"),
    # The two letters of a flag.
    (rf"([\x{{1F1E6}}-\x{{1F1FF}}]){DIVISION}([\x{{1F1E6}}-\x{{1F1FF}}])", r"\1\2"),
)
_CHARACTERS: Rules = (("(?s).", rf"\0{DIVISION}"), *_TOGETHER)
# As long as the parts fit, a word or a number stays whole, and no part begins with a comma.
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
    """Divides sentences that are too long into parts of similar length.

    They are divided at commas if possible, otherwise at spaces, otherwise where a phrase seems to
    end, and otherwise between characters, but within none. Other sentences stay as they are.

    Args:
        sentences: valid UTF-8.
        count_tokens: takes texts, string (n,), and returns their numbers of tokens, int (n,).
        max_tokens: of a part. A single character may have more.
        spans: what it finds is not divided.
    """
    for rules in (_CLAUSES, _WORDS):
        sentences = _divided(sentences, rules, count_tokens, max_tokens, spans, by_bytes=False)
    # The size of a character is estimated by its bytes: by itself, it may have a token more. Where
    # that is too little, the part is divided once more.
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
    """Divides sentences that are too long where rules say so."""
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
    # Three quarters full if sizes were equal, so that most fit; each piece goes where its middle
    # would.
    num_parts = -(-4 * (num_tokens if by_bytes else totals) // (3 * max_tokens))
    num_parts = tf.where(is_long, tf.maximum(num_parts, 2), 1)
    sentence_of = pieces.value_rowids()
    starts = tf.cumsum(totals, exclusive=True)
    before = tf.cumsum(sizes.flat_values, exclusive=True) - tf.gather(starts, sentence_of)
    num_parts = tf.gather(num_parts, sentence_of)
    totals = tf.maximum(tf.gather(totals, sentence_of), 1)
    part_of = (2 * before + sizes.flat_values) * num_parts // (2 * totals)
    part_of = tf.minimum(part_of, num_parts - 1)
    # A piece begins a part if it is the first of its sentence, or of the part. The last piece may
    # be empty.
    is_new = (part_of[1:] > part_of[:-1]) & tf.not_equal(pieces.flat_values[1:], "")
    begins = (sentence_of[1:] > sentence_of[:-1]) | is_new
    return join_parts(sentences.with_values(pieces).merge_dims(1, 2), begins)


def _marked(texts: Texts, rules: Rules, spans: SpanFinder | None) -> Tensor:
    """Puts marks where texts may be divided, outside of spans."""

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

"""Translates documents sentence by sentence, inside the TensorFlow graph."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import tensorflow as tf

from ..scripts import NAMES
from ..tensors import Tensor
from ..tokenizers.placeholders import SPACES
from ..tokenizers.text_codec import TextCodec
from ..tokenizers.tokenizer import Texts
from .long_sentences import divide_long_sentences
from .search import TranslationTensors
from .sentences import CLOSING, UNSPACED_ENDS, Parts, joined_in, split_sentences

# These limits bound the cost of a document. 200 sentences fill about eight pages, and the limit on
# tokens is the usual number of tokens in 200 sentences.
MAX_SENTENCES = 200
MAX_TOKENS = 8192

_SPACE_BEFORE = rf"(?s)^([{SPACES}]*).*$"
_SPACE_AFTER = rf"(?s)^.*?([{SPACES}]*)$"
_SPACE_AROUND = rf"^[{SPACES}]+|[{SPACES}]+$"
# White space without line breaks.
_SPACES_OF_A_LINE = r"[\t\pZ]+"
_LINE_SEPARATORS = r"(?s).*[\x{2028}\x{2029}].*"
_ENDS_WITH_MARK = rf"(?s).*[{UNSPACED_ENDS}][{CLOSING}]*"

# Chinese and Japanese have no spaces between sentences, unlike other scripts.
_UNSPACED = ("Hani", "Hira", "Kana")
_UNSPACED_LETTERS = "".join(rf"\p{{{NAMES[code]}}}" for code in _UNSPACED)
_SCRIPTS = [
    _UNSPACED_LETTERS,
    *(rf"\p{{{name}}}" for code, name in NAMES.items() if code not in _UNSPACED),
]


class DocumentTensors(NamedTuple):
    """Translations of a batch of documents.

    Attributes:
        texts: translations of the documents.
        was_cut: whether a part of the document was not translated, because the document has more
            than `MAX_SENTENCES` sentences, continues after the sentence that reaches `MAX_TOKENS`
            tokens, or contains a character or a span with more tokens than the model's
            `max_length`.
        sentences: the translations of all sentences.
    """

    texts: Texts
    was_cut: Annotated[Tensor, "bool (batch,)"]
    sentences: TranslationTensors


class TranslatedDocument(NamedTuple):
    """Translation of a document."""

    text: str
    was_cut: bool  # See `DocumentTensors`.


def translate_documents(
    texts: Texts,
    language: str | None,
    codec: TextCodec,
    search: Callable[[Tensor], TranslationTensors],
) -> DocumentTensors:
    """Translates documents sentence by sentence, inside the TensorFlow graph.

    Sentences that are too long for the model are divided, see `divide_long_sentences`. White space
    between sentences and around the document stays unchanged, unless the source and the translation
    are in different scripts. In that case, Chinese and Japanese translations have no spaces between
    sentences, and other translations have a space wherever the source has none.

    Args:
        texts: documents. Bytes that are not valid UTF-8 are replaced by U+FFFD.
        language: language of the documents, see `split_sentences`.
        codec: codec of the model.
        search: function that translates sentences, string (n,).
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    sentences = split_sentences(texts, language)
    if codec.spans is not None:
        sentences = joined_in(sentences, codec.spans.parts(texts))
    # Keep an extra sentence, to detect whether the document continues.
    sentences = sentences[:, : MAX_SENTENCES + 1]
    max_tokens = codec.max_length - len(codec.tag_ids) - 1
    sentences = divide_long_sentences(sentences, codec.count_source_tokens, max_tokens, codec.spans)
    translated = sentences[:, :MAX_SENTENCES]
    # Keep sentences that start within the first `MAX_TOKENS` tokens of their document, counting an
    # end token for each sentence.
    before = tf.cumsum(codec.count_source_tokens(translated.flat_values) + 1, exclusive=True)
    before -= tf.gather(tf.gather(before, translated.row_starts()), translated.value_rowids())
    is_kept = translated.with_flat_values(before < MAX_TOKENS)
    translated = tf.ragged.boolean_mask(translated, is_kept)
    text_given = tf.strings.reduce_join(sentences, axis=1)
    text_read = tf.strings.reduce_join(translated, axis=1)
    goes_on = tf.not_equal(text_given, text_read)
    searched = search(tf.strings.regex_replace(translated.flat_values, _SPACE_AROUND, ""))
    is_cut = tf.cast(searched.source_lengths, tf.int64) > codec.max_length
    any_cut = tf.reduce_any(translated.with_flat_values(is_cut), axis=1)
    translations = tf.strings.regex_replace(searched.texts[:, 0], _SPACE_AROUND, "")
    spaced = translated.with_flat_values(_spaced(translated, translations))
    joined = tf.strings.reduce_join(spaced, axis=1)
    return DocumentTensors(joined, goes_on | any_cut, searched)


def _spaced(sentences: Parts, translations: Annotated[Tensor, "string (n,)"]) -> Tensor:
    """Returns the translations of sentences with white space around them."""
    texts = sentences.flat_values
    before = tf.strings.regex_replace(texts, _SPACE_BEFORE, r"\1")
    after = tf.strings.regex_replace(texts, _SPACE_AFTER, r"\1")
    # If a sentence is only white space, all of it counts as leading space.
    after = tf.where(tf.equal(before, texts), "", after)
    source_script = tf.gather(_scripts_of(sentences), sentences.value_rowids())
    target_scripts = _scripts_of(sentences.with_flat_values(translations))
    target_script = tf.gather(target_scripts, sentences.value_rowids())
    is_same = tf.equal(source_script, target_script)
    is_unspaced = tf.equal(target_script, _SCRIPTS.index(_UNSPACED_LETTERS))
    limits = sentences.row_limits()
    last = tf.boolean_mask(limits - 1, sentences.row_lengths() > 0)
    is_last = tf.scatter_nd(last[:, None], tf.ones_like(last), tf.shape(texts, tf.int64)) > 0
    is_inline = tf.strings.regex_full_match(after, _SPACES_OF_A_LINE)
    is_inline &= ~tf.strings.regex_full_match(after, _LINE_SEPARATORS) & ~is_last
    # Keep the space between sentences that were not translated, such as "Hello. Bye.".
    has_letters = tf.strings.regex_full_match(translations, rf"(?s).*[{_UNSPACED_LETTERS}].*")
    beside = has_letters | tf.concat([has_letters[1:], [False]], 0)[: tf.size(texts)]
    is_dropped = is_inline & is_unspaced & ~is_same & beside
    # Replace ideographic spaces in scripts that have spaces between words.
    is_ideographic = is_inline & ~is_unspaced & tf.strings.regex_full_match(after, r"\x{3000}+")
    ends_anew = tf.strings.regex_full_match(texts, _ENDS_WITH_MARK)
    ends_anew &= ~tf.strings.regex_full_match(translations, _ENDS_WITH_MARK)
    is_missing = (
        tf.equal(after, "")
        & ~is_last
        & tf.not_equal(translations, "")
        & ~is_unspaced
        & (~is_same | ends_anew)
    )
    after = tf.where(is_missing | is_ideographic, " ", tf.where(is_dropped, "", after))
    return tf.strings.join([before, translations, after])


def _scripts_of(parts: Parts) -> Annotated[Tensor, "int64 (batch,)"]:
    """Returns the index of each document's main script.

    The index is -1 for a document without letters of any known script. Scripts are compared by
    bytes, so a Chinese character counts as much as three Latin letters.
    """
    texts = tf.strings.reduce_join(parts, axis=1)
    sizes = tf.stack(
        [
            tf.strings.length(tf.strings.regex_replace(texts, f"[^{script}]+", ""))
            for script in _SCRIPTS
        ],
        axis=1,
    )
    return tf.where(tf.reduce_any(sizes > 0, axis=1), tf.argmax(sizes, axis=1), -1)

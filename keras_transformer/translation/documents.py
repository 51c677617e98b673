"""Documents: texts of many sentences, translated sentence by sentence in one batch."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import tensorflow as tf

from ..config.values import Language
from ..tensors import Tensor
from ..tokenizers.placeholders import SPACES, SpanFinder
from ..tokenizers.text_codec import TextCodec
from ..tokenizers.tokenizer import Texts
from .results import Translations
from .sentences import divide_long_sentences, join_parts, split_sentences

# Bounds of what one document costs: about eight pages, and no more tokens than 200 sentences usually have.
MAX_SENTENCES = 200
MAX_TOKENS = 8192

_SPACE_BEFORE = rf"(?s)^([{SPACES}]*).*$"
_SPACE_AFTER = rf"(?s)^.*?([{SPACES}]*)$"
_SPACE_AROUND = rf"^[{SPACES}]+|[{SPACES}]+$"
# Scripts without spaces between sentences, with their punctuation marks.
_ENDS_WITHOUT_SPACE = r"(?s).*[\p{Han}\p{Hiragana}\p{Katakana}\x{3000}-\x{303F}\x{FF00}-\x{FF65}]"


class TranslatedDocuments(NamedTuple):
    """The translations of a batch of documents.

    Attributes:
        was_cut: whether a part of the document was not read: it has a word that is longer than the model's
            `max_length` tokens, or goes on after `MAX_SENTENCES` sentences or after the sentence in which it reaches
            `MAX_TOKENS` tokens.
    """

    texts: Texts
    was_cut: Annotated[Tensor, "bool (batch,)"]


class TranslatedDocument(NamedTuple):
    """The translation of a document, and whether a part of it was not read, as in `TranslatedDocuments`."""

    text: str
    was_cut: bool


def translate_documents(
    texts: Texts,
    language: Language | None,
    codec: TextCodec,
    search: Callable[[Tensor], Translations],
) -> TranslatedDocuments:
    """Translates the sentences of documents, in the TensorFlow graph.

    A sentence that is too long for the model is divided at commas or spaces. The white space between sentences, and
    around the document, stays as it is. Where there is none, as in Chinese, and the translation is into a script that
    separates sentences by spaces, a space is added.

    Args:
        texts: the documents. Bytes that are not UTF-8 are read as U+FFFD.
        language: of the documents, see `split_sentences`.
        search: translates sentences, string (n,).
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    # Read one sentence more than is translated, to see whether the document goes on.
    sentences = _joined_in_spans(split_sentences(texts, language), codec.spans)[:, : MAX_SENTENCES + 1]
    max_tokens = codec.max_length - len(codec.tag_ids) - 1
    sentences = divide_long_sentences(sentences, codec.count_source_tokens, max_tokens)
    sentences = _joined_in_spans(sentences, codec.spans)
    translated = sentences[:, :MAX_SENTENCES]
    # The sentences that begin within the first `MAX_TOKENS` tokens of their document, of which end tokens are some.
    before = tf.cumsum(codec.count_source_tokens(translated.flat_values) + 1, exclusive=True)
    before -= tf.gather(tf.gather(before, translated.row_starts()), translated.value_rowids())
    translated = tf.ragged.boolean_mask(translated, translated.with_flat_values(before < MAX_TOKENS))
    goes_on = _num_filled(sentences) > _num_filled(translated)
    searched = search(tf.strings.regex_replace(translated.flat_values, _SPACE_AROUND, ""))
    is_cut = tf.cast(searched.source_lengths, tf.int64) > codec.max_length
    translations = tf.strings.regex_replace(searched.texts[:, 0], _SPACE_AROUND, "")
    joined = tf.strings.reduce_join(translated.with_flat_values(_spaced_as(translated, translations)), axis=1)
    any_cut = tf.reduce_any(translated.with_flat_values(is_cut), axis=1)
    return TranslatedDocuments(joined, goes_on | any_cut)


def _joined_in_spans(sentences: tf.RaggedTensor, spans: SpanFinder | None) -> tf.RaggedTensor:
    """The sentences (batch, None), of which those are joined that divide what must stay as it is, such as a tag."""
    if spans is None:
        return sentences
    parts = spans.parts(tf.strings.reduce_join(sentences, axis=1))
    is_span = tf.ragged.range(parts.row_lengths()).flat_values % 2 == 1
    sizes = tf.strings.length(parts.flat_values)
    part_ends = tf.cumsum(sizes)
    span_ends, span_starts = tf.boolean_mask(part_ends, is_span), tf.boolean_mask(part_ends - sizes, is_span)
    ends = tf.cumsum(tf.strings.length(sentences.flat_values))
    num_begun, num_ended = tf.searchsorted(span_starts, ends), tf.searchsorted(span_ends, ends, side="right")
    return join_parts(sentences, (num_begun <= num_ended)[:-1])


def _num_filled(sentences: tf.RaggedTensor) -> Tensor:
    # After a line break at the end of a document, there is one more sentence, which is empty.
    is_filled = sentences.with_flat_values(tf.cast(tf.not_equal(sentences.flat_values, ""), tf.int32))
    return tf.reduce_sum(is_filled, axis=1)


def _spaced_as(sentences: tf.RaggedTensor, translations: Tensor) -> Tensor:
    """The translations (number of sentences,) with the white space around their sentences."""
    texts = sentences.flat_values
    before = tf.strings.regex_replace(texts, _SPACE_BEFORE, r"\1")
    after = tf.where(tf.equal(before, texts), "", tf.strings.regex_replace(texts, _SPACE_AFTER, r"\1"))
    is_last = tf.scatter_nd(
        sentences.row_limits()[:, None] - 1, tf.ones_like(sentences.row_limits()), tf.shape(texts, tf.int64)
    )
    needs_space = (
        tf.equal(after, "")
        & tf.equal(is_last, 0)
        & tf.not_equal(translations, "")
        & tf.logical_not(tf.strings.regex_full_match(translations, _ENDS_WITHOUT_SPACE))
    )
    return tf.strings.join([before, translations, tf.where(needs_space, " ", after)])

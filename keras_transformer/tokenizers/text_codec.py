"""Converts text to model tokens and back, inside the TensorFlow graph.

Training and translation use the same conversion. A source consists of an optional tag, its subwords
and the end token. Placeholders replace spans that must stay unchanged, and terms are followed by
their translations. A target has no tag and no annotated terms.
"""

from typing import Annotated, Literal, NamedTuple

import tensorflow as tf

from ..checks import require
from ..config import DecodingConfig
from ..config.values import listed
from ..errors import ConfigError
from ..tensors import Tensor
from .normalization import normalize_text
from .placeholders import SPACES, Divided, SpanFinder, in_common, numbered_as, span_finder
from .terms import Glossary, segment_annotated
from .tokenizer import NUM_PLACEHOLDERS, Texts, TokenIds, Tokenizer, TokenizerPair

Side = Literal["source", "target"]


class Encoded(NamedTuple):
    """Encoded texts.

    Attributes:
        token_ids: token ids with tags and end tokens, truncated to the maximum length.
        lengths: numbers of tokens before truncation. For a shortened text, this is not exact, but
            greater than the maximum length.
        divided: spans of sources to translate. None for other texts, or if placeholders are
            disabled.
        placeholders: mask of the placeholders in `token_ids`. None if `divided` is None.
    """

    token_ids: TokenIds
    lengths: Annotated[Tensor, "int64 (n,)"]
    divided: Divided | None = None
    placeholders: Annotated[Tensor, "bool (n, NUM_PLACEHOLDERS)"] | None = None


class TextCodec:
    """Codec that encodes text as model tokens and decodes model tokens to text.

    Args:
        tokenizers: source and target tokenizer.
        max_length: maximum number of tokens, including the tag and the end token. Longer texts are
            truncated.
        spans: object that finds the spans to replace with placeholders. Defaults to None.
        glossary: glossary that annotates terms in sources. Defaults to None.
        tag: default tag in front of sources, with the tokens `tag_ids`. Defaults to None.
        are_annotated: whether terms in sources are already annotated, see `terms.annotated`.
            Defaults to False.

    Raises:
        ConfigError: If the vocabulary does not have the tag.
    """

    def __init__(
        self,
        tokenizers: TokenizerPair,
        max_length: int,
        spans: SpanFinder | None = None,
        glossary: Glossary | None = None,
        tag: str | None = None,
        are_annotated: bool = False,
    ) -> None:
        self.tokenizers = tokenizers
        self.max_length = max_length
        self.spans = spans
        self.tag_ids: tuple[int, ...] = ()
        if tag is not None:
            self.check_tag("decoding.tag", tag)
            self.tag_ids = (tokenizers.source.tags[tag],)
        self._glossary = glossary
        self._has_terms = are_annotated or glossary is not None

    @classmethod
    def for_translation(
        cls, tokenizers: TokenizerPair, max_length: int, decoding: DecodingConfig
    ) -> "TextCodec":
        """Returns the codec for a configuration.

        Raises:
            ConfigError: If the vocabulary does not have the tag, placeholders or pieces for terms
                that the configuration needs, or if there are too many terms.
        """
        spans = span_finder(decoding, tokenizers)
        glossary = None
        if decoding.terms is not None:
            if not tokenizers.source.term_ids:
                raise ConfigError(
                    "a glossary needs a model that was trained with data.terms: "
                    "this vocabulary has no pieces for it"
                )
            source, target = (tokenizer.normalization for tokenizer in tokenizers)
            glossary = Glossary(
                {
                    normalize_text(term, source): normalize_text(translation, target)
                    for term, translation in decoding.terms.items()
                }
            )
        return cls(tokenizers, max_length, spans, glossary, decoding.tag)

    def check_tag(self, name: str, tag: str) -> None:
        """Raises a ConfigError if the vocabulary does not have the tag."""
        tags = self.tokenizers.source.tags
        rule = f"one of {listed(tags)}" if tags else "null: the vocabulary has no tags"
        require(tag in tags, name, rule, tag)

    def encode_sources(self, texts: Texts, tags: Texts | None = None) -> Encoded:
        """Encodes sources for translation.

        Texts with too many bytes are shortened first, which limits the cost of long texts. Every
        source gets its tag from `tags`, or the codec's default tag if its tag is empty. An unknown
        tag raises an error in the graph.
        """
        texts, is_cut = self.tokenizers.source.shorten(texts, self.max_length)
        divided = None if self.spans is None else self.spans.divide(texts)
        token_ids = self._tokenize("source", texts, divided)
        encoded = self._limit(self._complete(token_ids, self._tags(tf.size(texts), tags)), is_cut)
        if divided is None:
            return encoded
        placeholder_ids = tf.range(NUM_PLACEHOLDERS) + self.tokenizers.source.placeholder_ids.start
        is_placeholder = tf.equal(encoded.token_ids.to_tensor()[..., None], placeholder_ids)
        is_read = tf.reduce_any(is_placeholder, axis=1)
        return encoded._replace(divided=divided, placeholders=is_read)

    def encode_pairs(self, sources: Texts, targets: Texts) -> tuple[Encoded, Encoded]:
        """Encodes sources and their translations.

        Texts with too many bytes are shortened first, as in `encode_sources`. Placeholders replace
        spans that occur on both sides of a pair.
        """
        sources, sources_cut = self.tokenizers.source.shorten(sources, self.max_length)
        targets, targets_cut = self.tokenizers.target.shorten(targets, self.max_length)
        source, target = self.encode_whole_pairs(sources, targets, self._tags(tf.size(sources)))
        return self._limit(source, sources_cut), self._limit(target, targets_cut)

    def encode_whole_pairs(
        self,
        sources: Texts,
        targets: Texts,
        tags: Annotated[tf.RaggedTensor | Tensor, "int32 (n, None)"] | None,
    ) -> tuple[Encoded, Encoded]:
        """Encodes pairs like `encode_pairs`, but without shortening, so that lengths are exact.

        Sources get the given tags.
        """
        if self.spans is None:
            source_ids = self._tokenize("source", sources)
            target_ids = self._tokenize("target", targets)
        else:
            source_spans = self.spans.divide(sources)
            target_spans = self.spans.divide(targets)
            source, target, numbers = in_common(source_spans, target_spans)
            source_ids = self._tokenize_divided("source", source, source.numbers)
            target_ids = self._tokenize_divided("target", target, numbers)
        return self._complete(source_ids, tags), self._complete(target_ids, None)

    def encode_prefixes(self, prefixes: Texts, source: Encoded) -> TokenIds:
        """Encodes prefixes of translations.

        White space at the end of a prefix is removed, because it belongs to the next token.
        """
        tokenizer = self.tokenizers.target
        prefixes, _ = tokenizer.shorten(prefixes, self.max_length)
        prefixes = tf.strings.regex_replace(prefixes, rf"[{SPACES}]+$", "")
        if self.spans is None or source.divided is None or source.placeholders is None:
            return tokenizer.tokenize(prefixes)[:, : self.max_length - 1]
        spans = tf.where(source.placeholders, source.divided.spans, "")
        spans_read = source.divided._replace(spans=spans)
        divided, numbers = numbered_as(spans_read, self.spans.divide(prefixes))
        token_ids = self._tokenize_divided("target", divided, numbers)
        # Leave room for placeholders that are not in the prefix.
        room = tf.cast(self.max_length - 1 - _count(source.placeholders), tf.int64)[:, None]
        return tf.ragged.boolean_mask(token_ids, tf.ragged.range(token_ids.row_lengths()) < room)

    def num_missing(
        self, placeholders: Annotated[Tensor, "bool (n, NUM_PLACEHOLDERS)"], prefix: TokenIds | None
    ) -> Annotated[Tensor, "int32 (n,)"]:
        """Returns the number of source placeholders that are missing in the prefixes."""
        number = _count(placeholders)
        if prefix is not None:
            number -= _count(prefix >= self.tokenizers.target.placeholder_ids.start)
        return number

    def num_tokens(self, texts: Texts, side: Side = "source") -> Annotated[Tensor, "int64 (n,)"]:
        """Returns the number of tokens, including tags and end tokens, before truncation."""
        divided = None if self.spans is None else self.spans.divide(texts)
        num_added = 1 + (len(self.tag_ids) if side == "source" else 0)
        return self._tokenize(side, texts, divided).row_lengths() + num_added

    def count_source_tokens(self, texts: Texts) -> Annotated[Tensor, "int64 (n,)"]:
        """Returns the number of tokens in sources, excluding tags and end tokens.

        For a truncated source, this is greater than the number of tokens that the model reads.
        """
        return self.encode_sources(texts).lengths - len(self.tag_ids) - 1

    def decode(
        self,
        token_ids: Annotated[tf.RaggedTensor | Tensor, "int (n * n_best, None)"],
        source: Encoded,
        n_best: int,
    ) -> Annotated[Tensor, "string (n * n_best,)"]:
        """Decodes translations, with `n_best` translations per source.

        Placeholders are replaced by the spans of the source.
        """
        tokenizer = self.tokenizers.target
        if source.divided is None:
            return tokenizer.detokenize(token_ids)
        spans = tf.repeat(source.divided.spans, n_best, axis=0)
        first = tokenizer.placeholder_ids.start
        end = tokenizer.placeholder_ids.stop
        is_text = (token_ids > tokenizer.end_id) & (token_ids < tokenizer.term_ids.start)
        is_placeholder = (token_ids >= first) & (token_ids < end)
        token_ids = tf.ragged.boolean_mask(token_ids, is_text | is_placeholder)
        flat_ids = token_ids.flat_values
        ends_part = flat_ids >= first
        used = tf.ragged.boolean_mask(token_ids, token_ids >= first)
        numbers = tf.cast(used.flat_values - first, tf.int64)
        places = tf.stack([used.value_rowids(), numbers], axis=1)
        # A part ends at every placeholder and at the end of every text.
        after = used.with_flat_values(tf.gather_nd(spans, places))
        after = tf.concat([after, tf.fill([token_ids.nrows(), 1], "")], axis=1)
        num_before = tf.cumsum(tf.cast(ends_part, tf.int64), exclusive=True)
        part_of = token_ids.value_rowids() + num_before
        parts = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(flat_ids, ~ends_part),
            tf.boolean_mask(part_of, ~ends_part),
            tf.size(after.flat_values, tf.int64),
            validate=False,
        )
        texts = after.with_flat_values(tf.strings.join([tokenizer.join(parts), after.flat_values]))
        return tokenizer.without_spaces(tf.strings.reduce_join(texts, axis=1))

    def _tokenize(
        self, side: Side, texts: Tensor, divided: Divided | None = None
    ) -> tf.RaggedTensor:
        """Segments texts into subwords, with placeholders if the texts are divided."""
        if divided is not None:
            return self._tokenize_divided(side, divided, divided.numbers)
        tokenizer = getattr(self.tokenizers, side)
        if not (self._has_terms and side == "source"):
            return tokenizer.tokenize(texts)
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        texts = self._annotate(tokenizer.normalized(texts))
        return segment_annotated(tokenizer, tokenizer.in_front(texts))

    def _tokenize_divided(
        self,
        side: Side,
        divided: Divided,
        numbers: Annotated[Tensor, "int32 (n, NUM_PLACEHOLDERS)"],
    ) -> tf.RaggedTensor:
        """Segments texts into subwords, with a placeholder for each span.

        Args:
            numbers: number of the placeholder for each span, from 0, or -1 if there is no span.
        """
        tokenizer = getattr(self.tokenizers, side)
        has_terms = self._has_terms and side == "source"
        # Only text is normalized, and spans stay unchanged.
        texts = tokenizer.normalized(divided.texts)
        if has_terms:
            texts = self._annotate(texts)
        is_empty = tf.equal(texts[:, :1], "") & tf.equal(divided.spans[:, :1], "")
        front = tf.where(is_empty, "", tokenizer.space_in_front + texts[:, :1])
        parts = tf.reshape(tf.concat([front, texts[:, 1:]], axis=1), [-1])
        after = tf.reshape(tf.pad(numbers, [[0, 0], [0, 1]], constant_values=-1), [-1])
        placeholders = tf.RaggedTensor.from_row_lengths(
            tokenizer.placeholder_ids.start + tf.boolean_mask(after, after >= 0),
            tf.cast(after >= 0, tf.int64),
        )
        subwords = segment_annotated(tokenizer, parts) if has_terms else tokenizer.segment(parts)
        ids = tf.concat([subwords, placeholders], axis=1)
        # Join the parts and placeholders of each text.
        return tf.RaggedTensor.from_row_splits(
            ids.flat_values, ids.row_splits[:: NUM_PLACEHOLDERS + 1], validate=False
        )

    def _annotate(self, texts: Tensor) -> Tensor:
        # As in training, annotate before adding the space in front, which is not part of a term.
        if self._glossary is None:
            return texts
        return tf.reshape(self._glossary.annotate(tf.reshape(texts, [-1])), tf.shape(texts))

    def _tags(
        self, num_texts: Tensor, tags: Tensor | None = None
    ) -> Tensor | tf.RaggedTensor | None:
        """Returns the tokens in front of sources, int32 (n, None)."""
        if tags is None and not self.tag_ids:
            return None
        if tags is None:
            return tf.tile(tf.constant([self.tag_ids]), [num_texts, 1])
        known = self.tokenizers.source.tags
        # TensorFlow messages must be UTF-8.
        tags = tf.strings.unicode_transcode(tags, "UTF-8", "UTF-8", errors="replace")
        is_known = tf.equal(tags[:, None], ["", *known])
        unknown = tf.boolean_mask(tags, ~tf.reduce_any(is_known, axis=1))
        received = tf.strings.reduce_join(unknown, separator=", ")
        message = f"tag must be one of {listed(known)}; received " + received
        are_known = tf.debugging.Assert(tf.equal(tf.size(unknown), 0), [message])
        with tf.control_dependencies([are_known]):
            places = tf.argmax(tf.cast(is_known, tf.int32), axis=1)
        # The default tag, if any, replaces "".
        rows = [self.tag_ids, *((tag_id,) for tag_id in known.values())]
        return tf.gather(tf.ragged.constant(rows, tf.int32, ragged_rank=1), places)

    def _complete(
        self, token_ids: tf.RaggedTensor, tags: Tensor | tf.RaggedTensor | None
    ) -> Encoded:
        """Adds tags in front, truncates long texts, and adds end tokens."""
        if tags is not None:
            token_ids = tf.concat([tags, token_ids], axis=1)
        ends = tf.fill([token_ids.nrows(), 1], Tokenizer.end_id)
        shortened = tf.concat([token_ids[:, : self.max_length - 1], ends], axis=1)
        return Encoded(shortened, token_ids.row_lengths() + 1)

    def _limit(self, encoded: Encoded, is_cut: Tensor) -> Encoded:
        """Makes the lengths of shortened texts greater than the maximum length."""
        lengths = tf.maximum(encoded.lengths, self.max_length + 1)
        return encoded._replace(lengths=tf.where(is_cut, lengths, encoded.lengths))


def _count(placeholders: Tensor) -> Tensor:
    return tf.reduce_sum(tf.cast(placeholders, tf.int32), axis=1)

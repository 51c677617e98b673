"""Texts as the tokens that a model reads, with tags, placeholders and end tokens; and its tokens as texts."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import tensorflow as tf

from ..config import DecodingConfig
from ..config.rules import require
from ..config.values import listed
from ..tensors import Tensor
from ..tokenizers import Tokenizer, TokenizerPair
from ..tokenizers.placeholders import (
    NUM_PLACEHOLDERS,
    Divided,
    detokenize_divided,
    numbered_as,
    span_finder,
    tokenize_divided,
    tokenize_pairs,
)
from ..tokenizers.terms import AnnotatedSources, glossary_of
from .sentences import SPACES

Side = Literal["source", "target"]


class TokenIds(NamedTuple):
    """Texts as the model reads them: truncated, with end tokens."""

    token_ids: Annotated[tf.RaggedTensor, "int32 (batch, None)"]
    lengths: Annotated[Tensor, "int64 (batch,)"]  # see `Translations.source_lengths`


class Source(NamedTuple):
    """Sources as the model reads them. The last two are None for a model without placeholders."""

    token_ids: Annotated[tf.RaggedTensor, "int32 (batch, None)"]
    lengths: Annotated[Tensor, "int64 (batch,)"]  # see `Translations.source_lengths`
    divided: Divided | None
    placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None  # those that are read


class TextReader:
    """Splits texts into the tokens that a model reads, and joins those that it writes.

    Args:
        tokenizers: TokenizerPair.
        max_length: int. The most tokens of a text, with its tag and its end token; the others are cut off.
        decoding: DecodingConfig, whose tag goes in front of sources, whose placeholders stand for what stays as it
            is, and whose terms have their translations beside them in sources.

    Attributes:
        tag_ids: the tokens in front of every source.
        spans: SpanFinder, or None for a model without placeholders.

    Raises:
        ConfigError: The vocabulary has no such tag, no placeholders, or no pieces for terms.
    """

    def __init__(self, tokenizers: TokenizerPair, max_length: int, decoding: DecodingConfig) -> None:
        self.tokenizers = tokenizers
        self.max_length = max_length
        self.tag_ids = _tag_ids(decoding.tag, tokenizers.source)
        self.spans = span_finder(decoding, tokenizers)
        glossary = glossary_of(decoding, tokenizers.source)
        source = tokenizers.source if glossary is None else AnnotatedSources(tokenizers.source, glossary)
        self._splitters: dict[Side, Tokenizer | AnnotatedSources] = {"source": source, "target": tokenizers.target}

    def read_source(self, texts: Annotated[Tensor, "string (batch,)"]) -> Source:
        """Returns sources as the model reads them."""
        tokenizer = self.tokenizers.source
        texts, is_cut = tokenizer.shorten(texts, self.max_length)
        divided = None if self.spans is None else self.spans.divide(texts)
        read = self._with_end(_tokenize(self._splitters["source"], texts, divided), is_cut, self.tag_ids)
        if divided is None:
            return Source(*read, None, None)
        token_ids = tf.range(NUM_PLACEHOLDERS) + tokenizer.placeholder_ids.start
        is_read = tf.reduce_any(tf.equal(read.token_ids.to_tensor()[..., None], token_ids), axis=1)
        return Source(*read, divided, is_read)

    def read_pairs(
        self, sources: Annotated[Tensor, "string (batch,)"], targets: Annotated[Tensor, "string (batch,)"]
    ) -> tuple[TokenIds, TokenIds]:
        """Returns both sides as the model reads them. Placeholders stand for what both have, as in training."""
        (source, source_cut), (target, target_cut) = (
            tokenizer.shorten(side, self.max_length)
            for tokenizer, side in zip(self.tokenizers, (sources, targets), strict=True)
        )
        if self.spans is None:
            source_ids, target_ids = (
                splitter.tokenize(side)
                for splitter, side in zip(self._splitters.values(), (source, target), strict=True)
            )
        else:
            divided = self.spans.divide(source), self.spans.divide(target)
            source_ids, target_ids = tokenize_pairs((self._splitters["source"], self._splitters["target"]), *divided)
        return self._with_end(source_ids, source_cut, self.tag_ids), self._with_end(target_ids, target_cut)

    def read_prefixes(
        self, prefixes: Annotated[Tensor, "string (batch,)"], source: Source
    ) -> Annotated[tf.RaggedTensor, "int32 (batch, None)"]:
        """Returns the tokens that translations begin with.

        White space at the end is left out: it belongs to the token that follows.
        """
        tokenizer = self.tokenizers.target
        prefixes, _ = tokenizer.shorten(prefixes, self.max_length)
        prefixes = tf.strings.regex_replace(prefixes, rf"[{SPACES}]+$", "")
        if self.spans is None or source.divided is None or source.placeholders is None:
            return tokenizer.tokenize(prefixes)[:, : self.max_length - 1]
        # Those of the source that are read.
        read = source.divided._replace(spans=tf.where(source.placeholders, source.divided.spans, ""))
        token_ids = tokenize_divided(tokenizer, *numbered_as(read, self.spans.divide(prefixes)))
        # What a prefix lacks needs room.
        room = tf.cast(self.max_length - 1 - _count(source.placeholders), tf.int64)[:, None]
        return tf.ragged.boolean_mask(token_ids, tf.ragged.range(token_ids.row_lengths()) < room)

    def num_missing(
        self,
        placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"],
        prefix: Annotated[tf.RaggedTensor, "int32 (batch, None)"] | None,
    ) -> Annotated[Tensor, "int32 (batch,)"]:
        """Returns how many of the sources' placeholders the prefixes lack."""
        if prefix is None:
            return _count(placeholders)
        return _count(placeholders) - _count(prefix >= self.tokenizers.target.placeholder_ids.start)

    def join(
        self, token_ids: Annotated[tf.RaggedTensor, "int32 (batch * n_best, None)"], source: Source, n_best: int
    ) -> Annotated[Tensor, "string (batch * n_best,)"]:
        """Returns translations as texts, `n_best` of each source."""
        if source.divided is None:
            return self.tokenizers.target.detokenize(token_ids)
        return detokenize_divided(self.tokenizers.target, token_ids, tf.repeat(source.divided.spans, n_best, axis=0))

    def num_tokens(
        self, texts: Annotated[Tensor, "string (n,)"], side: Side = "source"
    ) -> Annotated[Tensor, "int64 (n,)"]:
        """Returns how many tokens texts have, with tags and end tokens, before they are truncated."""
        divided = None if self.spans is None else self.spans.divide(texts)
        token_ids = _tokenize(self._splitters[side], texts, divided)
        return token_ids.row_lengths() + (len(self.tag_ids) if side == "source" else 0) + 1

    def count_source_tokens(self, texts: Annotated[Tensor, "string (n,)"]) -> Annotated[Tensor, "int64 (n,)"]:
        """Returns how many tokens sources have without tags and end tokens; more than are read of one that is cut."""
        return self.read_source(texts).lengths - len(self.tag_ids) - 1

    def _with_end(self, token_ids: tf.RaggedTensor, is_cut: Tensor, tag_ids: Sequence[int] = ()) -> TokenIds:
        """Tokens, truncated, between tags and end tokens."""
        lengths = token_ids.row_lengths() + len(tag_ids) + 1
        token_ids = token_ids[:, : self.max_length - len(tag_ids) - 1]
        *tags, ends = (tf.fill([token_ids.nrows(), 1], token_id) for token_id in (*tag_ids, Tokenizer.end_id))
        lengths = tf.where(is_cut, tf.maximum(lengths, self.max_length + 1), lengths)
        return TokenIds(tf.concat([*tags, token_ids, ends], axis=1), lengths)


def _tag_ids(tag: str | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    if tag is None:
        return ()
    known = f"one of {listed(tokenizer.tags)}" if tokenizer.tags else "null: the vocabulary has no tags"
    require(tag in tokenizer.tags, "decoding.tag", known, tag)
    return (tokenizer.tags[tag],)


def _tokenize(splitter: Tokenizer | AnnotatedSources, texts: Tensor, divided: Divided | None) -> tf.RaggedTensor:
    return splitter.tokenize(texts) if divided is None else tokenize_divided(splitter, divided, divided.numbers)


def _count(placeholders: Tensor) -> Tensor:
    return tf.reduce_sum(tf.cast(placeholders, tf.int32), axis=1)

"""The computations of a translator, as functions of tensors for Python and for SavedModels.

Lengths are the numbers of tokens of texts, with their end tokens. They are above the model's
`max_length` where a text is truncated; what is far beyond it is not counted.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple, cast

import keras
import numpy as np
import tensorflow as tf

from ..checks import require
from ..config import DecodingConfig
from ..layers import TiedProjection
from ..losses import token_crossentropy
from ..models import Transformer
from ..models.transformer import GUIDED_HEAD
from ..tensors import Dimension, Tensor
from ..tokenizers import Tokenizer
from ..tokenizers.placeholders import SPACES
from ..tokenizers.text_codec import Side, TextCodec
from ..tokenizers.tokenizer import Texts
from .compiled_search import CompiledSearch, SearchShapes
from .documents import TranslatedDocuments, translate_documents
from .search import (
    Candidates,
    Sampling,
    SearchedModel,
    TranslationModel,
    Translations,
    map_in_length_batches,
    search_tokens,
)

# The layer of the decoder whose attention aligns.
ALIGNMENT_LAYER = -1
# The largest integer of a matrix in 8 bits.
_LARGEST = 127


class TokenScores(NamedTuple):
    """The log probabilities of pairs and of their tokens, and the lengths of their texts.

    Attributes:
        log_probs: the sums of the tokens' log probabilities.
        token_log_probs: of every token of the targets, with end tokens; 0 after them.
    """

    log_probs: Annotated[Tensor, "float32 (number of pairs,)"]
    token_log_probs: Annotated[Tensor, "float32 (number of pairs, target length)"]
    source_lengths: Annotated[Tensor, "int64 (number of pairs,)"]
    target_lengths: Annotated[Tensor, "int64 (number of pairs,)"]


def dual_scores(
    forward: TokenScores, backward: TokenScores
) -> Annotated[np.ndarray, "float (number of pairs,)"]:
    """Computes scores by dual conditional cross-entropy (Junczys-Dowmunt 2018, arXiv 1809.00197).

    They are `exp(-(|a - b| + (a + b) / 2))`, where `a` is the cross-entropy of the target given its
    source and `b` that of the source given the target, each for a token. The score is 1 for pairs
    of which both models are certain, and near 0 for pairs that both find improbable, or one of them
    less probable than the other.

    Args:
        forward: of the pairs.
        backward: of the same pairs by a model of the opposite direction, to which targets are
            sources.

    Example:
        >>> english, german, log_probs = np.array([1]), np.array([2]), np.array([[-2.0]])
        >>> forward = TokenScores(log_probs[:, 0], log_probs, english, german)
        >>> backward = TokenScores(log_probs[:, 0] - 1, log_probs - 1, german, english)
        >>> dual_scores(forward, backward).round(4)
        array([0.0183])
    """
    ours = -forward.log_probs / forward.target_lengths
    theirs = -backward.log_probs / backward.target_lengths
    return np.exp(-(np.abs(ours - theirs) + (ours + theirs) / 2))


class Tokens(NamedTuple):
    """The tokens of texts as a model reads them: truncated, with end tokens."""

    pieces: Annotated[Tensor, 'string (batch, length), padded with ""']
    token_ids: Annotated[Tensor, "int32 (batch, length), padded with 0"]
    lengths: Annotated[Tensor, "int64 (batch,)"]


class Alignments(NamedTuple):
    """Which tokens of their sources the tokens of targets come from.

    Attributes:
        positions: for each token of a target the position in its source that is attended to most;
            -1 after end tokens.
        attention: of a layer of the decoder, the mean of its heads, or the head that was trained to
            align: rows that sum to 1; 0 after end tokens.
    """

    source: Tokens
    target: Tokens
    positions: Annotated[Tensor, "int32 (number of pairs, target length)"]
    attention: Annotated[Tensor, "float32 (number of pairs, target length, source length)"]


class Embeddings(NamedTuple):
    """The encoder's outputs for texts: their mean over the tokens of a text, with its end token."""

    vectors: Annotated[Tensor, "float32 (batch, d_model)"]
    source_lengths: Annotated[Tensor, "int64 (batch,)"]


@dataclasses.dataclass(eq=False)
class TranslationGraph:
    """A model with its codec and its search, in the TensorFlow graph.

    Args:
        language: of documents.
        is_int8: whether matrices are rounded to 8 bits.
        candidates: the tokens that translations may have; None for all.
        is_guided: whether the first head of the decoder's last layer was trained to align.
    """

    model: TranslationModel
    codec: TextCodec
    decoding: DecodingConfig
    language: str | None
    is_int8: bool
    candidates: Candidates | None
    is_guided: bool

    def __post_init__(self) -> None:
        self._searched = SearchedModel(self.model, self.decoding, self.candidates)
        # The model's variables, and how each is stored.
        self._stored: list[tuple[keras.Variable, tf.Variable | _Int8Matrix]] = []
        for variable in self.model.weights:
            if self.is_int8 and len(variable.shape) == 2:
                self._stored.append((variable, _Int8Matrix.of(variable)))
            else:
                self._stored.append((variable, variable.value))
        for table in self._candidate_tables:
            self._stored.append((table, table.value))

    @contextlib.contextmanager
    def untied_output(self) -> Iterator[None]:
        """Lets searches that are traced in the block multiply by a copy of a tied kernel.

        To transpose the table takes longer than several steps of a search. The copy does not change
        with the model.
        """
        stored = self._stored
        searched = self._searched
        tied = self.model.output_projection if isinstance(self.model, Transformer) else None
        # For candidates, few columns are transposed. Integers are for small files, and are
        # transposed as they are read.
        if isinstance(tied, TiedProjection) and self.candidates is None and not self.is_int8:
            vocab_size = self.model.config.target_vocab_size
            copy = keras.layers.Dense(vocab_size, use_bias=tied.use_bias, dtype=tied.dtype_policy)
            copy.build((None, self.model.config.d_model))
            copy.set_weights([tied.kernel, tied.bias] if tied.use_bias else [tied.kernel])
            self._stored = stored + [(variable, variable.value) for variable in copy.variables]
            self._searched = searched._replace(output_projection=copy)
        try:
            yield
        finally:
            self._stored = stored
            self._searched = searched

    def compile_search(self, shapes: SearchShapes) -> None:
        """Lets searches that are traced from now on be compiled for these shapes."""
        tables = {id(variable) for variable in self._candidate_tables}
        variables = [variable for variable, _ in self._stored if id(variable) not in tables]
        compiled = CompiledSearch(self._searched, variables, shapes)
        self._searched = self._searched._replace(compiled=compiled)

    @contextlib.contextmanager
    def compiled(self, shapes: SearchShapes | None) -> Iterator[None]:
        """Lets searches that are traced in the block be compiled for these shapes."""
        searched = self._searched
        if shapes is not None:
            self.compile_search(shapes)
        try:
            yield
        finally:
            self._searched = searched

    @property
    def _candidate_tables(self) -> list[keras.Variable]:
        if self.candidates is None:
            return []
        return [self.candidates.by_source, self.candidates.always]

    @property
    def weights(self) -> list[tf.Variable]:
        """The variables that the functions read."""
        return tf.nest.flatten([stored for _, stored in self._stored])

    def _read_weights(self) -> keras.StatelessScope:
        """The scope in which the model computes, with the weights as tensors.

        TensorFlow does not run a loop that reads variables beside another loop.
        """
        tensors = []
        for variable, stored in self._stored:
            if isinstance(stored, _Int8Matrix):
                tensors.append((variable, stored.to_float()))
            else:
                tensors.append((variable, tf.identity(stored)))
        return keras.StatelessScope(state_mapping=tensors)

    def search(
        self,
        texts: Texts,
        n_best: int = 1,
        prefixes: Texts | None = None,
        max_lengths: Annotated[Tensor, "int32 (batch,)"] | None = None,
        sampling: Sampling | None = None,
        tags: Texts | None = None,
    ) -> Translations:
        """Searches translations.

        Args:
            n_best: at most the beam size.
            prefixes: what the translations begin with, see `Translator.translate`.
            max_lengths: the most tokens of each translation, with its prefix and its end token, if
                that is fewer than without it; 0 for no such limit.
            sampling: for translations drawn at random instead of searched.
            tags: those in front of the sources, see `Translator.translate`.
        """
        source = self.codec.encode_sources(texts, tags)
        # Cf: invisible characters.
        is_blank = tf.strings.regex_full_match(texts, rf"[{SPACES}\p{{Cf}}]*")
        limits = tf.where(is_blank, 0, self._searched.most_tokens(source.token_ids))
        if max_lengths is not None:
            limits = tf.where(max_lengths > 0, tf.minimum(limits, max_lengths), limits)
        prefix = None
        if prefixes is not None:
            prefix = self.codec.encode_prefixes(prefixes, source)
            limits = tf.maximum(limits - tf.cast(prefix.row_lengths(), tf.int32), 0)
        if source.placeholders is not None:
            limits = tf.maximum(limits, self.codec.num_missing(source.placeholders, prefix))
        with self._read_weights():
            token_ids, scores = search_tokens(
                self._searched,
                source.token_ids,
                limits,
                n_best,
                prefix,
                source.placeholders,
                sampling,
            )
        flat_ids = tf.reshape(token_ids, [-1, tf.shape(token_ids)[2]])
        if prefix is not None:
            beginnings = tf.gather(prefix, tf.repeat(tf.range(prefix.nrows()), n_best))
            flat_ids = tf.concat([beginnings, tf.cast(flat_ids, beginnings.dtype)], axis=1)
        translations = tf.reshape(self.codec.decode(flat_ids, source, n_best), [-1, n_best])
        return Translations(translations, scores, token_ids, source.lengths)

    def search_token_ids(
        self, token_ids: Annotated[Tensor, "int32 (batch, length)"]
    ) -> tuple[Annotated[Tensor, "int32 (batch, length)"], Annotated[Tensor, "float32 (batch,)"]]:
        """Searches translations of sources that are tokens already, as `tokenize` returns them.

        Returns:
            The tokens of the translations, with end tokens and padded with 0, and their scores, as
            `search` does.
        """
        is_known = (token_ids >= 0) & (token_ids < self.model.config.source_vocab_size)
        token_ids = tf.where(is_known, token_ids, Tokenizer.unk_id)
        token_ids = token_ids[:, : self.model.config.max_length]
        lengths = tf.RaggedTensor.from_tensor(token_ids, padding=Tokenizer.pad_id).row_lengths()
        # Keep one token for the encoder in a row that is all padding.
        padded = tf.pad(token_ids, [[0, 0], [0, 1]], constant_values=Tokenizer.pad_id)
        source = tf.RaggedTensor.from_tensor(padded, lengths=tf.maximum(lengths, 1))
        limits = tf.where(lengths > 1, self._searched.most_tokens(source), 0)
        with self._read_weights():
            translations, scores = search_tokens(self._searched, source, limits)
        return translations[:, 0], scores[:, 0]

    def translate_documents(self, texts: Texts, language: str | None = None) -> TranslatedDocuments:
        """Translates the sentences of documents, see `Translator.translate_document`."""
        return translate_documents(texts, language or self.language, self.codec, self.search)

    def score(self, sources: Texts, targets: Texts) -> TokenScores:
        """Computes the log probability of every token of the targets."""
        model = cast(Transformer, self.model)
        source, target = self.codec.encode_pairs(sources, targets)

        def score(source: Tensor, labels: Tensor) -> Tensor:
            logits = model({"source": source, "target": _shifted(labels)}, training=False)
            is_token = tf.not_equal(labels, Tokenizer.pad_id)
            return tf.where(is_token, -token_crossentropy(labels, logits), 0.0)

        sides = [source.token_ids, target.token_ids]
        log_probs = self._in_batches(score, sides, [_width(target.token_ids)])
        totals = tf.reduce_sum(log_probs, axis=1)
        return TokenScores(totals, log_probs, source.lengths, target.lengths)

    def align(self, sources: Texts, targets: Texts, layer: int = ALIGNMENT_LAYER) -> Alignments:
        """Aligns the tokens of targets with those of their sources, see `Translator.align`."""
        model = cast(Transformer, self.model)
        num_layers = self.model.config.depths[1]
        rule = f"from {-num_layers} to {num_layers - 1}"
        require(-num_layers <= layer < num_layers, "layer", rule, layer)
        source, target = self.codec.encode_pairs(sources, targets)
        has_guided_head = self.is_guided and layer in (ALIGNMENT_LAYER, num_layers - 1)

        def attend(source: Tensor, labels: Tensor) -> Tensor:
            encoded, source_mask = model.encode(source)
            embedded = model.target_embedding(_shifted(labels))
            _, _, scores = model.decoder(
                embedded, encoded, source_mask=source_mask, return_attention_scores=True
            )
            by_head = tf.cast(scores[layer], tf.float32)
            if has_guided_head:
                weights = by_head[:, GUIDED_HEAD]
            else:
                weights = tf.reduce_mean(by_head, axis=1)
            is_token = tf.not_equal(labels, Tokenizer.pad_id)
            return tf.where(is_token[:, :, None], weights, 0.0)

        sides = [source.token_ids, target.token_ids]
        shape: list[Dimension] = [_width(target.token_ids), _width(source.token_ids)]
        attention = self._in_batches(attend, sides, shape)
        # A row of a text has an end token, so that no axis is empty unless there are no texts.
        padded = tf.pad(attention, [[0, 0], [0, 0], [0, 1]])
        positions = tf.argmax(padded, axis=2, output_type=tf.int32)
        is_token = tf.sequence_mask(target.token_ids.row_lengths(), tf.shape(attention)[1])
        return Alignments(
            self._tokens("source", source.token_ids, source.lengths),
            self._tokens("target", target.token_ids, target.lengths),
            tf.where(is_token, positions, -1),
            attention,
        )

    def encode(self, texts: Texts) -> Embeddings:
        """Computes the means of the encoder's outputs."""
        model = cast(Transformer, self.model)
        source = self.codec.encode_sources(texts)

        def encode(source: Tensor) -> Tensor:
            encoded, mask = model.encode(source)
            weights = tf.cast(mask, tf.float32)[:, :, None]
            total = tf.reduce_sum(tf.cast(encoded, tf.float32) * weights, axis=1)
            return total / tf.reduce_sum(weights, axis=1)

        vectors = self._in_batches(encode, [source.token_ids], [model.config.d_model])
        return Embeddings(vectors, source.lengths)

    def tokenize(self, texts: Texts) -> Tokens:
        """Splits sources into the tokens that the model reads."""
        source = self.codec.encode_sources(texts)
        return self._tokens("source", source.token_ids, source.lengths)

    def _tokens(self, side: Side, token_ids: tf.RaggedTensor, lengths: Tensor) -> Tokens:
        tokenizer = getattr(self.codec.tokenizers, side)
        pieces = token_ids.with_flat_values(tokenizer.id_to_piece(token_ids.flat_values))
        return Tokens(pieces.to_tensor(), token_ids.to_tensor(), lengths)

    def _in_batches(
        self, function: Callable[..., Tensor], sides: list[tf.RaggedTensor], shape: list[Dimension]
    ) -> Tensor:
        """Applies a function to the sides of pairs in batches of similar lengths.

        Its results are padded to a shape.
        """

        def compute(rows: Tensor) -> Tensor:
            results = function(*(tf.gather(side, rows).to_tensor() for side in sides))
            padding = [[0, 0]]
            for axis, size in enumerate(shape, start=1):
                padding.append([0, size - tf.shape(results)[axis]])
            return tf.pad(results, padding)

        lengths = tf.reduce_max([tf.cast(side.row_lengths(), tf.int32) for side in sides], axis=0)
        results = tf.zeros([tf.size(lengths), *shape])
        with self._read_weights():
            return map_in_length_batches(compute, lengths, lengths, results)


def _shifted(labels: Annotated[Tensor, "int32 (batch, length)"]) -> Tensor:
    """What the decoder reads to predict the labels: they begin with the start token."""
    starts = tf.fill([tf.shape(labels)[0], 1], Tokenizer.start_id)
    return tf.concat([starts, labels[:, :-1]], axis=1)


def _width(rows: tf.RaggedTensor) -> Tensor:
    return tf.cast(rows.bounding_shape()[1], tf.int32)


class _Int8Matrix(NamedTuple):
    """A matrix of a model in 8 bits.

    Only storage is in 8 bits. A request begins with making the matrices float32 again, in which
    everything is computed. The integers, from -127 to 127, are multiplied with float32 scales: one
    for each column of a kernel, or for each row of a table of embeddings, which are the columns of
    the logits' kernel if it is tied.
    """

    integers: tf.Variable
    scales: tf.Variable

    @classmethod
    def of(cls, variable: keras.Variable) -> "_Int8Matrix":
        values = keras.ops.convert_to_numpy(variable).astype("float32")
        largest = np.abs(values).max(axis=0 if variable.name == "kernel" else 1, keepdims=True)
        # A channel of zeros may have any scale.
        scales = np.where(largest > 0, largest / _LARGEST, 1).astype("float32")
        integers = np.rint(values / scales).astype("int8")
        return cls(tf.Variable(integers, trainable=False), tf.Variable(scales, trainable=False))

    def to_float(self) -> Tensor:
        return tf.cast(self.integers, tf.float32) * self.scales

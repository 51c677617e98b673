"""Computations of a translator as functions of tensors, for use in Python and in SavedModels.

Lengths are numbers of tokens, including end tokens. If a text is truncated, its length is greater
than the model's `max_length`. The length of a very long text is not exact.
"""

import copy
import dataclasses
from collections.abc import Callable
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
from .documents import DocumentTensors, translate_documents
from .executor import BatchFunctions, CompiledFunctions, TracedFunctions
from .search import TranslationTensors, map_in_length_batches, search_tokens
from .searched_model import Candidates, FoundTokens, Sampling, SearchedModel, TranslationModel
from .shapes import SearchShapes

# Decoder layer whose attention is used for alignments.
ALIGNMENT_LAYER = -1
# Largest integer in an int8 matrix.
_LARGEST = 127


class TokenScores(NamedTuple):
    """Log probabilities of pairs and their tokens.

    Attributes:
        log_probs: log probability of each target, which is the sum over its tokens.
        token_log_probs: log probabilities of the target tokens, including end tokens, padded with
            0.
        source_lengths: numbers of tokens in the sources.
        target_lengths: numbers of tokens in the targets.
    """

    log_probs: Annotated[Tensor, "float32 (number of pairs,)"]
    token_log_probs: Annotated[Tensor, "float32 (number of pairs, target length)"]
    source_lengths: Annotated[Tensor, "int64 (number of pairs,)"]
    target_lengths: Annotated[Tensor, "int64 (number of pairs,)"]


def dual_scores(
    forward: TokenScores, backward: TokenScores
) -> Annotated[np.ndarray, "float (number of pairs,)"]:
    """Computes dual conditional cross-entropy scores (Junczys-Dowmunt 2018, arXiv 1809.00197).

    The score is `exp(-(|a - b| + (a + b) / 2))`, where `a` is the cross-entropy per token of the
    target given the source, and `b` the cross-entropy per token of the source given the target. It
    is 1 if both models are certain of a pair, and near 0 if both find it improbable or if they
    disagree.

    Args:
        forward: scores of the pairs.
        backward: scores of the same pairs by a model of the opposite direction, with source and
            target swapped.

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
    """Tokens of texts, truncated and with end tokens."""

    pieces: Annotated[Tensor, 'string (batch, length), padded with ""']
    token_ids: Annotated[Tensor, "int32 (batch, length), padded with 0"]
    lengths: Annotated[Tensor, "int64 (batch,)"]


class AlignmentTensors(NamedTuple):
    """Alignments of target tokens with source tokens.

    Attributes:
        source: tokens of the sources.
        target: tokens of the targets.
        positions: source position with the highest attention for each target token, and -1 after
            the end token.
        attention: attention weights of a decoder layer, averaged over the heads, or of the head
            that was trained for alignment. Each row sums to 1. Rows after the end token are 0.
    """

    source: Tokens
    target: Tokens
    positions: Annotated[Tensor, "int32 (number of pairs, target length)"]
    attention: Annotated[Tensor, "float32 (number of pairs, target length, source length)"]


class Embeddings(NamedTuple):
    """Encoder outputs, averaged over the tokens of each text, including its end token."""

    vectors: Annotated[Tensor, "float32 (batch, d_model)"]
    source_lengths: Annotated[Tensor, "int64 (batch,)"]


@dataclasses.dataclass(eq=False)
class TranslationGraph:
    """A model with its codec and search, inside the TensorFlow graph.

    Args:
        model: the model.
        codec: codec of the model.
        decoding: search settings.
        language: language of documents.
        is_int8: whether matrices are stored in 8 bits.
        candidates: tokens that may occur in translations. None for all tokens.
        is_guided: whether the first head of the decoder's last layer was trained for alignment.
    """

    model: TranslationModel
    codec: TextCodec
    decoding: DecodingConfig
    language: str | None
    is_int8: bool
    candidates: Candidates | None
    is_guided: bool

    def __post_init__(self) -> None:
        # Pairs of a variable that searches read and its storage.
        self._stored: list[tuple[keras.Variable, tf.Variable | _Int8Matrix]] = []
        for variable in self.model.weights:
            if self.is_int8 and len(variable.shape) == 2:
                self._stored.append((variable, _Int8Matrix.of(variable)))
            else:
                self._stored.append((variable, variable.value))
        for table in self._candidate_tables:
            self._stored.append((table, table.value))
        self._searched = SearchedModel(self.model, self.decoding, self.candidates, self._variables)

    def for_serving(self, shapes: SearchShapes | None = None) -> "TranslationGraph":
        """Returns a graph to export, whose traced searches share the functions of their batches.

        On a CPU, these functions choose TensorFlow's executor when they run, see `executor`.

        Args:
            shapes: shapes for which XLA compiles searches. Defaults to None: none.
        """
        graph = copy.copy(self)
        projection = self._untied_projection()
        if projection is not None:
            stored = [(variable, variable.value) for variable in projection.variables]
            graph._stored = [*self._stored, *stored]
        graph._searched = SearchedModel(
            self.model,
            self.decoding,
            self.candidates,
            graph._variables,
            projection,
            BatchFunctions(graph._variables),
            None if shapes is None else CompiledFunctions(graph._variables, shapes),
        )
        return graph

    def compiled(self, shapes: SearchShapes) -> "TranslationGraph":
        """Returns a graph in which XLA compiles searches for these shapes."""
        graph = copy.copy(self)
        functions = CompiledFunctions(self._variables, shapes)
        graph._searched = self._searched._replace(compiled_functions=functions)
        return graph

    def _untied_projection(self) -> keras.layers.Dense | None:
        """Returns a transposed copy of a tied output projection, or None if it saves no time.

        Transposing the embedding takes longer than several search steps. Later changes to the
        model's weights do not affect the copy.
        """
        tied = self.model.output_projection if isinstance(self.model, Transformer) else None
        # With candidates, only a few columns are transposed. With int8, a copy would make the file
        # larger, and matrices are transposed when they are converted to float32.
        if not isinstance(tied, TiedProjection) or self.candidates is not None or self.is_int8:
            return None
        vocab_size = self.model.config.target_vocab_size
        untied = keras.layers.Dense(vocab_size, use_bias=tied.use_bias, dtype=tied.dtype_policy)
        untied.build((None, self.model.config.d_model))
        untied.set_weights([tied.kernel, tied.bias] if tied.use_bias else [tied.kernel])
        return untied

    def with_margins(self) -> "TranslationGraph":
        """Returns a graph whose searches compute margins, see `decoding.margins`.

        Its functions run eagerly; only the search of a batch is traced, once.
        """
        graph = copy.copy(self)
        graph._searched = self._searched._replace(
            compiled_functions=None,
            batch_functions=TracedFunctions(self._variables),
            with_margins=True,
        )
        return graph

    def with_known_tokens(
        self, token_ids: Annotated[Tensor, "int32 (number of texts, n_best, length)"]
    ) -> "TranslationGraph":
        """Returns a graph that computes the scores of known tokens instead of searching."""
        graph = copy.copy(self)
        graph._searched = self._searched._replace(with_margins=False, known_tokens=token_ids)
        return graph

    @property
    def _candidate_tables(self) -> list[keras.Variable]:
        if self.candidates is None:
            return []
        return [self.candidates.by_source, self.candidates.always]

    @property
    def _variables(self) -> tuple[keras.Variable, ...]:
        return tuple(variable for variable, _ in self._stored)

    @property
    def weights(self) -> list[tf.Variable]:
        """The variables that the functions use."""
        return tf.nest.flatten([stored for _, stored in self._stored])

    def _read_weights(self) -> keras.StatelessScope:
        """Returns a scope in which the model uses its weights as tensors.

        TensorFlow does not run loops in parallel if they read variables.
        """
        tensors = []
        for variable, stored in self._stored:
            if isinstance(stored, _Int8Matrix):
                tensors.append((variable, stored.to_float()))
            else:
                tensors.append((variable, tf.convert_to_tensor(stored)))
        return keras.StatelessScope(state_mapping=tensors)

    def search(
        self,
        texts: Texts,
        n_best: int = 1,
        prefixes: Texts | None = None,
        max_lengths: Annotated[Tensor, "int32 (batch,)"] | None = None,
        sampling: Sampling | None = None,
        tags: Texts | None = None,
    ) -> TranslationTensors:
        """Searches for translations.

        Args:
            texts: source texts.
            n_best: number of translations per text, at most the beam size. Defaults to 1.
            prefixes: prefixes of the translations, see `Translator.translate`. Defaults to None.
            max_lengths: additional limit on the number of tokens in each translation, including its
                prefix and end token, or 0 for no additional limit. Defaults to None.
            sampling: options for sampling instead of search. Defaults to None.
            tags: tags in front of the sources, see `Translator.translate`. Defaults to None.
        """
        source = self.codec.encode_sources(texts, tags)
        # The Unicode category Cf contains invisible characters.
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
            found = search_tokens(
                self._searched,
                source.token_ids,
                limits,
                n_best,
                prefix,
                source.placeholders,
                sampling,
            )
        flat_ids = tf.reshape(found.token_ids, [-1, tf.shape(found.token_ids)[2]])
        if prefix is not None:
            beginnings = tf.gather(prefix, tf.repeat(tf.range(prefix.nrows()), n_best))
            flat_ids = tf.concat([beginnings, tf.cast(flat_ids, beginnings.dtype)], axis=1)
        translations = tf.reshape(self.codec.decode(flat_ids, source, n_best), [-1, n_best])
        return TranslationTensors(
            translations, found.scores, found.token_ids, source.lengths, found.margins
        )

    def search_token_ids(
        self, token_ids: Annotated[Tensor, "int32 (batch, length)"]
    ) -> FoundTokens:
        """Searches for the best translations of tokenized sources, as returned by `tokenize`."""
        is_known = (token_ids >= 0) & (token_ids < self.model.config.source_vocab_size)
        token_ids = tf.where(is_known, token_ids, Tokenizer.unk_id)
        token_ids = token_ids[:, : self.model.config.max_length]
        lengths = tf.RaggedTensor.from_tensor(token_ids, padding=Tokenizer.pad_id).row_lengths()
        # The encoder needs at least one position, even in a row that contains only padding.
        padded = tf.pad(token_ids, [[0, 0], [0, 1]], constant_values=Tokenizer.pad_id)
        source = tf.RaggedTensor.from_tensor(padded, lengths=tf.maximum(lengths, 1))
        limits = tf.where(lengths > 1, self._searched.most_tokens(source), 0)
        with self._read_weights():
            return search_tokens(self._searched, source, limits)

    def detokenize(self, token_ids: Annotated[Tensor, "int32 (batch, length)"]) -> Texts:
        """Joins target tokens into texts, see `Translator.detokenize`."""
        return self.codec.tokenizers.target.detokenize(token_ids)

    def translate_documents(self, texts: Texts, language: str | None = None) -> DocumentTensors:
        """Translates documents sentence by sentence, see `Translator.translate_document`."""
        return translate_documents(texts, language or self.language, self.codec, self.search)

    def score(self, sources: Texts, targets: Texts) -> TokenScores:
        """Computes the log probabilities of the target tokens."""
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

    def align(
        self, sources: Texts, targets: Texts, layer: int = ALIGNMENT_LAYER
    ) -> AlignmentTensors:
        """Aligns target tokens with source tokens, see `Translator.align`."""
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
        # Without texts, the source axis would be empty, which `argmax` does not support.
        padded = tf.pad(attention, [[0, 0], [0, 0], [0, 1]])
        positions = tf.argmax(padded, axis=2, output_type=tf.int32)
        is_token = tf.sequence_mask(target.token_ids.row_lengths(), tf.shape(attention)[1])
        return AlignmentTensors(
            self._tokens("source", source.token_ids, source.lengths),
            self._tokens("target", target.token_ids, target.lengths),
            tf.where(is_token, positions, -1),
            attention,
        )

    def encode(self, texts: Texts) -> Embeddings:
        """Computes the mean of the encoder's outputs for each text."""
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
        """Tokenizes sources for the model."""
        source = self.codec.encode_sources(texts)
        return self._tokens("source", source.token_ids, source.lengths)

    def _tokens(self, side: Side, token_ids: tf.RaggedTensor, lengths: Tensor) -> Tokens:
        tokenizer = getattr(self.codec.tokenizers, side)
        pieces = token_ids.with_flat_values(tokenizer.id_to_piece(token_ids.flat_values))
        return Tokens(pieces.to_tensor(), token_ids.to_tensor(), lengths)

    def _in_batches(
        self, function: Callable[..., Tensor], sides: list[tf.RaggedTensor], shape: list[Dimension]
    ) -> Tensor:
        """Applies a function to texts or pairs of texts, in batches of similar length.

        The results are padded to `shape`.
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
    """Returns the decoder inputs: the labels, shifted right, with the start token in front."""
    starts = tf.fill([tf.shape(labels)[0], 1], Tokenizer.start_id)
    return tf.concat([starts, labels[:, :-1]], axis=1)


def _width(rows: tf.RaggedTensor) -> Tensor:
    return tf.cast(rows.bounding_shape()[1], tf.int32)


class _Int8Matrix(NamedTuple):
    """A matrix of a model, stored in 8 bits.

    Every request converts the matrices to float32, and computes in float32. The integers, from -127
    to 127, are multiplied by float32 scales: one scale for each column of a kernel, or for each row
    of an embedding. With tied weights, the rows of the embedding are the columns of the output
    projection's kernel.
    """

    integers: tf.Variable
    scales: tf.Variable

    @classmethod
    def of(cls, variable: keras.Variable) -> "_Int8Matrix":
        values = keras.ops.convert_to_numpy(variable).astype("float32")
        largest = np.abs(values).max(axis=0 if variable.name == "kernel" else 1, keepdims=True)
        # A channel that contains only zeros can have any scale.
        scales = np.where(largest > 0, largest / _LARGEST, 1).astype("float32")
        integers = np.rint(values / scales).astype("int8")
        return cls(tf.Variable(integers, trainable=False), tf.Variable(scales, trainable=False))

    def to_float(self) -> Tensor:
        return tf.cast(self.integers, tf.float32) * self.scales

"""What a translator computes, as functions of tensors: they are traced for Python's calls and for SavedModels."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Annotated, NamedTuple, cast

import keras
import numpy as np
import tensorflow as tf

from ..config import DecodingConfig
from ..config.values import Language
from ..layers import TiedProjection
from ..models import Transformer
from ..models.transformer import GUIDED_HEAD
from ..rules import require
from ..tensors import Tensor
from ..tokenizers import Tokenizer
from ..tokenizers.text_codec import Side, TextCodec
from ..tokenizers.tokenizer import Texts
from .documents import TranslatedDocuments, translate_documents
from .forced_decoding import mean_encoding, source_attention, token_log_probs
from .results import Alignments, Embeddings, Tokens, TokenScores, Translations
from .search import Candidates, Request, Sampling, SearchedModel, TranslationModel, search_tokens

# The layer of the decoder whose attention aligns.
ALIGNMENT_LAYER = -1
# The largest integer of a matrix in 8 bits.
_LARGEST = 127


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
    language: Language | None
    is_int8: bool
    candidates: Candidates | None
    is_guided: bool

    def __post_init__(self) -> None:
        self._searched = SearchedModel(self.model, self.decoding, self.candidates)
        # Variables, and what is stored of them.
        self._stored: list[tuple[keras.Variable, tf.Variable | _Int8Matrix]] = [
            (variable, _Int8Matrix.of(variable) if self.is_int8 and len(variable.shape) == 2 else variable.value)
            for variable in self.model.variables
        ]
        if self.candidates is not None:
            self._stored += [(table, table.value) for table in (self.candidates.by_source, self.candidates.always)]

    @contextlib.contextmanager
    def untied_output(self) -> Iterator[None]:
        """Lets searches that are traced in the block multiply by a copy of a tied kernel.

        To transpose the table takes longer than several steps of a search. The copy does not change with the model.
        """
        stored, searched = self._stored, self._searched
        tied = self.model.output_projection if isinstance(self.model, Transformer) else None
        # For candidates, few columns are transposed. Integers are for small files, and are transposed as they are read.
        if isinstance(tied, TiedProjection) and self.candidates is None and not self.is_int8:
            width, size = self.model.config.d_model, self.model.config.target_vocab_size
            copy = keras.layers.Dense(size, use_bias=tied.use_bias, dtype=tied.dtype_policy)
            copy.build((None, width))
            copy.set_weights([tied.kernel, *([tied.bias] if tied.use_bias else [])])
            self._stored = stored + [(variable, variable.value) for variable in copy.variables]
            self._searched = searched._replace(output_projection=copy)
        try:
            yield
        finally:
            self._stored, self._searched = stored, searched

    @property
    def precision(self) -> str:
        return "int8-weights" if self.is_int8 else self.model.variables[0].dtype

    @property
    def weights(self) -> list[tf.Variable]:
        """The variables that the functions read."""
        return tf.nest.flatten([stored for _, stored in self._stored])

    def _read_weights(self) -> keras.StatelessScope:
        """The scope in which the model computes, with the weights as tensors.

        TensorFlow does not run a loop that reads variables beside another loop.
        """
        return keras.StatelessScope(
            state_mapping=[
                (variable, stored.to_float() if isinstance(stored, _Int8Matrix) else tf.identity(stored))
                for variable, stored in self._stored
            ]
        )

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
            max_lengths: the most tokens of each translation, with its prefix and its end token, if that is fewer than
                without it; 0 for no such limit.
            sampling: for translations drawn at random instead of searched.
            tags: those in front of the sources, see `Translator.translate`.
        """
        source = self.codec.encode_sources(texts, tags)
        max_length, max_extra = self.model.config.max_length, self.decoding.max_extra_tokens
        most = tf.minimum(tf.cast(source.token_ids.row_lengths(), tf.int32) + max_extra, max_length)
        limits = tf.where(tf.equal(tf.strings.strip(texts), ""), 0, most)
        if max_lengths is not None:
            limits = tf.where(max_lengths > 0, tf.minimum(limits, max_lengths), limits)
        prefix = None
        if prefixes is not None:
            prefix = self.codec.encode_prefixes(prefixes, source)
            limits = tf.maximum(limits - tf.cast(prefix.row_lengths(), tf.int32), 0)
        if source.placeholders is not None:
            limits = tf.maximum(limits, self.codec.num_missing(source.placeholders, prefix))
        with self._read_weights():
            request = Request(source.token_ids, most, limits, prefix, source.placeholders, sampling)
            token_ids, scores = search_tokens(self._searched, request, n_best)
        flat_ids = tf.reshape(token_ids, [-1, tf.shape(token_ids)[2]])
        ragged_ids = tf.RaggedTensor.from_tensor(flat_ids, padding=Tokenizer.pad_id)
        if prefix is not None:
            beginnings = tf.gather(prefix, tf.repeat(tf.range(prefix.nrows()), n_best))
            ragged_ids = tf.concat([beginnings, tf.cast(ragged_ids, beginnings.dtype)], axis=1)
        translations = self.codec.decode(ragged_ids, source, n_best)
        return Translations(tf.reshape(translations, [-1, n_best]), scores, token_ids, source.lengths)

    def search_token_ids(
        self, token_ids: Annotated[Tensor, "int32 (batch, length)"]
    ) -> tuple[Annotated[Tensor, "int32 (batch, length)"], Annotated[Tensor, "float32 (batch,)"]]:
        """Searches translations of sources that are tokens already, as `tokenize` returns them.

        Returns:
            The tokens of the translations, with end tokens and padded with 0, and their scores, as `search` does.
        """
        max_length, max_extra = self.model.config.max_length, self.decoding.max_extra_tokens
        is_known = (token_ids >= 0) & (token_ids < self.model.config.source_vocab_size)
        token_ids = tf.where(is_known, token_ids, Tokenizer.unk_id)[:, :max_length]
        lengths = tf.RaggedTensor.from_tensor(token_ids, padding=Tokenizer.pad_id).row_lengths()
        # Keep one token for the encoder in a row that is all padding.
        padded = tf.pad(token_ids, [[0, 0], [0, 1]], constant_values=Tokenizer.pad_id)
        source = tf.RaggedTensor.from_tensor(padded, lengths=tf.maximum(lengths, 1))
        most = tf.minimum(tf.cast(source.row_lengths(), tf.int32) + max_extra, max_length)
        limits = tf.where(lengths > 1, most, 0)
        with self._read_weights():
            translations, scores = search_tokens(self._searched, Request(source, most, limits), n_best=1)
        return translations[:, 0], scores[:, 0]

    def translate_documents(self, texts: Texts, language: Language | None = None) -> TranslatedDocuments:
        """Translates the sentences of documents, see `Translator.translate_document`."""
        return translate_documents(texts, language or self.language, self.codec, self.search)

    def score(self, sources: Texts, targets: Texts) -> TokenScores:
        """Computes the log probability of every token of the targets."""
        source, target = self.codec.encode_pairs(sources, targets)
        with self._read_weights():
            log_probs = token_log_probs(cast(Transformer, self.model), source.token_ids, target.token_ids)
        return TokenScores(tf.reduce_sum(log_probs, axis=1), log_probs, source.lengths, target.lengths)

    def align(self, sources: Texts, targets: Texts, layer: int = ALIGNMENT_LAYER) -> Alignments:
        """Finds which tokens of its source each token of a target comes from, see `Translator.align`."""
        num_layers = self.model.config.depths[1]
        require(-num_layers <= layer < num_layers, "layer", f"from {-num_layers} to {num_layers - 1}", layer)
        source, target = self.codec.encode_pairs(sources, targets)
        head = GUIDED_HEAD if self.is_guided and layer in (ALIGNMENT_LAYER, num_layers - 1) else None
        with self._read_weights():
            model = cast(Transformer, self.model)
            attention = source_attention(model, source.token_ids, target.token_ids, layer, head)
        # A row of a text has an end token, so that no axis is empty unless there are no texts.
        positions = tf.argmax(tf.pad(attention, [[0, 0], [0, 0], [0, 1]]), axis=2, output_type=tf.int32)
        is_token = tf.sequence_mask(target.token_ids.row_lengths(), tf.shape(attention)[1])
        return Alignments(
            self._tokens("source", source.token_ids, source.lengths),
            self._tokens("target", target.token_ids, target.lengths),
            tf.where(is_token, positions, -1),
            attention,
        )

    def encode(self, texts: Texts) -> Embeddings:
        """Computes the means of the encoder's outputs."""
        source = self.codec.encode_sources(texts)
        with self._read_weights():
            return Embeddings(mean_encoding(cast(Transformer, self.model), source.token_ids), source.lengths)

    def tokenize(self, texts: Texts) -> Tokens:
        """Splits sources into the tokens that the model reads."""
        source = self.codec.encode_sources(texts)
        return self._tokens("source", source.token_ids, source.lengths)

    def _tokens(self, side: Side, token_ids: tf.RaggedTensor, lengths: Tensor) -> Tokens:
        tokenizer = getattr(self.codec.tokenizers, side)
        pieces = token_ids.with_flat_values(tokenizer.id_to_piece(token_ids.flat_values))
        return Tokens(pieces.to_tensor(), token_ids.to_tensor(), lengths)


class _Int8Matrix(NamedTuple):
    """A matrix of a model in 8 bits.

    Only storage is in 8 bits. A request begins with making the matrices float32 again, in which everything is computed.
    The integers, from -127 to 127, are multiplied with float32 scales: one for each column of a kernel, or for each row
    of a table of embeddings, which are the columns of the logits' kernel if it is tied.
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

"""The values that plain and compiled searches share: a model with its settings, and a request."""

from typing import Annotated, NamedTuple, Protocol, cast

import keras
import numpy as np
import tensorflow as tf

from ..checks import integer
from ..config import DecodingConfig, TransformerConfig
from ..decoding import Decodable
from ..decoding.sampling import check_sampling
from ..model_dir.shortlist_file import Shortlist
from ..tensors import Tensor
from ..tokenizers import Tokenizer
from .executor import BatchFunctions, CompiledFunctions, TracedFunctions

Sources = Annotated[tf.RaggedTensor, "int32 (batch, None)"]
# The fields of `FoundTokens`. Margins are left out if they are not computed.
TokensAndScores = tuple[Tensor, ...]


class TranslationModel(Decodable, Protocol):
    """Protocol of models for a translator."""

    @property
    def config(self) -> TransformerConfig: ...

    @property
    def weights(self) -> list[keras.Variable]: ...


class Sampling(NamedTuple):
    """Options for random sampling of translations, see `keras_transformer.decoding.sample`.

    If an attribute is a tensor, it is an input of the graph.

    Attributes:
        seed: random seed. Only its low 32 bits are used. The same seed returns the same
            translations.
        temperature: values below 1 favor probable tokens, and values above 1 increase variety.
            Defaults to 1.
        top_k: number of most probable tokens to sample from. Defaults to None: all tokens.
        top_p: cumulative probability of the most probable tokens to sample from. Defaults to None,
            which is the same as 1.
        first_row: number of the first text. The samples for a text depend only on the seed and the
            number of the text. Defaults to 0.
    """

    seed: int | Tensor
    temperature: float | Tensor = 1.0
    top_k: int | None = None
    top_p: float | Tensor | None = None
    first_row: int | Tensor = 0

    def inputs(self) -> dict[str, Tensor]:
        """Checks the values and returns the inputs of a graph as tensors."""
        integer("seed", self.seed)
        integer("first_row", self.first_row, at_least=0, at_most=2**31 - 1)
        check_sampling(self.temperature, self.top_k, self.top_p)
        # Seeds of 2**31 or more become negative in int32.
        seed = np.array(int(cast(int, self.seed)) % 2**32, "uint32").astype("int32")
        inputs = {
            "seed": tf.constant(seed),
            "temperature": tf.constant(self.temperature, tf.float32),
            "first_row": tf.constant(self.first_row, tf.int32),
        }
        if self.top_p is not None:
            inputs["top_p"] = tf.constant(self.top_p, tf.float32)
        return inputs


class FoundTokens(NamedTuple):
    """Tokens of the translations of a batch of texts, best first. See `TranslationTensors`.

    Attributes:
        token_ids: tokens.
        scores: scores.
        margins: margin of each text, see `decoding.margins`. None if they are not computed.
    """

    token_ids: Annotated[Tensor, "int32 (batch, n_best, length)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
    margins: Annotated[Tensor, "float32 (batch,)"] | None = None


class Candidates:
    """Shortlist of target tokens, stored in variables.

    Args:
        shortlist: the shortlist.
        vocab_size: number of target tokens.
        also: ids of additional tokens that may occur in any translation.
    """

    def __init__(self, shortlist: Shortlist, vocab_size: int, also: range) -> None:
        self.vocab_size = vocab_size
        self.num_also = len(also)
        self.by_source = keras.Variable(
            shortlist.by_source, trainable=False, dtype="int32", name="by_source"
        )
        always = np.union1d(shortlist.always, [*also])
        self.always = keras.Variable(always, trainable=False, dtype="int32", name="always")
        # A source token adds this many tokens on average to those that may always occur.
        is_added = ~np.isin(shortlist.by_source, always)
        self.mean_num_added = float(is_added.sum(axis=1).mean())

    def of(
        self,
        source: Annotated[Tensor, "int32 (batch, source length)"],
        prefix: Annotated[Tensor, "int32 (batch, prefix length)"] | None,
    ) -> Annotated[Tensor, "int32 (number of candidates,)"]:
        """Returns the tokens that may occur in the translations of a batch, in ascending order.

        They include the tokens of prefixes.
        """
        parts = [self.always.value, tf.reshape(tf.gather(self.by_source.value, source), [-1])]
        if prefix is not None:
            parts.append(tf.maximum(tf.reshape(prefix, [-1]), Tokenizer.pad_id))
        token_ids = tf.concat(parts, 0)
        # Counting is faster than sorting.
        counts = tf.math.unsorted_segment_sum(tf.ones_like(token_ids), token_ids, self.vocab_size)
        return tf.cast(tf.where(counts > 0)[:, 0], tf.int32)


class SearchedModel(NamedTuple):
    """A model with its search settings, which never change.

    Attributes:
        model: the model.
        decoding: search settings.
        candidates: tokens that may occur in translations. None for all tokens.
        variables: all variables that a search reads.
        output_projection: layer that computes the logits. Defaults to None: the model's layer.
        batch_functions: functions in which the plain search of each batch runs. Defaults to None:
            it is a part of the graph.
        compiled_functions: functions in which XLA compiles the search of batches that fit a shape.
            Defaults to None: no search is compiled.
        with_margins: whether to compute margins, see `decoding.margins`. Not supported by compiled
            searches. Defaults to False.
        known_tokens: tokens of the translations of all texts, or -1 for missing translations. They
            are not searched for: their scores are computed, -inf if the search cannot find them.
            Defaults to None.
    """

    model: TranslationModel
    decoding: DecodingConfig
    candidates: Candidates | None
    variables: tuple[keras.Variable, ...]
    output_projection: keras.layers.Layer | None = None
    batch_functions: BatchFunctions | TracedFunctions | None = None
    compiled_functions: CompiledFunctions | None = None
    with_margins: bool = False
    known_tokens: Annotated[Tensor, "int32 (num_texts, n_best, length)"] | None = None

    def most_tokens(self, source: Sources) -> Annotated[Tensor, "int32 (batch,)"]:
        """Returns the maximum length of each translation, including its prefix and end token."""
        return self.most_tokens_of(tf.cast(source.row_lengths(), tf.int32))

    def most_tokens_of(self, lengths: Annotated[Tensor, "int32"]) -> Annotated[Tensor, "int32"]:
        """Returns the maximum lengths of translations of sources with these numbers of tokens."""
        return tf.minimum(lengths + self.decoding.max_extra_tokens, self.model.config.max_length)


class SearchRequest(NamedTuple):
    """The texts of a request. See `search_tokens` for the attributes.

    Attributes:
        width: length to which the translations of all batches are padded.
    """

    source: Sources
    max_lengths: Annotated[Tensor, "int32 (num_texts,)"]
    width: Annotated[Tensor, "int32 ()"]
    n_best: int
    prefix: Annotated[tf.RaggedTensor, "int32 (num_texts, None)"] | None
    placeholders: Annotated[Tensor, "bool (num_texts, NUM_PLACEHOLDERS)"] | None
    sampling: Sampling | None

    @property
    def num_texts(self) -> Annotated[Tensor, "int32 ()"]:
        return self.source.nrows(tf.int32)

"""A language model: an embedding, a decoder without a source, and a projection to logits."""

from collections.abc import Mapping
from typing import Annotated, Any

import keras
from keras import ops

from ..decoding.protocol import Step
from ..errors import ConfigError
from ..layers import Decoder, PositionalEmbedding, TiedProjection
from ..layers.children import saved_dtype
from ..tensors import Dimension, Tensor
from .incremental_decoding import CacheEntries, DecoderState, decoder_step, start_state


@keras.saving.register_keras_serializable("keras_transformer")
class LanguageModel(keras.Model):
    """A decoder that predicts the next token, for `fit` and for `generate` with caches.

    You create the parts and can replace each of them: `decoder` may be a subclass of `Decoder` with
    your own layers, and `output_projection` any layer that maps hidden states to logits.

    Args:
        embedding: `PositionalEmbedding`. Embeds the token ids. Its `padding_id` is masked in calls,
            and `generate` never generates it.
        decoder: `Decoder`, called without a source.
        output_projection: `keras.layers.Layer` or None. Maps hidden states (batch, length, d_model)
            to logits (batch, length, vocab_size). Defaults to None: a `TiedProjection`, which uses
            the embedding's table.
        dtype: Keras dtype policy, or its name. Defaults to the global policy.

    Call arguments:
        inputs: int (batch, length). Token ids.
        training: bool. Whether to apply dropout.

    Returns:
        float32 logits (batch, length, vocab_size) of the next token at each position.

    Raises:
        ConfigError: A part is not a layer of the required class.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=100, d_model=32)
        >>> decoder = Decoder(num_layers=2, num_heads=2, d_ff=64, norm_first=True)
        >>> model = LanguageModel(embedding, decoder)
        >>> model(np.ones((2, 5), "int32")).shape
        (2, 5, 100)
        >>> generate(model, [[5, 6, 7], [8]], max_new_tokens=4).token_ids.shape
        (2, 4)
    """

    def __init__(
        self,
        embedding: PositionalEmbedding,
        decoder: Decoder,
        output_projection: keras.layers.Layer | None = None,
        dtype: keras.DTypePolicy | str | None = None,
        **kwargs: Any,
    ) -> None:
        for name, part, part_class in (
            ("embedding", embedding, PositionalEmbedding),
            ("decoder", decoder, Decoder),
            ("output_projection", output_projection or embedding, keras.layers.Layer),
        ):
            if not isinstance(part, part_class):
                raise ConfigError(
                    f"{name} must be a {part_class.__name__}; received {type(part).__name__}"
                )
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        projection = output_projection or TiedProjection(embedding, dtype=policy, name="logits")
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        logits = projection(decoder(embedding(token_ids)))
        super().__init__(inputs=token_ids, outputs=ops.cast(logits, "float32"), **kwargs)
        self.embedding = embedding
        self.decoder = decoder
        self.output_projection = projection
        self._is_tied = output_projection is None
        self._policy = policy

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return self.embedding.vocab_size

    @property
    def max_length(self) -> int | None:
        """The number of positions, or None without a limit."""
        return self.embedding.max_length

    @property
    def padding_id(self) -> int | None:
        """The token that calls mask, or None."""
        return self.embedding.padding_id

    def start_decoding(
        self,
        source: None = None,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[DecoderState], DecoderState]:
        """Prepares to decode. See `keras_transformer.decoding.Decodable`.

        Args:
            source: must be None.
            beam_size: number of hypotheses per sequence. Defaults to 1.
            max_length: number of tokens that the caches have room for. Defaults to None: the caches
                grow with every step.
            prefix: the tokens before position 0 of the search. It determines the number of
                sequences, so it is required, but its length may be 0.

        Returns:
            A tuple of the step function and the state for its first call.
        """
        if source is not None:
            raise ConfigError("source must be None for a LanguageModel; received a source")
        if prefix is None:
            raise ConfigError("prefix must be given to a LanguageModel; received prefix=None")
        entries = CacheEntries(ops.shape(prefix)[0], beam_size, max_length, prefix)
        step = decoder_step(self.embedding, self.decoder, self.output_projection, entries)
        return step, start_state(self.embedding, self.decoder, entries)

    def get_config(self) -> dict[str, Any]:
        projection = None if self._is_tied else self.output_projection
        return {
            "embedding": keras.saving.serialize_keras_object(self.embedding),
            "decoder": keras.saving.serialize_keras_object(self.decoder),
            "output_projection": keras.saving.serialize_keras_object(projection),
            "name": self.name,
            "dtype": saved_dtype(self, default=self._policy),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, type] | None = None
    ) -> "LanguageModel":
        config = dict(config)
        for name in ("embedding", "decoder", "output_projection"):
            config[name] = keras.saving.deserialize_keras_object(
                config[name], custom_objects=custom_objects
            )
        return cls(**config)

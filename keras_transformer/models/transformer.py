"""The Transformer as a functional Keras model, applied to whole sequences or one step at a time."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import keras
from keras import ops

from ..config import TransformerConfig
from ..decoding.protocol import Step
from ..errors import ConfigError
from ..layers import (
    Decoder,
    Encoder,
    PositionalEmbedding,
    TiedProjection,
)
from ..layers.children import saved_dtype
from ..masks import PADDING_ID, padding_mask
from ..tensors import Dimension, Tensor
from .incremental_decoding import CacheEntries, DecoderState, decoder_step, start_state

# The head in the decoder's last layer whose cross-attention is trained by guided alignment.
GUIDED_HEAD = 0


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(keras.Model):
    """A functional model that maps token ids to logits (Figure 1 of the paper).

    `build_transformer(config)` returns the same model as `Transformer(config)`. Use
    `build_transformer` to build a model from the standard layers. To use other layers, define a
    subclass of `Transformer` (see `encoder_class`).

    Save the model with `model.save("model.keras")`, and load it with `keras.saving.load_model`.
    Before you load a file in another program, import `keras_transformer`, and the module of your
    subclass.

    To create a model with the same configuration and new weights, call
    `type(model).from_config(model.get_config())`. `keras.models.clone_model` returns a functional
    model instead of a `Transformer`.

    Args:
        config: the configuration, or its fields as a dict.
        dtype: Keras dtype policy, or its name. Defaults to the global policy.

    Call arguments:
        inputs: dict with two tensors. "source" is int (batch, source length); each row ends with
            the end token, and 0 is padding. "target" is int (batch, target length); it is the
            translation, shifted right, so it begins with the start token.
        training: bool. Whether to apply dropout.

    Returns:
        float32 logits (batch, target length, target_vocab_size).

    Attributes:
        encoder_class: the class of the encoder, `Encoder` or a subclass of it. To use other layers,
            set it in a subclass of `Transformer`
            ([Your own blocks](../blocks.md#in-a-model-that-translates)).
        decoder_class: the class of the decoder, `Decoder` or a subclass of it.
        config: the configuration.
        encoder: the encoder, an instance of `encoder_class`.
        decoder: the decoder, an instance of `decoder_class`.
        output_projection: the layer that maps hidden states to logits: a `TiedProjection`, or a
            `Dense` layer if no embeddings are tied. Its `kernel` is (d_model, target_vocab_size),
            and its `bias` is (target_vocab_size,) or None.

    Raises:
        ConfigError: A value of the configuration is invalid.

    Example:
        >>> config = TransformerConfig.preset("tiny", source_vocab_size=100, target_vocab_size=100)
        >>> model = build_transformer(config)
        >>> model({"source": np.ones((2, 7), "int32"), "target": np.ones((2, 5), "int32")}).shape
        (2, 5, 100)
    """

    # The classes of the stacks. A subclass can replace them.
    encoder_class: type[Encoder] = Encoder
    decoder_class: type[Decoder] = Decoder

    def __init__(
        self,
        config: TransformerConfig | dict[str, Any],
        dtype: keras.DTypePolicy | str | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(config, TransformerConfig):
            config = TransformerConfig(**config)
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        source_embedding, target_embedding = _make_embeddings(config, dtype)
        encoder_layers, decoder_layers = config.depths
        arguments = _layer_arguments(config, dtype)
        encoder = self.encoder_class(encoder_layers, **arguments, name="encoder")
        decoder = self.decoder_class(decoder_layers, **arguments, name="decoder")
        output_projection = _make_output_projection(config, target_embedding, dtype)

        inputs = {
            "source": keras.Input((None,), dtype="int32", name="source"),
            "target": keras.Input((None,), dtype="int32", name="target"),
        }
        hidden = _hidden_states(source_embedding, target_embedding, encoder, decoder, inputs)
        logits = ops.cast(output_projection(hidden), "float32")
        super().__init__(inputs=inputs, outputs=logits, **kwargs)

        self.config = config
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.output_projection = output_projection

    def hidden_states(
        self,
        inputs: Mapping[str, Tensor],
        training: bool | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Returns the inputs of the output projection, (batch, target length, d_model).

        Args:
            inputs: as in a call.
            training: as in a call.
            return_attention_scores: bool. Whether to also return the decoder's attention weights,
                as `Decoder` does. Defaults to False.
        """
        parts = (self.source_embedding, self.target_embedding, self.encoder, self.decoder)
        return _hidden_states(*parts, inputs, training, return_attention_scores)

    @property
    def vocab_size(self) -> int:
        """The number of token ids that the target may have."""
        return self.target_embedding.vocab_size

    @property
    def padding_id(self) -> int:
        """The token that calls mask, in the source and in the target."""
        return PADDING_ID

    def encode(
        self, source: Annotated[Tensor, "int (batch, source length)"]
    ) -> tuple[
        Annotated[Tensor, "(batch, source length, d_model)"],
        Annotated[Tensor, "bool (batch, source length)"],
    ]:
        """Encodes a source.

        Args:
            source: token ids, as in a call.

        Returns:
            The encoder's output, and its mask.
        """
        source_mask = padding_mask(source)
        return self.encoder(self.source_embedding(source), mask=source_mask), source_mask

    def start_decoding(
        self,
        source: Annotated[Tensor, "int (batch, source length)"],
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
        candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None,
        output_projection: keras.layers.Layer | None = None,
    ) -> tuple[Step[DecoderState], DecoderState]:
        """Encodes a source and prepares to decode. See `keras_transformer.decoding.Decodable`.

        Args:
            source: token ids, as in a call.
            beam_size: number of hypotheses per source. Defaults to 1.
            max_length: number of tokens that the caches have room for. Defaults to None: the caches
                grow with every step. Inside a loop, only TensorFlow allows this, with an unknown
                batch size.
            prefix: the tokens before position 0 of the search, without the token at position 0.
                Shorter prefixes are padded on the left with negative ids. Defaults to None:
                position 0 is the start of the target.
            candidates: the tokens whose logits are computed. See
                `keras_transformer.decoding.Constraints`. Defaults to None: all tokens.
            output_projection: the layer that computes the logits. Defaults to None: the model's own
                output projection.

        Returns:
            A tuple of the step function and the state for its first call.
        """
        if source is None:
            raise ConfigError("source must be given to a Transformer; received source=None")
        encoded, source_mask = self.encode(source)
        entries = CacheEntries(ops.shape(encoded)[0], beam_size, max_length, prefix)
        projection = output_projection or self.output_projection
        step = decoder_step(self.target_embedding, self.decoder, projection, entries, candidates)
        projected = (self.decoder.project_source(encoded), source_mask)
        return step, start_state(self.target_embedding, self.decoder, entries, projected)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": dataclasses.asdict(self.config),
            "name": self.name,
            "dtype": saved_dtype(self, default=self.encoder.dtype_policy),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, type] | None = None
    ) -> "Transformer":
        return cls(**config)


def build_transformer(
    config: TransformerConfig, dtype: keras.DTypePolicy | str | None = None
) -> Transformer:
    """Builds the model that a configuration describes.

    Args:
        config: the configuration.
        dtype: Keras dtype policy, or its name, such as "mixed_bfloat16". Defaults to the global
            policy.

    Returns:
        `Transformer`, a functional `keras.Model` that maps token ids to logits.
    """
    model = Transformer(config, dtype=dtype)
    if model.count_params() != config.num_parameters:
        raise RuntimeError(
            "TransformerConfig.num_parameters must count every weight of the model: it is "
            f"{config.num_parameters:,}, the model has {model.count_params():,}"
        )
    return model


def _make_embeddings(
    config: TransformerConfig, dtype: keras.DTypePolicy
) -> tuple[PositionalEmbedding, PositionalEmbedding]:
    """Creates the source and target embeddings, which are the same layer if all are tied."""

    def make(vocab_size: int, name: str) -> PositionalEmbedding:
        return PositionalEmbedding(
            vocab_size,
            config.d_model,
            config.added_positions,
            max_length=config.max_length if config.positions == "learned" else None,
            dropout=config.dropout,
            dtype=dtype,
            name=name,
        )

    if config.tie_embeddings == "all":
        embedding = make(config.source_vocab_size, "embedding")
        return embedding, embedding
    source_embedding = make(config.source_vocab_size, "source_embedding")
    return source_embedding, make(config.target_vocab_size, "target_embedding")


def _layer_arguments(config: TransformerConfig, dtype: keras.DTypePolicy) -> dict[str, Any]:
    """Returns the arguments that the encoder and the decoder have in common."""
    return dict(
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        key_dim=config.key_dim,
        value_dim=config.value_dim,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        activation=config.activation,
        norm_first=config.norm_first,
        sliding_window=config.sliding_window,
        epsilon=config.epsilon,
        attention_bias=config.attention_bias,
        feed_forward_bias=config.feed_forward_bias,
        normalization=config.normalization,
        gated=config.gated,
        num_key_value_heads=config.num_key_value_heads,
        query_key_norm=config.query_key_norm,
        relative_positions=config.relative_positions,
        dtype=dtype,
    )


def _make_output_projection(
    config: TransformerConfig, target_embedding: PositionalEmbedding, dtype: keras.DTypePolicy
) -> keras.layers.Layer:
    if config.tie_embeddings == "none":
        return keras.layers.Dense(
            config.target_vocab_size, use_bias=config.logits_bias, dtype=dtype, name="logits"
        )
    return TiedProjection(target_embedding, config.logits_bias, dtype=dtype, name="logits")


def _hidden_states(
    source_embedding: PositionalEmbedding,
    target_embedding: PositionalEmbedding,
    encoder: Encoder,
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    training: bool | None = None,
    return_attention_scores: bool = False,
) -> Any:
    source, target = inputs["source"], inputs["target"]
    source_mask, target_mask = padding_mask(source), padding_mask(target)
    embedded_source = source_embedding(source, training=training)
    encoded = encoder(embedded_source, mask=source_mask, training=training)
    return decoder(
        target_embedding(target, training=training),
        encoded,  # (batch, source length, d_model)
        target_mask=target_mask,
        source_mask=source_mask,
        training=training,
        return_attention_scores=return_attention_scores,
    )


def named_weights(model: Transformer) -> Iterator[tuple[str, keras.Variable]]:
    """Yields every weight of a model once, with its name.

    Import from and export to other programs use these names, which are the paths of the weights in
    Keras, shortened: "encoder/0/self_attention/query/kernel", "encoder/1/feed_forward/hidden/bias",
    "decoder/5/cross_attention/norm/gamma", "decoder/final_norm/beta", "target_embedding",
    "source_embedding", "target_positions", "source_positions", "logits/kernel" and "logits/bias".
    A weight that source and target share is yielded only under the name of the target.

    Args:
        model: Transformer.
    """
    for variable in model.weights:
        name = re.sub(r"/layer_(\d+)/", r"/\1/", variable.path).replace("_residual/", "/")
        side, _, table = name.rpartition("embedding/")
        if table == "tokens":
            name = f"{side or 'target_'}embedding"
        elif table == "positions":
            name = f"{side or 'target_'}positions"
        yield name, variable

"""KerasHub's encoder and decoder layers, and its embedding of tokens and positions."""

import sys
from typing import TYPE_CHECKING, Any, overload

import keras

from ..errors import ConfigError
from ..layers import DecoderLayer, EncoderLayer, PositionalEmbedding
from ..rules import require
from .conversion import (
    as_array,
    copy_weights,
    import_package,
    require_defaults,
    require_own_class,
    require_settings,
    require_weights,
)
from .keras_attention import copy_attention

if TYPE_CHECKING:
    import keras_hub

# Ours and KerasHub's; the name, the policy and the initializers are called alike.
_NAMES = {
    "num_heads": "num_heads",
    "d_ff": "intermediate_dim",
    "dropout": "dropout",
    "activation": "activation",
    "norm_first": "normalize_first",
    "epsilon": "layer_norm_epsilon",
    "kernel_initializer": "kernel_initializer",
    "bias_initializer": "bias_initializer",
    "name": "name",
    "dtype": "dtype",
}
# What is converted, checked by itself, or left behind.
_CONVERTED = {*_NAMES, "key_dim", "value_dim", "attention_bias", "attention_dropout", "flash_attention", "seed"}


@overload
def from_keras_hub(layer: "keras_hub.layers.TransformerEncoder") -> EncoderLayer: ...
@overload
def from_keras_hub(layer: "keras_hub.layers.TransformerDecoder") -> DecoderLayer: ...
@overload
def from_keras_hub(layer: "keras_hub.layers.TokenAndPositionEmbedding") -> PositionalEmbedding: ...
def from_keras_hub(
    layer: "keras_hub.layers.TransformerEncoder | keras_hub.layers.TransformerDecoder | "
    "keras_hub.layers.TokenAndPositionEmbedding",
) -> EncoderLayer | DecoderLayer | PositionalEmbedding:
    """Makes a layer with the settings and the weights of a layer of KerasHub.

    A `TransformerEncoder` becomes an `EncoderLayer`, a `TransformerDecoder`, with cross-attention or without, a
    `DecoderLayer`, and a `TokenAndPositionEmbedding` a `PositionalEmbedding`. KerasHub's `padding_mask` is `mask` here,
    its `decoder_padding_mask` is `target_mask` and its `encoder_padding_mask` is `source_mask`.

    Args:
        layer: a built layer of `keras_hub.layers`.

    Returns:
        A built layer with the same outputs, of the same name and dtype policy.

    Raises:
        ConfigError: The layer is of another class, not built or quantized, or an embedding with `tie_weights=False`.

    Example:
        >>> import keras_hub
        >>> encoder = keras_hub.layers.TransformerEncoder(intermediate_dim=16, num_heads=2)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = encoder(x)
        >>> np.allclose(from_keras_hub(encoder)(x), expected, atol=2e-6)
        True
    """
    keras_hub = sys.modules.get("keras_hub")  # Whoever has one of its layers has imported it.
    if keras_hub is None:
        raise ConfigError(f"layer must be a layer of keras_hub; received {type(layer).__name__}")
    layers = keras_hub.layers
    require_own_class(layer, (layers.TransformerEncoder, layers.TransformerDecoder, layers.TokenAndPositionEmbedding))
    require_weights(layer)
    if isinstance(layer, layers.TokenAndPositionEmbedding):
        return _from_embedding(layer)
    config = layer.get_config()
    query_kernel = layer._self_attention_layer.query_dense.kernel
    d_model, num_heads, key_dim = query_kernel.shape
    settings = {
        **{ours: config[theirs] for ours, theirs in _NAMES.items()},
        "attention_dropout": config["dropout"],
        "attention_bias": True,
        "key_dim": None if num_heads * key_dim == d_model else key_dim,
    }
    shape = (None, None, d_model)
    converted: Any
    if isinstance(layer, layers.TransformerEncoder):
        converted = EncoderLayer.from_config(settings)
        converted.build(shape)
    else:
        converted = DecoderLayer.from_config(settings)
        source_attention = layer._cross_attention_layer
        source_width = None if source_attention is None else source_attention.value_dense.kernel.shape[0]
        converted.build(shape, None if source_attention is None else (None, None, source_width))
    for theirs, ours in zip(_their_parts(layer), _our_parts(converted), strict=True):
        _copy(theirs, ours)
    return converted


@overload
def to_keras_hub(layer: EncoderLayer) -> "keras_hub.layers.TransformerEncoder": ...
@overload
def to_keras_hub(layer: DecoderLayer) -> "keras_hub.layers.TransformerDecoder": ...
@overload
def to_keras_hub(layer: PositionalEmbedding) -> "keras_hub.layers.TokenAndPositionEmbedding": ...
def to_keras_hub(
    layer: EncoderLayer | DecoderLayer | PositionalEmbedding,
) -> (
    "keras_hub.layers.TransformerEncoder | keras_hub.layers.TransformerDecoder | "
    "keras_hub.layers.TokenAndPositionEmbedding"
):
    """Makes a layer of KerasHub with the settings and the weights of a layer; `from_keras_hub` says which.

    KerasHub's blocks always have biases, one rate of dropout for sublayers and attention weights, and none inside the
    feed-forward network. Its embedding is not scaled, and its positions are learned. A seed is left behind.

    Args:
        layer: a built `EncoderLayer` or `DecoderLayer` with `attention_bias=True` and `attention_dropout` equal to
            `dropout`, or a `PositionalEmbedding` with `positions="learned"` and `scale_embedding=False`.

    Returns:
        A built layer of `keras_hub.layers` with the same outputs.

    Raises:
        ConfigError: The layer is of another class, not built or quantized, or has a setting that KerasHub has not.
        MissingPackageError: KerasHub is not installed.

    Example:
        >>> layer = EncoderLayer(num_heads=2, d_ff=16, dropout=0.0, attention_bias=True)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = layer(x)
        >>> np.allclose(to_keras_hub(layer)(x), expected, atol=2e-6)
        True
    """
    require_own_class(layer, (EncoderLayer, DecoderLayer, PositionalEmbedding))
    require_weights(layer)
    if isinstance(layer, PositionalEmbedding):
        return _to_embedding(layer)
    is_encoder = type(layer) is EncoderLayer
    target = f"keras_hub.layers.{'TransformerEncoder' if is_encoder else 'TransformerDecoder'}"
    require_defaults(layer, target, _CONVERTED)
    require_settings(layer, target, attention_bias=True, attention_dropout=layer.dropout)
    attention = layer.attention
    d_model = attention.query_dense.kernel.shape[0]
    key_dim = d_model // attention.num_heads
    require(attention.key_dim == key_dim, "key_dim", f"{key_dim} to become a {target}", attention.key_dim)
    require(layer.value_dim in (None, key_dim), "value_dim", f"{key_dim} to become a {target}", layer.value_dim)
    keras_hub = import_package("keras_hub", "keras-hub")
    config = layer.get_config()
    settings = {theirs: config[ours] for ours, theirs in _NAMES.items()}
    shape = (None, None, d_model)
    converted: Any
    if is_encoder:
        converted = keras_hub.layers.TransformerEncoder.from_config(settings)
        converted.build(shape)
    else:
        converted = keras_hub.layers.TransformerDecoder.from_config(settings)
        source_attention = layer.source_attention
        source_width = None if source_attention is None else source_attention.value_dense.kernel.shape[0]
        converted.build(shape, None if source_attention is None else (None, None, source_width))
    for ours, theirs in zip(_our_parts(layer), _their_parts(converted), strict=True):
        _copy(ours, theirs)
    return converted


def _from_embedding(layer: "keras_hub.layers.TokenAndPositionEmbedding") -> PositionalEmbedding:
    config = layer.get_config()
    require(config["tie_weights"], "tie_weights", "True in an embedding that is converted", config["tie_weights"])
    embedding = PositionalEmbedding(
        config["vocabulary_size"],
        config["embedding_dim"],
        positions="learned",
        max_length=config["sequence_length"],
        scale_embedding=False,
        padding_id=0 if config["mask_zero"] else None,
        name=layer.name,
        dtype=layer.dtype_policy,
    )
    embedding.build((None, None))
    embedding.token_table.assign(as_array(layer.token_embedding.embeddings))
    embedding.position_table.assign(as_array(layer.position_embedding.position_embeddings))
    return embedding


def _to_embedding(embedding: PositionalEmbedding) -> "keras_hub.layers.TokenAndPositionEmbedding":
    target = "keras_hub.layers.TokenAndPositionEmbedding"
    require_settings(embedding, target, positions="learned", scale_embedding=False, dropout=0)
    padding_id = embedding.padding_id
    require(padding_id in (0, None), "padding_id", f"0 or None to become a {target}", padding_id)
    layer = import_package("keras_hub", "keras-hub").layers.TokenAndPositionEmbedding(
        embedding.vocab_size,
        embedding.max_length,
        embedding.d_model,
        mask_zero=padding_id == 0,
        name=embedding.name,
        dtype=embedding.dtype_policy,
    )
    layer.build((None, None))
    layer.token_embedding.embeddings.assign(as_array(embedding.token_table))
    layer.position_embedding.position_embeddings.assign(as_array(embedding.position_table))
    return layer


def _copy(source: keras.layers.Layer, target: keras.layers.Layer) -> None:
    if hasattr(source, "query_dense"):
        copy_attention(source, target)
    else:
        copy_weights(source, target)


def _our_parts(layer: EncoderLayer | DecoderLayer) -> list[keras.layers.Layer]:
    parts = [layer.attention, layer.attention_residual.norm]
    if isinstance(layer, DecoderLayer) and layer.source_attention is not None:
        parts += [layer.source_attention, layer.source_attention_residual.norm]
    feed_forward = layer.feed_forward
    return [*parts, feed_forward.hidden_dense, feed_forward.output_dense, layer.feed_forward_residual.norm]


def _their_parts(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    parts = [layer._self_attention_layer, layer._self_attention_layer_norm]
    if getattr(layer, "_cross_attention_layer", None) is not None:
        parts += [layer._cross_attention_layer, layer._cross_attention_layer_norm]
    return [
        *parts,
        layer._feedforward_intermediate_dense,
        layer._feedforward_output_dense,
        layer._feedforward_layer_norm,
    ]

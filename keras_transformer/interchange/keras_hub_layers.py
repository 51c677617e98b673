"""KerasHub's encoder and decoder layers, and its embedding of tokens and positions."""

import operator
import sys
from collections.abc import Iterator
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
_NAMES_OF_EMBEDDING = {
    "vocab_size": "vocabulary_size",
    "max_length": "sequence_length",
    "d_model": "embedding_dim",
    "name": "name",
}
_PARTS = {
    "attention": "_self_attention_layer",
    "attention_residual.norm": "_self_attention_layer_norm",
    "source_attention": "_cross_attention_layer",
    "source_attention_residual.norm": "_cross_attention_layer_norm",
    "feed_forward.hidden_dense": "_feedforward_intermediate_dense",
    "feed_forward.output_dense": "_feedforward_output_dense",
    "feed_forward_residual.norm": "_feedforward_layer_norm",
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
    is_encoder = isinstance(layer, layers.TransformerEncoder)
    converted: Any = (EncoderLayer if is_encoder else DecoderLayer).from_config(settings)
    _build(converted, d_model, getattr(layer, "_cross_attention_layer", None))
    for ours, theirs in _parts(converted, layer):
        copy_weights(theirs, ours)
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
    class_name = "TransformerEncoder" if type(layer) is EncoderLayer else "TransformerDecoder"
    target = f"keras_hub.layers.{class_name}"
    require_defaults(layer, target, _CONVERTED)
    require_settings(layer, target, attention_bias=True, attention_dropout=layer.dropout)
    attention = layer.attention
    d_model = attention.query_dense.kernel.shape[0]
    key_dim = d_model // attention.num_heads
    require(attention.key_dim == key_dim, "key_dim", f"{key_dim} to become a {target}", attention.key_dim)
    require(layer.value_dim in (None, key_dim), "value_dim", f"{key_dim} to become a {target}", layer.value_dim)
    config = layer.get_config()
    settings = {theirs: config[ours] for ours, theirs in _NAMES.items()}
    converted = getattr(import_package("keras_hub", "keras-hub").layers, class_name).from_config(settings)
    _build(converted, d_model, getattr(layer, "source_attention", None))
    for ours, theirs in _parts(layer, converted):
        copy_weights(ours, theirs)
    return converted


def _from_embedding(layer: "keras_hub.layers.TokenAndPositionEmbedding") -> PositionalEmbedding:
    config = layer.get_config()
    require(config["tie_weights"], "tie_weights", "True in an embedding that is converted", config["tie_weights"])
    embedding = PositionalEmbedding(
        **{ours: config[theirs] for ours, theirs in _NAMES_OF_EMBEDDING.items()},
        positions="learned",
        scale_embedding=False,
        padding_id=0 if config["mask_zero"] else None,
        dtype=layer.dtype_policy,
    )
    embedding.build((None, None))
    for ours, theirs in _tables(embedding, layer):
        ours.assign(as_array(theirs))
    return embedding


def _to_embedding(embedding: PositionalEmbedding) -> "keras_hub.layers.TokenAndPositionEmbedding":
    target = "keras_hub.layers.TokenAndPositionEmbedding"
    require_settings(embedding, target, positions="learned", scale_embedding=False, dropout=0)
    padding_id = embedding.padding_id
    require(padding_id in (0, None), "padding_id", f"0 or None to become a {target}", padding_id)
    layer = import_package("keras_hub", "keras-hub").layers.TokenAndPositionEmbedding(
        **{theirs: getattr(embedding, ours) for ours, theirs in _NAMES_OF_EMBEDDING.items()},
        mask_zero=padding_id == 0,
        dtype=embedding.dtype_policy,
    )
    layer.build((None, None))
    for ours, theirs in _tables(embedding, layer):
        theirs.assign(as_array(ours))
    return layer


def _tables(
    embedding: PositionalEmbedding, layer: "keras_hub.layers.TokenAndPositionEmbedding"
) -> list[tuple[keras.Variable, keras.Variable]]:
    return [
        (embedding.token_table, layer.token_embedding.embeddings),
        (embedding.position_table, layer.position_embedding.position_embeddings),
    ]


def _build(converted: keras.layers.Layer, d_model: int, source_attention: keras.layers.Layer | None) -> None:
    widths = [d_model, *([] if source_attention is None else [source_attention.value_dense.kernel.shape[0]])]
    converted.build(*((None, None, width) for width in widths))


def _parts(
    ours: EncoderLayer | DecoderLayer, theirs: keras.layers.Layer
) -> Iterator[tuple[keras.layers.Layer, keras.layers.Layer]]:
    has_source = getattr(ours, "source_attention", None) is not None
    for our_name, their_name in _PARTS.items():
        if has_source or not our_name.startswith("source_"):
            yield operator.attrgetter(our_name)(ours), getattr(theirs, their_name)

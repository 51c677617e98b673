"""Converts attention layers of Keras, and layers and embeddings of KerasHub."""

import inspect
import sys
from typing import TYPE_CHECKING, Any, overload

import keras

from ..checks import require
from ..errors import ConfigError
from ..keras_versions import flash_attention_of, projections_of
from ..layers import DecoderLayer, EncoderLayer, MultiHeadAttention, PositionalEmbedding
from .conversion import (
    as_array,
    import_package,
    parts_of,
    require_defaults,
    require_own_class,
    require_settings,
    require_weights,
)

if TYPE_CHECKING:
    import keras_hub

# Arguments that have the same names in our layer.
_SHARED = (
    "name",
    "dtype",
    "dropout",
    "use_bias",
    "sliding_window",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "activity_regularizer",
    "kernel_constraint",
    "bias_constraint",
    "use_gate",
    "seed",
)
# Other arguments of Keras' two classes, by our names.
_GROUPED = {
    "num_heads": "num_query_heads",
    "key_dim": "head_dim",
    "num_key_value_heads": "num_key_value_heads",
}
_UNGROUPED = {
    "num_heads": "num_heads",
    "key_dim": "key_dim",
    "value_dim": "value_dim",
    "output_shape": "output_shape",
    "attention_axes": "attention_axes",
}
# Arguments of KerasHub's layers by our names.
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
# The parts of a layer in the order of `parts_of`; not every layer has cross-attention.
_PARTS = (
    "_self_attention_layer",
    "_self_attention_layer_norm",
    "_cross_attention_layer",
    "_cross_attention_layer_norm",
    "_feedforward_intermediate_dense",
    "_feedforward_output_dense",
    "_feedforward_layer_norm",
)
# Arguments that are converted, checked separately, or dropped.
_CONVERTED = {
    *_NAMES,
    "key_dim",
    "value_dim",
    "attention_bias",
    "attention_dropout",
    "flash_attention",
    "seed",
}


def from_keras(
    layer: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention",
) -> MultiHeadAttention:
    """Converts a Keras attention layer to a `MultiHeadAttention`, with its settings and weights.

    If a mask hides every position, the outputs differ: attention here returns zeros before the
    output projection, and Keras returns the mean of all values.

    Args:
        layer: a built `keras.layers.MultiHeadAttention` or `keras.layers.GroupQueryAttention`.

    Returns:
        A built layer with the same name, dtype policy and outputs.

    Raises:
        ConfigError: The layer is of another class or a subclass, has not been built, or is
            quantized.

    Example:
        >>> stock = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = stock(x, x)
        >>> np.allclose(from_keras(stock)(x, x), expected, atol=1e-6)
        True
    """
    require_own_class(layer, (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention))
    require_weights(layer)
    config = layer.get_config()
    shapes = _build_shapes(layer)
    names = _GROUPED if isinstance(layer, keras.layers.GroupQueryAttention) else _UNGROUPED
    settings = {ours: config[theirs] for ours, theirs in names.items()}
    # A built layer lists the axes instead of None.
    if tuple(settings.get("attention_axes", ())) == tuple(range(1, len(shapes[0]) - 1)):
        del settings["attention_axes"]
    # Older releases of Keras have fewer of these arguments.
    settings |= {name: config[name] for name in _SHARED if name in config}
    settings["flash_attention"] = flash_attention_of(layer)
    attention = MultiHeadAttention.from_config(settings)
    attention.build(*shapes)
    _copy_weights(layer, attention)
    return attention


def to_keras(
    attention: MultiHeadAttention,
) -> "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention":
    """Converts a `MultiHeadAttention` to a Keras attention layer, with its settings and weights.

    `sliding_window` requires Keras 3.15 or later, which computes it as a mask.

    Args:
        attention: a built `MultiHeadAttention`.

    Returns:
        A built `keras.layers.GroupQueryAttention` if `num_key_value_heads` is given, otherwise a
        `keras.layers.MultiHeadAttention`.

    Raises:
        ConfigError: The layer is of another class or a subclass, has not been built, is quantized,
            or has a setting that Keras does not have.

    Example:
        >>> attention = MultiHeadAttention(num_heads=2, key_dim=4)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = attention(x, x)
        >>> np.allclose(to_keras(attention)(x, x), expected, atol=1e-6)
        True
    """
    require_own_class(attention, (MultiHeadAttention,))
    require_weights(attention)
    is_grouped = attention.num_key_value_heads is not None
    target_class = (
        keras.layers.GroupQueryAttention if is_grouped else keras.layers.MultiHeadAttention
    )
    target = f"keras.layers.{target_class.__name__} (Keras {keras.__version__})"
    # Older releases have no gate, or no sliding window.
    known = {"name", "dtype", *inspect.signature(target_class).parameters}
    converted = {*_SHARED} & known
    names = _GROUPED if is_grouped else _UNGROUPED
    require_defaults(attention, target, {*converted, *names, "value_dim", "flash_attention"})
    config = attention.get_config()
    settings = {name: config[name] for name in (*_SHARED, "flash_attention") if name in known}
    settings |= {theirs: config[ours] for ours, theirs in names.items()}
    if is_grouped:
        value_dim = attention.value_dim
        is_key_dim = value_dim in (None, attention.key_dim)
        require(is_key_dim, "value_dim", f"key_dim to become a {target}", value_dim)
    layer: Any = target_class.from_config(settings)
    layer.build(*_build_shapes(attention))
    _copy_weights(attention, layer)
    return layer


def _build_shapes(attention: keras.layers.Layer) -> list[tuple[int | None, ...]]:
    """Returns the shapes of query, value and key that the layer was built for."""
    rank = len(attention.get_build_config()["shapes_dict"]["query_shape"])
    query, key, value, *_ = _projections(attention)
    return [(*[None] * (rank - 1), dense.kernel.shape[0]) for dense in (query, value, key)]


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
    """Converts a KerasHub layer, with its settings and weights.

    | KerasHub | here |
    | --- | --- |
    | `TokenAndPositionEmbedding` | `PositionalEmbedding` |
    | `TransformerEncoder` | `EncoderLayer` |
    | `TransformerDecoder`, with or without cross-attention | `DecoderLayer` |
    | `padding_mask` of an encoder | `mask` |
    | `decoder_padding_mask` | `target_mask` |
    | `encoder_padding_mask` | `source_mask` |
    | `decoder_attention_mask` | `attention_mask` |
    | `encoder_attention_mask` | `source_attention_mask` |

    In both libraries, True in a padding mask marks a real token. If a mask hides every position,
    the outputs differ: attention here returns zeros before the output projection, and KerasHub
    returns the mean of all values.

    Args:
        layer: a built layer of a class in the table.

    Returns:
        A built layer with the same name, dtype policy and outputs.

    Raises:
        ConfigError: The layer is of another class or a subclass, has not been built, is quantized,
            or is an embedding with `tie_weights=False`.

    Example:
        >>> import keras_hub
        >>> encoder = keras_hub.layers.TransformerEncoder(intermediate_dim=16, num_heads=2)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = encoder(x)
        >>> np.allclose(from_keras_hub(encoder)(x), expected, atol=2e-6)
        True
    """
    # If the layer is from KerasHub, KerasHub has already been imported.
    keras_hub = sys.modules.get("keras_hub")
    if keras_hub is None:
        raise ConfigError(f"layer must be a layer of keras_hub; received {type(layer).__name__}")
    layers = keras_hub.layers
    require_own_class(
        layer,
        (layers.TransformerEncoder, layers.TransformerDecoder, layers.TokenAndPositionEmbedding),
    )
    require_weights(layer)
    if isinstance(layer, layers.TokenAndPositionEmbedding):
        return _from_embedding(layer)
    config = layer.get_config()
    d_model, num_heads, key_dim = layer._self_attention_layer.query_dense.kernel.shape
    settings = {
        **{ours: config[theirs] for ours, theirs in _NAMES.items()},
        "attention_dropout": config["dropout"],
        "attention_bias": True,
        "key_dim": None if num_heads * key_dim == d_model else key_dim,
    }
    is_encoder = isinstance(layer, layers.TransformerEncoder)
    converted: Any = (EncoderLayer if is_encoder else DecoderLayer).from_config(settings)
    cross_attention = getattr(layer, "_cross_attention_layer", None)
    _build(converted, d_model, layer._self_attention_layer, cross_attention)
    for ours, theirs in _pairs(converted, layer):
        _copy_weights(theirs, ours)
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
    """Converts a layer to a KerasHub layer, with its settings and weights.

    See `from_keras_hub` for the classes. KerasHub's layers always have biases. They use the same
    dropout rate for sublayers and attention weights, and no dropout inside the feed-forward
    network. KerasHub's embeddings are not scaled, and have learned positions. The seed is not
    copied.

    Args:
        layer: a built `EncoderLayer` or `DecoderLayer` with `attention_bias=True` and
            `attention_dropout` equal to `dropout`, or a `PositionalEmbedding` with
            `positions="learned"` and `scale_embedding=False`.

    Returns:
        A built layer of `keras_hub.layers` with the same outputs.

    Raises:
        ConfigError: The layer is of another class or a subclass, has not been built, is quantized,
            or has a setting that KerasHub does not have.
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
    attention = layer.self_attention
    d_model = attention.query_dense.kernel.shape[0]
    key_dim = d_model // attention.num_heads
    rule = f"{key_dim} to become a {target}"
    require(attention.key_dim == key_dim, "key_dim", rule, attention.key_dim)
    require(layer.value_dim in (None, key_dim), "value_dim", rule, layer.value_dim)
    config = layer.get_config()
    settings = {theirs: config[ours] for ours, theirs in _NAMES.items()}
    target_class = getattr(import_package("keras_hub", "keras-hub").layers, class_name)
    converted = target_class.from_config(settings)
    _build(converted, d_model, layer.self_attention, getattr(layer, "cross_attention", None))
    for ours, theirs in _pairs(layer, converted):
        _copy_weights(ours, theirs)
    return converted


def _from_embedding(layer: "keras_hub.layers.TokenAndPositionEmbedding") -> PositionalEmbedding:
    config = layer.get_config()
    is_tied = config["tie_weights"]
    require(is_tied, "tie_weights", "True in an embedding that is converted", is_tied)
    embedding = PositionalEmbedding(
        **{ours: config[theirs] for ours, theirs in _NAMES_OF_EMBEDDING.items()},
        positions="learned",
        scale_embedding=False,
        padding_id=0 if config["mask_zero"] else None,
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
        **{theirs: getattr(embedding, ours) for ours, theirs in _NAMES_OF_EMBEDDING.items()},
        mask_zero=padding_id == 0,
        dtype=embedding.dtype_policy,
    )
    layer.build((None, None))
    layer.token_embedding.embeddings.assign(as_array(embedding.token_table))
    layer.position_embedding.position_embeddings.assign(as_array(embedding.position_table))
    return layer


def _build(
    converted: keras.layers.Layer,
    d_model: int,
    self_attention: keras.layers.Layer,
    cross_attention: keras.layers.Layer | None,
) -> None:
    # An encoder layer's inputs may have more than three axes.
    rank = len(self_attention.get_build_config()["shapes_dict"]["query_shape"])
    shapes = [(*[None] * (rank - 1), d_model)]
    if cross_attention is not None:
        shapes.append((*[None] * (rank - 1), cross_attention.value_dense.kernel.shape[0]))
    converted.build(*shapes)


def _pairs(
    ours: EncoderLayer | DecoderLayer, theirs: keras.layers.Layer
) -> list[tuple[keras.layers.Layer, keras.layers.Layer]]:
    """Returns the parts of a layer, each with its counterpart in KerasHub's layer."""
    parts = parts_of(ours)
    names = [name for name in _PARTS if len(parts) == len(_PARTS) or "_cross" not in name]
    return [(part, getattr(theirs, name)) for part, name in zip(parts, names, strict=True)]


def _projections(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the projections of an attention layer, ours or Keras'.

    They are query, key, value, output and, if there is one, gate.
    """
    if not isinstance(layer, MultiHeadAttention):
        return list(projections_of(layer).values())
    projections = [layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense]
    if layer.use_gate:
        projections.append(layer.gate_dense)
    return projections


def _copy_weights(source: keras.layers.Layer, target: keras.layers.Layer) -> None:
    """Copies the weights of attention, a dense layer or a normalization.

    The weights of Keras' attention have a separate axis for heads; ours do not.
    """
    # A layer without projections counts as its only part.
    source_parts = _projections(source) or [source]
    target_parts = _projections(target) or [target]
    for source_part, target_part in zip(source_parts, target_parts, strict=True):
        for name in ("kernel", "bias", "gamma", "beta"):
            weight = getattr(source_part, name, None)
            if weight is not None:
                variable = getattr(target_part, name)
                variable.assign(as_array(weight).reshape(variable.shape))

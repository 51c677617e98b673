"""Attention layers of Keras itself."""

import inspect
from typing import Any

import keras

from ..keras_versions import flash_attention_of
from ..layers import MultiHeadAttention
from ..rules import require
from .conversion import copy_weights, projections, require_defaults, require_own_class, require_weights

# Arguments that ours has by the same names.
_SHARED = (
    *("name", "dtype", "dropout", "use_bias", "sliding_window", "kernel_initializer", "bias_initializer"),
    *("kernel_regularizer", "bias_regularizer", "activity_regularizer", "kernel_constraint", "bias_constraint"),
    *("use_gate", "seed"),
)


def from_keras(
    layer: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention",
) -> MultiHeadAttention:
    """Makes a `MultiHeadAttention` with the settings and the weights of an attention layer of Keras.

    Args:
        layer: a built `keras.layers.MultiHeadAttention` or `keras.layers.GroupQueryAttention`.

    Returns:
        A built layer with the same outputs, of the same name and dtype policy.

    Raises:
        ConfigError: The layer is of another class, not built or quantized.

    Example:
        >>> stock = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = stock(x, x)
        >>> np.allclose(from_keras(stock)(x, x), expected, atol=1e-6)
        True
    """
    require_own_class(layer, (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention))
    require_weights(layer)
    config, shapes = layer.get_config(), _build_shapes(layer)
    if isinstance(layer, keras.layers.GroupQueryAttention):
        settings = {
            "num_heads": config["num_query_heads"],
            "key_dim": config["head_dim"],
            "num_key_value_heads": config["num_key_value_heads"],
        }
    else:
        settings = {name: config[name] for name in ("num_heads", "key_dim", "value_dim", "output_shape")}
        # A built layer lists the axes that None stands for.
        is_default = tuple(config["attention_axes"]) == tuple(range(1, len(shapes[0]) - 1))
        settings["attention_axes"] = None if is_default else config["attention_axes"]
    # Older releases of Keras have fewer.
    settings |= {name: config[name] for name in _SHARED if name in config}
    attention = MultiHeadAttention.from_config({**settings, "flash_attention": flash_attention_of(layer)})
    attention.build(*shapes)
    copy_weights(layer, attention)
    return attention


def to_keras(
    attention: MultiHeadAttention,
) -> "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention":
    """Makes an attention layer of Keras with the settings and the weights of a `MultiHeadAttention`.

    A `neighborhood` becomes the `sliding_window` of the same positions, which Keras computes as a mask.

    Args:
        attention: a built `MultiHeadAttention`.

    Returns:
        A built `keras.layers.GroupQueryAttention` if `num_key_value_heads` is given, otherwise a
        `keras.layers.MultiHeadAttention`.

    Raises:
        ConfigError: The layer is of another class, not built or quantized, or has a setting that Keras has not.

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
    target_class = keras.layers.GroupQueryAttention if is_grouped else keras.layers.MultiHeadAttention
    target = f"keras.layers.{target_class.__name__} (Keras {keras.__version__})"
    # Older releases have no gate, or no sliding window.
    known = {"name", "dtype", *inspect.signature(target_class).parameters}
    converted = {*_SHARED, "neighborhood"} if "sliding_window" in known else {*_SHARED} & known
    names = () if is_grouped else ("num_heads", "key_dim", "value_dim", "output_shape", "attention_axes")
    require_defaults(attention, target, {*converted, *names, "value_dim", "flash_attention", "num_key_value_heads"})
    config = attention.get_config()
    settings = {name: config[name] for name in (*_SHARED, *names, "flash_attention") if name in known}
    if attention.neighborhood is not None:
        settings["sliding_window"] = (attention.neighborhood + 1) // 2
    if is_grouped:
        value_dim = attention.value_dim
        require(value_dim in (None, attention.key_dim), "value_dim", f"key_dim to become a {target}", value_dim)
        settings |= {
            "head_dim": attention.key_dim,
            "num_query_heads": attention.num_heads,
            "num_key_value_heads": attention.num_key_value_heads,
        }
    layer: Any = target_class.from_config(settings)
    layer.build(*_build_shapes(attention))
    copy_weights(attention, layer)
    return layer


def _build_shapes(attention: keras.layers.Layer) -> list[tuple[int | None, ...]]:
    """The shapes of query, value and key that the layer was built for."""
    rank = len(attention.get_build_config()["shapes_dict"]["query_shape"])
    query, key, value, *_ = projections(attention)
    return [(*[None] * (rank - 1), dense.kernel.shape[0]) for dense in (query, value, key)]

"""Helpers for layers that make other layers."""

import random
import re
from typing import Any

import keras

from ..keras_versions import with_sublayers

# The names that sublayers had in earlier releases.
_EARLIER_NAMES = {
    "self_attention": "attention",
    "self_attention_residual": "attention_residual",
    "cross_attention": "source_attention",
    "cross_attention_residual": "source_attention_residual",
}


def layer_name(name: str) -> str:
    """Returns the name of a sublayer as a Keras layer: the one of earlier releases.

    It is a part of the paths of variables. TensorFlow also orders sums by it, so that another name
    would change how a run that is resumed rounds.
    """
    return _EARLIER_NAMES.get(name, name)


def child_seed(seed: int | None, name: str) -> int | None:
    """Returns a seed for a child that its siblings do not have, or None without a seed.

    It is the same in every process.
    """
    if seed is None:
        return None
    return random.Random(f"{seed} {layer_name(name)}").getrandbits(31)


def child_initializer(initializer: Any, name: str) -> Any:
    """Returns an initializer for a child.

    Children that share an instance, or a seed, would draw the same numbers.
    """
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = child_seed(config["seed"], name)
    return type(initializer).from_config(config)


def saved_dtype(layer: keras.layers.Layer, default: keras.DTypePolicy | None = None) -> Any:
    """Returns the dtype policy of a layer as its configuration holds it.

    After `quantize`, that is a map with the policies of the layers inside, so that a file of the
    layer can be loaded.
    """
    default = default or layer.dtype_policy
    policies = keras.dtype_policies.DTypePolicyMap(default_policy=default)
    for sublayer in with_sublayers(layer):
        if sublayer.quantization_mode is not None:
            # A pattern, since the layer may stand inside another model when it is loaded.
            path = sublayer.path
            if path.startswith(f"{layer.path}/"):
                path = layer.name + path.removeprefix(layer.path)
            policies[f"(.*/)?{re.escape(path)}"] = sublayer.dtype_policy
    return keras.dtype_policies.serialize(policies if policies else default)


def require_built(layer: keras.layers.Layer) -> None:
    """Raises a ValueError unless a layer has its weights, which an empty cache depends on."""
    if not layer.built:
        raise ValueError(
            f"{layer.name} must be built before init_cache; call it or its build method first"
        )


def head_width(d_model: int | None, num_heads: int) -> int:
    """Returns the width of a head, `d_model // num_heads`; a ValueError if that is not whole."""
    if d_model is None or d_model % num_heads:
        raise ValueError(
            f"num_heads must divide d_model={d_model} unless key_dim is given; "
            f"received num_heads={num_heads}"
        )
    return d_model // num_heads

"""Helpers for layers that create sublayers."""

import random
import re
from typing import Any

import keras

from ..keras_versions import with_sublayers


def child_seed(seed: int | None, name: str) -> int | None:
    """Derives a different seed for each child layer, or returns None if there is no seed.

    The derived seed is the same in every process.
    """
    if seed is None:
        return None
    return random.Random(f"{seed} {name}").getrandbits(31)


def child_initializer(initializer: Any, name: str) -> Any:
    """Returns a copy of an initializer for a child layer, with a different seed.

    Layers that share an instance or a seed would get the same initial values.
    """
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = child_seed(config["seed"], name)
    return type(initializer).from_config(config)


def saved_dtype(layer: keras.layers.Layer, default: keras.DTypePolicy | None = None) -> Any:
    """Returns the serialized dtype policy of a layer, for its configuration.

    After `quantize`, this is a `DTypePolicyMap` with the sublayers' policies, so that Keras can
    load the layer from a saved file.
    """
    default = default or layer.dtype_policy
    policies = keras.dtype_policies.DTypePolicyMap(default_policy=default)
    for sublayer in with_sublayers(layer):
        if sublayer.quantization_mode is not None:
            # Use a pattern, because the layer may be inside another model when it is loaded.
            path = sublayer.path
            if path.startswith(f"{layer.path}/"):
                path = layer.name + path.removeprefix(layer.path)
            policies[f"(.*/)?{re.escape(path)}"] = sublayer.dtype_policy
    return keras.dtype_policies.serialize(policies if policies else default)


def require_built(layer: keras.layers.Layer) -> None:
    """Raises a ValueError unless a layer is built, since building determines its cache sizes."""
    if not layer.built:
        raise ValueError(
            f"{layer.name} must be built before init_cache; call it or its build method first"
        )


def head_width(d_model: int | None, num_heads: int) -> int:
    """Returns the width of a head, `d_model // num_heads`.

    Raises:
        ValueError: d_model is unknown, or `num_heads` does not divide it.
    """
    if d_model is None or d_model % num_heads:
        raise ValueError(
            f"num_heads must divide d_model={d_model} unless key_dim is given; "
            f"received num_heads={num_heads}"
        )
    return d_model // num_heads

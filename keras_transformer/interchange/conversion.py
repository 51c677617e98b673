"""Common parts of all conversions: checks of layers and settings, and weights as arrays."""

import importlib
import inspect
import types
from collections.abc import Collection
from typing import Annotated

import keras
import numpy as np

from ..checks import require
from ..errors import ConfigError, MissingPackageError
from ..keras_versions import with_sublayers
from ..layers import DecoderLayer, EncoderLayer
from ..tensors import Tensor


def require_own_class(layer: object, classes: Collection[type], name: str = "layer") -> None:
    """Raises a ConfigError unless a layer is exactly of one of the classes, not of a subclass.

    A subclass may compute something different.
    """
    if type(layer) not in classes:
        names = ", ".join(cls.__name__ for cls in classes)
        raise ConfigError(
            f"{name} must be one of {names}, not a subclass; received {type(layer).__name__}"
        )


def require_weights(layer: keras.layers.Layer) -> None:
    """Raises a ConfigError unless the layer is built and not quantized."""
    if not layer.built:
        raise ConfigError(
            f"{layer.name} must be built before it is converted; call it or its build method first"
        )
    for part in with_sublayers(layer):
        mode = getattr(part, "quantization_mode", None)
        require(mode is None, "quantization_mode", "None in a layer that is converted", mode)


def require_settings(layer: keras.layers.Layer, target: str, **expected: object) -> None:
    """Raises a ConfigError unless the layer has the settings that all layers of the target have."""
    for name, value in expected.items():
        require_setting(name, getattr(layer, name), value, target)


def require_setting(name: str, value: object, expected: object, target: str) -> None:
    """Raises a ConfigError unless the setting has the value that all layers of the target have."""
    require(value == expected, name, f"{expected!r} to become a {target}", value)


def require_defaults(layer: keras.layers.Layer, target: str, converted: Collection[str]) -> None:
    """Raises a ConfigError unless all optional arguments that are not converted are defaults."""
    config = layer.get_config()
    for name, parameter in inspect.signature(type(layer)).parameters.items():
        if name in config and name not in converted and parameter.default is not parameter.empty:
            require_setting(name, config[name], parameter.default, target)


def as_array(weight: Annotated[Tensor, "(...)"]) -> np.ndarray:
    """Returns a weight as float64, which represents the values of all narrower types exactly."""
    return np.asarray(keras.ops.convert_to_numpy(weight), "float64")


def parts_of(layer: EncoderLayer | DecoderLayer) -> list[keras.layers.Layer]:
    """Returns the parts of a layer that have weights, in the order in which it uses them."""
    parts = [layer.self_attention, layer.self_attention_residual.norm]
    if getattr(layer, "cross_attention", None) is not None:
        parts += [layer.cross_attention, layer.cross_attention_residual.norm]
    parts += [layer.feed_forward.hidden_dense, layer.feed_forward.output_dense]
    parts.append(layer.feed_forward_residual.norm)
    return parts


def import_package(name: str, distribution: str) -> types.ModuleType:
    """Imports the package of a layer; a MissingPackageError explains how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingPackageError(
            f"this needs the package {name}, which is not installed: pip install {distribution}",
            name=name,
        ) from error

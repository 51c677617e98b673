"""The arguments that `Encoder` and `Decoder` pass to their layers."""

from typing import Any

import keras

from .children import child_initializer
from .position_scheme import copy_of

INITIALIZERS = ("kernel_initializer", "bias_initializer")
KERAS_ARGUMENTS = ("name", "dtype", "trainable", "autocast", "activity_regularizer")


def take_initializers(layer_arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments, with initializers as objects instead of names or configurations."""
    arguments = dict(layer_arguments)
    for name in INITIALIZERS:
        if name in arguments:
            arguments[name] = keras.initializers.get(arguments[name])
    return arguments


def pop_keras_arguments(layer_arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes and returns the arguments of `keras.layers.Layer`, which apply to the stack."""
    return {name: layer_arguments.pop(name) for name in KERAS_ARGUMENTS if name in layer_arguments}


def arguments_of_child(layer_arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the arguments for a layer, with its own initializers and position scheme."""
    arguments = dict(layer_arguments)
    for initializer in INITIALIZERS:
        if initializer in arguments:
            arguments[initializer] = child_initializer(arguments[initializer], name)
    if "relative_positions" in arguments:
        arguments["relative_positions"] = copy_of(arguments["relative_positions"])
    return arguments


def layer_config(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a layer without the arguments that apply to the stack."""
    return {name: value for name, value in config.items() if name not in KERAS_ARGUMENTS}

"""Checks of the tensors that layers are called with, as far as their shapes are known."""

import inspect
from typing import Any

import keras

from ..errors import ConfigError
from ..masks import refuse_ragged
from ..tensors import Shape, Tensor


def check_mask(name: str, mask: Tensor | None, inputs_name: str, inputs: Tensor) -> None:
    """Raises a ConfigError unless a mask has the shape of its inputs without features."""
    refuse_ragged(inputs_name, inputs)
    expected = tuple(inputs.shape[:-1])
    if mask is not None and not fits(tuple(mask.shape), expected):
        raise ConfigError(
            f"{name} must be of shape {expected}, "
            f"for {inputs_name} of shape {tuple(inputs.shape)}; "
            f"received {name} of shape {tuple(mask.shape)}"
        )


def check_batch(name: str, inputs: Tensor, query_name: str, query: Tensor) -> None:
    """Raises a ConfigError unless the batch sizes of attention's two inputs are equal."""
    sizes = (inputs.shape[0], query.shape[0])
    if None not in sizes and inputs.shape[0] != query.shape[0]:
        raise ConfigError(
            f"{name} must have the batch size of {query_name}, {query.shape[0]}; "
            f"received {name} of shape {tuple(inputs.shape)}"
        )


def fits(shape: Shape, expected: Shape) -> bool:
    """Returns whether a shape broadcasts to another of the same rank."""
    return len(shape) == len(expected) and all(
        size in (None, 1) or other in (None, size)
        for size, other in zip(shape, expected, strict=True)
    )


def output_spec_with_scores(layer: keras.layers.Layer, args: Any, kwargs: Any) -> Any:
    """Returns the outputs of a layer that returns attention scores too if it is asked to."""
    arguments = inspect.signature(layer.call).bind(*args, **kwargs).arguments
    if arguments.get("return_attention_scores"):
        # The shape of the output says nothing about the scores; running the call does.
        return keras.Operation.compute_output_spec(layer, *args, **kwargs)
    return keras.layers.Layer.compute_output_spec(layer, *args, **kwargs)

"""Checks the tensors that layers are called with. Unknown sizes are not checked."""

import inspect
from typing import Any

import keras

from ..errors import ConfigError
from ..masks import refuse_ragged
from ..tensors import Shape, Tensor


def check_mask(name: str, mask: Tensor | None, inputs_name: str, inputs: Tensor) -> None:
    """Raises a ConfigError unless a mask broadcasts to its inputs without their last axis."""
    refuse_ragged(inputs_name, inputs)
    expected = tuple(inputs.shape[:-1])
    if mask is not None and not fits(tuple(mask.shape), expected):
        raise ConfigError(
            f"{name} must be of shape {expected}, "
            f"for {inputs_name} of shape {tuple(inputs.shape)}; "
            f"received {name} of shape {tuple(mask.shape)}"
        )


def check_batch(name: str, inputs: Tensor, query_name: str, query: Tensor) -> None:
    """Raises a ConfigError unless two inputs of attention have the same batch size."""
    sizes = (inputs.shape[0], query.shape[0])
    if None not in sizes and inputs.shape[0] != query.shape[0]:
        raise ConfigError(
            f"{name} must have the same batch size as {query_name}, {query.shape[0]}; "
            f"received {name} of shape {tuple(inputs.shape)}"
        )


def check_same_axes(name: str, inputs: Tensor, other_name: str, other: Tensor) -> None:
    """Raises a ConfigError unless two inputs have the same shape, except for the last axis."""
    shape, other_shape = tuple(inputs.shape), tuple(other.shape)
    if len(shape) != len(other_shape) or not all(
        None in sizes or sizes[0] == sizes[1]
        for sizes in zip(shape[:-1], other_shape[:-1], strict=True)
    ):
        raise ConfigError(
            f"{name} must have the same shape as {other_name}, except for the last axis; received "
            f"{name} of shape {shape} and {other_name} of shape {other_shape}"
        )


def check_width(name: str, inputs: Tensor, width: int | None) -> None:
    """Raises a ConfigError unless inputs have the width that the layer was built for."""
    if None not in (width, inputs.shape[-1]) and inputs.shape[-1] != width:
        raise ConfigError(
            f"{name} must have {width} features, as the layer was built for; "
            f"received {name} of shape {tuple(inputs.shape)}"
        )


def check_sequence(name: str, inputs: Tensor) -> None:
    """Raises a ConfigError unless inputs are (batch, length, width)."""
    if len(inputs.shape) != 3:
        raise ConfigError(
            f"{name} must be of shape (batch, length, width); "
            f"received {name} of shape {tuple(inputs.shape)}"
        )


def check_step_mask(name: str, mask: Tensor | None, expected: Shape) -> None:
    """Raises a ConfigError unless a mask of a decoding step broadcasts to the expected shape."""
    shape = None if mask is None else tuple(mask.shape)
    if shape is not None and not fits((1,) * (len(expected) - len(shape)) + shape, expected):
        raise ConfigError(f"{name} must broadcast to {expected}; received {name} of shape {shape}")


def check_scores(
    name: str, tensor: Tensor | None, num_heads: int, target: Tensor, source: Tensor
) -> None:
    """Raises a ConfigError unless a mask or bias broadcasts to the scores of cross-attention."""
    if tensor is None:
        return
    expected = (target.shape[0], num_heads, target.shape[1], source.shape[1])
    shape = tuple(tensor.shape)
    whole = (*shape[:-2], *(1,) * (4 - len(shape)), *shape[-2:])
    if len(shape) == 3:
        whole = (shape[0], 1, *shape[1:])
    if not 2 <= len(shape) <= 4 or not fits(whole, expected):
        raise ConfigError(
            f"{name} must broadcast to {expected}, for target and source of shapes "
            f"{tuple(target.shape)} and {tuple(source.shape)}; received {name} of shape {shape}"
        )


def check_count(name: str, values: Any, number: int) -> None:
    """Raises a ConfigError unless a list has one value for each layer of a stack."""
    if not isinstance(values, list | tuple) or len(values) != number:
        received = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ConfigError(
            f"{name} must be a list of {number} values, one per layer; received {received}"
        )


def fits(shape: Shape, expected: Shape) -> bool:
    """Returns whether a shape broadcasts to an expected shape of the same rank."""
    return len(shape) == len(expected) and all(
        size in (None, 1) or other in (None, size)
        for size, other in zip(shape, expected, strict=True)
    )


def output_spec_with_scores(layer: keras.layers.Layer, args: Any, kwargs: Any) -> Any:
    """Returns the output specs of a layer, with the attention scores if the call returns them."""
    arguments = inspect.signature(layer.call).bind(*args, **kwargs).arguments
    if arguments.get("return_attention_scores"):
        # `compute_output_shape` does not describe the scores, so trace the call.
        return keras.Operation.compute_output_spec(layer, *args, **kwargs)
    return keras.layers.Layer.compute_output_spec(layer, *args, **kwargs)

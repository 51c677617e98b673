"""Checks the tensors that layers are called with. Unknown sizes are not checked."""

import inspect
from typing import Any

import keras
from keras import ops

from ..errors import ConfigError
from ..masks import as_mask, refuse_ragged
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
    if not 2 <= len(shape) <= 4 or not fits(whole, expected):
        raise ConfigError(
            f"{name} must broadcast to {expected}, for target and source of shapes "
            f"{tuple(target.shape)} and {tuple(source.shape)}; received {name} of shape {shape}"
        )


def with_all_axes(
    name: str,
    tensor: Tensor | None,
    expected: Shape,
    query: Tensor,
    value: Tensor,
    num_attended: int = 1,
) -> Tensor | None:
    """Adds the axes that a mask or bias of the scores lacks, directly before the target axes.

    Args:
        name: the name of the argument, for the message.
        tensor: the mask or bias, or None.
        expected: shape of the scores, (batch, ..., num_heads, target axes ..., source axes ...).
        query: for the message, as is `value`.
        num_attended: number of target axes, and of source axes. Defaults to 1.

    Raises:
        ConfigError: The tensor lacks a target or source axis, has too many axes, or has axes of
            the wrong size.
    """
    if tensor is None:
        return None
    received = tuple(tensor.shape)
    missing = len(expected) - len(received)
    leading = len(expected) - 2 * num_attended
    if not 0 <= missing <= leading:
        raise ConfigError(
            f"{name} must be a tensor of rank {2 * num_attended} to {len(expected)}, and broadcast "
            f"to {expected}; received {name} of shape {received}"
        )
    if missing:
        tensor = ops.expand_dims(tensor, tuple(range(leading - missing, leading)))
    if not fits(tuple(tensor.shape), expected):
        raise ConfigError(
            f"{name} must broadcast to {expected}, for query and value of shapes "
            f"{tuple(query.shape)} and {tuple(value.shape)}; "
            f"received {name} of shape {received}"
        )
    return tensor


def check_attention_shapes(query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
    """Raises a ConfigError unless attention can be built for inputs of these shapes."""
    if len(query_shape) < 3 or query_shape[-1] is None:
        rule = "(batch, length, d_model), or have more axes between batch and d_model"
        raise ConfigError(f"query must be {rule}; received query of shape {tuple(query_shape)}")
    # Shapes may be tuples, lists or shape objects of the backend.
    if not hasattr(key_shape, "__len__") or [*value_shape[:-1]] != [*key_shape[:-1]]:
        raise ConfigError(
            "value and key must be equal in all dimensions but the last; "
            f"received value of shape {value_shape} and key of shape {key_shape}"
        )
    if len(value_shape) != len(query_shape):
        raise ConfigError(
            "query and value must have the same rank; received query of shape "
            f"{tuple(query_shape)} and value of shape {tuple(value_shape)}"
        )


def check_attention_inputs(
    query: Tensor,
    value: Tensor,
    key: Tensor | None,
    query_mask: Any,
    value_mask: Tensor | None,
    key_mask: Tensor | None,
    value_width: int | None,
    key_width: int | None,
) -> None:
    """Raises a ConfigError unless the inputs and padding masks of attention fit each other.

    The widths are those that the layer was built for.
    """
    refuse_ragged("query", query)
    refuse_ragged("value", value)
    if len(value.shape) != len(query.shape):
        raise ConfigError(
            f"value must have the same rank as query; received query of shape "
            f"{tuple(query.shape)} and value of shape {tuple(value.shape)}"
        )
    if key is not None:
        refuse_ragged("key", key)
        check_same_axes("key", key, "value", value)
    check_width("value", value, value_width)
    key_name, keys = ("value", value) if key is None else ("key", key)
    check_width(key_name, keys, key_width)
    check_mask("query_mask", as_mask("query_mask", query_mask), "query", query)
    check_mask("value_mask", value_mask, "value", value)
    check_mask("key_mask", key_mask, key_name, keys)
    check_batch("value", value, "query", query)


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

"""The arguments of layers: types, how a configuration shows them, and which of them children
get."""

import random
from collections.abc import Callable, Iterable
from typing import Any, TypedDict

import keras

from ..errors import ConfigError
from ..tensors import Shape, Tensor

# For type checkers, Keras' activations return anything, including None.
Activation = str | Callable[..., Any]

_SERIALIZED = (
    keras.constraints.Constraint,
    keras.initializers.Initializer,
    keras.layers.Layer,
    keras.regularizers.Regularizer,
)


class CommonArguments(TypedDict, total=False):
    """What the constructor of each layer takes besides its own arguments."""

    name: str | None
    dtype: str | keras.DTypePolicy | None
    trainable: bool
    autocast: bool


class LayerArguments(CommonArguments, total=False):
    """The same for layers that do not describe `activity_regularizer` themselves."""

    activity_regularizer: str | keras.regularizers.Regularizer | None


def config_of(layer: keras.layers.Layer, names: Iterable[str]) -> dict[str, Any]:
    """Returns the attributes with these names, or with an underscore before the name, as
    `get_config` shows them."""
    return {
        name: _serialized(vars(layer).get(f"_{name}", getattr(layer, name, None))) for name in names
    }


def _serialized(value: Any) -> Any:
    if isinstance(value, _SERIALIZED):
        return keras.saving.serialize_keras_object(value)
    return keras.activations.serialize(value) if callable(value) else value


def check_mask(name: str, mask: Tensor | None, inputs_name: str, inputs: Tensor) -> None:
    """Raises a ConfigError unless a mask has the shape of its inputs without features, as far as
    sizes are known."""
    refuse_ragged(inputs_name, inputs)
    expected = tuple(inputs.shape[:-1])
    if mask is not None and not fits(tuple(mask.shape), expected):
        raise ConfigError(
            f"{name} must be of shape {expected}, for {inputs_name} of shape "
            f"{tuple(inputs.shape)}; "
            f"received {name} of shape {tuple(mask.shape)}"
        )


def refuse_ragged(name: str, inputs: object) -> None:
    """Raises a ConfigError if inputs are a `tf.RaggedTensor`."""
    if type(inputs).__name__ == "RaggedTensor":
        raise ConfigError(
            f"{name} must not be ragged: pad it first, with to_tensor(); received a RaggedTensor"
        )


def check_batch(name: str, inputs: Tensor, query_name: str, query: Tensor) -> None:
    """Raises a ConfigError unless what is attended to has as many rows as the query, as far as that
    is known."""
    if None not in (inputs.shape[0], query.shape[0]) and inputs.shape[0] != query.shape[0]:
        raise ConfigError(
            f"{name} must have the batch size of {query_name}, {query.shape[0]}; "
            f"received {name} of shape {tuple(inputs.shape)}"
        )


def fits(shape: Shape, expected: Shape) -> bool:
    """Returns whether a shape broadcasts to another of the same rank, as far as sizes are known."""
    return len(shape) == len(expected) and all(
        size in (None, 1) or other in (None, size)
        for size, other in zip(shape, expected, strict=True)
    )


def require_built(layer: keras.layers.Layer) -> None:
    """Raises a ValueError unless a layer, of which an empty cache is wanted, has its weights."""
    if not layer.built:
        raise ValueError(
            f"{layer.name} must be built before init_cache; call it or its build method first"
        )


def child_arguments(layer: keras.layers.Layer, name: str) -> dict[str, Any]:
    """Returns the arguments that a layer hands on to a child with kernels and biases."""
    return {
        "kernel_initializer": child_initializer(layer.kernel_initializer, name),
        "bias_initializer": child_initializer(layer.bias_initializer, name),
        "kernel_regularizer": layer.kernel_regularizer,
        "bias_regularizer": layer.bias_regularizer,
        "dtype": layer.dtype_policy,
        "name": name,
    }


def child_seed(seed: int | None, name: str) -> int | None:
    """Returns a seed for a child that its siblings do not have: the same in every process, or None
    without a seed."""
    return None if seed is None else random.Random(f"{seed} {name}").getrandbits(31)


def child_initializer(initializer: Any, name: str) -> Any:
    """Returns an initializer for a child: an instance that is shared, or has the same seed, draws
    the same numbers."""
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = child_seed(config["seed"], name)
    return type(initializer).from_config(config)

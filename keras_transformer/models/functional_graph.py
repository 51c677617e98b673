"""Represents a functional or sequential model, with its nested models, as a list of calls."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
from keras import tree

from ..errors import ConfigError
from ..keras_versions import input_structure, run_through_graph
from ..tensors import Tensor


class Call(NamedTuple):
    """A call of a layer, of a model, or of an operation such as `a + b`.

    Attributes:
        operation: the layer, model or operation.
        args: the arguments by position, with symbolic tensors.
        kwargs: the arguments by name.
        outputs: a nest of symbolic tensors.
        arguments: all arguments by name, with defaults.
        parts: if the operation is a functional or sequential model, the calls that it consists of.
            Their outputs are the outputs of the model. Empty for any other operation.
    """

    operation: keras.Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any
    arguments: dict[str, Any]
    parts: list[Any]

    @property
    def inputs(self) -> list[Tensor]:
        return keras_tensors((self.args, self.kwargs))

    @property
    def first_argument(self) -> Any:
        return next(iter(self.arguments.values()), None)

    @property
    def takes_positions(self) -> bool:
        return isinstance(self.operation, keras.Layer) and "position_ids" in self.arguments

    @property
    def start_index(self) -> int:
        """The position of the first token, or 0 if it is only known at run time."""
        start_index = self.arguments.get("start_index", 0)
        return start_index if isinstance(start_index, int) else 0

    def __str__(self) -> str:
        return f"{self.operation.name!r} ({type(self.operation).__name__})"


class FunctionalGraph(NamedTuple):
    """The calls that a model consists of.

    The graph does not change the model, and keeps references only to its layers.

    Attributes:
        name: the name of the model.
        structure: the inputs, in the nest that the model expects.
        calls: the calls, in an order in which they can be computed, including calls of nested
            models.
        output: the logits or probabilities.
    """

    name: str
    structure: Any  # a nest of KerasTensors
    calls: list[Call]
    output: Tensor

    @property
    def inputs(self) -> list[Any]:
        """A list of the inputs, which are KerasTensors."""
        return tree.flatten(self.structure)

    @property
    def smallest_calls(self) -> list[Call]:
        """The calls of layers and operations, including those inside nested models."""
        return list(_smallest(self.calls))

    def computed_from(self, tensor: Tensor) -> set[int]:
        """Returns the ids of a tensor and of all tensors that are computed from it."""
        ids = {id(tensor)}
        for call in self.smallest_calls:
            if any(id(argument) in ids for argument in call.inputs):
                ids.update(id(output) for output in keras_tensors(call.outputs))
        return ids


def _smallest(calls: Sequence[Call]) -> Iterator[Call]:
    for call in calls:
        if call.parts:
            yield from _smallest(call.parts)
        else:
            yield call


def has_graph(model: Any) -> bool:
    """Returns whether a model is functional or sequential and does not override `call`."""
    if not isinstance(model, (keras.Function, keras.Sequential)):
        return False
    is_built = not isinstance(model, keras.Sequential) or model.built
    return is_built and author_of_call(model).__module__.startswith("keras.")


def author_of(name: str, cls: type) -> type:
    """Returns the first class in the method resolution order that defines an attribute."""
    return next(base for base in cls.__mro__ if name in vars(base))


def author_of_call(operation: keras.Operation) -> type:
    """Returns the class that defines the `call` of a layer or an operation."""
    bases = type(operation).__mro__
    return next(base for base in bases if "call" in vars(base) or "__call__" in vars(base))


def graph_of(model: Any) -> FunctionalGraph:
    """Returns the graph of a functional or sequential model.

    Raises:
        ConfigError: The output of the model is not logits (batch, length, vocab_size).
    """
    calls: list[Call] = []
    structure = tree.map_structure(
        lambda tensor: keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name),
        input_structure(model),
    )
    output = _record_model(model, structure, calls)
    if tree.is_nested(output) or len(output.shape) != 3 or output.shape[-1] is None:
        shapes = tree.map_structure(lambda tensor: tuple(tensor.shape), output)
        raise ConfigError(
            "model must have one output, logits of shape (batch, length, vocab_size); "
            f"received {model.name!r} with outputs of shape {shapes}; if there are "
            "several outputs, select the logits: "
            "generate(keras.Model(model.inputs, model.outputs[0]), ...)"
        )
    return FunctionalGraph(model.name, structure, calls, output)


class _StandIn(keras.Operation):
    """A replacement for an operation while a graph is read.

    It keeps the operation from recording another call.
    """

    def __init__(self, operation: keras.Operation) -> None:
        super().__init__()
        self.operation = operation

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return self.operation.compute_output_spec(*args, **kwargs)


def _record_model(model: Any, inputs: Any, calls: list[Call]) -> Any:
    """Adds the calls of a model to `calls`, and returns the model's outputs for the inputs."""
    if isinstance(model, keras.Sequential):
        for layer in model.layers:
            inputs = _record_call(layer, (inputs,), {}, calls)
        return inputs
    outputs = run_through_graph(
        model, inputs, lambda operation, args, kwargs: _record_call(operation, args, kwargs, calls)
    )
    return _unpacked(outputs)


def _unpacked(nest: Any) -> Any:
    """Returns the only element of a list or tuple, as Keras does, and any other nest unchanged."""
    is_single = isinstance(nest, (list, tuple)) and len(nest) == 1
    return nest[0] if is_single else nest


def _record_call(
    operation: keras.Operation, args: tuple[Any, ...], kwargs: dict[str, Any], calls: list[Call]
) -> Any:
    arguments = bound_arguments(operation, args, kwargs)
    parts: list[Call] = []
    if has_graph(operation) and _is_plain(operation, arguments):
        outputs = _record_model(operation, next(iter(arguments.values())), parts)
    else:
        outputs = _StandIn(operation)(*args, **kwargs)
    calls.append(Call(operation, args, kwargs, outputs, arguments, parts))
    return outputs


def _is_plain(model: Any, arguments: dict[str, Any]) -> bool:
    """Returns whether a model is called with nothing but its inputs and a mask."""
    (_, inputs), *others = arguments.items()
    is_default = all(
        value is None or value is False or value == {} for name, value in others if name != "mask"
    )
    inputs, expected = _unpacked(inputs), _unpacked(input_structure(model))
    try:
        tree.assert_same_structure(tree.lists_to_tuples(inputs), tree.lists_to_tuples(expected))
    except ValueError:
        return False
    return is_default


def bound_arguments(
    operation: keras.Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a call by name, with defaults."""
    bound = inspect.signature(operation.call).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def keras_tensors(nest: Any) -> list[Tensor]:
    """Returns the symbolic tensors of a nest."""
    return [value for value in tree.flatten(nest) if keras.utils.is_keras_tensor(value)]


def is_one_of(operation: keras.Operation, functions: Sequence[Any]) -> bool:
    """Returns whether an operation belongs to one of these functions of `keras.ops`.

    Keras exports only the functions, but the classes of the operations have the same names.
    """
    names = {function.__name__.replace("_", "") for function in functions}
    is_of_keras = type(operation).__module__.startswith("keras.")
    is_layer = isinstance(operation, keras.Layer)
    return is_of_keras and not is_layer and type(operation).__name__.lower() in names

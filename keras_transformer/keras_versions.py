"""Accesses private APIs of Keras, for every Keras release that this package supports."""

from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.common.symbolic_scope import in_symbolic_scope


def infers_shapes() -> bool:
    """Returns whether Keras is calling a layer to infer the shapes of its outputs."""
    return in_symbolic_scope()


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all its sublayers, at any depth."""
    return list(layer._flatten_layers())


def direct_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the direct sublayers of a layer."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def input_structure(model: "keras.Function | keras.Sequential") -> Any:
    """Returns the symbolic inputs of a model, in the nested structure that the model accepts."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model._inputs_struct


def run_through_graph(
    model: keras.Function,
    inputs: Any,
    call: Callable[[keras.Operation, tuple[Any, ...], dict[str, Any]], Any],
) -> Any:
    """Returns the outputs of a functional model for other inputs.

    `call` receives each operation of the graph, with its positional and keyword arguments.
    """
    return keras.Function._run_through_graph(
        model,
        inputs,
        operation_fn=lambda operation: operation,
        call_fn=lambda operation, *args, **kwargs: call(operation, args, kwargs),
    )


def projections_of(
    attention: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention",
) -> dict[str, keras.layers.EinsumDense]:
    """Returns the projections of a built layer by name.

    The names are "query", "key", "value", "output" and, if the layer has it, "gate".
    """
    names = ("query", "key", "value", "output", "gate")
    return {
        name: getattr(attention, f"_{name}_dense")
        for name in names
        if hasattr(attention, f"_{name}_dense")
    }


def flash_attention_of(
    attention: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention",
) -> bool | None:
    """Returns the argument `flash_attention`, or its default in the global configuration."""
    return attention._flash_attention


def is_compiling() -> bool:
    """Returns whether PyTorch is compiling a graph. Reading values would break the graph."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return torch.compiler.is_compiling()

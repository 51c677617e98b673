"""What layers of Keras have no public name for: the same for every release that this package
supports."""

from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.common.symbolic_scope import in_symbolic_scope


def infers_shapes() -> bool:
    """Returns whether Keras is calling a layer to learn the shapes of its outputs."""
    return in_symbolic_scope()


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all layers inside it."""
    return list(layer._flatten_layers())


def direct_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the layers that are attributes of a layer, without those inside them."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def input_structure(model: "keras.Function | keras.Sequential") -> Any:
    """Returns the symbolic inputs of a model, in the nest in which it takes them."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model._inputs_struct


def run_through_graph(
    model: keras.Function,
    inputs: Any,
    call: Callable[[keras.Operation, tuple[Any, ...], dict[str, Any]], Any],
) -> Any:
    """Returns the outputs of a functional model for other inputs.

    Each operation of its graph is handed to `call`, with the arguments by position and by name.
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
    """Returns the projections of a built layer: "query", "key", "value", "output" and, if it has
    one, "gate"."""
    names = ("query", "key", "value", "output", "gate")
    return {
        name: getattr(attention, f"_{name}_dense")
        for name in names
        if hasattr(attention, f"_{name}_dense")
    }


def flash_attention_of(
    attention: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention",
) -> bool | None:
    """Returns the argument `flash_attention`, or what stands for it in the global configuration."""
    return attention._flash_attention


def is_compiling() -> bool:
    """Returns whether PyTorch is compiling: then a look at values would break its graph."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return torch.compiler.is_compiling()

"""Accesses private APIs of Keras, for every Keras release that this package supports."""

from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask
from keras.src.backend.common.symbolic_scope import in_symbolic_scope


def infers_shapes() -> bool:
    """Returns whether Keras is calling a layer to infer the shapes of its outputs."""
    return in_symbolic_scope()


def implicit_mask_of(tensor: Any) -> Any:
    """Returns the mask that Keras passes along with a tensor, or None."""
    return get_keras_mask(tensor)


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all its sublayers, at any depth."""
    return list(layer._flatten_layers())


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

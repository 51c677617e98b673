"""What Keras has no public name for: the same for every release that this package supports."""

from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask
from keras.src.backend.common.symbolic_scope import in_symbolic_scope


def implicit_mask(tensor: Any) -> Any:
    """Returns the mask that Keras attached to a tensor, or None.

    Keras hands it to a layer's `mask` argument only if the layer is called with a single tensor. It is no attribute of
    JAX's tensors.
    """
    return get_keras_mask(tensor)


def infers_shapes() -> bool:
    """Returns whether Keras is calling a layer to learn the shapes of its outputs."""
    return in_symbolic_scope()


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all layers inside it."""
    return list(layer._flatten_layers())


def projections_of(
    attention: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention",
) -> dict[str, keras.layers.EinsumDense]:
    """Returns the projections of a built layer: "query", "key", "value", "output" and, if it has one, "gate"."""
    names = ("query", "key", "value", "output", "gate")
    return {name: getattr(attention, f"_{name}_dense") for name in names if hasattr(attention, f"_{name}_dense")}


def flash_attention_of(attention: "keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention") -> bool | None:
    """Returns the argument `flash_attention`, or what stands for it in the global configuration."""
    return attention._flash_attention

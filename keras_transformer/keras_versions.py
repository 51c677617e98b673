"""What layers of Keras have no public name for: the same for every release that this package
supports."""

import keras
from keras.src.backend.common.symbolic_scope import in_symbolic_scope


def infers_shapes() -> bool:
    """Returns whether Keras is calling a layer to learn the shapes of its outputs."""
    return in_symbolic_scope()


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all layers inside it."""
    return list(layer._flatten_layers())


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

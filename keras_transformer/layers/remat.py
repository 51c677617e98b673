"""Layers that training computes again for their gradients, to save memory."""

from typing import Any

import keras
from keras import ops

from ..tensors import Tensor


def call_with_remat(
    layer: keras.layers.Layer, tensors: list[Tensor], arguments: dict[str, Any]
) -> Any:
    """Calls a layer with tensors and arguments so that its gradient computes it again.

    Whatever has a gradient is passed to `keras.remat`, since TensorFlow finds no other gradients.
    Dropout draws the same numbers again, from the states of its generators before the call.
    """
    weights = [ops.copy(variable.value) for variable in layer.trainable_variables]
    states = [ops.copy(variable.value) for variable in layer.non_trainable_variables]

    def compute(*inputs: Tensor) -> Any:
        return layer.stateless_call(
            inputs[len(tensors) :], states, *inputs[: len(tensors)], **arguments
        )

    outputs, new_states = keras.remat(compute)(*tensors, *weights)
    for variable, state in zip(layer.non_trainable_variables, new_states, strict=True):
        variable.assign(state)
    return outputs

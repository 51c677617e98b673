"""Rematerialization: the backward pass recomputes a layer to save memory."""

from typing import Any

import keras
from keras import ops

from ..tensors import Tensor


def call_with_remat(
    layer: keras.layers.Layer, tensors: list[Tensor], arguments: dict[str, Any]
) -> Any:
    """Calls a layer with tensors and arguments, and recomputes it in the backward pass.

    `keras.remat` receives the tensors and all weights as inputs, because TensorFlow computes
    gradients only for inputs. Both passes start from the same random generator states, so dropout
    draws the same numbers.
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

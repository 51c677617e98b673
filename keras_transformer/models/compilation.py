"""Functions of tensors, compiled by the backend: the only module here that imports one."""

from collections.abc import Callable
from typing import Any, TypeVar

import keras
import numpy as np
from keras import ops, tree

Result = TypeVar("Result")


def compiled(
    function: Callable[[dict[str, Any]], Result], variables: list[keras.Variable], inputs: dict[str, Any]
) -> Callable[[dict[str, Any]], Result]:
    """Returns a function that the backend compiles when it is first called; PyTorch runs it as it is.

    TensorFlow compiles it once, for batches and lengths of any size; JAX does so for each shape.

    Args:
        function: takes a dict of nests of tensors, returns a nest of tensors.
        variables: what the function reads besides. Their values may change between calls.
        inputs: NumPy arrays of the ranks and types that the function will be called with.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def spec(array: np.ndarray) -> tf.TensorSpec:
            # What is not the batch or a length is as it is: the width of features, or the size of a picture.
            return tf.TensorSpec([None] * min(len(array.shape), 2) + list(array.shape[2:]), array.dtype)

        return tf.function(function, input_signature=[tree.map_structure(spec, inputs)], autograph=False)
    if backend == "jax":
        import jax

        @jax.jit
        def with_values(values: list[Any], inputs: dict[str, Any]) -> Result:
            # Weights are arguments: closed over, they would stay as they are now.
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(inputs)

        return lambda inputs: with_values([variable.value for variable in variables], inputs)
    if backend == "torch":
        import torch

        def without_gradients(inputs: dict[str, Any]) -> Result:
            with torch.no_grad():
                return function(tree.map_structure(ops.convert_to_tensor, inputs))

        return without_gradients
    return function

"""Compiles functions on TensorFlow and JAX; PyTorch runs them as they are."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops, tree

Function = Callable[..., Any]
# A function of the inputs that returns the initial state and a step function. The step function
# accepts a state and the index of the step, an int32 scalar, and returns the next state and a
# result.
Prepare = Callable[[Any], tuple[Any, Function]]


def compiled(
    function: Function, variables: list[keras.Variable], inputs: Any, fixed_shapes: bool
) -> Function:
    """Returns a function that the backend compiles when it is first called.

    TensorFlow compiles it once for all batch sizes and lengths, unless shapes are fixed. JAX
    compiles it for each shape. The values of the variables may change between calls; the ranks and
    dtypes of the inputs may not.

    Args:
        function: function that accepts and returns a nest of tensors.
        variables: the variables that the function reads.
        inputs: a nest of NumPy arrays, as an example of the function's inputs.
        fixed_shapes: whether TensorFlow compiles the function only for these shapes.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        specs = tree.map_structure(lambda array: _spec(array, fixed_shapes), inputs)
        return tf.function(function, input_signature=[specs], autograph=False)
    if backend == "jax":
        return _compiled_by_jax(function, variables)
    return _run_by_torch(function) if backend == "torch" else function


def compiled_steps(
    prepare: Prepare, variables: list[keras.Variable], inputs: Any, fixed_shapes: bool
) -> Prepare:
    """Returns a compiled `prepare`: its first state and its step function are compiled separately.

    Args:
        prepare: the function to compile. The compiled step also calls it, to get the step function;
            the compiler removes the computations that the step does not need.
        variables: see `compiled`.
        inputs: see `compiled`.
        fixed_shapes: see `compiled`.
    """
    backend = keras.backend.backend()
    if backend == "torch":

        def prepare_by_torch(inputs: Any) -> tuple[Any, Function]:
            state, step = _run_by_torch(prepare)(inputs)
            return state, _run_by_torch(step)

        return prepare_by_torch
    if backend not in ("tensorflow", "jax"):
        return prepare
    start = compiled(lambda inputs: prepare(inputs)[0], variables, inputs, fixed_shapes)

    def step_from(state: Any, number: Any, inputs: Any) -> Any:
        return prepare(inputs)[1](state, number)

    if backend == "jax":
        step = _compiled_by_jax(step_from, variables)
    else:
        import tensorflow as tf

        state = start.get_concrete_function().structured_outputs  # type: ignore[attr-defined]
        state = tree.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), state)
        specs = tree.map_structure(lambda array: _spec(array, fixed_shapes), inputs)
        signature = [state, tf.TensorSpec([], tf.int32), specs]
        step = tf.function(step_from, input_signature=signature, autograph=False)

    def prepare_compiled(inputs: Any) -> tuple[Any, Function]:
        return start(inputs), lambda state, number: step(state, number, inputs)

    return prepare_compiled


def _spec(array: np.ndarray, fixed_shapes: bool) -> Any:
    import tensorflow as tf

    shape = list(array.shape)
    if not fixed_shapes:
        # Only the batch size and the length may vary. Other sizes, such as the feature width, are
        # fixed.
        shape[:2] = [None] * len(shape[:2])
    return tf.TensorSpec(shape, array.dtype)


def _compiled_by_jax(function: Function, variables: list[keras.Variable]) -> Function:
    import jax

    @jax.jit
    def with_values(values: list[Any], *args: Any) -> Any:
        # Pass weights as arguments, because JAX would compile captured weights as constants.
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*args)

    return lambda *args: with_values([variable.value for variable in variables], *args)


def _run_by_torch(function: Function) -> Function:
    import torch

    def without_gradients(*args: Any) -> Any:
        with torch.no_grad():
            return function(*tree.map_structure(ops.convert_to_tensor, args))

    return without_gradients

"""Functions that the backend compiles: TensorFlow and JAX do, PyTorch runs them as they are."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops, tree

Function = Callable[..., Any]
# Takes inputs; returns the state before the first step, and the function that computes a step from
# a state and an int32 scalar, the number of the step: the next state and a result.
Prepare = Callable[[Any], tuple[Any, Function]]


def compiled(
    function: Function, variables: list[keras.Variable], inputs: Any, fixed_shapes: bool
) -> Function:
    """Returns a function that the backend compiles when it is first called.

    TensorFlow compiles it once, for batches and lengths of any size, unless shapes are fixed; JAX
    does so for each shape. The values of the variables, which the function reads, may change
    between calls; ranks and types of the inputs may not.

    Args:
        function: takes a nest of tensors, and returns one.
        variables: the variables that the function reads.
        inputs: a nest of NumPy arrays, such as the function will be called with.
        fixed_shapes: whether TensorFlow compiles the function for these shapes only.
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
    """Returns a function like `prepare` that compiles two functions: what comes before the first
    step, and a step.

    Args:
        prepare: the compiled step calls it once more, only for the function that it returns; the
            compiler leaves out what that does not need.
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
        # Only batch and length may vary; other sizes, such as the width of features, are fixed.
        shape[:2] = [None] * len(shape[:2])
    return tf.TensorSpec(shape, array.dtype)


def _compiled_by_jax(function: Function, variables: list[keras.Variable]) -> Function:
    import jax

    @jax.jit
    def with_values(values: list[Any], *args: Any) -> Any:
        # Weights are arguments, because JAX would compile closed-over weights in as constants.
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*args)

    return lambda *args: with_values([variable.value for variable in variables], *args)


def _run_by_torch(function: Function) -> Function:
    import torch

    def without_gradients(*args: Any) -> Any:
        with torch.no_grad():
            return function(*tree.map_structure(ops.convert_to_tensor, args))

    return without_gradients

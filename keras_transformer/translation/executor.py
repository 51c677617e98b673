"""Chooses TensorFlow's executor for the search of a batch, inside the graph.

On a CPU, most operations of a search step take less time than TensorFlow's default executor needs
to pass them from thread to thread. The single-threaded executor runs them one after another in one
thread. Only the search of one batch uses it, so batches still run in parallel.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..tensors import Tensor

_SINGLE_THREADED = "SINGLE_THREADED_EXECUTOR"


def is_on_cpu() -> Tensor:
    """Returns a bool scalar tensor: whether the graph runs on a CPU."""
    # The index of the device in the list, or the length of the list if it is not there.
    return tf.equal(tf.raw_ops.DeviceIndex(device_names=["CPU"]), 0)


class BatchFunctions:
    """Functions of one batch that choose their executor when they run.

    On a CPU, a function runs in the single-threaded executor. On other devices, it becomes a part
    of the graph that calls it. All graphs that call a function share it.

    Args:
        variables: variables that the functions read. Their values are arguments of the functions,
            because TensorFlow does not run functions in parallel if they read variables.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self._variables = list(variables)
        self._functions: dict[tuple[object, ...], tuple[Callable[..., Any], Callable[..., Any]]]
        self._functions = {}

    def call(
        self,
        key: object,
        function: Callable[[dict[str, Tensor]], Any],
        inputs: Mapping[str, Tensor],
        on_cpu: Tensor,
    ) -> Any:
        """Calls a function of a batch.

        Args:
            key: hashable value. Functions with the same key and the same names of inputs must
                compute the same.
            function: function of `inputs` that returns a nest of tensors. It must not use other
                tensors.
            inputs: tensors by name.
            on_cpu: bool (). Whether to use the single-threaded executor, see `is_on_cpu`.
        """
        inputs = dict(inputs)
        names = (key, *inputs)
        if names not in self._functions:
            self._functions[names] = self._traced(function, inputs)
        single_threaded, default = self._functions[names]
        weights = [variable.value for variable in self._variables]

        def call_single_threaded() -> Any:
            # TensorFlow stores the executor in the node that calls the function.
            with tf.experimental.function_executor_type(_SINGLE_THREADED):
                return single_threaded(inputs, weights)

        return tf.cond(on_cpu, call_single_threaded, lambda: default(inputs, weights))

    def _traced(
        self, function: Callable[[dict[str, Tensor]], Any], inputs: dict[str, Tensor]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Returns the function for the single-threaded executor and for the default executor."""

        def with_weights(inputs: dict[str, Tensor], weights: Sequence[Tensor]) -> Any:
            values = list(zip(self._variables, weights, strict=True))
            with keras.StatelessScope(state_mapping=values):
                return function(inputs)

        signature = [
            {name: _spec(tensor) for name, tensor in inputs.items()},
            [tf.TensorSpec(variable.shape, variable.value.dtype) for variable in self._variables],
        ]
        # A function that is inlined would run in the executor of its caller.
        attributes = {"_noinline": True}
        single_threaded = tf.function(
            with_weights,
            input_signature=signature,
            autograph=False,
            experimental_attributes=attributes,
        )
        default = tf.function(with_weights, input_signature=signature, autograph=False)
        # The single-threaded executor requires loops and conditions that were traced for it.
        with tf.experimental.function_executor_type(_SINGLE_THREADED):
            traced = single_threaded.get_concrete_function()
        return traced, default.get_concrete_function()


def _spec(tensor: Tensor) -> tf.TensorSpec:
    # Only the first dimensions differ between batches.
    return tf.TensorSpec(tensor.shape, tensor.dtype)

"""Chooses TensorFlow's executor for the search of a batch, inside the graph.

On a CPU, most operations of a search step take less time than TensorFlow's default executor needs
to pass them from thread to thread. The single-threaded executor runs them one after another in one
thread. Only the search of one batch uses it, so batches still run in parallel.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from ..tensors import Tensor
from .shapes import SearchShapes

# A nest of tensors.
Results = TypeVar("Results")

_SINGLE_THREADED = "SINGLE_THREADED_EXECUTOR"


def is_on_cpu() -> Tensor:
    """Returns a bool scalar tensor: whether the graph runs on a CPU."""
    # The index of the device in the list, or the length of the list if it is not there.
    return tf.equal(tf.raw_ops.DeviceIndex(device_names=["CPU"]), 0)


def only_if(condition: Tensor, function: Callable[[], Results], otherwise: Results) -> Results:
    """Returns `function()` if the condition is true, otherwise `otherwise`.

    This is a loop of at most one step instead of a condition. A session may use the single-threaded
    executor for its whole graph. That executor runs a loop in its own thread, but it runs a
    condition in another thread and waits for it. If all threads waited like this, the session would
    hang.

    Args:
        condition: bool ().
        function: function that returns a nest of tensors.
        otherwise: nest of tensors of the same ranks.
    """
    _, results = tf.while_loop(
        lambda condition, _: condition,
        lambda _, __: (tf.constant(False), function()),
        (condition, otherwise),
        shape_invariants=(
            tf.TensorShape([]),
            tf.nest.map_structure(
                lambda tensor: tf.TensorShape([None] * tensor.shape.rank), otherwise
            ),
        ),
    )
    return results


class PackedTensors:
    """Tensors that conditions and loops handle as a single tensor.

    Conditions and loops launch up to five operations for each tensor that they use. With all
    weights of a model, launching them takes a notable part of the time of a short search.

    Args:
        tensors: list of tensors. They are not copied.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        # TensorFlow packs tensors only on CPUs, and would copy them there from a GPU.
        self._packed = None
        if not tf.config.list_physical_devices("GPU"):
            self._packed = tf.raw_ops.CompositeTensorVariantFromComponents(
                components=self._tensors, metadata=b""
            )

    def unpack(self) -> list[Tensor]:
        """Returns the tensors. Call it inside a condition or loop."""
        if self._packed is None:
            return self._tensors
        tensors = tf.raw_ops.CompositeTensorVariantToComponents(
            encoded=self._packed,
            metadata=b"",
            Tcomponents=[tensor.dtype for tensor in self._tensors],
        )
        for tensor, original in zip(tensors, self._tensors, strict=True):
            tensor.set_shape(original.shape)
        return tensors


class TracedFunctions:
    """Functions of one batch that are traced once, for graphs that run eagerly.

    Args:
        variables: variables that the functions read. Their values are arguments of the functions.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self._variables = list(variables)
        self._functions: dict[tuple[object, ...], Any] = {}

    def call(
        self,
        key: object,
        function: Callable[[dict[str, Tensor]], Results],
        inputs: Mapping[str, Tensor],
    ) -> Results:
        """Returns the results of a function of a batch. See `BatchFunctions.call`."""
        weights = [tf.convert_to_tensor(variable.value) for variable in self._variables]
        traced_for = (key, *inputs)
        if traced_for not in self._functions:

            def with_weights(inputs: dict[str, Tensor], weights: Sequence[Tensor]) -> Results:
                values = list(zip(self._variables, weights, strict=True))
                with keras.StatelessScope(state_mapping=values):
                    return function(inputs)

            # All batches share a trace, in which only the number of placeholders is known, the last
            # axis of a mask.
            specs = {}
            for name, tensor in inputs.items():
                sizes = [None] * tensor.shape.rank
                if tensor.dtype == tf.bool:
                    sizes[-1] = tensor.shape[-1]
                specs[name] = tf.TensorSpec(sizes, tensor.dtype)
            of_weights = [tf.TensorSpec(weight.shape, weight.dtype) for weight in weights]
            self._functions[traced_for] = tf.function(
                with_weights, input_signature=[specs, of_weights], autograph=False
            ).get_concrete_function()
        return self._functions[traced_for](dict(inputs), weights)


class BatchFunctions:
    """Functions of one batch that choose their executor when they run.

    On a CPU, a function runs in the single-threaded executor, and on other devices in the default
    executor. All graphs that call a function share it.

    Args:
        variables: variables that the functions read. Their values are arguments of the functions,
            because TensorFlow does not run functions in parallel if they read variables.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self._variables = list(variables)
        self._functions: dict[tuple[object, ...], tuple[Any, Any]] = {}

    def call(
        self,
        key: object,
        function: Callable[[dict[str, Tensor]], Results],
        inputs: Mapping[str, Tensor],
    ) -> Results:
        """Returns the results of a function of a batch.

        Args:
            key: hashable value. Functions with the same key and inputs of the same names, shapes
                and types must compute the same.
            function: function of `inputs` that returns a nest of tensors. It must not use other
                tensors.
            inputs: tensors by name.
        """
        inputs = dict(inputs)
        specs = {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in inputs.items()}
        traced_for = (key, *specs.items())
        if traced_for not in self._functions:
            self._functions[traced_for] = self._traced(function, specs)
        single_threaded, default = self._functions[traced_for]
        weights = [variable.value for variable in self._variables]

        def call_single_threaded() -> Results:
            # TensorFlow stores the executor in the node that calls the function.
            with tf.experimental.function_executor_type(_SINGLE_THREADED):
                return single_threaded(inputs, weights)

        on_cpu = is_on_cpu()
        nothing = tf.nest.map_structure(
            lambda tensor: tf.zeros([0] * tensor.shape.rank, tensor.dtype),
            default.structured_outputs,
        )
        results = only_if(on_cpu, call_single_threaded, nothing)
        return only_if(tf.logical_not(on_cpu), lambda: default(inputs, weights), results)

    def _traced(
        self, function: Callable[[dict[str, Tensor]], Any], specs: dict[str, tf.TensorSpec]
    ) -> tuple[Any, Any]:
        """Returns the function for the single-threaded executor and for the default executor."""

        def with_weights(inputs: dict[str, Tensor], weights: Sequence[Tensor]) -> Any:
            values = list(zip(self._variables, weights, strict=True))
            with keras.StatelessScope(state_mapping=values):
                return function(inputs)

        signature = [
            specs,
            [tf.TensorSpec(variable.shape, variable.value.dtype) for variable in self._variables],
        ]
        # A function that is inlined would run in the executor of its caller. TensorFlow also
        # optimizes inlined functions that never run.
        options: dict[str, Any] = dict(
            input_signature=signature,
            autograph=False,
            experimental_attributes={"_noinline": True},
        )
        single_threaded = tf.function(with_weights, **options)
        default = tf.function(with_weights, **options)
        # The single-threaded executor requires loops and conditions that were traced for it.
        with tf.experimental.function_executor_type(_SINGLE_THREADED):
            traced = single_threaded.get_concrete_function()
        return traced, default.get_concrete_function()


class CompiledFunctions:
    """Functions of one batch that XLA compiles, once for every shape of their inputs.

    All graphs that call a function share it.

    Args:
        variables: variables that the functions read. Their values are arguments of the functions,
            so that several batches can run in parallel.
        shapes: shapes to compile.
    """

    def __init__(self, variables: Sequence[keras.Variable], shapes: SearchShapes) -> None:
        self._variables = list(variables)
        self.shapes = shapes
        self._functions: dict[tuple[object, ...], Any] = {}

    def call(
        self,
        key: object,
        function: Callable[[dict[str, Tensor]], Results],
        inputs: Mapping[str, Tensor],
        weights: Sequence[Tensor],
    ) -> Results:
        """Returns the results of a function of a batch. See `BatchFunctions.call`.

        Args:
            weights: the values of the variables.
        """
        traced_for = (key, *inputs)
        if traced_for not in self._functions:
            # Only the number of placeholders is known, the last axis of a mask.
            specs = {}
            for name, tensor in inputs.items():
                sizes = [None] * tensor.shape.rank
                if tensor.dtype == tf.bool:
                    sizes[-1] = tensor.shape[-1]
                specs[name] = tf.TensorSpec(sizes, tensor.dtype)

            def with_weights(inputs: dict[str, Tensor], weights: Sequence[Tensor]) -> Results:
                values = list(zip(self._variables, weights, strict=True))
                with keras.StatelessScope(state_mapping=values):
                    return function(inputs)

            self._functions[traced_for] = tf.function(
                with_weights,
                input_signature=[
                    specs,
                    [tf.TensorSpec(variable.shape, variable.dtype) for variable in self._variables],
                ],
                autograph=False,
                jit_compile=True,
            )
        return self._functions[traced_for](dict(inputs), weights)

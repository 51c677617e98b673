"""Divides the calls of a functional model into those computed once and those in each step."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops, tree

from ..layers import PositionalEmbedding, PositionalEncoding
from ..tensors import Tensor
from .functional_graph import Call, FunctionalGraph, is_one_of, keras_tensors

_STEP_METHODS = ("init_cache", "step", "needs_position_ids")
STOCK_ATTENTION = (layers.MultiHeadAttention, layers.GroupQueryAttention)


def has_steps(operation: keras.Operation) -> bool:
    """Returns whether a layer can decode step by step.

    Such a layer has the methods `init_cache` and `step`, and the property `needs_position_ids`, as
    `DecoderLayer` does.
    """
    return all(hasattr(type(operation), name) for name in _STEP_METHODS)


def is_cached(call: Call) -> bool:
    """Returns whether the call is self-attention that can use a cache."""
    return has_steps(call.operation) or type(call.operation) in STOCK_ATTENTION


class StepPlan:
    """The calls of a functional model, divided by whether they depend on the target.

    Attributes:
        graph: all calls.
        target: keras.KerasTensor, the input for the token ids to generate.
        sources: the other inputs.
        source_calls: the calls that do not depend on the target. They are computed once.
        step_calls: the calls that depend on the target. They are computed in each step.
        cached_calls: the step calls in which positions attend to other positions.
    """

    def __init__(self, graph: FunctionalGraph, target: Any) -> None:
        self.graph = graph
        self.target = target
        self.sources = [tensor for tensor in graph.inputs if tensor is not target]
        self._of_target = graph.computed_from(target)
        calls = list(self._divided(graph.calls))
        self.source_calls = [call for call in calls if not self.depends_on_target(call.inputs)]
        self.step_calls = [call for call in calls if self.depends_on_target(call.inputs)]
        self.cached_calls = [call for call in self.step_calls if is_cached(call)]

    def _divided(self, calls: Sequence[Call]) -> Iterator[Call]:
        """Yields the calls, replacing nested models that depend on the target with their parts.

        Nested models that do not depend on the target are called as a whole.
        """
        for call in calls:
            # Keras passes the inputs' masks in the same nest as the inputs.
            masks = [m for m in tree.flatten(call.arguments.get("mask")) if m is not None]
            masks_padding = all(self.masks_padding(mask) for mask in masks)
            if call.parts and masks_padding and self.depends_on_target(call.inputs):
                yield from self._divided(call.parts)
            else:
                yield call

    def depends_on_target(self, tensors: Any) -> bool:
        """Returns whether any symbolic tensor of a nest is computed from the target."""
        return any(id(tensor) in self._of_target for tensor in keras_tensors(tensors))

    def masks_padding(self, mask: Any) -> bool:
        """Returns whether a mask is `target != padding_id`, with an id from `padding_ids`."""
        return self._masked_id(mask) is not None

    def _masked_id(self, mask: Any) -> int | None:
        for call in self.graph.smallest_calls:
            if call.outputs is mask and is_one_of(call.operation, (ops.not_equal,)):
                left, right = call.arguments.values()
                is_known = left is self.target and np.ndim(right) == 0
                return int(right) if is_known else None
        return None

    @property
    def padding_ids(self) -> set[int]:
        """The token ids that the model masks. Steps apply no mask, so these ids must not occur."""
        embeddings = [c.operation for c in self.step_calls if c.first_argument is self.target]
        ids = {e.padding_id for e in embeddings if isinstance(e, PositionalEmbedding)}
        ids |= {0 for e in embeddings if isinstance(e, layers.Embedding) and e.mask_zero}
        arguments = [value for call in self.cached_calls for value in call.arguments.values()]
        ids |= {self._masked_id(value) for value in keras_tensors(arguments)}
        return ids - {None}

    @property
    def constants(self) -> list[Tensor]:
        """The inputs of step calls without a cache, if they do not depend on the target."""
        tensors = [t for call in self.step_calls if not is_cached(call) for t in call.inputs]
        constants = {id(t): t for t in tensors if not self.depends_on_target(t)}
        return list(constants.values())

    @property
    def has_probabilities(self) -> bool:
        """Whether the model ends in a softmax."""
        operations = [call.operation for call in self.step_calls]
        last: Any = next((op for op in reversed(operations) if not _keeps_values(op)), None)
        is_softmax = isinstance(last, layers.Softmax) or is_one_of(last, (ops.softmax,))
        has_activation = isinstance(last, (layers.Activation, layers.Dense, layers.EinsumDense))
        return is_softmax or (has_activation and last.activation is keras.activations.softmax)

    @property
    def max_length(self) -> int | None:
        """The number of learned positions that the target can use, or None without a limit."""
        lengths = [
            call.operation.max_length - call.start_index
            for call in self.step_calls
            if isinstance(call.operation, (PositionalEmbedding, PositionalEncoding))
            and call.operation.positions == "learned"
        ]
        return min(lengths, default=None)

    @property
    def vocab_size(self) -> int:
        """The number of token ids that the target may have."""
        embeddings = [c.operation for c in self.step_calls if c.first_argument is self.target]
        sizes = [e.vocab_size for e in embeddings if isinstance(e, PositionalEmbedding)]
        sizes += [e.input_dim for e in embeddings if isinstance(e, layers.Embedding)]
        return min(sizes, default=self.graph.output.shape[-1])


def _keeps_values(operation: keras.Operation) -> bool:
    """Returns whether an operation changes nothing but the dtype.

    In mixed precision, such an operation follows a softmax.
    """
    if isinstance(operation, layers.Activation):
        return operation.activation is keras.activations.linear
    return isinstance(operation, layers.Identity) or is_one_of(
        operation, (ops.cast, ops.stop_gradient)
    )


def values_of(nest: Any, values: dict[int, Any]) -> Any:
    """Replaces the symbolic tensors of a nest with their values, which are found by id."""
    return tree.map_structure(
        lambda value: values[id(value)] if keras.utils.is_keras_tensor(value) else value, nest
    )

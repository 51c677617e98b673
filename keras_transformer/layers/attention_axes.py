"""Folds the axes that attention runs along into one axis, and unfolds them afterwards."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any

from keras import ops

from ..checks import require
from ..errors import ConfigError
from ..tensors import Tensor
from .input_checks import fits


@dataclasses.dataclass(frozen=True)
class AttentionAxes:
    """The axes of inputs (batch, ..., features) that attention runs along (attended) or not (free).

    Folding merges the free axes into the batch, and the attended axes into one axis in row-major
    order. Inputs (batch, length, features) need no folding: each method then returns its input
    unchanged.
    """

    attended: tuple[int, ...]
    free: tuple[int, ...]

    @classmethod
    def of(cls, attention_axes: int | tuple[int, ...] | None, rank: int) -> "AttentionAxes":
        """Resolves `attention_axes` for inputs of a given rank.

        None selects all axes between batch and features.

        Raises:
            ConfigError: An axis does not exist, is the batch or the feature axis, or is given
                twice.
        """
        every = range(1, rank - 1)
        given = (
            (attention_axes,) if isinstance(attention_axes, int) else attention_axes or tuple(every)
        )
        attended = tuple(axis if axis >= 0 else rank + axis for axis in given)
        rule = f"different axes from 1 to {rank - 2} of inputs of rank {rank}"
        require(
            set(attended) <= {*every} and len({*attended}) == len(attended),
            "attention_axes",
            rule,
            attention_axes,
        )
        return cls(attended, tuple(axis for axis in every if axis not in attended))

    @property
    def _is_sequence(self) -> bool:
        return self.attended == (1,) and not self.free

    def fold(
        self, inputs: Annotated[Tensor, "(batch, ..., features)"]
    ) -> Annotated[Tensor, "(batch * free, length, features)"]:
        """Merges the free axes into the batch, and the attended axes into one axis."""
        if self._is_sequence:
            return inputs
        inputs = ops.transpose(inputs, (0, *self.free, *self.attended, len(inputs.shape) - 1))
        *sizes, features = ops.shape(inputs)
        return ops.reshape(inputs, (-1, math.prod(sizes[1 + len(self.free) :]), features))

    def fold_padding(
        self, mask: Annotated[Tensor, "bool, broadcasts to (batch, ...)"] | None, inputs: Tensor
    ) -> Annotated[Tensor, "bool (batch * free, length)"] | None:
        """Folds the padding mask like its inputs."""
        if mask is None or self._is_sequence:
            return mask
        mask = ops.broadcast_to(mask, ops.shape(inputs)[:-1])
        return self.fold(ops.expand_dims(mask, -1))[..., 0]

    def fold_scores(
        self, name: str, tensor: Tensor | None, query: Tensor, value: Tensor, num_heads: int
    ) -> Tensor | None:
        """Folds a mask or bias for scores (batch, free ..., num_heads, target ..., source ...).

        num_heads may be missing, and so may any number of axes directly before it.

        Returns:
            A tensor that broadcasts to (batch * free, num_heads, target length, source length).

        Raises:
            ConfigError: The tensor lacks a target or source axis, has too many axes, or has axes
                of the wrong size.
        """
        if tensor is None:
            return None
        leading, num_attended = 2 + len(self.free), len(self.attended)
        missing = leading + 2 * num_attended - len(tensor.shape)
        expected = self._unfolded(query.shape, num_heads, value.shape)
        received = tuple(tensor.shape)
        if not 0 <= missing <= leading:
            raise ConfigError(
                f"{name} must be a tensor of rank {2 * num_attended} to "
                f"{leading + 2 * num_attended}, and broadcast to {expected}; "
                f"received {name} of shape {received}"
            )
        if missing:
            tensor = ops.expand_dims(tensor, tuple(range(leading - missing, leading)))
        if not fits(tuple(tensor.shape), expected):
            raise ConfigError(
                f"{name} must broadcast to {expected}, for query and value of shapes "
                f"{tuple(query.shape)} and {tuple(value.shape)}; "
                f"received {name} of shape {received}"
            )
        if self._is_sequence:
            return tensor
        # Broadcast all axes to their full size before the reshape, except for the heads and a
        # missing batch axis, which attention itself broadcasts.
        num_heads_given = ops.shape(tensor)[leading - 1]
        whole = self._unfolded(ops.shape(query), num_heads_given, ops.shape(value))
        first = (1,) * (leading - 1) if missing == leading else whole[: leading - 1]
        targets, sources = whole[leading : leading + num_attended], whole[leading + num_attended :]
        tensor = ops.broadcast_to(tensor, (*first, num_heads_given, *targets, *sources))
        return ops.reshape(
            tensor, (math.prod(first), num_heads_given, math.prod(targets), math.prod(sources))
        )

    def unfold(
        self, outputs: Annotated[Tensor, "(batch * free, length, ...)"], query: Tensor
    ) -> Annotated[Tensor, "(batch, ..., ...)"]:
        """Restores the axes that the query had before it was folded."""
        if self._is_sequence:
            return outputs
        sizes, last = ops.shape(query), ops.shape(outputs)[2:]
        order = (0, *self.free, *self.attended)
        outputs = ops.reshape(outputs, (*(sizes[axis] for axis in order), *last))
        others = range(len(order), len(order) + len(last))
        return ops.transpose(outputs, (*(order.index(axis) for axis in range(len(order))), *others))

    def unfold_scores(
        self,
        scores: Annotated[Tensor, "(batch * free, num_heads, target length, source length)"],
        query: Tensor,
        value: Tensor,
    ) -> Annotated[Tensor, "(batch, free ..., num_heads, target ..., source ...)"]:
        """Restores the axes that the query and value had before they were folded."""
        if self._is_sequence:
            return scores
        query_shape, value_shape = ops.shape(query), ops.shape(value)
        return ops.reshape(scores, self._unfolded(query_shape, scores.shape[1], value_shape))

    def _unfolded(
        self, query_shape: Sequence[Any], num_heads: int, value_shape: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Returns the shape of the unfolded scores."""
        free = (query_shape[axis] for axis in self.free)
        target, source = (
            [shape[axis] for axis in self.attended] for shape in (query_shape, value_shape)
        )
        return (query_shape[0], *free, num_heads, *target, *source)

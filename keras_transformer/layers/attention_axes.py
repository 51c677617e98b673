"""Attention for inputs of any rank, as in `keras.layers.MultiHeadAttention`.

`MultiHeadAttention` itself computes with inputs (batch, length, width). For inputs with more axes,
it calls `fold` before and `unfold` afterwards.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from keras import ops

from ..checks import require
from ..tensors import Tensor
from .input_checks import with_all_axes


class AttentionInputs(NamedTuple):
    """The tensors that attention reads. In self-attention, `query` and `value` are the same object.

    Before folding, the inputs may have more axes between batch and width.
    """

    query: Annotated[Tensor, "(batch, target length, width)"]
    value: Annotated[Tensor, "(batch, source length, width)"]
    key: Annotated[Tensor, "(batch, source length, width)"]
    source_mask: Annotated[Tensor, "bool (batch, source length)"] | None
    # Both broadcast to the scores, (batch, num_heads, target length, source length).
    mask: Annotated[Tensor, "bool"] | None
    bias: Tensor | None

    def with_all_score_axes(self, num_heads: int) -> "AttentionInputs":
        """Adds missing axes to the mask and bias of inputs (batch, length, width).

        Raises:
            ConfigError: The mask or the bias does not broadcast to the scores.
        """
        query, value = self.query, self.value
        scores_shape = (query.shape[0], num_heads, query.shape[1], value.shape[1])
        return self._replace(
            mask=with_all_axes("attention_mask", self.mask, scores_shape, query, value),
            bias=with_all_axes("score_bias", self.bias, scores_shape, query, value),
        )


@dataclasses.dataclass(frozen=True)
class AttentionAxes:
    """The axes of inputs (batch, ..., width) that attention runs along (attended) or not (free).

    Folding merges the free axes into the batch, and the attended axes into one axis in row-major
    order.
    """

    attended: tuple[int, ...]
    free: tuple[int, ...]

    @classmethod
    def of(cls, attention_axes: int | tuple[int, ...] | None, rank: int) -> "AttentionAxes | None":
        """Resolves `attention_axes` for inputs of a given rank.

        None selects all axes between batch and width.

        Returns:
            The axes, or None for inputs (batch, length, width), which need no folding.

        Raises:
            ConfigError: An axis does not exist, is the batch or the last axis, or is given twice.
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
        if rank == 3:
            return None
        return cls(attended, tuple(axis for axis in every if axis not in attended))

    def fold(self, inputs: AttentionInputs, num_heads: int) -> AttentionInputs:
        """Returns the inputs as `MultiHeadAttention` computes with them.

        Raises:
            ConfigError: The mask or the bias does not broadcast to the scores.
        """
        query, value, key, source_mask, mask, bias = inputs
        targets = self._fold(query)
        sources = targets if value is query else self._fold(value)
        return AttentionInputs(
            targets,
            sources,
            sources if key is value else self._fold(key),
            self._fold_padding(source_mask, value),
            self._fold_scores("attention_mask", mask, query, value, num_heads),
            self._fold_scores("score_bias", bias, query, value, num_heads),
        )

    def unfold(
        self,
        outputs: Annotated[Tensor, "(batch * free, target length, ...)"],
        weights: Annotated[Tensor, "(batch * free, num_heads, target, source length)"] | None,
        query: Annotated[Tensor, "(batch, ..., width)"],
        value: Annotated[Tensor, "(batch, ..., width)"],
    ) -> tuple[Tensor, Tensor | None]:
        """Restores the axes that the query and the value had before they were folded.

        Returns:
            The outputs (batch, ..., ...), and the weights (batch, free ..., num_heads,
            target ..., source ...) or None.
        """
        query_shape, last = ops.shape(query), ops.shape(outputs)[2:]
        order = (0, *self.free, *self.attended)
        outputs = ops.reshape(outputs, (*(query_shape[axis] for axis in order), *last))
        others = range(len(order), len(order) + len(last))
        outputs = ops.transpose(outputs, (*map(order.index, range(len(order))), *others))
        if weights is not None:
            shape = self._scores_shape(query_shape, weights.shape[1], ops.shape(value))
            weights = ops.reshape(weights, shape)
        return outputs, weights

    def _fold(
        self, tensor: Annotated[Tensor, "(batch, ..., width)"]
    ) -> Annotated[Tensor, "(batch * free, length, width)"]:
        tensor = ops.transpose(tensor, (0, *self.free, *self.attended, len(tensor.shape) - 1))
        *sizes, width = ops.shape(tensor)
        return ops.reshape(tensor, (-1, math.prod(sizes[1 + len(self.free) :]), width))

    def _fold_padding(
        self, mask: Annotated[Tensor, "bool, broadcasts to (batch, ...)"] | None, inputs: Tensor
    ) -> Annotated[Tensor, "bool (batch * free, length)"] | None:
        if mask is None:
            return None
        mask = ops.broadcast_to(mask, ops.shape(inputs)[:-1])
        return self._fold(ops.expand_dims(mask, -1))[..., 0]

    def _fold_scores(
        self, name: str, tensor: Tensor | None, query: Tensor, value: Tensor, num_heads: int
    ) -> Tensor | None:
        """Folds a mask or bias for scores (batch, free ..., num_heads, target ..., source ...).

        num_heads may be missing, and so may any number of axes directly before it.

        Returns:
            A tensor that broadcasts to (batch * free, num_heads, target length, source length).
        """
        if tensor is None:
            return None
        leading, num_attended = 2 + len(self.free), len(self.attended)
        is_same_for_all = len(tensor.shape) == 2 * num_attended
        expected = self._scores_shape(query.shape, num_heads, value.shape)
        tensor = with_all_axes(name, tensor, expected, query, value, num_attended)
        # Broadcast all axes to their full size before the reshape, except for the heads and a
        # missing batch axis, which attention itself broadcasts.
        num_heads_given = ops.shape(tensor)[leading - 1]
        whole = self._scores_shape(ops.shape(query), num_heads_given, ops.shape(value))
        first = (1,) * (leading - 1) if is_same_for_all else whole[: leading - 1]
        targets, sources = whole[leading : leading + num_attended], whole[leading + num_attended :]
        tensor = ops.broadcast_to(tensor, (*first, num_heads_given, *targets, *sources))
        return ops.reshape(
            tensor, (math.prod(first), num_heads_given, math.prod(targets), math.prod(sources))
        )

    def _scores_shape(
        self, query_shape: Sequence[Any], num_heads: int, value_shape: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Returns the shape of the scores before folding."""
        free = (query_shape[axis] for axis in self.free)
        target, source = (
            [shape[axis] for axis in self.attended] for shape in (query_shape, value_shape)
        )
        return (query_shape[0], *free, num_heads, *target, *source)


def check_attention_axes(axes: Any) -> int | tuple[int, ...] | None:
    """Checks the type of the argument `attention_axes`, and converts a list to a tuple."""
    axes = tuple(axes) if isinstance(axes, list) else axes
    listed = (axes,) if isinstance(axes, int) else axes
    is_valid = axes is None or _are_ints(listed)
    require(is_valid, "attention_axes", "an int, a tuple of ints, or None", axes)
    return axes


def check_output_shape(sizes: Any) -> int | tuple[int, ...] | None:
    """Checks the argument `output_shape`, and converts a list to a tuple."""
    sizes = tuple(sizes) if isinstance(sizes, list) else sizes
    listed = (sizes,) if isinstance(sizes, int) else sizes
    is_valid = sizes is None or (_are_ints(listed) and min(listed) > 0)
    require(is_valid, "output_shape", "a positive int, a tuple of them, or None", sizes)
    return sizes


def _are_ints(values: Any) -> bool:
    return isinstance(values, tuple) and bool(values) and {type(value) for value in values} == {int}

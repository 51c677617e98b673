"""Common parts of all searches: argument checks, and a loop that can drop finished sequences.

A search keeps its data about active (unfinished) sequences in a NamedTuple of tensors with one row
per sequence. The loop uses three of its fields: `rows`, the indices of these sequences in the
batch, `results`, their results, and `state`, the state of the step function.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, cast

from keras import ops, tree

from ..checks import plain, require
from ..errors import ConfigError
from ..gather import take_rows
from ..tensors import Dimension, Tensor
from .constraints import Constraints


def check_search_arguments(
    max_lengths: Tensor | Sequence[int],
    max_length: Dimension,
    start_ids: int | Tensor,
    end_ids: int | Sequence[int],
    constraints: Constraints,
) -> tuple[
    Annotated[Tensor, "int32 (batch, 1)"],
    Dimension,
    Annotated[Tensor, "int32 (batch, n)"],
    tuple[int, ...],
]:
    """Checks the arguments that all searches share. See `beam_search`.

    Returns:
        A tuple of the maximum lengths, the size of the result, the start tokens (as indices from
        `Constraints.place_of`) and the end tokens.
    """
    max_length, start_ids, end_ids = plain(max_length), plain(start_ids), plain(end_ids)
    limits: Tensor = ops.convert_to_tensor(max_lengths, "int32")
    if len(limits.shape) != 1:
        shape = tuple(limits.shape)
        raise ConfigError(
            f"max_lengths must have shape (batch,); received max_lengths of shape {shape}"
        )
    for name, value in (("max_length", max_length), ("start_ids", start_ids)):
        require(not isinstance(value, int) or value >= 0, name, "at least 0", value)
    ends = (end_ids,) if isinstance(end_ids, int) else tuple(end_ids)
    require(all(token_id >= 0 for token_id in ends), "end_ids", "at least 0", end_ids)
    constraints.check()
    limits = ops.minimum(limits, max_length)[:, None]
    if isinstance(start_ids, int):
        return limits, max_length, ops.full_like(limits, start_ids), ends
    starts: Tensor = ops.convert_to_tensor(start_ids, "int32")
    if len(starts.shape) != 2 or starts.shape[1] == 0:
        shape = tuple(starts.shape)
        raise ConfigError(
            f"start_ids must be an int or of shape (batch, n), n at least 1; received shape {shape}"
        )
    return limits, max_length, constraints.place_of(starts), ends


class Growth(NamedTuple):
    """How a state with room for only the first steps grows.

    Each step attends to the whole cache, including entries that are not written yet, so the first
    steps are faster with a smaller state.

    Attributes:
        num_first_steps: number of steps that the state has room for.
        grow: function that returns a state with room for all steps.
    """

    num_first_steps: Dimension
    grow: Callable[[Any], Any]


class ActiveRows(Protocol):
    """A search's data about its active sequences."""

    @property
    def rows(self) -> Annotated[Tensor, "int32 (n,)"]: ...
    @property
    def results(self) -> tuple[Tensor, ...]: ...
    @property
    def state(self) -> Any: ...


Active = TypeVar("Active", bound=ActiveRows)


def extend_until_finished(
    extend: Callable[[Tensor, Active], tuple[Active, Tensor]],
    is_unfinished: Callable[[Active], Tensor],
    active: Active,
    record: Annotated[Tensor, "int32 (number of steps, batch, ...)"],
    drop_finished: bool,
    growth: Growth | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Extends all sequences by one token per step until all are finished.

    Args:
        extend: function of the position, an int32 scalar, and the active sequences. It returns the
            active sequences with another token, and the data (n, ...) to record for the step.
        is_unfinished: function of the active sequences that returns bool (n,) or (n, 1).
        active: a NamedTuple of nests of tensors (n, ...). See the docstring of the module.
        record: tensor to which the data of each step is written.
        drop_finished: whether to remove the rows of finished sequences, which changes shapes. Rows
            are removed once an eighth of them are finished; removing fewer rows would not pay off.
        growth: see `beam_search`.

    Returns:
        A tuple of the number of steps, the record, and the results of all sequences.
    """

    def step(position: Tensor, record: Tensor, active: Active) -> tuple[Tensor, Tensor, Active]:
        active, newest = extend(position, active)
        at = ops.stack([ops.full_like(active.rows, position), active.rows], axis=-1)  # (n, 2)
        return position + 1, ops.scatter_update(record, at, newest), active

    position = ops.zeros((), "int32")
    if growth is not None:
        require(not drop_finished, "drop_finished", "False with growth", drop_finished)
        position, record, active = ops.while_loop(
            lambda position, record, active: (
                (position < growth.num_first_steps) & ops.any(is_unfinished(active))
            ),
            step,
            (position, record, active),
        )
        active = cast(Any, active)._replace(state=growth.grow(active.state))
    if not drop_finished:
        num_steps, record, active = ops.while_loop(
            lambda position, record, active: ops.any(is_unfinished(active)),
            step,
            (position, record, active),
        )
        return num_steps, record, active.results

    def steps(
        position: Tensor, record: Tensor, active: Active, results: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Active, tuple[Tensor, ...]]:
        def few_finished(position: Tensor, record: Tensor, active: Active) -> Tensor:
            # With no rows left, the mean is NaN, the comparison is False and the loop ends.
            return ops.mean(ops.cast(is_unfinished(active), "float32")) > 7 / 8

        position, record, active = ops.while_loop(few_finished, step, (position, record, active))
        at = active.rows[:, None]
        results = tree.map_structure(
            lambda all, some: ops.scatter_update(all, at, some), results, active.results
        )
        kept = ops.nonzero(is_unfinished(active))[0]
        return (
            position,
            record,
            tree.map_structure(lambda tensor: take_rows(tensor, kept), active),
            results,
        )

    num_steps, record, _, results = ops.while_loop(
        lambda position, record, active, results: ops.shape(active.rows)[0] > 0,
        steps,
        (position, record, active, active.results),
    )
    return num_steps, record, results

"""The loop of a search, in which nothing is computed any more for sequences that are finished.

A search keeps what it knows about the sequences that it still extends in a NamedTuple of tensors with one row per
sequence. Two of its fields are used here: `rows`, the places of these sequences in the batch, and `found`, what
goes into the results.
"""

from collections.abc import Callable
from typing import Annotated, Protocol, TypeVar

from keras import ops, tree

from ..tensors import Tensor


class ActiveRows(Protocol):
    """What a search knows about the sequences that it still extends."""

    @property
    def rows(self) -> Annotated[Tensor, "int32 (n,)"]: ...
    @property
    def found(self) -> tuple[Tensor, ...]: ...


Active = TypeVar("Active", bound=ActiveRows)


def extend_until_finished(
    extend: Callable[[Tensor, Active], tuple[Active, Tensor]],
    is_unfinished: Callable[[Active], Tensor],
    active: Active,
    history: Annotated[Tensor, "int32 (number of steps, batch, ...)"],
    drop_finished: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Extends all sequences by one token per step until every one is finished.

    Args:
        extend: takes a position, int32 scalar, and the active sequences; returns the active sequences with one more
            token, and what is recorded of the step, (n, ...).
        is_unfinished: takes the active sequences, returns bool (n,).
        active: a NamedTuple of nests of tensors (n, ...), see above.
        history: where the steps are recorded.
        drop_finished: whether the rows of finished sequences are left out, as soon as they are an eighth of all; fewer
            would not pay. Shapes then change.

    Returns:
        The number of steps, the history, and what was found for all sequences.
    """

    def step(position: Tensor, history: Tensor, active: Active) -> tuple[Tensor, Tensor, Active]:
        active, newest = extend(position, active)
        at = ops.stack([ops.full_like(active.rows, position), active.rows], axis=-1)  # (n, 2)
        return position + 1, ops.scatter_update(history, at, newest), active

    def any_unfinished(position: Tensor, history: Tensor, active: Active) -> Tensor:
        return ops.any(is_unfinished(active))

    start = ops.zeros((), "int32")
    if not drop_finished:
        num_steps, history, active = ops.while_loop(any_unfinished, step, (start, history, active))
        return num_steps, history, active.found

    def steps(
        position: Tensor, history: Tensor, active: Active, found: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Active, tuple[Tensor, ...]]:
        def few_finished(position: Tensor, history: Tensor, active: Active) -> Tensor:
            num_finished = ops.sum(ops.cast(ops.logical_not(is_unfinished(active)), "int32"))
            return num_finished * 8 < ops.shape(active.rows)[0]

        position, history, active = ops.while_loop(few_finished, step, (position, history, active))
        found = store(found, active.rows, active.found)
        kept = ops.nonzero(is_unfinished(active))[0]
        return position, history, tree.map_structure(lambda tensor: ops.take(tensor, kept, axis=0), active), found

    num_steps, history, _, found = ops.while_loop(
        lambda position, history, active, found: ops.shape(active.rows)[0] > 0,
        steps,
        (start, history, active, active.found),
    )
    return num_steps, history, found


def store(
    results: tuple[Tensor, ...], rows: Annotated[Tensor, "int32 (n,)"], found: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Writes what was found for some sequences into the results of all.

    Args:
        results: tensors (batch, ...).
        rows: the places of the sequences in the batch.
        found: as many tensors (n, ...).

    Returns:
        Tensors (batch, ...).
    """
    at = rows[:, None]
    return tree.map_structure(lambda all, some: ops.scatter_update(all, at, some), results, found)

"""Sequences that are finished leave the batch, so that nothing is computed for them any more.

A search keeps what it knows about the sequences that it still extends in a NamedTuple of tensors with one row per
sequence. Two of its fields are used here: `rows`, the places of these sequences in the batch, and `found`, what
goes into the results.
"""

from typing import Any

from keras import ops, tree


def record(history: Any, position: Any, rows: Any, values: Any) -> Any:
    """Writes the values of one step into the history of all sequences.

    Args:
        history: (number of steps, batch, ...).
        position: int scalar, the step.
        rows: int32 (n,), the places of the active sequences in the batch.
        values: (n, ...).

    Returns:
        (number of steps, batch, ...).
    """
    at = ops.stack([ops.full_like(rows, position), rows], axis=-1)  # (n, 2)
    return ops.scatter_update(history, at, values)


def store(results: Any, rows: Any, found: Any) -> Any:
    """Writes what was found for some sequences into the results of all.

    Args:
        results: a nest of tensors (batch, ...).
        rows: int32 (n,).
        found: a nest of the same structure, of tensors (n, ...).

    Returns:
        A nest of tensors (batch, ...).
    """
    at = rows[:, None]
    return tree.map_structure(lambda all, some: ops.scatter_update(all, at, some), results, found)


def drop_rows(is_active: Any, results: Any, active: Any) -> tuple[Any, Any]:
    """Leaves out the rows of finished sequences once they are an eighth of all; fewer would not pay.

    Args:
        is_active: bool (n,).
        results: a nest of tensors (batch, ...).
        active: a NamedTuple of nests of tensors (n, ...), see above.

    Returns:
        The results, into which the dropped rows were stored, and the active rows.
    """
    kept = ops.nonzero(is_active)[0]

    def drop() -> tuple[Any, Any]:
        remaining = tree.map_structure(lambda tensor: ops.take(tensor, kept, axis=0), active)
        return store(results, active.rows, active.found), remaining

    is_worthwhile = ops.shape(kept)[0] * 8 <= ops.shape(is_active)[0] * 7
    return ops.cond(is_worthwhile, drop, lambda: (results, active))

"""The rows of a batch that a search still works on.

A search keeps what it knows of its sentences as a nest of tensors with one row for each. Where shapes may change in a
loop, the rows of sentences that are done are left out, and nothing is computed for them any more.
"""

from keras import ops, tree


def note(history, position, rows, values):
    """The history of all sentences, (steps, batch, ...), with `values` (n, ...) of these rows at a position."""
    at = ops.stack([ops.full_like(rows, position), rows], axis=-1)
    return ops.scatter_update(history, at, values)


def store(results, rows, values):
    """The results of all sentences, with `values` in the given rows.

    Args:
        results: a nest of tensors (batch, ...).
        rows: int32 (n,).
        values: the same nest with tensors (n, ...).
    """
    rows = rows[:, None]
    return tree.map_structure(lambda all, some: ops.scatter_update(all, rows, some), results, values)


def drop_done_rows(is_live, results, live):
    """Where enough rows are done, stores what they found and leaves them out.

    Args:
        is_live: bool (n,).
        results: a nest of tensors (batch, ...), of all sentences.
        live: a dict of nests of tensors (n, ...), with "rows", the places of these sentences in the batch, and
            "found", what goes into the results.

    Returns:
        The results, and a dict of the rows that are live.
    """
    kept = ops.nonzero(is_live)[0]

    def drop():
        left = tree.map_structure(lambda tensor: ops.take(tensor, kept, axis=0), live)
        return store(results, live["rows"], live["found"]), left

    # To leave rows out costs about as much as an eighth of a step or two.
    is_worthwhile = ops.shape(kept)[0] * 8 <= ops.shape(is_live)[0] * 7
    return ops.cond(is_worthwhile, drop, lambda: (results, live))

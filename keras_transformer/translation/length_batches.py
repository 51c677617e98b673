"""A request divided into batches of texts of similar length, in the TensorFlow graph.

One long text does not make all others of its request pay for padding, nor for the steps that it alone needs.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import tensorflow as tf

from ..tensors import Dimension, Tensor

# A nest of tensors.
Results = TypeVar("Results")


def map_in_length_batches(
    function: Callable[[Tensor], Results],
    lengths: Annotated[Tensor, "int32 (num_rows,)"],
    positions: Annotated[Tensor, "int32 (num_rows,)"],
    results: Results,
    *,
    positions_per_batch: int,
    max_rows: Dimension,
    parallel_iterations: int = 1,
) -> Results:
    """Applies a function to the rows of a request in batches, and returns its results in the order of the rows.

    Args:
        function: takes row numbers, int32 (n,), and returns a nest of tensors (n, ...).
        lengths: rows are sorted by it, the longest first.
        positions: what a row adds to a batch of its own length, at least 1; does not fall with the length.
        results: a nest of tensors (num_rows, ...) that the function's results are written into.
        positions_per_batch: most positions in a batch, including padding, unless one row is already longer.
        parallel_iterations: how many batches may be computed side by side; they are only if `function` reads no
            variables.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    num_rows = tf.size(order)

    def map_batch(begin: Tensor, results: Results) -> tuple[Tensor, Results]:
        size = tf.clip_by_value(positions_per_batch // positions[order[begin]], 1, max_rows)
        end = tf.minimum(begin + size, num_rows)
        rows = order[begin:end]
        written = tf.nest.map_structure(
            lambda all, some: tf.tensor_scatter_nd_update(all, rows[:, None], some), results, function(rows)
        )
        return end, written

    _, results = tf.while_loop(
        lambda begin, _: begin < num_rows,
        map_batch,
        (tf.constant(0), results),
        parallel_iterations=parallel_iterations,
    )
    return results

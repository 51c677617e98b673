"""The matrix products of a training epoch alone: an upper bound for the speed of training.

Each product of a step is a plain `tf.matmul` of operands that already exist: the projections of all
positions (queries, keys and values of the same input in one product), the two products of
attention, the feed-forward networks, and the logits of the real tokens. Each is computed once
forward and twice backward, for the gradients of its two operands. With `--parts`, the rows of a
batch are divided into parts that are computed at the same time, each on its share of the cores.
"""

import concurrent.futures
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.processes import versions
from benchmarks.training_task import Batch, TrainingTask, count_tokens, make_parser

NUM_RUNS = 3

Operation = Callable[[], Any]


class Product(NamedTuple):
    """A product of two matrices, (m, k) and (k, n), or of two stacks, computed `repeats` times."""

    repeats: int
    stack: tuple[int, ...]
    m: int
    k: int
    n: int


def forward_products(
    rows: int,
    source_length: int,
    target_length: int,
    num_tokens: int,
    vocab_size: int,
    sizes: Mapping[str, Any],
) -> list[Product]:
    """Lists the products of a forward pass.

    Args:
        rows: of the batch.
        num_tokens: the number of positions of the target for which there are logits.
    """
    num_layers = sizes["num_layers"]
    d_model = sizes["d_model"]
    d_ff = sizes["d_ff"]
    heads = (rows, sizes["num_heads"])
    key_dim = d_model // sizes["num_heads"]

    def projection(length: int, inputs: int, outputs: int) -> Product:
        return Product(num_layers, (), rows * length, inputs, outputs)

    def attention(query_length: int, value_length: int) -> list[Product]:
        return [
            Product(num_layers, heads, query_length, key_dim, value_length),
            Product(num_layers, heads, query_length, value_length, key_dim),
            projection(query_length, d_model, d_model),
        ]

    def feed_forward(length: int) -> list[Product]:
        return [projection(length, d_model, d_ff), projection(length, d_ff, d_model)]

    return [
        # The encoder.
        projection(source_length, d_model, 3 * d_model),
        *attention(source_length, source_length),
        *feed_forward(source_length),
        # The decoder: self-attention, attention to the source, feed-forward network.
        projection(target_length, d_model, 3 * d_model),
        *attention(target_length, target_length),
        projection(target_length, d_model, d_model),
        projection(source_length, d_model, 2 * d_model),
        *attention(target_length, source_length),
        *feed_forward(target_length),
        # The logits.
        Product(1, (), num_tokens, d_model, vocab_size),
    ]


def make_operations(products: Sequence[Product], dtype: str) -> list[Operation]:
    """Makes the operations of a training step: three for each product of the forward pass."""
    operations: list[Operation] = []
    for repeats, stack, m, k, n in products:
        left = tf.cast(tf.random.normal((*stack, m, k)), dtype)
        right = tf.cast(tf.random.normal((*stack, k, n)), dtype)
        gradient = tf.cast(tf.random.normal((*stack, m, n)), dtype)
        operations += repeats * [
            lambda a=left, b=right: tf.matmul(a, b),
            lambda a=gradient, b=right: tf.matmul(a, b, transpose_b=True),
            lambda a=left, b=gradient: tf.matmul(a, b, transpose_a=True),
        ]
    return operations


def split_evenly(number: int, parts: int) -> list[int]:
    """Divides a number into parts that differ by 1 at most."""
    return [number * (i + 1) // parts - number * i // parts for i in range(parts)]


def measure_seconds(
    parts: Sequence[Sequence[Operation]], threads: concurrent.futures.Executor
) -> float:
    """Returns the mean time in which threads run all parts.

    The operations of a part run one after another.
    """

    def run(operations: Sequence[Operation]) -> None:
        for operation in operations:
            operation()

    list(threads.map(run, parts))
    begin = time.perf_counter()
    for _ in range(NUM_RUNS):
        list(threads.map(run, parts))
    return (time.perf_counter() - begin) / NUM_RUNS


def products_of_parts(
    lengths: tuple[int, int], batches: Sequence[Batch], facts: Mapping[str, Any], num_parts: int
) -> list[list[Product]]:
    """Lists the forward products of each part of the mean of batches with the same lengths."""
    rows = round(np.mean([len(labels) for _, _, labels in batches]))
    num_tokens = round(np.mean([count_tokens(labels) for _, _, labels in batches]))
    parts = zip(split_evenly(rows, num_parts), split_evenly(num_tokens, num_parts), strict=True)
    return [
        forward_products(part_rows, *lengths, part_tokens, facts["vocab_size"], facts["sizes"])
        for part_rows, part_tokens in parts
    ]


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--parts", type=int, default=1, metavar="N", help="parts of a batch (%(default)s)"
    )
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    tf.config.threading.set_inter_op_parallelism_threads(options.parts)
    tf.config.threading.set_intra_op_parallelism_threads(max(cores // options.parts, 1))
    task = TrainingTask(options.task)
    seconds = 0.0
    with concurrent.futures.ThreadPoolExecutor(options.parts) as threads:
        for lengths, batches in task.batches_by_lengths().items():
            parts = products_of_parts(lengths, batches, task.facts, options.parts)
            operations = [make_operations(products, options.precision) for products in parts]
            seconds += len(batches) * measure_seconds(operations, threads)
    print(json.dumps(task.make_report(seconds, versions("tensorflow"))))


if __name__ == "__main__":
    main()

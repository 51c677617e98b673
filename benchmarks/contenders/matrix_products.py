"""What the matrix products of training alone allow: those of an epoch, forward and backward, and nothing else.

Every product of a step is a plain `tf.matmul`, one after another, of operands that stand ready: projections of all
positions (queries, keys and values of one input as one product), attention's two products, feed-forward networks, and
logits of the real tokens; each once forward and twice backward, for the gradients of its two operands. With `--parts`
the rows of a batch are shared out and the parts computed side by side, each by its share of the cores.
"""

import argparse
import concurrent.futures
import json
import os
import time

import numpy as np
import tensorflow as tf

from benchmarks.processes import versions
from benchmarks.training_task import TrainingTask, count_tokens

RUNS = 3


def forward_products(rows, source_length, target_length, num_tokens, vocab_size, sizes):
    """The products of a forward pass.

    Args:
        rows: sentences in the batch.
        source_length, target_length: its columns.
        num_tokens: how many of the target's positions hold a token.
        vocab_size: of the model.
        sizes: the model's others.

    Returns:
        A list of `(how often, leading dimensions, m, k, n)`: (m, k) times (k, n).
    """
    num_layers, d_model, d_ff = sizes["num_layers"], sizes["d_model"], sizes["d_ff"]
    heads = (rows, sizes["num_heads"])
    key_dim = d_model // sizes["num_heads"]

    def projection(length, width, units):
        return num_layers, (), rows * length, width, units

    def attention(query_length, value_length):
        return [
            (num_layers, heads, query_length, key_dim, value_length),
            (num_layers, heads, query_length, value_length, key_dim),
            projection(query_length, d_model, d_model),
        ]

    def feed_forward(length):
        return [projection(length, d_model, d_ff), projection(length, d_ff, d_model)]

    return [
        projection(source_length, d_model, 3 * d_model),
        *attention(source_length, source_length),
        *feed_forward(source_length),
        projection(target_length, d_model, 3 * d_model),
        *attention(target_length, target_length),
        projection(target_length, d_model, d_model),
        projection(source_length, d_model, 2 * d_model),
        *attention(target_length, source_length),
        *feed_forward(target_length),
        (1, (), num_tokens, d_model, vocab_size),
    ]


def floating_point_operations(products):
    """Of forward and backward pass: a multiplication and an addition for each element of each of three products."""
    return sum(3 * 2 * often * int(np.prod(leading)) * m * k * n for often, leading, m, k, n in products)


def operations(products, dtype):
    """Functions without arguments, one for each product of forward and backward pass, on operands that stand ready."""
    made = []
    for often, leading, m, k, n in products:
        left, right, gradient = (
            tf.cast(tf.random.normal((*leading, *shape)), dtype) for shape in ((m, k), (k, n), (m, n))
        )
        made += often * [
            lambda a=left, b=right: tf.matmul(a, b),
            lambda a=gradient, b=right: tf.matmul(a, b, transpose_b=True),
            lambda a=left, b=gradient: tf.matmul(a, b, transpose_a=True),
        ]
    return made


def share(count, parts):
    """A number as a sum of nearly equal parts."""
    return [count * (i + 1) // parts - count * i // parts for i in range(parts)]


def seconds_of(plans, threads):
    """The time until every plan, a list of functions, has been gone through by a thread; the mean of RUNS."""

    def go_through(plan):
        for operation in plan:
            operation()

    list(threads.map(go_through, plans))
    begin = time.perf_counter()
    for _ in range(RUNS):
        list(threads.map(go_through, plans))
    return (time.perf_counter() - begin) / RUNS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--parts", type=int, default=1)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    tf.config.threading.set_inter_op_parallelism_threads(options.parts)
    tf.config.threading.set_intra_op_parallelism_threads(max(cores // options.parts, 1))
    task = TrainingTask(options.task)
    vocab_size, sizes = task.facts["vocab_size"], task.facts["sizes"]
    seconds = done = 0
    with concurrent.futures.ThreadPoolExecutor(options.parts) as threads:
        for lengths, batches in task.batches_by_width().items():
            rows = round(np.mean([len(labels) for _, _, labels in batches]))
            num_tokens = round(np.mean([count_tokens(labels) for _, _, labels in batches]))
            parts = [
                forward_products(part_rows, *lengths, part_tokens, vocab_size, sizes)
                for part_rows, part_tokens in zip(share(rows, options.parts), share(num_tokens, options.parts))
            ]
            plans = [operations(products, options.precision) for products in parts]
            seconds += len(batches) * seconds_of(plans, threads)
            done += len(batches) * sum(map(floating_point_operations, parts))
    gigaflops = done / seconds / 1e9
    print(json.dumps(task.report(seconds, versions("tensorflow"), gigaflops=gigaflops)))


if __name__ == "__main__":
    main()

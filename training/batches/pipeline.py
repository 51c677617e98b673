"""Batches of token ids, as their plan has them, in a TensorFlow input pipeline.

No Python runs in the pipeline's threads: it would take the interpreter's lock from the training loop, and a process
that ends while a thread waits for the lock hangs.
"""

import numpy as np
import tensorflow as tf

from keras_transformer.rules import Count, Size, checked
from keras_transformer.tensors import Dimension, Tensor

from .plan import BatchPlan, PlannedBatch

# Batches that are made while others are computed. A batch is made in a few milliseconds.
_BATCHES_AHEAD = 4


@checked
def training_dataset(
    plan: BatchPlan,
    *,
    seed: Count,
    start_id: int,
    first_step: Count = 0,
    replicas: range = range(1),
    num_replicas: Size = 1,
) -> tf.data.Dataset:
    """Returns endless batches for `fit`: every pair once in each epoch, in another order each time.

    The order depends only on the seed and the number of the epoch. A training run that was stopped after `k` steps
    continues with the same batches if it is resumed with `first_step=k`.

    Args:
        start_id: the token that a target begins with.
        first_step: how many batches to skip, at no cost. Defaults to 0.
        replicas: the replicas to make batches for, one after another; each gets its share of the rows of every batch.
            Defaults to the only one.
        num_replicas: how many replicas share a batch. The plan must be for a multiple of it. Defaults to 1.

    Returns:
        Dataset of `({"source": (batch, source length), "target": (batch, target length)}, labels (batch, target
        length))`, all int32, with 0 where there is no token, and with `"links": (batch, target length)` if the pairs
        have links. The target is the start token and the sentence, the labels are the sentence and the end token. Empty
        rows come last.
    """
    num_blocks = plan.pairs.num_blocks
    first_epoch, steps_to_skip = divmod(first_step, plan.num_steps)

    def block_order(epoch: Dimension) -> tf.Tensor:
        return tf.argsort(tf.random.stateless_uniform([num_blocks], [-1 - seed, epoch]))

    # The block with the first step, and how many of its batches come before that step.
    ends = np.cumsum([len(plan.batches[block]) for block in block_order(first_epoch).numpy()])
    first_place = int(np.searchsorted(ends, steps_to_skip, side="right"))
    batches_to_skip = steps_to_skip - (ends[first_place - 1] if first_place else 0)
    # A turn is one block of one epoch.
    first_turn = first_epoch * num_blocks + first_place

    def batches_of_turn(turn: Tensor) -> tf.data.Dataset:
        epoch = turn // num_blocks
        block = tf.cast(block_order(epoch)[turn % num_blocks], tf.int64)
        bucket_of_pair, batches = _bucket_of_pair(plan, block), _planned_batches(plan, block)
        num_pairs, num_batches = tf.size(bucket_of_pair), tf.size(batches.begin)
        seeds = [seed, epoch * num_blocks + block]
        random = tf.random.stateless_uniform([num_pairs + num_batches], seeds, maxval=2**32, dtype=tf.int64)
        # This key sorts pairs by their buckets, and within a bucket at random.
        pairs = tf.argsort(bucket_of_pair * 2**32 + random[:num_pairs])
        order = tf.argsort(random[num_pairs:])[tf.where(turn == first_turn, batches_to_skip, 0) :]
        ordered = PlannedBatch(*(tf.gather(field, order) for field in batches))
        shares = _shares(ordered, replicas, num_replicas)
        return _assemble(plan, block, pairs, shares, start_id)

    turns = tf.data.Dataset.counter(first_turn)
    return _finish(turns.flat_map(batches_of_turn), tf.data.INFINITE_CARDINALITY)


@checked
def validation_dataset(
    plan: BatchPlan, *, start_id: int, replicas: range = range(1), num_replicas: Size = 1
) -> tf.data.Dataset:
    """Returns batches of every pair once, always in the same order: in a block, from the shortest to the longest.

    The arguments and elements are as in `training_dataset`; the cardinality is known.
    """

    def batches_of_block(block: Tensor) -> tf.data.Dataset:
        pairs = tf.argsort(_bucket_of_pair(plan, block), stable=True)
        shares = _shares(_planned_batches(plan, block), replicas, num_replicas)
        return _assemble(plan, block, pairs, shares, start_id)

    blocks = tf.data.Dataset.range(plan.pairs.num_blocks)
    return _finish(blocks.flat_map(batches_of_block), plan.num_steps * len(replicas))


def _bucket_of_pair(plan: BatchPlan, block: Tensor) -> Tensor:
    """The number of each pair's bucket: int64 (num_pairs,)."""
    longest = [bucket.length for bucket in plan.buckets]
    lengths = tf.maximum(plan.pairs.lengths("source", block), plan.pairs.lengths("target", block))
    return tf.searchsorted(longest, lengths, out_type=tf.int64)


def _planned_batches(plan: BatchPlan, block: Tensor) -> PlannedBatch:
    """The plan of the block whose number is a tensor, in fields that are int64 (num_batches,)."""
    ends = np.cumsum([0, *map(len, plan.batches)])
    begin, end = tf.gather(ends, block), tf.gather(ends, block + 1)
    batches = np.concatenate(plan.batches)
    return PlannedBatch(*(tf.constant(batches[name])[begin:end] for name in PlannedBatch._fields))


def _shares(batches: PlannedBatch, replicas: range, num_replicas: int) -> PlannedBatch:
    """The shares of replicas in batches, in fields that are int64 (num_batches * len(replicas),)."""
    replica = tf.tile(tf.range(replicas.start, replicas.stop, dtype=tf.int64), [tf.size(batches.begin)])
    repeated = PlannedBatch(*(tf.repeat(field, len(replicas)) for field in batches))
    num_rows = repeated.num_rows // num_replicas
    begin = tf.minimum(repeated.begin + num_rows * replica, repeated.end)
    return repeated._replace(begin=begin, end=tf.minimum(begin + num_rows, repeated.end), num_rows=num_rows)


def _assemble(plan: BatchPlan, block: Tensor, pairs: Tensor, batches: PlannedBatch, start_id: int) -> tf.data.Dataset:
    """Makes planned batches of a block's pairs, which come in the order of their buckets."""
    token_ids = {side: plan.pairs.token_ids(side, block) for side in ("source", "target")}
    offsets = {
        side: tf.concat([[0], tf.cumsum(tf.cast(plan.pairs.lengths(side, block), tf.int64))], axis=0)
        for side in ("source", "target")
    }
    links = plan.pairs.links(block) if plan.pairs.has_links else None

    def assemble(batch: PlannedBatch) -> tuple[dict[str, Tensor], Tensor]:
        num_rows = batch.num_rows
        rows = pairs[batch.begin : batch.end]
        source = _padded(token_ids["source"], offsets["source"], rows, [num_rows, batch.source_length])
        labels = _padded(token_ids["target"], offsets["target"], rows, [num_rows, batch.target_length])
        target = tf.concat([tf.fill([num_rows, 1], start_id), labels[:, :-1]], axis=1)
        # Removes the end token, which now comes after the sentence, and the start token of empty rows.
        target = tf.where(labels == 0, 0, target)
        inputs = {"source": source, "target": target}
        if links is not None:
            inputs["links"] = _padded(links, offsets["target"], rows, [num_rows, batch.target_length])
        return inputs, labels

    return tf.data.Dataset.from_tensor_slices(batches).map(assemble, num_parallel_calls=_BATCHES_AHEAD)


def _padded(token_ids: Tensor, offsets: Tensor, rows: Tensor, shape: list[Dimension]) -> Tensor:
    # `tf.gather` of a RaggedTensor would go through all offsets of the block each time.
    positions = tf.ragged.range(tf.gather(offsets, rows), tf.gather(offsets, rows + 1))
    return tf.cast(tf.gather(token_ids, positions).to_tensor(shape=shape), tf.int32)


def _finish(batches: tf.data.Dataset, cardinality: int) -> tf.data.Dataset:
    options = tf.data.Options()
    # The thread of autotuning may sleep for a minute when training ends, and TensorFlow waits for it.
    options.autotune.enabled = False
    batches = batches.apply(tf.data.experimental.assert_cardinality(cardinality))
    return batches.prefetch(_BATCHES_AHEAD).with_options(options)

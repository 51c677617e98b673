"""Plans the batches of a text, and reads them in a TensorFlow pipeline.

The plan depends only on the lengths of the pairs. It is made once, and determines the batches,
their number, their shapes and their padding.

No Python code runs in the pipeline's threads. It would compete with the training loop for the GIL,
and a process would hang if it ended while a thread waited for the GIL.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.checks import non_negative_int, positive_int
from keras_transformer.tensors import Dimension, Tensor

from .encoded_pairs import EncodedPairs

# Prepare this many batches ahead. A batch takes a few milliseconds.
_BATCHES_AHEAD = 4


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A shape of batches: source length and target length in tokens, and number of rows."""

    source_length: int
    target_length: int
    batch_size: int

    @property
    def length(self) -> int:
        """The length of the longer side."""
        return max(self.source_length, self.target_length)


class PlannedBatch(NamedTuple):
    """A batch of pairs from a block in which pairs are sorted by bucket.

    In the pipeline, the fields are tensors.
    """

    begin: Dimension  # position of the first pair
    end: Dimension  # position after the last pair
    num_rows: Dimension  # number of rows; rows without a pair are empty
    source_length: Dimension  # length of the source rows, in tokens
    target_length: Dimension


PLANNED_BATCH = np.dtype([(name, np.int64) for name in PlannedBatch._fields])


@dataclasses.dataclass(frozen=True, eq=False)
class BatchPlan:
    """The batches of one epoch."""

    pairs: EncodedPairs
    buckets: list[Bucket]  # from the shortest to the longest
    batches: list[np.ndarray]  # PLANNED_BATCH (number of batches,) for each block of the pairs

    @property
    def num_steps(self) -> int:
        """The number of batches in an epoch."""
        return sum(map(len, self.batches))

    @property
    def padding_share(self) -> float:
        """The share of padding among all positions of source and target."""
        batches = np.concatenate(self.batches)
        num_columns = batches["source_length"] + batches["target_length"]
        num_positions = (batches["num_rows"] * num_columns).sum()
        return 1 - self.pairs.num_tokens / float(num_positions)


def plan_batches(
    pairs: EncodedPairs, tokens_per_batch: int, num_buckets: int = 8, num_parts: int = 1
) -> BatchPlan:
    """Plans the batches of an epoch.

    Args:
        tokens_per_batch: Maximum of `batch_size * max(source_length, target_length)`. A longer pair
            forms a batch with a single row.
        num_buckets: Maximum number of shapes. Defaults to 8.
        num_parts: Number of equal parts into which each batch can be divided. Batches are filled up
            with empty rows, and their pairs stay the same. Defaults to 1.
    """
    positive_int("tokens_per_batch", tokens_per_batch)
    positive_int("num_buckets", num_buckets)
    positive_int("num_parts", num_parts)
    counts = pairs.length_counts
    buckets = choose_buckets(counts, tokens_per_batch, num_buckets)
    longest = [bucket.length for bucket in buckets]
    pairs_in_buckets = np.zeros((pairs.num_blocks, len(buckets)), np.int64)
    bucket = np.searchsorted(longest, np.maximum(counts["source_length"], counts["target_length"]))
    np.add.at(pairs_in_buckets, (counts["block"], bucket), counts["num_pairs"])
    batches = [
        np.array(list(_batches_of_block(counts, buckets, num_parts)), PLANNED_BATCH)
        for counts in pairs_in_buckets
    ]
    return BatchPlan(pairs, buckets, batches)


def _batches_of_block(
    pairs_in_buckets: np.ndarray, buckets: list[Bucket], num_parts: int
) -> Iterator[PlannedBatch]:
    begin = 0
    for bucket, num_pairs in zip(buckets, pairs_in_buckets, strict=True):
        rows = -(-bucket.batch_size // num_parts) * num_parts
        end = begin + num_pairs
        for first in range(begin, end, bucket.batch_size):
            last = min(first + bucket.batch_size, end)
            yield PlannedBatch(first, last, rows, bucket.source_length, bucket.target_length)
        begin = end


def choose_buckets(
    length_counts: Annotated[np.ndarray, "LENGTH_COUNT (n,)"],
    tokens_per_batch: int,
    num_buckets: int,
) -> list[Bucket]:
    """Chooses the shapes of batches that minimize the number of positions in an epoch.

    Pairs are sorted by the length of their longer side. Dynamic programming finds the boundaries
    between buckets with the smallest sum of `rows * (source_length + target_length)`. Every batch
    is counted as full, to avoid buckets with only a few pairs. The pairs of a bucket are then
    spread evenly over its batches: 9 pairs, in batches of at most 8, make two batches of 5 rows.
    Shapes are returned from the shortest to the longest.

    Example:
        >>> from keras_transformer.training.batches.encoded_pairs import count_lengths
        >>> counts = count_lengths(0, np.array([2, 2, 3, 9]), np.array([3, 2, 2, 8]))
        >>> choose_buckets(counts, tokens_per_batch=9, num_buckets=2)
        [Bucket(source_length=3, target_length=3, batch_size=3),
         Bucket(source_length=9, target_length=8, batch_size=1)]
    """
    source_lengths, target_lengths = length_counts["source_length"], length_counts["target_length"]
    keys, places = np.unique(np.maximum(source_lengths, target_lengths), return_inverse=True)
    pairs_of_key, longest_source, longest_target = np.zeros((3, len(keys)), np.int64)
    np.add.at(pairs_of_key, places, length_counts["num_pairs"])
    np.maximum.at(longest_source, places, source_lengths)
    np.maximum.at(longest_target, places, target_lengths)
    batch_sizes = np.maximum(tokens_per_batch // keys, 1)

    # costs[i, j] is the cost of one bucket for keys[i:j].
    costs = np.full((len(keys) + 1, len(keys) + 1), np.inf)
    for i in range(len(keys)):
        rows = -(-np.cumsum(pairs_of_key[i:]) // batch_sizes[i:]) * batch_sizes[i:]
        source_columns = np.maximum.accumulate(longest_source[i:])
        target_columns = np.maximum.accumulate(longest_target[i:])
        costs[i, i + 1 :] = rows * (source_columns + target_columns)
    buckets = []
    for begin, end in _cheapest_ranges(costs, num_buckets):
        total = pairs_of_key[begin:end].sum()
        num_batches = -(-total // batch_sizes[end - 1])
        source_length = int(longest_source[begin:end].max())
        target_length = int(longest_target[begin:end].max())
        batch_size = int(-(-total // num_batches))
        buckets.append(Bucket(source_length, target_length, batch_size))
    return buckets


def _cheapest_ranges(costs: np.ndarray, most_ranges: int) -> list[tuple[int, int]]:
    """Divides the numbers from 0 to n into ranges with the lowest total cost.

    costs[i, j] is the cost of the range from i to j.
    """
    size = len(costs)
    # Empty ranges cost nothing, so the result may have fewer ranges.
    np.fill_diagonal(costs, 0)
    # least[j] is the lowest cost of 0 to j with len(begins) ranges, and begins[-1][j] is the start
    # of the last of these ranges.
    least = np.where(np.arange(size) == 0, 0, np.inf)
    begins = []
    for _ in range(most_ranges):
        totals = least[:, None] + costs
        begins.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    ranges = []
    end = size - 1
    for begin_of in reversed(begins):
        begin = int(begin_of[end])
        if begin < end:
            ranges.append((begin, end))
        end = begin
    return ranges[::-1]


def training_dataset(
    plan: BatchPlan,
    *,
    seed: int,
    start_id: int,
    first_step: int = 0,
    replicas: range = range(1),
    num_replicas: int = 1,
) -> tf.data.Dataset:
    """Returns endless batches, with every pair once per epoch, in a different order each time.

    The order depends only on the seed and the epoch. If a training run was stopped after `k` steps,
    pass `first_step=k` to continue with the same batches.

    Args:
        start_id: Id of the start token, with which each target begins.
        first_step: Number of batches to skip. Skipping a batch costs nothing. Defaults to 0.
        replicas: The replicas to yield batches for. For every batch, the dataset yields each
            replica's share of the rows, one after another. Defaults to the only replica.
        num_replicas: Number of replicas that share a batch. The plan's `num_parts` must be a
            multiple of it. Defaults to 1.

    Returns:
        Dataset of `({"source": (batch, source length), "target": (batch, target length)}, labels
        (batch, target length))`, all int32 and padded with 0. If the pairs have word alignments,
        the inputs also contain `"links": (batch, target length)`. The target is the start token and
        the sentence, and the labels are the sentence and the end token. Empty rows come last.
    """
    seed = non_negative_int("seed", seed)
    first_step = non_negative_int("first_step", first_step)
    num_replicas = positive_int("num_replicas", num_replicas)
    num_blocks = plan.pairs.num_blocks
    first_epoch, steps_to_skip = divmod(first_step, plan.num_steps)

    def block_order(epoch: Dimension) -> tf.Tensor:
        return tf.argsort(tf.random.stateless_uniform([num_blocks], [-1 - seed, epoch]))

    # Find the block with the first step, and the number of its batches that come before that step.
    ends = np.cumsum([len(plan.batches[block]) for block in block_order(first_epoch).numpy()])
    first_place = int(np.searchsorted(ends, steps_to_skip, side="right"))
    batches_to_skip = steps_to_skip - (ends[first_place - 1] if first_place else 0)
    # A turn is one block of one epoch.
    first_turn = first_epoch * num_blocks + first_place

    def batches_of_turn(turn: Tensor) -> tf.data.Dataset:
        epoch = turn // num_blocks
        block = tf.cast(block_order(epoch)[turn % num_blocks], tf.int64)
        bucket_of_pair = _bucket_of_pair(plan, block)
        batches = _planned_batches(plan, block)
        num_pairs = tf.size(bucket_of_pair)
        num_batches = tf.size(batches.begin)
        seeds = [seed, epoch * num_blocks + block]
        random = tf.random.stateless_uniform(
            [num_pairs + num_batches], seeds, maxval=2**32, dtype=tf.int64
        )
        # This key sorts pairs by bucket, and at random within a bucket.
        pairs = tf.argsort(bucket_of_pair * 2**32 + random[:num_pairs])
        first_batch = tf.where(turn == first_turn, batches_to_skip, 0)
        order = tf.argsort(random[num_pairs:])[first_batch:]
        ordered = PlannedBatch(*(tf.gather(field, order) for field in batches))
        shares = _shares(ordered, replicas, num_replicas)
        return _assemble(plan, block, pairs, shares, start_id)

    turns = tf.data.Dataset.counter(first_turn)
    return _finish(turns.flat_map(batches_of_turn), tf.data.INFINITE_CARDINALITY)


def validation_dataset(
    plan: BatchPlan, *, start_id: int, replicas: range = range(1), num_replicas: int = 1
) -> tf.data.Dataset:
    """Returns a dataset of batches, with every pair once, always in the same order.

    The batches of a block are sorted from the shortest to the longest. The arguments and elements
    are the same as for `training_dataset`. The cardinality of the dataset is known.
    """

    def batches_of_block(block: Tensor) -> tf.data.Dataset:
        pairs = tf.argsort(_bucket_of_pair(plan, block), stable=True)
        shares = _shares(_planned_batches(plan, block), replicas, num_replicas)
        return _assemble(plan, block, pairs, shares, start_id)

    blocks = tf.data.Dataset.range(plan.pairs.num_blocks)
    return _finish(blocks.flat_map(batches_of_block), plan.num_steps * len(replicas))


def _bucket_of_pair(plan: BatchPlan, block: Tensor) -> Tensor:
    """Returns the number of each pair's bucket, int64 (num_pairs,)."""
    longest = [bucket.length for bucket in plan.buckets]
    lengths = tf.maximum(plan.pairs.lengths("source", block), plan.pairs.lengths("target", block))
    return tf.searchsorted(longest, lengths, out_type=tf.int64)


def _planned_batches(plan: BatchPlan, block: Tensor) -> PlannedBatch:
    """Returns the batches of a block, given as a tensor. The fields are int64 (num_batches,)."""
    ends = np.cumsum([0, *map(len, plan.batches)])
    begin, end = tf.gather(ends, block), tf.gather(ends, block + 1)
    batches = np.concatenate(plan.batches)
    return PlannedBatch(*(tf.constant(batches[name])[begin:end] for name in PlannedBatch._fields))


def _shares(batches: PlannedBatch, replicas: range, num_replicas: int) -> PlannedBatch:
    """Divides batches among replicas. The fields are int64 (num_batches * len(replicas),)."""
    numbers = tf.range(replicas.start, replicas.stop, dtype=tf.int64)
    replica = tf.tile(numbers, [tf.size(batches.begin)])
    repeated = PlannedBatch(*(tf.repeat(field, len(replicas)) for field in batches))
    num_rows = repeated.num_rows // num_replicas
    begin = tf.minimum(repeated.begin + num_rows * replica, repeated.end)
    end = tf.minimum(begin + num_rows, repeated.end)
    return repeated._replace(begin=begin, end=end, num_rows=num_rows)


def _assemble(
    plan: BatchPlan, block: Tensor, pairs: Tensor, batches: PlannedBatch, start_id: int
) -> tf.data.Dataset:
    """Makes the planned batches from the pairs of a block, which are sorted by bucket."""
    source_ids = plan.pairs.token_ids("source", block)
    target_ids = plan.pairs.token_ids("target", block)
    source_offsets = _offsets(plan.pairs.lengths("source", block))
    target_offsets = _offsets(plan.pairs.lengths("target", block))
    links = plan.pairs.links(block) if plan.pairs.has_links else None

    def assemble(batch: PlannedBatch) -> tuple[dict[str, Tensor], Tensor]:
        rows = pairs[batch.begin : batch.end]
        source_shape = [batch.num_rows, batch.source_length]
        target_shape = [batch.num_rows, batch.target_length]
        source = _padded(source_ids, source_offsets, rows, source_shape)
        labels = _padded(target_ids, target_offsets, rows, target_shape)
        target = tf.concat([tf.fill([batch.num_rows, 1], start_id), labels[:, :-1]], axis=1)
        # Remove the end token, which now comes after the sentence, and the start token of empty
        # rows.
        target = tf.where(labels == 0, 0, target)
        inputs = {"source": source, "target": target}
        if links is not None:
            inputs["links"] = _padded(links, target_offsets, rows, target_shape)
        return inputs, labels

    dataset = tf.data.Dataset.from_tensor_slices(batches)
    return dataset.map(assemble, num_parallel_calls=_BATCHES_AHEAD)


def _offsets(lengths: Tensor) -> Tensor:
    """Returns the start of each sequence and the end of the last, int64 (num_pairs + 1,)."""
    return tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], axis=0)


def _padded(token_ids: Tensor, offsets: Tensor, rows: Tensor, shape: list[Dimension]) -> Tensor:
    # `tf.gather` of a RaggedTensor would read all offsets of the block for each batch.
    positions = tf.ragged.range(tf.gather(offsets, rows), tf.gather(offsets, rows + 1))
    return tf.cast(tf.gather(token_ids, positions).to_tensor(shape=shape), tf.int32)


def _finish(batches: tf.data.Dataset, cardinality: int) -> tf.data.Dataset:
    options = tf.data.Options()
    # When training ends, TensorFlow would wait for the autotuning thread, which may sleep for a
    # minute.
    options.autotune.enabled = False
    batches = batches.apply(tf.data.experimental.assert_cardinality(cardinality))
    return batches.prefetch(_BATCHES_AHEAD).with_options(options)

"""Batches of token ids in a few fixed shapes, the same for any number of replicas."""

import numpy as np
import tensorflow as tf

from .buckets import ceil_to, make_buckets
from .token_ids import EncodedPairs


def steps_per_epoch(pairs: EncodedPairs, *, tokens_per_batch: int, num_buckets: int = 8) -> int:
    """The number of batches in which `training_dataset` gives every pair once."""
    buckets = _buckets_of(pairs, tokens_per_batch, num_buckets)
    return sum(bucket.num_batches for bucket in buckets)


def training_dataset(
    pairs: EncodedPairs,
    *,
    tokens_per_batch: int,
    seed: int,
    start_id: int,
    num_buckets: int = 8,
    first_step: int = 0,
    num_replicas: int = 1,
) -> tf.data.Dataset:
    """Endless batches for `fit`: each epoch every pair once, in an order of its own.

    The order depends on the seed and the number of the epoch alone. Thus a run that stopped after
    `k` steps goes on with the very batches it would have seen, given `first_step=k`.

    Args:
        pairs: token ids.
        tokens_per_batch: see `make_buckets`.
        seed: of the order, at least 0.
        start_id: the token a target begins with.
        num_buckets: see `make_buckets`.
        first_step: the number of batches to skip, at no cost.
        num_replicas: empty rows fill a batch up to a multiple of it; the pairs in a batch do not
            depend on it.

    Returns:
        A dataset of `({"source": (batch, source_length), "target": (batch, target_length)},
        labels (batch, target_length))`, all int32 and 0 where there is no token. The target is the
        start token and the sentence, the labels are the sentence and the end token. Where a
        bucket's pairs do not fill its last batch, the batch ends in rows of zeros.

    Raises:
        ValueError: a number is out of its range.
    """
    for name, value in (("seed", seed), ("first_step", first_step)):
        if value < 0:
            raise ValueError(f"{name} must be at least 0, received {value}")
    buckets = _buckets_of(pairs, tokens_per_batch, num_buckets)
    num_pairs, num_batches = len(pairs), sum(bucket.num_batches for bucket in buckets)
    first_epoch, skipped = divmod(first_step, num_batches)
    bucket_of_pair = _constant(_bucket_of_pair(pairs, buckets))
    cuts = _constant(_cuts(pairs, buckets, num_replicas))

    def plan(epoch):
        random = tf.random.stateless_uniform(
            [num_pairs + num_batches], [seed, epoch], maxval=2**32, dtype=tf.int64
        )
        # Sorted by this key, the pairs of a bucket stand together and in random order.
        rows = tf.argsort(bucket_of_pair * 2**32 + random[:num_pairs])
        order = tf.argsort(random[num_pairs:])
        order = order[tf.where(epoch == first_epoch, skipped, 0) :]
        return _planned(rows, tf.gather(cuts, order))

    plans = tf.data.Dataset.counter(first_epoch).flat_map(plan)
    return _assembled(plans, pairs, start_id, tf.data.INFINITE_CARDINALITY)


def validation_dataset(
    pairs: EncodedPairs,
    *,
    tokens_per_batch: int,
    start_id: int,
    num_buckets: int = 8,
    num_replicas: int = 1,
) -> tf.data.Dataset:
    """Batches of every pair once, always in the same order, from the shortest to the longest.

    Args:
        pairs: token ids.
        tokens_per_batch: see `make_buckets`.
        start_id: the token a target begins with.
        num_buckets: see `make_buckets`.
        num_replicas: empty rows fill a batch up to a multiple of it; the pairs in a batch do not
            depend on it.

    Returns:
        A dataset of known cardinality, of elements as `training_dataset` has them.

    Raises:
        ValueError: a number is less than 1.
    """
    buckets = _buckets_of(pairs, tokens_per_batch, num_buckets)
    rows = _constant(np.argsort(_bucket_of_pair(pairs, buckets), kind="stable"))
    cuts = _cuts(pairs, buckets, num_replicas)
    return _assembled(_planned(rows, cuts), pairs, start_id, len(cuts))


def _constant(array):
    # Pipelines run on the CPU, also where a GPU would attract the tensors.
    with tf.device("CPU"):
        return tf.constant(array)


def _buckets_of(pairs, tokens_per_batch, num_buckets):
    return make_buckets(pairs.source.lengths, pairs.target.lengths, tokens_per_batch, num_buckets)


def _bucket_of_pair(pairs, buckets):
    longest = [max(bucket.source_length, bucket.target_length) for bucket in buckets]
    return np.searchsorted(longest, np.maximum(pairs.source.lengths, pairs.target.lengths))


def _cuts(pairs, buckets, num_replicas):
    """Where to cut the pairs, sorted by bucket, into batches.

    Returns:
        `(batches, 5)`: begin, end, rows, source_length, target_length.

    Raises:
        ValueError: `num_replicas` is less than 1.
    """
    if num_replicas < 1:
        raise ValueError(f"num_replicas must be at least 1, received {num_replicas}")
    ends = np.cumsum(np.bincount(_bucket_of_pair(pairs, buckets)))
    cuts = []
    begin = 0
    for bucket, end in zip(buckets, ends):
        rows = ceil_to(bucket.batch_size, num_replicas)
        shape = (rows, bucket.source_length, bucket.target_length)
        for first in range(begin, end, bucket.batch_size):
            cuts.append((first, min(first + bucket.batch_size, end), *shape))
        begin = end
    return np.array(cuts)


def _planned(rows, cuts):
    """A dataset of (row numbers, (batch_size, source_length, target_length))."""
    cuts = tf.data.Dataset.from_tensor_slices(cuts)
    return cuts.map(lambda cut: (rows[cut[0] : cut[1]], cut[2:]))


def _assembled(plans, pairs, start_id, cardinality):
    # No Python runs in the pipeline's threads: they would take the interpreter's lock from the
    # training loop, and a process that ends while one waits for it hangs.
    source, target = (
        (_constant(side.ids), _constant(side.offsets)) for side in (pairs.source, pairs.target)
    )

    def assemble(rows, shape):
        batch_size, source_length, target_length = tf.unstack(shape)
        source_ids = _padded(*source, rows, [batch_size, source_length])
        labels = _padded(*target, rows, [batch_size, target_length])
        starts = tf.fill([batch_size, 1], start_id)
        target_ids = tf.concat([starts, labels[:, :-1]], axis=1)
        # Not the end token, which has moved behind the sentence, nor the start of an empty row.
        target_ids = tf.where(labels == 0, 0, target_ids)
        return {"source": source_ids, "target": target_ids}, labels

    dataset = plans.map(assemble, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(cardinality))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _padded(ids, offsets, rows, shape):
    # Not a gather of a RaggedTensor, which goes through all offsets of the corpus each time.
    positions = tf.ragged.range(tf.gather(offsets, rows), tf.gather(offsets, rows + 1))
    return tf.cast(tf.gather(ids, positions).to_tensor(shape=shape), tf.int32)

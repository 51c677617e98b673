"""Batches of token ids in a few fixed shapes, the same for any number of replicas."""

import numpy as np
import tensorflow as tf

from .buckets import ceil_to, make_buckets
from .token_ids import EncodedPairs


def steps_per_epoch(pairs: EncodedPairs, *, tokens_per_batch: int, num_buckets: int = 8) -> int:
    """The number of batches in which `training_dataset` gives every pair once."""
    buckets = make_buckets(pairs.length_counts, tokens_per_batch, num_buckets)
    return sum(len(cuts) for cuts in _cuts(pairs, buckets))


def padding_share(pairs: EncodedPairs, *, tokens_per_batch: int, num_buckets: int = 8) -> float:
    """The share of an epoch's positions, source and target together, that hold no token."""
    buckets = make_buckets(pairs.length_counts, tokens_per_batch, num_buckets)
    _, _, rows, source_length, target_length = np.concatenate(_cuts(pairs, buckets)).T
    return 1 - pairs.num_tokens / float((rows * (source_length + target_length)).sum())


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
    buckets = make_buckets(pairs.length_counts, tokens_per_batch, num_buckets)
    cuts = _cuts(pairs, buckets, num_replicas)
    first_epoch, first_step = divmod(first_step, sum(map(len, cuts)))

    def order_of_blocks(epoch):
        return tf.argsort(tf.random.stateless_uniform([pairs.num_blocks], [-1 - seed, epoch]))

    # The block in which the first step is, and the steps before it there.
    steps_in_order = np.cumsum([len(cuts[number]) for number in order_of_blocks(first_epoch).numpy()])
    first_place = int(np.searchsorted(steps_in_order, first_step, side="right"))
    skipped = first_step - (steps_in_order[first_place - 1] if first_place else 0)
    first_turn = first_epoch * pairs.num_blocks + first_place

    def batches_of_turn(turn):
        epoch = turn // pairs.num_blocks
        number = tf.cast(order_of_blocks(epoch)[turn % pairs.num_blocks], tf.int64)
        bucket_of_pair, own_cuts = _bucket_of_pair(pairs, number, buckets), _cuts_of(number, cuts)
        num_pairs, num_batches = tf.size(bucket_of_pair), tf.shape(own_cuts)[0]
        seeds = [seed, epoch * pairs.num_blocks + number]
        random = tf.random.stateless_uniform([num_pairs + num_batches], seeds, maxval=2**32, dtype=tf.int64)
        # Sorted by this key, the pairs of a bucket stand together and in random order.
        rows = tf.argsort(bucket_of_pair * 2**32 + random[:num_pairs])
        order = tf.argsort(random[num_pairs:])[tf.where(turn == first_turn, skipped, 0) :]
        return _assembled(pairs, number, rows, tf.gather(own_cuts, order), start_id)

    turns = tf.data.Dataset.counter(first_turn)
    return _finished(turns.flat_map(batches_of_turn), tf.data.INFINITE_CARDINALITY)


def validation_dataset(
    pairs: EncodedPairs,
    *,
    tokens_per_batch: int,
    start_id: int,
    num_buckets: int = 8,
    num_replicas: int = 1,
) -> tf.data.Dataset:
    """Batches of every pair once, always in the same order, each block's from the shortest to the longest.

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
    buckets = make_buckets(pairs.length_counts, tokens_per_batch, num_buckets)
    cuts = _cuts(pairs, buckets, num_replicas)

    def batches_of_block(number):
        rows = tf.argsort(_bucket_of_pair(pairs, number, buckets), stable=True)
        return _assembled(pairs, number, rows, _cuts_of(number, cuts), start_id)

    blocks = tf.data.Dataset.range(pairs.num_blocks)
    return _finished(blocks.flat_map(batches_of_block), sum(map(len, cuts)))


def _cuts(pairs, buckets, num_replicas=1):
    """Where to cut the pairs of each block, sorted by bucket, into batches.

    Returns:
        For each block `(batches, 5)`: begin, end, rows, source_length, target_length.

    Raises:
        ValueError: `num_replicas` is less than 1.
    """
    if num_replicas < 1:
        raise ValueError(f"num_replicas must be at least 1, received {num_replicas}")
    cuts = []
    for number in range(pairs.num_blocks):
        pairs_in_buckets = np.bincount(_bucket_of_pair(pairs, number, buckets))
        of_block = list(_cuts_of_block(pairs_in_buckets, buckets, num_replicas))
        cuts.append(np.array(of_block, np.int64).reshape(-1, 5))
    return cuts


def _cuts_of_block(pairs_in_buckets, buckets, num_replicas):
    begin = 0
    for bucket, num_pairs in zip(buckets, pairs_in_buckets):
        rows = ceil_to(bucket.batch_size, num_replicas)
        end = begin + num_pairs
        for first in range(begin, end, bucket.batch_size):
            last = min(first + bucket.batch_size, end)
            yield first, last, rows, bucket.source_length, bucket.target_length
        begin = end


def _bucket_of_pair(pairs, number, buckets):
    longest = [max(bucket.source_length, bucket.target_length) for bucket in buckets]
    longer_sides = tf.maximum(pairs.lengths("source", number), pairs.lengths("target", number))
    return tf.searchsorted(longest, longer_sides, out_type=tf.int64)


def _cuts_of(number, cuts):
    """Those of the block with this number, a tensor."""
    ends = np.cumsum([0, *map(len, cuts)])
    return tf.constant(np.concatenate(cuts))[tf.gather(ends, number) : tf.gather(ends, number + 1)]


def _assembled(pairs, number, rows, cuts, start_id):
    """The batches that cuts make of a block's pairs, sorted by bucket in `rows`."""
    # No Python runs in the pipeline's threads: they would take the interpreter's lock from the
    # training loop, and a process that ends while one waits for it hangs.
    source, target = (
        (pairs.ids(side, number), _offsets(pairs.lengths(side, number))) for side in ("source", "target")
    )

    def assemble(cut):
        begin, end, batch_size, source_length, target_length = tf.unstack(cut)
        source_ids = _padded(*source, rows[begin:end], [batch_size, source_length])
        labels = _padded(*target, rows[begin:end], [batch_size, target_length])
        starts = tf.fill([batch_size, 1], start_id)
        target_ids = tf.concat([starts, labels[:, :-1]], axis=1)
        # Not the end token, which has moved behind the sentence, nor the start of an empty row.
        target_ids = tf.where(labels == 0, 0, target_ids)
        return {"source": source_ids, "target": target_ids}, labels

    return tf.data.Dataset.from_tensor_slices(cuts).map(assemble, num_parallel_calls=tf.data.AUTOTUNE)


def _offsets(lengths):
    return tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], axis=0)


def _finished(batches, cardinality):
    batches = batches.apply(tf.data.experimental.assert_cardinality(cardinality))
    return batches.prefetch(tf.data.AUTOTUNE)


def _padded(ids, offsets, rows, shape):
    # Not a gather of a RaggedTensor, which goes through all offsets of the block each time.
    positions = tf.ragged.range(tf.gather(offsets, rows), tf.gather(offsets, rows + 1))
    return tf.cast(tf.gather(ids, positions).to_tensor(shape=shape), tf.int32)

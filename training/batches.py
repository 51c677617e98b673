"""Token ids of a corpus, and batches of them in a few fixed shapes."""

import dataclasses

import numpy as np
import tensorflow as tf

from .corpus import SentencePairs

_SENTENCES_PER_CALL = 8192  # of the tokenizer: bounds the memory that is needed at a time


@dataclasses.dataclass(frozen=True, eq=False)
class TokenRows:
    """Rows of token ids of any length, end to end in one flat array.

    Attributes:
        ids: token ids of all rows, in the smallest of uint16 and int32 that holds them.
        offsets: int64, `(rows + 1,)`: row `i` is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, `(rows,)`."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """A parallel text as token ids, each row with the end token as its last.

    Attributes:
        source: the source sentences.
        target: their translations, in the same order.
        num_empty: pairs left out because one side has no tokens.
        num_too_long: pairs left out because one side is longer than allowed.
    """

    source: TokenRows
    target: TokenRows
    num_empty: int
    num_too_long: int

    def __len__(self):
        return len(self.source.offsets) - 1


def encode(pairs: SentencePairs, tokenizer, max_length: int) -> EncodedPairs:
    """Tokenizes a parallel text, and leaves out pairs which are empty or too long on either side.

    Args:
        pairs: the text.
        tokenizer: has `end_id`, and `tokenize` from strings `(n,)` to ragged int32 `(n, None)`.
        max_length: longest row that is kept, in tokens, the end token included.

    Returns:
        The token ids.

    Raises:
        ValueError: no pair is left.
    """
    source, target = [], []
    num_empty = num_too_long = 0
    for start in range(0, len(pairs), _SENTENCES_PER_CALL):
        chunk = slice(start, start + _SENTENCES_PER_CALL)
        source_rows = tokenizer.tokenize(tf.constant(pairs.source[chunk]))
        target_rows = tokenizer.tokenize(tf.constant(pairs.target[chunk]))
        source_lengths = source_rows.row_lengths().numpy()
        target_lengths = target_rows.row_lengths().numpy()
        empty = np.minimum(source_lengths, target_lengths) == 0
        too_long = ~empty & (np.maximum(source_lengths, target_lengths) + 1 > max_length)
        num_empty += int(empty.sum())
        num_too_long += int(too_long.sum())
        kept = ~(empty | too_long)
        source.append(_with_end(source_rows, kept, tokenizer.end_id))
        target.append(_with_end(target_rows, kept, tokenizer.end_id))
    if num_empty + num_too_long == len(pairs):
        raise ValueError(
            f"no sentence pair is left of the {len(pairs)} in {pairs.name}: {num_empty} are empty "
            f"on one side, {num_too_long} longer than max_length={max_length} tokens"
        )
    return EncodedPairs(_joined(source), _joined(target), num_empty, num_too_long)


def _with_end(ragged, kept, end_id):
    ragged = tf.ragged.boolean_mask(ragged, kept)
    end = tf.fill([ragged.nrows(), 1], tf.cast(end_id, ragged.dtype))
    ragged = tf.concat([ragged, end], axis=1)
    ids = ragged.flat_values.numpy()
    dtype = np.uint16 if ids.max(initial=0) <= np.iinfo(np.uint16).max else np.int32
    return ids.astype(dtype), ragged.row_lengths().numpy()


def _joined(chunks):
    ids, lengths = zip(*chunks)
    return TokenRows(np.concatenate(ids), np.cumsum(np.concatenate([[0], *lengths])))


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A shape of batches.

    Attributes:
        source_length: columns of the source, in tokens.
        target_length: columns of the target, in tokens.
        batch_size: rows.
        num_batches: how many batches of an epoch have this shape.
    """

    source_length: int
    target_length: int
    batch_size: int
    num_batches: int


def make_buckets(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    tokens_per_batch: int,
    num_buckets: int = 8,
) -> list[Bucket]:
    """Chooses the shapes of batches for which an epoch computes the fewest positions.

    Pairs are put in order of their longer side, and the order is cut into buckets where dynamic
    programming finds the least sum of `rows * (source_length + target_length)`. A batch counts as
    a full one, be it full or not, so that no bucket is made for a few pairs. Then each bucket's
    pairs are spread evenly over its batches: with 9 pairs and room for 8, it has two batches of 5.

    Args:
        source_lengths: tokens of each source row, `(pairs,)`.
        target_lengths: tokens of each target row, `(pairs,)`.
        tokens_per_batch: the most that `batch_size * max(source_length, target_length)` may be,
            unless one row is already more.
        num_buckets: the most buckets that are made. Each costs a compilation.

    Returns:
        The buckets, from the shortest to the longest.

    Raises:
        ValueError: a number is less than 1.

    Example:

    >>> make_buckets([2, 2, 3, 9], [3, 2, 2, 8], tokens_per_batch=9, num_buckets=2)
    [Bucket(source_length=3, target_length=3, batch_size=3, num_batches=1),
     Bucket(source_length=9, target_length=8, batch_size=1, num_batches=1)]
    """
    for name, value in (("tokens_per_batch", tokens_per_batch), ("num_buckets", num_buckets)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, received {value}")

    keys, key_of_pair, num_pairs = np.unique(
        np.maximum(source_lengths, target_lengths), return_inverse=True, return_counts=True
    )
    longest_source = np.zeros_like(keys)
    longest_target = np.zeros_like(keys)
    np.maximum.at(longest_source, key_of_pair, source_lengths)
    np.maximum.at(longest_target, key_of_pair, target_lengths)
    batch_sizes = np.maximum(tokens_per_batch // keys, 1)

    # cost[i, j] is that of one bucket for keys[i:j]. An empty bucket costs nothing, hence *at most*
    # num_buckets buckets.
    cost = np.full((len(keys) + 1, len(keys) + 1), np.inf)
    np.fill_diagonal(cost, 0)
    for i in range(len(keys)):
        rows = _ceil_to(np.cumsum(num_pairs[i:]), batch_sizes[i:])
        columns = np.maximum.accumulate(longest_source[i:]) + np.maximum.accumulate(
            longest_target[i:]
        )
        cost[i, i + 1 :] = rows * columns

    # least[j] is the least cost of keys[:j] in at most len(cuts) buckets, cuts[-1][j] where the
    # last of these begins.
    least = np.where(np.arange(len(keys) + 1) == 0, 0, np.inf)
    cuts = []
    for _ in range(num_buckets):
        totals = least[:, None] + cost
        cuts.append(totals.argmin(axis=0))
        least = totals.min(axis=0)

    buckets = []
    end = len(keys)
    for cut in reversed(cuts):
        begin = cut[end]
        if begin < end:
            pairs = num_pairs[begin:end].sum()
            num_batches = -(-pairs // batch_sizes[end - 1])
            buckets.append(
                Bucket(
                    source_length=int(longest_source[begin:end].max()),
                    target_length=int(longest_target[begin:end].max()),
                    batch_size=int(-(-pairs // num_batches)),
                    num_batches=int(num_batches),
                )
            )
        end = begin
    return buckets[::-1]


def _ceil_to(number, multiple):
    return -(-number // multiple) * multiple


def padding_share(pairs: EncodedPairs, buckets: list[Bucket]) -> float:
    """The share of an epoch's positions, source and target together, that hold no token."""
    positions = sum(
        bucket.num_batches * bucket.batch_size * (bucket.source_length + bucket.target_length)
        for bucket in buckets
    )
    return 1 - (len(pairs.source.ids) + len(pairs.target.ids)) / positions


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
        rows = _ceil_to(bucket.batch_size, num_replicas)
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

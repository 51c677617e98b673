"""The few shapes that batches have."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A shape of batches.

    Attributes:
        source_length: columns of the source, in tokens.
        target_length: columns of the target, in tokens.
        batch_size: rows.
        num_batches: how many batches of this shape the pairs fill.
    """

    source_length: int
    target_length: int
    batch_size: int
    num_batches: int


def make_buckets(length_counts: np.ndarray, tokens_per_batch: int, num_buckets: int = 8) -> list[Bucket]:
    """Chooses the shapes of batches for which an epoch computes the fewest positions.

    Pairs are put in order of their longer side, and the order is cut into buckets where dynamic
    programming finds the least sum of `rows * (source_length + target_length)`. A batch counts as
    a full one, be it full or not, so that no bucket is made for a few pairs. Then each bucket's
    pairs are spread evenly over its batches: with 9 pairs and room for 8, it has two batches of 5.

    Args:
        length_counts: source length, target length and number of pairs, `(different lengths, 3)`.
        tokens_per_batch: the most that `batch_size * max(source_length, target_length)` may be,
            unless one row is already more.
        num_buckets: the most buckets that are made. Each costs a compilation.

    Returns:
        The buckets, from the shortest to the longest.

    Raises:
        ValueError: a number is less than 1.

    Example:

    >>> make_buckets([[2, 3, 1], [2, 2, 1], [3, 2, 1], [9, 8, 1]], tokens_per_batch=9, num_buckets=2)
    [Bucket(source_length=3, target_length=3, batch_size=3, num_batches=1),
     Bucket(source_length=9, target_length=8, batch_size=1, num_batches=1)]
    """
    for name, value in (("tokens_per_batch", tokens_per_batch), ("num_buckets", num_buckets)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, received {value}")

    source_lengths, target_lengths, counts = np.transpose(length_counts)
    keys, places = np.unique(np.maximum(source_lengths, target_lengths), return_inverse=True)
    num_pairs, longest_source, longest_target = np.zeros((3, len(keys)), np.int64)
    np.add.at(num_pairs, places, counts)
    np.maximum.at(longest_source, places, source_lengths)
    np.maximum.at(longest_target, places, target_lengths)
    batch_sizes = np.maximum(tokens_per_batch // keys, 1)

    # cost[i, j] is that of one bucket for keys[i:j]. An empty bucket costs nothing, hence *at most*
    # num_buckets buckets.
    cost = np.full((len(keys) + 1, len(keys) + 1), np.inf)
    np.fill_diagonal(cost, 0)
    for i in range(len(keys)):
        rows = ceil_to(np.cumsum(num_pairs[i:]), batch_sizes[i:])
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


def ceil_to(number, multiple):
    """The lowest multiple that is not below the number."""
    return -(-number // multiple) * multiple


"""The plan of an epoch: which shapes batches have, and which pairs of a text go into which batch.

It follows from the lengths of the pairs alone, is made once, and determines the batches (`pipeline.py`), their number,
their shapes and their padding.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np

from keras_transformer.rules import Size, checked
from keras_transformer.tensors import Dimension

from .encoded_pairs import EncodedPairs


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A shape of batches: columns of both sides, in tokens, and rows."""

    source_length: int
    target_length: int
    batch_size: int

    @property
    def length(self) -> int:
        """The columns of the longer side."""
        return max(self.source_length, self.target_length)


class PlannedBatch(NamedTuple):
    """A batch of a block's pairs, which are in the order of their buckets. In the pipeline, the fields are tensors."""

    begin: Dimension  # the place of its first pair
    end: Dimension  # the place after its last pair
    num_rows: Dimension  # those without a pair are empty
    source_length: Dimension  # columns of the source, in tokens
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
        """The share of positions, source and target together, that hold no token."""
        batches = np.concatenate(self.batches)
        num_positions = (batches["num_rows"] * (batches["source_length"] + batches["target_length"])).sum()
        return 1 - self.pairs.num_tokens / float(num_positions)


@checked
def plan_batches(pairs: EncodedPairs, tokens_per_batch: Size, num_buckets: Size = 8, num_parts: Size = 1) -> BatchPlan:
    """Plans the batches of an epoch.

    Args:
        tokens_per_batch: the most that `batch_size * max(source_length, target_length)` may be, unless one row
            is already more.
        num_buckets: the most shapes. Defaults to 8.
        num_parts: the number of equal parts into which each batch can be divided, because empty rows fill it up. The
            pairs in a batch do not depend on it. Defaults to 1.
    """
    counts = pairs.length_counts
    buckets = choose_buckets(counts, tokens_per_batch, num_buckets)
    longest = [bucket.length for bucket in buckets]
    pairs_in_buckets = np.zeros((pairs.num_blocks, len(buckets)), np.int64)
    bucket = np.searchsorted(longest, np.maximum(counts["source_length"], counts["target_length"]))
    np.add.at(pairs_in_buckets, (counts["block"], bucket), counts["num_pairs"])
    batches = [
        np.array(list(_batches_of_block(counts, buckets, num_parts)), PLANNED_BATCH) for counts in pairs_in_buckets
    ]
    return BatchPlan(pairs, buckets, batches)


def _batches_of_block(pairs_in_buckets: np.ndarray, buckets: list[Bucket], num_parts: int) -> Iterator[PlannedBatch]:
    begin = 0
    for bucket, num_pairs in zip(buckets, pairs_in_buckets, strict=True):
        rows = -(-bucket.batch_size // num_parts) * num_parts
        end = begin + num_pairs
        for first in range(begin, end, bucket.batch_size):
            last = min(first + bucket.batch_size, end)
            yield PlannedBatch(first, last, rows, bucket.source_length, bucket.target_length)
        begin = end


def choose_buckets(
    length_counts: Annotated[np.ndarray, "LENGTH_COUNT (n,)"], tokens_per_batch: int, num_buckets: int
) -> list[Bucket]:
    """Chooses the shapes of batches, from the shortest, with which an epoch computes the fewest positions.

    Pairs are put in order of their longer side. Dynamic programming finds the boundaries between buckets with the
    least sum of `rows * (source_length + target_length)`, where a batch counts as full even if it is not, so that no
    bucket is made for a few pairs. The pairs of a bucket are then spread evenly over its batches: 9 pairs with room
    for 8 make two batches of 5.

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

    # costs[i, j]: of one bucket for keys[i:j]
    costs = np.full((len(keys) + 1, len(keys) + 1), np.inf)
    for i in range(len(keys)):
        rows = -(-np.cumsum(pairs_of_key[i:]) // batch_sizes[i:]) * batch_sizes[i:]
        columns = np.maximum.accumulate(longest_source[i:]) + np.maximum.accumulate(longest_target[i:])
        costs[i, i + 1 :] = rows * columns
    buckets = []
    for begin, end in _cheapest_ranges(costs, num_buckets):
        total = pairs_of_key[begin:end].sum()
        num_batches = -(-total // batch_sizes[end - 1])
        source_length, target_length = (int(longest[begin:end].max()) for longest in (longest_source, longest_target))
        buckets.append(Bucket(source_length, target_length, batch_size=int(-(-total // num_batches))))
    return buckets


def _cheapest_ranges(costs: np.ndarray, most_ranges: int) -> list[tuple[int, int]]:
    """Divides 0 to n into ranges whose costs have the least sum; costs[i, j] is that of the range from i to j."""
    size = len(costs)
    # An empty range costs nothing, so that there may be fewer ranges.
    np.fill_diagonal(costs, 0)
    # least[j]: the least cost of 0 to j with len(begins) ranges; begins[-1][j]: where the last of these ranges begins.
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

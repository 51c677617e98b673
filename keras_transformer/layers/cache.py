"""Caches of keys and values, so that a decoding step computes only new positions."""

from typing import Annotated, NamedTuple

from keras import ops

from ..checks import non_negative_int
from ..tensors import Dimension, Tensor


class KeyValues(NamedTuple):
    """Keys and values that attention reads."""

    keys: Annotated[Tensor, "(batch, num_heads, length, key_dim)"]
    values: Annotated[Tensor, "(batch, num_heads, length, value_dim)"]


class GrowingCache(KeyValues):
    """A cache that grows with each step and contains only entries that have been written.

    In a compiled loop, it requires a backend on which shapes can change between iterations:
    TensorFlow, with a batch size that is only known at run time.
    """

    def write(self, new: KeyValues, first_entry: Dimension) -> "GrowingCache":
        """Returns the cache with `new` appended; `first_entry` is ignored."""
        return GrowingCache(
            ops.concatenate([self.keys, new.keys], axis=2),
            ops.concatenate([self.values, new.values], axis=2),
        )

    def next_entry(self, first_entry: Dimension) -> Dimension:
        """Returns the index of the next entry, the cache's length; `first_entry` is ignored."""
        return ops.shape(self.keys)[2]


class FixedCache(KeyValues):
    """A cache with a fixed number of entries, which works on every backend."""

    def write(self, new: KeyValues, first_entry: Dimension) -> "FixedCache":
        """Returns the cache with `new` written to the entries from `first_entry` on.

        Raises:
            ValueError: The new entries do not fit. This is checked only if the sizes and
                `first_entry` are ints.
        """
        length, count = self.keys.shape[2], new.keys.shape[2]
        if (
            isinstance(first_entry, int)
            and None not in (length, count)
            and not 0 <= first_entry <= length - count
        ):
            raise ValueError(
                "the n positions of the step must fit into the cache; "
                f"received first_entry={first_entry}, n={count} and a cache of length {length}"
            )
        return FixedCache(
            _overwrite(self.keys, new.keys, first_entry),
            _overwrite(self.values, new.values, first_entry),
        )

    def next_entry(self, first_entry: Dimension) -> Dimension:
        """Returns the index of the next entry, `first_entry`."""
        return first_entry


Cache = GrowingCache | FixedCache


def empty_cache(
    batch_size: Dimension,
    num_heads: int,
    key_dim: int,
    value_dim: int,
    max_length: Dimension | None = None,
    dtype: str = "float32",
) -> Cache:
    """Returns an empty `FixedCache`, or an empty `GrowingCache` if `max_length` is None."""
    for name, size in (("batch_size", batch_size), ("max_length", max_length)):
        if isinstance(size, bool | float | str | int):
            non_negative_int(name, size)
    # Unless the batch size is static, this length of 0 is not static either, so a loop can change
    # it.
    length = 0 * batch_size if max_length is None else max_length
    cache_type = GrowingCache if max_length is None else FixedCache
    return cache_type(
        ops.zeros((batch_size, num_heads, length, key_dim), dtype=dtype),
        ops.zeros((batch_size, num_heads, length, value_dim), dtype=dtype),
    )


def _overwrite(entries: Tensor, new: Tensor, first_entry: Dimension) -> Tensor:
    # A single scatter writes the new entries of all sequences and heads.
    batch, num_heads, length, width = ops.shape(entries)
    count = ops.shape(new)[2]
    first_entry = ops.cast(first_entry, "int32")
    first_rows = ops.arange(batch * num_heads, dtype="int32") * length + first_entry
    rows = (
        first_rows[:, None] + ops.arange(count, dtype="int32")[None, :]
    )  # (batch * num_heads, count)
    written = ops.scatter_update(
        ops.reshape(entries, (batch * num_heads * length, width)),
        ops.reshape(rows, (batch * num_heads * count, 1)),
        ops.reshape(new, (batch * num_heads * count, width)),
    )
    return ops.reshape(written, (batch, num_heads, length, width))

"""Limits on the sizes of batches, and the shapes of compiled searches."""

from typing import NamedTuple

from ..checks import integer, require

# Maximum number of positions, including padding, in a batch. It limits the memory of a batch. A
# batch with a single text may have more positions.
POSITIONS_PER_BATCH = 4096
# Requests with more texts than this are divided into at least two batches, to use two cores.
MIN_TEXTS_PER_BATCH = 16


class SearchShapes(NamedTuple):
    """Shapes of compiled searches: all combinations of lengths and batch sizes.

    Attributes:
        lengths: numbers of tokens in the longest source of a batch, including its end token.
        batch_sizes: numbers of texts in a batch. Single texts benefit most: a plain search of a
            large batch launches few operations per text, and drops finished texts.
    """

    lengths: tuple[int, ...] = (16, 24, 32, 48, 64)
    batch_sizes: tuple[int, ...] = (1,)

    def up_to(self, max_length: int) -> "SearchShapes":
        """Checks the sizes, and returns sorted shapes for sources of at most `max_length` tokens.

        Raises:
            ConfigError: If a size is not positive, or a batch size is more than 16.
        """
        for name, sizes, at_most in (
            ("lengths", self.lengths, None),
            ("batch_sizes", self.batch_sizes, MIN_TEXTS_PER_BATCH),
        ):
            require(len(sizes) > 0, name, "at least one size", list(sizes))
            for place, size in enumerate(sizes):
                integer(f"{name}[{place}]", size, at_least=1, at_most=at_most)
        lengths = {min(length, max_length) for length in self.lengths}
        return SearchShapes(tuple(sorted(lengths)), tuple(sorted(set(self.batch_sizes))))

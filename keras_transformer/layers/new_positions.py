"""The argument of every `step` method that describes the new positions."""

from collections.abc import Callable
from typing import Annotated

from ..tensors import Dimension, Tensor


class NewPositions:
    """The positions that a step computes, and the cache entries that they attend to.

    To compute one sequence from left to right, `first_entry` is enough: each position then attends
    to itself and to the entries before it.

    Args:
        first_entry: int or int scalar. Index of the first new cache entry. A cache that grows
            ignores it, and appends the new entries.
        mask: bool, broadcasts to (batch, n, number of entries), True = attend. The cache entries
            that each of the n new positions attends to. With `position_ids`, `sliding_window`
            applies as well. Defaults to None: the new positions are consecutive, and each of them
            attends to itself and to the entries before it, within `sliding_window`.
        position_ids: int, broadcasts to (batch, n). Positions in the sequence, for
            `relative_positions` and `sliding_window`. Defaults to None: the indices of the new
            entries.
        entry_position_ids: int, broadcasts to (batch, number of entries). Positions of all cache
            entries in the sequence, or a function that returns them. As few layers need them, the
            function is called at most once, when a layer needs them. Defaults to None: 0, 1, 2, ...
            In a beam search, where each step writes `beam_size` entries, entry e has position
            `e // beam_size`.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> x = keras.random.normal((2, 5, 512))
        >>> outputs = layer(x)
        >>> cache = layer.init_cache(batch_size=2, max_length=5)
        >>> first, cache = layer.step(x[:, :3], cache, NewPositions(0))
        >>> fourth, cache = layer.step(x[:, 3:4], cache, NewPositions(3))
        >>> fourth.shape  # equals outputs[:, 3:4]
        (2, 1, 512)
    """

    def __init__(
        self,
        first_entry: Dimension,
        mask: Annotated[Tensor, "bool (batch, n, number of entries)"] | None = None,
        position_ids: Annotated[Tensor, "int (batch, n)"] | None = None,
        entry_position_ids: Tensor | Callable[[], Tensor] | None = None,
    ) -> None:
        self.first_entry = first_entry
        self.mask = mask
        self.position_ids = position_ids
        self._entry_position_ids = entry_position_ids

    @property
    def entry_position_ids(self) -> Annotated[Tensor, "int (batch, number of entries)"] | None:
        """The positions of the cache entries in the sequence, or None for 0, 1, 2, ..."""
        if callable(self._entry_position_ids):
            self._entry_position_ids = self._entry_position_ids()
        return self._entry_position_ids

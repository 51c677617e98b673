"""A part of the training text that is held out to validate on."""

from typing import NamedTuple

import numpy as np

from keras_transformer.errors import ConfigError

from .filters import Pair, hash_pairs

_LARGEST_HASH = 2**64 - 1


class HeldPairs(NamedTuple):
    """The pairs that are held out, ordered by their hashes."""

    pairs: list[Pair]
    places: list[list[int]]  # the places of all copies of each pair in the text, ascending


class HeldOut:
    """Holds out a share of the pairs, or `size` different ones: those of whose text the hashes are lowest.

    The same pairs are held out whatever the order of the text is. All copies of a pair are held out with it: they are
    not trained on, and validated on once. The pairs are held in memory.
    """

    def __init__(self, fraction: float | None = None, size: int | None = None) -> None:
        self._size = size
        self._last_hash = _LARGEST_HASH if fraction is None else int(fraction * 2**64) - 1
        # Of each hash, the pair and its places in the text.
        self._held: dict[int, tuple[Pair, list[int]]] = {}

    def add(self, pairs: list[Pair], places: np.ndarray) -> None:
        hashes = hash_pairs(pairs)
        for number in np.flatnonzero(hashes <= self._last_hash):
            source, target = pairs[number]
            # Pairs with an empty side cannot be validated on.
            if source.strip() and target.strip():
                _, copies = self._held.setdefault(int(hashes[number]), ((source, target), []))
                copies.append(int(places[number]))
        if self._size is not None and len(self._held) > 2 * self._size:
            self._keep_lowest(self._size)

    def _keep_lowest(self, size: int) -> None:
        lowest = sorted(self._held)[:size]
        self._held = {hash_: self._held[hash_] for hash_ in lowest}
        if len(lowest) == size:
            self._last_hash = lowest[-1]

    def finish(self) -> HeldPairs:
        """Returns what is held out; a ConfigError if the text does not have enough pairs."""
        if self._size is not None and len(self._held) < self._size:
            raise ConfigError(
                f"--valid-size must be at most the number of different sentence pairs, {len(self._held):,}; received "
                f"--valid-size={self._size}"
            )
        if not self._held:
            raise ConfigError("--valid-fraction must be larger for this text: not one sentence pair is held out")
        self._keep_lowest(len(self._held) if self._size is None else self._size)
        pairs, places = zip(*self._held.values())
        return HeldPairs(list(pairs), list(places))

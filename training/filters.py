"""Which pairs of a text are left out before training."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import regex

from keras_transformer.config import DataConfig, scripts_of

Pair = tuple[str, str]

# What the filters might be set to: the lengths and ratios of hardly any true translation.
RECOMMENDED = DataConfig(max_characters=1000, max_length_ratio=9.0, remove_copies=True, remove_duplicates=True)


class Filter(NamedTuple):
    """A rule by which pairs are left out.

    Attributes:
        name: str. That of its field in DataConfig; "empty" for pairs of which a side is blank.
        value: what the field is set to; None for "empty".
        matches: Callable. Whether a pair is left out.
    """

    name: str
    value: Any
    matches: Callable[[str, str], bool]

    def __str__(self) -> str:
        return self.name if self.value is None or self.value is True else f"{self.name}={self.value}"


class Filters:
    """The filters of a configuration. A pair is left out by the first one that matches it.

    Args:
        data: DataConfig.

    Attributes:
        filters: list of Filter, empty if none is on.
    """

    def __init__(self, data: DataConfig) -> None:
        self.filters = _filters(data)
        self._seen = SeenPairs() if data.remove_duplicates else None

    def judge(self, pairs: list[Pair]) -> np.ndarray:
        """Judges the next pairs of a text.

        Returns:
            uint8 (n,). 0 for a pair that is kept, else the number of the filter that leaves it out, from 1.
        """
        if not self.filters:
            return np.zeros(len(pairs), np.uint8)
        verdicts = np.fromiter((self._first_match(*pair) for pair in pairs), np.uint8, len(pairs))
        if self._seen is not None:
            kept = np.flatnonzero(verdicts == 0)
            is_duplicate = self._seen.add(hash_pairs(pairs[place] for place in kept))
            verdicts[kept[is_duplicate]] = len(self.filters)
        return verdicts

    def _first_match(self, source: str, target: str) -> int:
        for number, filter_ in enumerate(self.filters, start=1):
            if filter_.matches(source, target):
                return number
        return 0


def _filters(data: DataConfig) -> list[Filter]:
    shortest, longest, ratio = data.min_characters, data.max_characters, data.max_length_ratio
    filters = []
    if shortest is not None:
        filters.append(Filter("min_characters", shortest, lambda *pair: min(map(len, pair)) < shortest))
    if longest is not None:
        filters.append(Filter("max_characters", longest, lambda *pair: max(map(len, pair)) > longest))
    if ratio is not None:
        filters.append(
            Filter("max_length_ratio", ratio, lambda *pair: max(map(len, pair)) > ratio * min(map(len, pair)))
        )
    for side, name in enumerate(("source_script", "target_script")):
        if script := getattr(data, name):
            filters.append(Filter(name, script, _is_of_another_script(script, data.min_script_share, side)))
    if data.remove_copies:
        filters.append(Filter("remove_copies", True, lambda source, target: source.strip() == target.strip()))
    if data.remove_duplicates:
        # Found by hashes, after all others.
        filters.append(Filter("remove_duplicates", True, lambda source, target: False))
    if filters:
        filters.insert(0, Filter("empty", None, lambda source, target: not source.strip() or not target.strip()))
    return filters


def _is_of_another_script(script: str, min_share: float, side: int) -> Callable[[str, str], bool]:
    names = "".join(rf"\p{{scx={name}}}" for name in scripts_of(script))
    letters = regex.compile(r"\p{L}+").findall
    letters_of_script = regex.compile(rf"(?V1)[\p{{L}}&&[{names}]]+").findall

    def is_of_another_script(*pair: str) -> bool:
        text = pair[side]
        number = sum(map(len, letters(text)))
        return sum(map(len, letters_of_script(text))) < min_share * number

    return is_of_another_script


def hash_pairs(pairs: Iterable[Pair]) -> np.ndarray:
    """Returns a hash of each pair, the same in every process: uint64 (n,).

    Two different pairs of 100 million have the same hash with a probability of 3 in 10,000.
    """
    digests = (
        # The length says where the source ends.
        hashlib.blake2b(f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for source, target in pairs
    )
    return np.frombuffer(b"".join(digests), "<u8")


class SeenPairs:
    """The hashes of all pairs so far, in a few sorted arrays.

    An array is merged with the one before it as soon as it has half its size, so that there are about as many arrays as
    the logarithm of the number of pairs, and a hash is moved about as many times. Memory: 8 bytes a pair, and as much
    again while the largest arrays are merged.
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds hashes, and returns which of them came before, in this call or an earlier one: bool (n,)."""
        different, first_places = np.unique(hashes, return_index=True)
        is_new = np.ones(len(different), bool)
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, different), len(array) - 1)
            is_new &= array[places] != different
        came_before = np.ones(len(hashes), bool)
        came_before[first_places[is_new]] = False
        if is_new.any():
            self._arrays.append(different[is_new])
        while len(self._arrays) > 1 and len(self._arrays[-1]) >= len(self._arrays[-2]) // 2:
            merged = np.concatenate([self._arrays.pop(), self._arrays.pop()])
            # Two sorted runs, which a stable sort merges.
            merged.sort(kind="stable")
            self._arrays.append(merged)
        return came_before

"""How often the pairs of each corpus are used in an epoch."""

import itertools
from collections.abc import Iterator

import numpy as np

from .corpus import SentencePairs

_PAIRS_AT_A_TIME = 2**15


def pairs_per_epoch(pairs: SentencePairs) -> int:
    """Returns the number of pairs in an epoch: the expected one where weights have fractions."""
    return round(sum(number * weight for number, weight in pairs.weights)) if pairs.weights else len(pairs)


def pairs_of_epoch(pairs: SentencePairs, epoch: int) -> Iterator[tuple[str, str, str]]:
    """Yields the pairs of an epoch with their tags; a pair that is used several times comes several times in a row.

    Args:
        pairs: SentencePairs.
        epoch: int. Its number, from 0. Where a weight has a fraction, it decides which pairs are used once more.

    Example:
        >>> pairs = SentencePairs(["one", "two"], ["eins", "zwei"], "numbers", weights=((1, 2), (1, 1)))
        >>> list(pairs_of_epoch(pairs, epoch=0))
        [('one', 'eins', ''), ('one', 'eins', ''), ('two', 'zwei', '')]
    """
    tags = (itertools.repeat(tag, number) for number, tag in pairs.tags or ((len(pairs), ""),))
    tagged = zip(pairs.source, pairs.target, itertools.chain.from_iterable(tags), strict=True)
    if not pairs.weights:
        return tagged
    counts = itertools.chain.from_iterable(
        _counts(number, weight, seed=[epoch, corpus]) for corpus, (number, weight) in enumerate(pairs.weights)
    )
    return itertools.chain.from_iterable(map(itertools.repeat, tagged, counts))


def _counts(number: int, weight: float, seed: list[int]) -> Iterator[int]:
    """How often each of so many pairs is used."""
    whole, fraction = divmod(weight, 1)
    random = np.random.default_rng(seed)
    for begin in range(0, number, _PAIRS_AT_A_TIME):
        chances = random.random(min(_PAIRS_AT_A_TIME, number - begin))
        yield from (int(whole) + (chances < fraction)).tolist()

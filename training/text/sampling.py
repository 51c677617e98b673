"""How often the pairs of each corpus pass in an epoch."""

import itertools
from collections.abc import Iterator

import numpy as np

from .corpus import SentencePairs

_PAIRS_AT_A_TIME = 2**15


def pairs_per_epoch(pairs: SentencePairs) -> int:
    """Returns how many pairs pass in an epoch, up to what chance adds or takes away where weights are fractions."""
    return round(sum(number * weight for number, weight in pairs.weights)) if pairs.weights else len(pairs)


def pairs_of_epoch(pairs: SentencePairs, epoch: int) -> Iterator[tuple[str, str]]:
    """Yields the pairs of an epoch, one as often in a row as it passes.

    Args:
        pairs: SentencePairs.
        epoch: int. Its number, from 0. Where a weight has a fraction, each epoch takes other pairs once more.

    Example:
        >>> pairs = SentencePairs(["one", "two"], ["eins", "zwei"], "numbers", weights=((1, 2), (1, 1)))
        >>> list(pairs_of_epoch(pairs, epoch=0))
        [('one', 'eins'), ('one', 'eins'), ('two', 'zwei')]
    """
    sentences = zip(pairs.source, pairs.target, strict=True)
    if not pairs.weights:
        return sentences
    counts = itertools.chain.from_iterable(
        _counts(number, weight, seed=[epoch, corpus]) for corpus, (number, weight) in enumerate(pairs.weights)
    )
    return itertools.chain.from_iterable(map(itertools.repeat, sentences, counts))


def _counts(number: int, weight: float, seed: list[int]) -> Iterator[int]:
    """How often each of so many pairs passes."""
    whole, fraction = divmod(weight, 1)
    random = np.random.default_rng(seed)
    for begin in range(0, number, _PAIRS_AT_A_TIME):
        chances = random.random(min(_PAIRS_AT_A_TIME, number - begin))
        yield from (int(whole) + (chances < fraction)).tolist()

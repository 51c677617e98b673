"""How well the models of both directions agree that a pair is a translation."""

from typing import Annotated

import numpy as np

from .results import Scores


def dual_scores(forward: Scores, backward: Scores) -> Annotated[np.ndarray, "float (number of pairs,)"]:
    """Computes scores by dual conditional cross-entropy (Junczys-Dowmunt 2018, arXiv 1809.00197).

    They are `exp(-(|a - b| + (a + b) / 2))`, of the cross-entropies `a` of the target given its source and `b` of the
    source given the target, each for a token: 1 for pairs of which both models are certain, near 0 for those that one
    of them finds less probable than the other, or both improbable.

    Args:
        forward: Scores of the pairs.
        backward: Scores of the same pairs by a model of the opposite direction, to which targets are sources.

    Example:
        >>> one, two = np.array([1]), np.array([2])
        >>> dual_scores(Scores(np.array([-2.0]), one, two), Scores(np.array([-3.0]), two, one)).round(4)
        array([0.0183])
    """
    there, back = (-scores.log_probs / scores.target_lengths for scores in (forward, backward))
    return np.exp(-(np.abs(there - back) + (there + back) / 2))

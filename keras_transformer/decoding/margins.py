"""Margins: the differences by which the decisions of a search fall.

Two computations of the same model differ by rounding. If both compute every log probability and
score of a search with an error below a quarter of its margin, they make the same decisions and find
the same tokens. With a smaller margin, another computation may find other tokens.

A margin is a difference of log probabilities or scores. It is infinite if nothing is decided.
"""

import math
from typing import Annotated

import numpy as np
from keras import ops

from ..tensors import Tensor
from .continuations import stable_top_k

NO_DECISION = np.float32(math.inf)
_IMPOSSIBLE = np.float32(-math.inf)


def difference(
    greater: Annotated[Tensor, "float32 (...)"], less: Annotated[Tensor, "float32 (...)"]
) -> Annotated[Tensor, "float32 (...)"]:
    """Returns `greater - less`. No rounding makes an impossible candidate, -inf, the better one."""
    return ops.where(ops.equal(less, _IMPOSSIBLE), NO_DECISION, greater - less)


def margin_of_choice(
    logits: Annotated[Tensor, "float32 (n, 1, vocab_size)"],
    token_ids: Annotated[Tensor, "int32 (n, 1)"],
) -> Annotated[Tensor, "float32 (n, 1)"]:
    """Returns by how much the logit of the chosen token exceeds all other logits."""
    all_ids = ops.arange(ops.shape(logits)[-1], dtype="int32")
    is_chosen = ops.equal(all_ids, token_ids[..., None])
    chosen = ops.max(ops.where(is_chosen, logits, _IMPOSSIBLE), axis=-1)
    others = ops.max(ops.where(is_chosen, _IMPOSSIBLE, logits), axis=-1)
    return difference(chosen, others)


def margin_of_order(
    scores: Annotated[Tensor, "float32 (n, m)"],
) -> Annotated[Tensor, "float32 (n,)"]:
    """Returns the smallest difference between neighbors among scores in descending order."""
    return ops.min(difference(scores[:, :-1], scores[:, 1:]), axis=-1)


def margin_of_beam_step(
    candidates: Annotated[Tensor, "float32 (n, m + 1)"],
    is_end: Annotated[Tensor, "bool (n, m)"],
    beam_size: int,
    worst_result: Annotated[Tensor, "float32 (n, 1)"],
    penalties: Annotated[Tensor, "float32 (n, 1)"],
    max_penalties: Annotated[Tensor, "float32 (n, 1)"],
) -> Annotated[Tensor, "float32 (n,)"]:
    """Returns the smallest difference by which a decision of a step of beam search falls.

    A step decides which hypotheses end, which ones continue, and whether the search stops. A
    decision does not matter if it concerns candidates that cannot become results anymore: they rank
    below all candidates that can, now and in all later steps. The margin of a decision is therefore
    at least the distance between the worst result and the best score that the candidate can reach.

    The decision to go on has no margin of its own. If it matters, a later hypothesis replaces the
    worst result. Its score is at most the attainable score, so that the difference between the two
    results, see `margin_of_order`, is no greater than the margin of the decision.

    Args:
        candidates: log probabilities of the best continuations of all hypotheses, in descending
            order. The last candidate represents all others, which are not better.
        is_end: whether each candidate ends. It becomes a result only if it is among the best
            beam_size candidates.
        beam_size: number of hypotheses that continue.
        worst_result: score of the last of the n_best results after the step.
        penalties: length penalties of the candidates.
        max_penalties: length penalties of the maximum lengths. If a candidate has its maximum
            length, both penalties are equal and all candidates end.
    """
    rest = candidates[:, -1:]
    # The candidates that are not in the list may end or continue.
    ends = ops.pad(is_end, ((0, 0), (0, 1)), constant_values=True)
    last_inside = candidates[:, beam_size - 1 : beam_size]
    first_outside = candidates[:, beam_size : beam_size + 1]
    ranks = ops.where(
        np.arange(candidates.shape[-1]) < beam_size,
        difference(candidates, first_outside),
        difference(last_inside, candidates),
    )
    of_ends = ops.maximum(ranks, difference(worst_result, candidates / penalties))
    of_ends = ops.where(ends, of_ends, NO_DECISION)

    unfinished = ops.concatenate([ops.where(is_end, _IMPOSSIBLE, candidates[:, :-1]), rest], axis=1)
    unfinished, _ = stable_top_k(unfinished, beam_size + 1)
    kept, dropped = unfinished[:, -2:-1], unfinished[:, -1:]
    of_beam = ops.maximum(
        difference(kept, dropped), difference(worst_result, dropped / max_penalties)
    )
    attainable = unfinished[:, :1] / max_penalties
    of_stop = ops.where(
        worst_result >= attainable, difference(worst_result, attainable), NO_DECISION
    )
    return ops.min(ops.concatenate([of_ends, of_beam, of_stop], axis=1), axis=1)

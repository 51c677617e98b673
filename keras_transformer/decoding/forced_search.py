"""Forced search: computes the scores that a search would give to known sequences."""

from collections.abc import Sequence
from typing import Annotated

from keras import ops

from ..gather import first_maximum, gather_in_rows
from ..tensors import Dimension, Tensor, last_size
from .beam_search import length_penalties
from .constraints import NO_CONSTRAINTS, Constraints
from .protocol import Hypotheses, State, Step
from .single_hypothesis import SingleHypothesisSearch


def forced_search(
    step: Step[State],
    state: State,
    token_ids: Annotated[Tensor, "int32 (batch, max_length)"],
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_ids: int | Annotated[Tensor, "int (batch, n)"],
    end_ids: int | Sequence[int],
    length_penalty: float = 0.0,
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
) -> Hypotheses:
    """Follows known sequences, and returns them with their scores.

    Where a search could not have found a token, because the token is forbidden or not among the
    candidates, another token is chosen. The returned sequence then differs from the known one.

    See `beam_search` for the other arguments and for errors. The step function must have
    beam_size = 1, and the result has n_best = 1. Use a length penalty of 0 for sequences that
    greedy search or sampling found.

    Args:
        token_ids: the known sequences, padded with zeros.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = forced_search(
        ...     step, (), np.array([[0, 1, 0]]), [3], max_length=3, start_ids=0, end_ids=1
        ... )
        >>> round(float(hypotheses.scores[0, 0]), 3)
        -3.507

        The score is log 0.1 + log 0.3.
    """
    token_ids = ops.convert_to_tensor(token_ids, "int32")
    search = SingleHypothesisSearch(step, max_lengths, max_length, start_ids, end_ids, constraints)

    def choose(position: Tensor, rows: Tensor, logits: Tensor) -> Tensor:
        known = ops.take(ops.take(token_ids, position, axis=1), rows, axis=0)[:, None]
        # A token that is not among the candidates gets the index of another one.
        places = ops.minimum(constraints.place_of(known), last_size(logits) - 1)
        is_forbidden = gather_in_rows(ops.squeeze(logits, 1), places) == -float("inf")
        return ops.where(is_forbidden, first_maximum(logits), places)

    hypotheses = search.run(choose, state, drop_finished)
    scores = hypotheses.scores / length_penalties(hypotheses.lengths, length_penalty)
    return hypotheses._replace(scores=scores)

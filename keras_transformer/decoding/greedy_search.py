"""Greedy search: the most probable token at each step."""

from collections.abc import Sequence
from typing import Annotated

from ..gather import first_maximum
from ..tensors import Dimension, Tensor
from .constraints import NO_CONSTRAINTS, Constraints
from .protocol import Hypotheses, State, Step
from .search_loop import Growth
from .single_hypothesis import SingleHypothesisSearch


def greedy_search(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_ids: int | Annotated[Tensor, "int (batch, n)"],
    end_ids: int | Sequence[int],
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
    growth: Growth | None = None,
    with_margins: bool = False,
) -> Hypotheses:
    """Chooses the most probable token at each step until the end token or the maximum length.

    The score is the log probability of the sequence, as in beam search with a length penalty of 0.
    Beam search with a beam of 1 may return another sequence, because it also considers an end token
    that is second best. The log probability of that sequence is never lower. If every next token is
    forbidden, a sequence ends with its tokens so far.

    See `beam_search` for arguments and errors. The step function must have beam_size = 1, and the
    result has n_best = 1.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = greedy_search(step, (), [5], max_length=5, start_ids=0, end_ids=1)
        >>> np.array(hypotheses.token_ids[0, 0]).tolist()
        [2, 1, 0, 0, 0]
    """
    search = SingleHypothesisSearch(step, max_lengths, max_length, start_ids, end_ids, constraints)
    return search.run(choose_most_probable, state, drop_finished, growth, with_margins)


def choose_most_probable(
    position: Annotated[Tensor, "int32 ()"],
    rows: Annotated[Tensor, "int32 (n,)"],
    logits: Annotated[Tensor, "float32 (n, 1, vocab_size)"],
) -> Annotated[Tensor, "int32 (n, 1)"]:
    """Returns the token with the highest logit; ties go to the lower token id."""
    return first_maximum(logits)

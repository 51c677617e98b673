"""Greedy search, and the loop that it shares with sampling: both extend one hypothesis of each sequence."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, NamedTuple

from keras import ops

from ..tensors import Dimension, Tensor
from .constraints import NO_CONSTRAINTS, Constraints, History, is_any_of
from .continuations import continuations
from .protocol import Hypotheses, State, Step
from .search_loop import check_search_arguments, extend_until_finished


def greedy_search(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
) -> Hypotheses:
    """Takes the most probable token at each step until the end token or the maximum length.

    The score is the log probability of the sequence, as in beam search with a length penalty of 0. Greedy search
    never goes back. Beam search with a beam of 1 also considers an end token that is second best, so that it may
    return another sequence, whose log probability is never lower.

    Args and errors are those of `beam_search`; the step function's beam_size is 1. The result has n_best = 1.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = greedy_search(step, (), [5], max_length=5, start_id=0, end_id=1)
        >>> np.array(hypotheses.token_ids[0, 0]).tolist()
        [2, 1, 0, 0, 0]
    """

    def choose(
        position: Tensor, rows: Tensor, log_probs: Tensor, logits: Tensor, allowed_logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_probs, token_ids = continuations(log_probs, logits, allowed_logits, 1)  # (n, 1, 1)
        return log_probs[..., 0], token_ids[..., 0]

    return extend_single_hypothesis(
        choose, step, state, max_lengths, max_length, start_id, end_id, constraints, drop_finished
    )


class _Results(NamedTuple):
    lengths: Tensor  # int32 (n, 1)
    log_probs: Tensor  # float32 (n, 1)


class _Active(NamedTuple, Generic[State]):
    rows: Tensor  # int32 (n,), places in the batch
    max_lengths: Tensor  # int32 (n, 1)
    results: _Results
    is_unfinished: Tensor  # bool (n, 1)
    token_ids: Tensor  # int32 (n, 1), the newest tokens
    history: History
    state: State  # of the step function


def extend_single_hypothesis(
    choose: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    step: Step[State],
    state: State,
    max_lengths: Tensor | Sequence[int],
    max_length: Dimension,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    constraints: Constraints,
    drop_finished: bool,
) -> Hypotheses:
    """Extends each sequence by one token per step until an end token or its maximum length.

    Args:
        choose: takes the position of the newest tokens, int32 scalar, the places of the sequences in the batch, int32
            (n,), their log probabilities, float32 (n, 1), and the logits and the allowed logits of the next token, see
            `Constraints.apply`. Returns the log probabilities of the sequences with one more token, float32 (n, 1),
            -inf if there is none, and the tokens, int32 (n, 1).
    """
    max_lengths, start_ids, end_ids = check_search_arguments(max_lengths, max_length, start_id, end_id, constraints)

    def extend(position: Tensor, active: _Active[State]) -> tuple[_Active[State], Tensor]:
        """Adds a token to each active sequence, and returns it too; those that are finished stay as they are."""
        newest = active.token_ids
        history = active.history.append(newest)
        logits, state = step(constraints.token_at(newest), ops.zeros_like(newest), position, active.state)
        logits, allowed_logits = constraints.apply(logits, newest, history, position, active.max_lengths, end_ids)
        lengths, log_probs = active.results
        extended_log_probs, token_ids = choose(position, active.rows, log_probs, logits, allowed_logits)
        log_probs = ops.where(active.is_unfinished, extended_log_probs, log_probs)

        length = position + 1
        is_end = length >= active.max_lengths
        if end_ids:
            is_end = is_any_of(token_ids, end_ids) | is_end
        active = active._replace(
            results=_Results(ops.where(active.is_unfinished, length, lengths), log_probs),
            is_unfinished=active.is_unfinished & (log_probs > -math.inf) & ops.logical_not(is_end),
            token_ids=token_ids,
            history=history,
            state=state,
        )
        return active, token_ids

    batch = ops.shape(max_lengths)[0]
    active = _Active(
        rows=ops.arange(batch, dtype="int32"),
        max_lengths=max_lengths,
        results=_Results(ops.zeros((batch, 1), "int32"), ops.zeros((batch, 1), "float32")),
        is_unfinished=max_lengths > 0,
        token_ids=start_ids[:, -1][:, None],
        history=constraints.start_history(start_ids, max_length),
        state=state,
    )
    # int32, the tokens of every step
    record = ops.zeros((max_length, batch, 1), "int32")
    _, record, (lengths, scores) = extend_until_finished(
        extend, lambda active: active.is_unfinished[:, 0], active, record, drop_finished
    )
    lengths = ops.where(scores > -math.inf, lengths, 0)
    token_ids = constraints.token_at(ops.transpose(record, (1, 2, 0)))  # (batch, 1, max_length)
    is_token = ops.arange(max_length, dtype="int32") < lengths[..., None]
    return Hypotheses(ops.where(is_token, token_ids, 0), lengths, scores)

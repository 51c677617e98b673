"""Greedy search, and the loop that it shares with sampling: both extend one hypothesis of each sequence."""

import math
from collections.abc import Sequence
from typing import Annotated, Generic, NamedTuple, Protocol

from keras import ops

from ..tensors import Dimension, Tensor
from .constraints import NO_CONSTRAINTS, Constraints, History, is_any_of
from .continuations import continuations
from .protocol import Hypotheses, State, Step
from .search_loop import check_search_arguments, extend_until_finished, float32_logits


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
        log_probs: Tensor, logits: Tensor, allowed_logits: Tensor, position: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        continued, token_ids = continuations(log_probs, logits, allowed_logits, 1)  # (n, 1, 1)
        return continued[..., 0], token_ids[..., 0]

    return extend_single_hypothesis(
        step,
        state,
        max_lengths,
        choose,
        max_length=max_length,
        start_id=start_id,
        end_id=end_id,
        constraints=constraints,
        drop_finished=drop_finished,
    )


class Choice(Protocol):
    """Chooses the next token of each sequence.

    Args:
        log_probs: of the sequences so far.
        logits: of the next token.
        allowed_logits: the same with -inf for tokens that are forbidden; `logits` itself if none is.
        position: the position of the token before it.
        rows: the places of the sequences in the batch.

    Returns:
        Log probabilities of the sequences with one more token, -inf if there is none; and the tokens.
    """

    def __call__(
        self,
        log_probs: Annotated[Tensor, "float32 (n, 1)"],
        logits: Annotated[Tensor, "float32 (n, 1, vocab_size)"],
        allowed_logits: Annotated[Tensor, "float32 (n, 1, vocab_size)"],
        position: Annotated[Tensor, "int32 ()"],
        rows: Annotated[Tensor, "int32 (n,)"],
        /,
    ) -> tuple[Annotated[Tensor, "float32 (n, 1)"], Annotated[Tensor, "int32 (n, 1)"]]: ...


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
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    choose: Choice,
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    constraints: Constraints,
    drop_finished: bool,
) -> Hypotheses:
    """Extends each sequence by one token per step until an end token or its maximum length; see `greedy_search`."""
    max_lengths, start_ids, end_ids = check_search_arguments(max_lengths, max_length, start_id, end_id, constraints)
    batch = ops.shape(max_lengths)[0]

    def extend(position: Tensor, active: _Active[State]) -> tuple[_Active[State], Tensor]:
        active = _extend(step, position, active, choose, end_ids, constraints)
        return active, active.token_ids

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


def _extend(
    step: Step[State],
    position: Tensor,
    active: _Active[State],
    choose: Choice,
    end_ids: Sequence[int],
    constraints: Constraints,
) -> _Active[State]:
    """The active sequences with one more token; those that are finished stay as they are."""
    newest = active.token_ids
    history = active.history.append(newest)

    logits, state = step(constraints.token_at(newest), ops.zeros_like(newest), position, active.state)
    logits = constraints.penalize(float32_logits(logits, newest), history)
    allowed_logits = constraints.forbid(logits, history, position, active.max_lengths, end_ids)
    lengths, log_probs = active.results
    continued, token_ids = choose(log_probs, logits, allowed_logits, position, active.rows)
    log_probs = ops.where(active.is_unfinished, continued, log_probs)

    length = position + 1
    is_end = length >= active.max_lengths
    if end_ids:
        is_end = is_any_of(token_ids, end_ids) | is_end
    return active._replace(
        results=_Results(ops.where(active.is_unfinished, length, lengths), log_probs),
        is_unfinished=active.is_unfinished & (log_probs > -math.inf) & ops.logical_not(is_end),
        token_ids=token_ids,
        history=history,
        state=state,
    )

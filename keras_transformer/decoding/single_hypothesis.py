"""The loop of every search that extends one hypothesis of each sequence: greedy search and sampling."""

import math
from collections.abc import Sequence
from typing import Annotated, Generic, NamedTuple, Protocol

from keras import ops

from ..tensors import Dimension, Tensor
from .active_rows import extend_until_finished
from .hypotheses import Hypotheses, is_none_of, newest_start_ids
from .protocol import State, Step


class Choice(Protocol):
    """Chooses the next token of each sequence.

    Args:
        log_probs: of the sequences so far.
        logits: of the next token.
        position: the position of the token before it.
        rows: the places of the sequences in the batch.

    Returns:
        Log probabilities of the sequences with one more token, -inf if there is none; and the tokens.
    """

    def __call__(
        self,
        log_probs: Annotated[Tensor, "float32 (n, 1)"],
        logits: Annotated[Tensor, "(n, 1, vocab_size)"],
        position: Annotated[Tensor, "int32 ()"],
        rows: Annotated[Tensor, "int32 (n,)"],
        /,
    ) -> tuple[Annotated[Tensor, "float32 (n, 1)"], Annotated[Tensor, "int32 (n, 1)"]]: ...


class _Found(NamedTuple):
    lengths: Tensor  # int32 (n, 1)
    log_probs: Tensor  # float32 (n, 1)


class _Active(NamedTuple, Generic[State]):
    rows: Tensor  # int32 (n,), places in the batch
    max_lengths: Tensor  # int32 (n, 1)
    found: _Found
    is_unfinished: Tensor  # bool (n, 1)
    token_ids: Tensor  # int32 (n, 1), the newest tokens
    state: State  # of the step function


def extend_single_hypothesis(
    step: Step[State],
    state: State,
    limits: Annotated[Tensor, "int32 (batch, 1)"],
    choose: Choice,
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_ids: Sequence[int],
    drop_finished: bool,
) -> Hypotheses:
    """Extends each sequence by one token per step until an end token or its limit; see `greedy_search`."""
    batch = ops.shape(limits)[0]

    def extend(position: Tensor, active: _Active[State]) -> tuple[_Active[State], Tensor]:
        active = _extend(step, position, active, choose, end_ids)
        return active, active.token_ids

    active = _Active(
        rows=ops.arange(batch, dtype="int32"),
        max_lengths=limits,
        found=_Found(ops.zeros((batch, 1), "int32"), ops.zeros((batch, 1), "float32")),
        is_unfinished=limits > 0,
        token_ids=newest_start_ids(start_id, batch, beam_size=1),
        state=state,
    )
    # int32, the tokens of every step
    history = ops.zeros((max_length, batch, 1), "int32")
    _, history, (lengths, scores) = extend_until_finished(
        extend, lambda active: active.is_unfinished[:, 0], active, history, drop_finished
    )
    lengths = ops.where(scores > -math.inf, lengths, 0)
    token_ids = ops.transpose(history, (1, 2, 0))  # (batch, 1, max_length)
    is_token = ops.arange(max_length, dtype="int32") < lengths[..., None]
    return Hypotheses(ops.where(is_token, token_ids, 0), lengths, scores)


def _extend(
    step: Step[State], position: Tensor, active: _Active[State], choose: Choice, end_ids: Sequence[int]
) -> _Active[State]:
    """The active sequences with one more token; those that are finished stay as they are."""
    parents = ops.zeros_like(active.token_ids)
    logits, state = step(active.token_ids, parents, position, active.state)
    lengths, log_probs = active.found
    continued, token_ids = choose(log_probs, logits, position, active.rows)
    log_probs = ops.where(active.is_unfinished, continued, log_probs)
    length = position + 1
    lengths = ops.where(active.is_unfinished, length, lengths)
    may_continue = (log_probs > -math.inf) & (length < active.max_lengths)
    if end_ids:
        may_continue = may_continue & is_none_of(token_ids, end_ids)
    return active._replace(
        found=_Found(lengths, log_probs),
        is_unfinished=active.is_unfinished & may_continue,
        token_ids=token_ids,
        state=state,
    )

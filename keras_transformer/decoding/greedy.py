"""Greedy search: the most probable next token at every step."""

import math
from collections.abc import Sequence
from typing import Annotated, Generic, NamedTuple

from keras import ops

from ..tensors import Dimension, Tensor
from .active_rows import extend_until_finished
from .continuations import continuations
from .hypotheses import Hypotheses, check_search_arguments
from .protocol import State, Step


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


def greedy_search(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_id: int,
    end_id: int,
    forbidden_ids: Sequence[int] = (),
    drop_finished: bool = False,
) -> Hypotheses:
    """Takes the most probable token at each step until the end token or the maximum length.

    The score is the log probability of the sequence, as in beam search with a length penalty of 0. Greedy search
    never goes back. Beam search with a beam of 1 also considers an end token that is second best, so that it may
    return another sequence, whose log probability is never lower.

    Args:
        step: the step function, see `keras_transformer.decoding.protocol`; its beam_size is 1.
        state: what the first call of `step` receives.
        max_lengths: the most tokens of each sequence, including the end token. A sequence that reaches it is truncated
            there; 0 gives an empty sequence with score 0.
        max_length: the most tokens of any sequence, the size of the result.
        start_id: the token at position 0.
        end_id: the token that ends a sequence.
        forbidden_ids: tokens that are never chosen; the probabilities of the others stay as they are. Defaults to
            none.
        drop_finished: whether finished sequences leave the batch. Shapes must be able to change in a loop:
            TensorFlow, with an unknown batch size. Defaults to False.

    Returns:
        `Hypotheses` with n_best = 1.

    Raises:
        ValueError: An argument breaks its rule.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> found = greedy_search(step, (), [5], max_length=5, start_id=0, end_id=1)
        >>> np.array(found.token_ids[0, 0]).tolist()
        [2, 1, 0, 0, 0]
    """
    limits = check_search_arguments(max_lengths, max_length, start_id, end_id)
    batch = ops.shape(limits)[0]

    def extend(position: Tensor, active: _Active[State]) -> tuple[_Active[State], Tensor]:
        active = _extend(step, position, active, end_id, forbidden_ids)
        return active, active.token_ids

    active = _Active(
        rows=ops.arange(batch, dtype="int32"),
        max_lengths=limits,
        found=_Found(ops.zeros((batch, 1), "int32"), ops.zeros((batch, 1), "float32")),
        is_unfinished=limits > 0,
        token_ids=ops.full((batch, 1), start_id, "int32"),
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
    step: Step[State], position: Tensor, active: _Active[State], end_id: int, forbidden_ids: Sequence[int]
) -> _Active[State]:
    """The active sequences with one more token; those that are finished stay as they are."""
    parents = ops.zeros_like(active.token_ids)
    logits, state = step(active.token_ids, parents, position, active.state)
    lengths, log_probs = active.found
    continued, token_ids = continuations(log_probs, logits, 1, forbidden_ids)  # (n, 1, 1)
    token_ids = token_ids[..., 0]
    log_probs = ops.where(active.is_unfinished, continued[..., 0], log_probs)
    length = position + 1
    lengths = ops.where(active.is_unfinished, length, lengths)
    may_continue = (log_probs > -math.inf) & (token_ids != end_id) & (length < active.max_lengths)
    return active._replace(
        found=_Found(lengths, log_probs),
        is_unfinished=active.is_unfinished & may_continue,
        token_ids=token_ids,
        state=state,
    )

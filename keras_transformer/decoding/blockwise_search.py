"""Greedy search by blocks: a step computes several tokens that were drafted, and keeps those that are right."""

import math
from collections.abc import Sequence
from typing import Annotated, Generic, NamedTuple, Protocol

from keras import ops

from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor
from .constraints import NO_CONSTRAINTS, Constraints, History, is_any_of
from .continuations import continuations
from .protocol import Hypotheses, State
from .search_loop import check_search_arguments, extend_until_finished


class BlockStep(Protocol[State]):
    """Drafts the tokens after the newest token of every sequence, and computes the logits after each of them.

    Args:
        token_ids: the newest token of each sequence; the start token at position 0.
        num_kept: how many tokens of the last block were kept, from 1; 1 at position 0. What the state holds of the
            others must be forgotten.
        positions: the position of each newest token in its target: 0, 1, 2, ... Sequences keep different numbers of
            tokens, so that their positions differ.
        state: the state that the previous step returned.

    Returns:
        The drafts, as indices of the logits. The logits of the tokens after the newest token and after each draft, see
        `Step`. And the next state, see there.
    """

    def __call__(
        self,
        token_ids: Annotated[Tensor, "int32 (batch, 1)"],
        num_kept: Annotated[Tensor, "int32 (batch, 1)"],
        positions: Annotated[Tensor, "int32 (batch, 1)"],
        state: State,
        /,
    ) -> tuple[
        Annotated[Tensor, "int32 (batch, block_size - 1)"],
        Annotated[Tensor, "(batch, block_size, vocab_size)"],
        State,
    ]: ...


class _Results(NamedTuple):
    lengths: Tensor  # int32 (n, 1), the position of the newest token while a sequence is unfinished
    log_probs: Tensor  # float32 (n, 1)
    token_ids: Tensor  # int32 (n, max_length + block_size)


class _Active(NamedTuple, Generic[State]):
    rows: Tensor  # int32 (n,), places in the batch
    max_lengths: Tensor  # int32 (n, 1)
    results: _Results
    is_unfinished: Tensor  # bool (n, 1)
    newest: Tensor  # int32 (n, 1)
    num_kept: Tensor  # int32 (n, 1), tokens of the last block
    history: History
    state: State  # of the step function


def blockwise_search(
    step: BlockStep[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    block_size: int,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
) -> Hypotheses:
    """Finds the sequences of `greedy_search`, several tokens a step.

    Blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115). A step computes the logits after the newest token
    and after each draft. It keeps the first drafts that greedy search would have chosen too, and the token that greedy
    search chooses after them. So drafts decide how many steps a search takes, and not what it finds, up to the rounding
    of logits that are computed together. Ties go to the lower token id, as in greedy search.

    The other arguments, results and errors are those of `greedy_search`.

    Args:
        block_size: how many tokens a step computes: the newest token and `block_size - 1` drafts.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, num_kept, positions, state):
        ...     drafts = ops.full_like(token_ids, 2)  # Token 2 is drafted after every token.
        ...     block = ops.concatenate([token_ids, drafts], axis=1)
        ...     return drafts, ops.take(ops.log(probabilities), block, axis=0), state
        >>> hypotheses = blockwise_search(step, (), [5], block_size=2, max_length=5, start_id=0, end_id=1)
        >>> np.array(hypotheses.token_ids[0, 0]).tolist()
        [2, 1, 0, 0, 0]
    """
    max_lengths, start_ids, end_ids = check_search_arguments(max_lengths, max_length, start_id, end_id, constraints)
    offsets = ops.arange(block_size, dtype="int32")

    def extend(_: Tensor, active: _Active[State]) -> tuple[_Active[State], tuple[()]]:
        """Adds the tokens that a step finds to each active sequence; those that are finished stay as they are."""
        positions, log_probs, token_ids = active.results
        tokens = constraints.token_at(active.newest)
        drafts, logits, state = step(tokens, active.num_kept, positions, active.state)
        block = ops.concatenate([active.newest, drafts], axis=1)  # (n, block_size)
        history = active.history.append_block(block)
        places = positions + offsets
        logits, allowed_logits = constraints.apply(logits, block, history, places, active.max_lengths, end_ids)
        gained, chosen = continuations(ops.zeros_like(block, "float32"), logits, allowed_logits, 1)
        gained, chosen = gained[..., 0], chosen[..., 0]  # (n, block_size)

        is_end = (places + 1 >= active.max_lengths) | (gained == -math.inf)
        if end_ids:
            is_end = is_any_of(chosen, end_ids) | is_end
        # A chosen token is kept if all drafts before it are what was chosen there, and none of them ends.
        is_right = ops.equal(drafts, chosen[:, :-1]) & ops.logical_not(is_end[:, :-1])
        is_right = ops.concatenate([active.is_unfinished, is_right], axis=1)
        is_kept = ops.cumprod(ops.cast(is_right, "int32"), axis=1)  # (n, block_size)
        num_kept = ops.sum(is_kept, axis=1, keepdims=True)
        is_finished = ops.any((is_kept > 0) & is_end, axis=1, keepdims=True)
        last = ops.maximum(num_kept - 1, 0)

        rows = ops.arange(ops.shape(block)[0], dtype="int32")[:, None] + ops.zeros_like(places)
        at = ops.reshape(ops.stack([rows, places], axis=-1), (-1, 2))
        results = _Results(
            positions + num_kept,
            log_probs + ops.sum(ops.where(is_kept > 0, gained, 0.0), axis=1, keepdims=True),
            # What is written after the kept tokens is written again, or is behind the end.
            ops.scatter_update(token_ids, at, ops.reshape(chosen, (-1,))),
        )
        active = active._replace(
            results=results,
            is_unfinished=active.is_unfinished & ops.logical_not(is_finished),
            newest=gather_in_rows(chosen, last),
            num_kept=last + 1,
            history=history.select(last),
            state=state,
        )
        return active, ()

    batch = ops.shape(max_lengths)[0]
    active = _Active(
        rows=ops.arange(batch, dtype="int32"),
        max_lengths=max_lengths,
        results=_Results(
            ops.zeros((batch, 1), "int32"),
            ops.zeros((batch, 1), "float32"),
            ops.zeros((batch, max_length + block_size), "int32"),
        ),
        is_unfinished=max_lengths > 0,
        newest=start_ids[:, -1][:, None],
        num_kept=ops.ones((batch, 1), "int32"),
        history=constraints.start_history(start_ids, max_length),
        state=state,
    )
    _, _, (lengths, scores, token_ids) = extend_until_finished(
        extend, lambda active: active.is_unfinished[:, 0], active, (), drop_finished
    )
    lengths = ops.where(scores > -math.inf, lengths, 0)
    token_ids = constraints.token_at(token_ids[:, None, :max_length])
    is_token = ops.arange(max_length, dtype="int32") < lengths[..., None]
    return Hypotheses(ops.where(is_token, token_ids, 0), lengths, scores)

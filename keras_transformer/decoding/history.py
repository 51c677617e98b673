"""Steps whose logits depend on all that a hypothesis says so far."""

from typing import Annotated, Any, Generic, NamedTuple, Protocol

from keras import ops

from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor
from .protocol import State, Step


class WithHistory(NamedTuple, Generic[State]):
    """The state of a step that knows what every hypothesis says so far."""

    token_ids: Tensor  # int32 (batch, beam_size, number of tokens), negative where there is none yet
    known: Any  # what is known of each sequence: a nest of tensors with a row for each
    state: State  # of the step function inside


class Change(Protocol):
    """Changes the logits of the next token of every hypothesis.

    Args:
        logits: what the step inside returns.
        seen: the tokens of each hypothesis; negative where there is none.
        newest: the place of the newest in `seen`.
        position: the position of the newest.
        known: what is known of each sequence.
    """

    def __call__(
        self,
        logits: Annotated[Tensor, "(batch, beam_size, vocab_size)"],
        seen: Annotated[Tensor, "int32 (batch, beam_size, number of tokens)"],
        newest: Annotated[Tensor, "int32 ()"],
        position: Annotated[Tensor, "int32 ()"],
        known: Any,
        /,
    ) -> Annotated[Tensor, "(batch, beam_size, ...)"]: ...


def with_history(
    step: Step[State],
    state: State,
    change: Change,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    *,
    like: Annotated[Tensor, "(batch, ...)"],
    max_length: Dimension,
    beam_size: int = 1,
    known: Any = (),
) -> tuple[Step[Any], Any]:
    """Changes the logits of a step, whatever searches it.

    Args:
        step: a step function.
        state: what its first call receives.
        change: what is done to the logits.
        start_id: the token at position 0; or the tokens that each sequence starts with, of which the last is at
            position 0. All are seen. Negative ids are none.
        like: any tensor with one row per sequence.
        max_length: the most steps.
        beam_size: hypotheses per sequence. Defaults to 1.
        known: what the change needs to know of each sequence, a nest of tensors with a row for each. Defaults to
            nothing.

    Returns:
        The new step function, and the state for its first call.
    """
    batch_size = ops.shape(like)[0]
    start_ids = ops.full((batch_size, 1), start_id, "int32") if isinstance(start_id, int) else start_id
    num_earlier = ops.shape(start_ids)[1] - 1

    def changed(
        token_ids: Tensor, parents: Tensor, position: Tensor, state: WithHistory[State]
    ) -> tuple[Tensor, WithHistory[State]]:
        seen = gather_in_rows(state.token_ids, parents)
        newest = num_earlier + position
        is_newest = ops.equal(ops.arange(ops.shape(seen)[2], dtype="int32"), newest)
        seen = ops.where(is_newest, token_ids[..., None], seen)
        logits, inner = step(token_ids, parents, position, state.state)
        return change(logits, seen, newest, position, state.known), WithHistory(seen, state.known, inner)

    earlier = ops.cast(start_ids[:, :-1], "int32")
    seen = ops.concatenate([earlier, ops.full((batch_size, max_length), -1, "int32")], axis=1)
    return changed, WithHistory(ops.concatenate([seen[:, None]] * beam_size, axis=1), known, state)

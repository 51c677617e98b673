"""Steps that make repetition less probable."""

from typing import Annotated, Any, Generic, NamedTuple

from keras import ops

from ..config.rules import Positive, check
from ..gather import gather_in_rows
from ..shapes import reshape_inferring
from ..tensors import Dimension, Tensor
from .protocol import State, Step


class Repeating(NamedTuple, Generic[State]):
    """The state of a step that knows what every hypothesis says so far."""

    token_ids: Tensor  # int32 (batch, beam_size, number of tokens), negative where there is none yet
    state: State  # of the step function inside


def penalize_repetition(
    step: Step[State],
    state: State,
    penalty: float | Tensor,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    *,
    like: Annotated[Tensor, "(batch, ...)"],
    max_length: Dimension,
    beam_size: int = 1,
) -> tuple[Step[Any], Any]:
    """Makes tokens that a hypothesis has already less probable, whatever searches it.

    Their logits are divided by the penalty if they are positive, and multiplied by it otherwise (Keskar et al.,
    "CTRL", 2019, section 4.1, without its temperature).

    Args:
        step: a step function.
        state: what its first call receives.
        penalty: above 1 to discourage repetition. Step and state stay as they are if it is 1.
        start_id: the token at position 0; or the tokens that each sequence starts with, of which the last is at
            position 0. All count. Negative ids are none.
        like: any tensor with one row per sequence.
        max_length: the most steps.
        beam_size: hypotheses per sequence. Defaults to 1.

    Returns:
        The new step function, and the state for its first call.

    Raises:
        ConfigError: The penalty is not positive.
    """
    if isinstance(penalty, (int, float)):
        check("repetition_penalty", float(penalty), Positive)
        if penalty == 1:
            return step, state
    batch_size = ops.shape(like)[0]
    start_ids = ops.full((batch_size, 1), start_id, "int32") if isinstance(start_id, int) else start_id
    num_earlier = ops.shape(start_ids)[1] - 1

    def penalized(
        token_ids: Tensor, parents: Tensor, position: Tensor, state: Repeating[State]
    ) -> tuple[Tensor, Repeating[State]]:
        seen = gather_in_rows(state.token_ids, parents)
        is_newest = ops.equal(ops.arange(ops.shape(seen)[2], dtype="int32"), num_earlier + position)
        seen = ops.where(is_newest, token_ids[..., None], seen)
        logits, inner = step(token_ids, parents, position, state.state)
        # What is not there yet stands for the newest, which is.
        logits = _penalized(logits, ops.where(seen < 0, token_ids[..., None], seen), penalty)
        return logits, Repeating(seen, inner)

    earlier = ops.cast(start_ids[:, :-1], "int32")
    seen = ops.concatenate([earlier, ops.full((batch_size, max_length), -1, "int32")], axis=1)
    return penalized, Repeating(ops.concatenate([seen[:, None]] * beam_size, axis=1), state)


def _penalized(logits: Tensor, seen: Tensor, penalty: float | Tensor) -> Tensor:
    # logits (batch, beam_size, vocab_size), seen int32 (batch, beam_size, number of tokens)
    vocab_size = logits.shape[-1]
    batch, beam_size, num_seen = ops.shape(seen)
    num_rows = batch * beam_size
    logits = ops.reshape(ops.cast(logits, "float32"), (num_rows, vocab_size))
    seen = ops.reshape(seen, (num_rows, num_seen))
    chosen = gather_in_rows(logits, seen)
    chosen = ops.where(chosen > 0, chosen / penalty, chosen * penalty)
    places = ops.arange(num_rows, dtype="int32")[:, None] * vocab_size + seen
    # A token that is there twice is written twice, with the same logit.
    logits = ops.scatter_update(
        ops.reshape(logits, (num_rows * vocab_size,)),
        ops.reshape(places, (num_rows * num_seen, 1)),
        ops.reshape(chosen, (num_rows * num_seen,)),
    )
    return reshape_inferring(logits, (batch, beam_size, vocab_size))

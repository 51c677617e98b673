"""A penalty that makes repetition less probable."""

from typing import Annotated

from keras import ops

from ..gather import gather_in_rows
from ..shapes import last_size, reshape_inferring
from ..tensors import Tensor


def penalize_repetition(
    logits: Annotated[Tensor, "(batch, beam_size, vocab_size)"],
    seen: Annotated[Tensor, "int32 (batch, beam_size, number of tokens)"],
    newest: Annotated[Tensor, "int32 ()"],
    penalty: float | Tensor,
) -> Annotated[Tensor, "float32 (batch, beam_size, vocab_size)"]:
    """Makes tokens that a hypothesis has already less probable.

    Their logits are divided by the penalty if they are positive, and multiplied by it otherwise (Keskar et al.,
    "CTRL", 2019, section 4.1, without its temperature).

    Args:
        logits: of the next token.
        seen: the tokens of each hypothesis; negative where there is none.
        newest: the place of one that is there.
        penalty: above 1 to discourage repetition.
    """
    vocab_size = last_size(logits)
    # What is not there yet stands for the newest, which is.
    seen = ops.where(seen < 0, ops.take(seen, newest, axis=2)[..., None], seen)
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

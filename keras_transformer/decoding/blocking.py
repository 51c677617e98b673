"""Tokens that a hypothesis cannot have next, while the probabilities of the others stay as they are.

What cannot be chosen keeps its probability by becoming one more column of the logits, after all tokens, which is never
chosen either. `continuations` and `sample` know this column as `BLOCKED`, one of their forbidden ids.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from keras import ops

from ..shapes import reshape_inferring
from ..tensors import Dimension, Tensor
from .hypotheses import is_any_of


def repeats_ngram(
    seen: Annotated[Tensor, "int32 (batch, beam_size, number of tokens)"],
    newest: Annotated[Tensor, "int32 ()"],
    size: int,
    vocab_size: Dimension,
) -> Annotated[Tensor, "bool (batch, beam_size, vocab_size)"]:
    """Returns which next tokens would end an n-gram that a hypothesis has already.

    Args:
        seen: the tokens of each hypothesis; negative where there is none.
        newest: the place of the newest.
        size: tokens of an n-gram.
        vocab_size: how many tokens there are.
    """
    batch, beam_size, _ = ops.shape(seen)
    num_rows = batch * beam_size
    seen = reshape_inferring(seen, (num_rows, ops.shape(seen)[2]))
    # Room for an n-gram in any case.
    seen = ops.pad(seen, ((0, 0), (size, 0)), constant_values=-1)
    num_places = ops.shape(seen)[1] - size + 1
    last = seen[:, size - 1 :]  # The token that follows the n - 1 others.
    is_repeat = last >= 0
    for i in range(size - 1):
        # Of the n - 1 newest tokens, the one at place i.
        own = ops.take(seen, newest + 2 + i, axis=1)[:, None]
        is_repeat = is_repeat & ops.equal(seen[:, i : i + num_places], own) & (own >= 0)
    # All others are written to a column of their own.
    places = ops.arange(num_rows, dtype="int32")[:, None] * (vocab_size + 1) + ops.where(is_repeat, last, vocab_size)
    marks = ops.scatter_update(
        ops.zeros((num_rows * (vocab_size + 1),), "int32"),
        ops.reshape(places, (-1, 1)),
        ops.ones_like(ops.reshape(places, (-1,))),
    )
    marks = ops.reshape(marks, (num_rows, vocab_size + 1))[:, :vocab_size]
    return reshape_inferring(marks > 0, (batch, beam_size, vocab_size))


def ends_early(
    position: Annotated[Tensor, "int32 ()"], end_ids: Sequence[int], min_length: int | Tensor, vocab_size: Dimension
) -> Annotated[Tensor, "bool (vocab_size,)"]:
    """Returns which next tokens would end a sequence of fewer than `min_length` tokens."""
    if isinstance(vocab_size, int):
        is_end: Tensor = np.isin(np.arange(vocab_size), end_ids)
    else:
        is_end = is_any_of(ops.arange(vocab_size, dtype="int32"), end_ids)
    return ops.logical_and(is_end, position + 1 < min_length)


def block(
    logits: Annotated[Tensor, "(batch, beam_size, vocab_size)"],
    is_blocked: Annotated[Tensor, "bool, broadcasts to (batch, beam_size, vocab_size)"],
) -> Annotated[Tensor, "float32 (batch, beam_size, vocab_size + 1)"]:
    """Moves the probability of some tokens to one more column, the last."""
    logits = ops.cast(logits, "float32")
    lost = ops.logsumexp(ops.where(is_blocked, logits, -math.inf), axis=-1, keepdims=True)
    return ops.concatenate([ops.where(is_blocked, -math.inf, logits), lost], axis=-1)

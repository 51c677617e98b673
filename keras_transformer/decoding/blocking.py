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


def misuses_placeholders(
    seen: Annotated[Tensor, "int32 (batch, beam_size, number of tokens)"],
    position: Annotated[Tensor, "int32 ()"],
    required: Annotated[Tensor, "bool (batch, n)"],
    limits: Annotated[Tensor, "int32 (batch, 1)"],
    end_ids: Sequence[int],
    vocab_size: Dimension,
) -> Annotated[Tensor, "bool (batch, beam_size, vocab_size)"]:
    """Returns which next tokens would leave out one of a sequence's placeholders, have it twice, or have another one.

    Args:
        seen: the tokens of each hypothesis; negative where there is none.
        position: the position of the newest.
        required: which of the last n tokens of the vocabulary each sequence has once; it has none of the others.
        limits: the most tokens of each sequence.
        end_ids: the tokens that end a sequence.
        vocab_size: how many tokens there are.
    """
    n = required.shape[1]
    first = vocab_size - n
    is_seen = ops.any(ops.equal(seen[..., None], first + ops.arange(n, dtype="int32")), axis=2)
    is_missing = ops.logical_and(required[:, None], ops.logical_not(is_seen))  # (batch, beam_size, n)
    num_missing = ops.sum(ops.cast(is_missing, "int32"), axis=2)
    # Only what is missing has room before the limit.
    is_full = (num_missing >= limits - position)[..., None]
    token_ids = ops.arange(vocab_size, dtype="int32")
    is_end = is_any_of(token_ids, end_ids) if end_ids else ops.zeros_like(token_ids, "bool")
    others = ops.logical_or(ops.logical_and(is_end[:first], (num_missing > 0)[..., None]), is_full)
    return ops.concatenate([others, ops.logical_not(is_missing)], axis=-1)


def block(
    logits: Annotated[Tensor, "(batch, beam_size, vocab_size)"],
    is_blocked: Annotated[Tensor, "bool, broadcasts to (batch, beam_size, vocab_size)"],
) -> Annotated[Tensor, "float32 (batch, beam_size, vocab_size + 1)"]:
    """Moves the probability of some tokens to one more column, the last."""
    logits = ops.cast(logits, "float32")
    lost = ops.logsumexp(ops.where(is_blocked, logits, -math.inf), axis=-1, keepdims=True)
    return ops.concatenate([ops.where(is_blocked, -math.inf, logits), lost], axis=-1)

"""Finds the best one-token continuations of hypotheses; ties go to the lower token id."""

import math
from typing import Annotated

import keras
from keras import ops

from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor, last_size, reshape_inferring

# The group size if the size of the vocabulary is only known at run time. It is fast for a shortlist
# of 1,000 to 4,000 tokens.
_GROUP_SIZE = 16


def continuations(
    log_probs: Annotated[Tensor, "float32 (batch, beam_size)"],
    logits: Annotated[Tensor, "float32 (batch, beam_size, vocab_size)"],
    allowed_logits: Annotated[Tensor, "float32 (batch, beam_size, vocab_size)"],
    k: int,
) -> tuple[
    Annotated[Tensor, "float32 (batch, beam_size, k)"],
    Annotated[Tensor, "int32 (batch, beam_size, k)"],
    Annotated[Tensor, "bool (batch, beam_size)"],
]:
    """Returns the k best continuations of every hypothesis.

    Args:
        log_probs: log probabilities of the hypotheses, -inf for dead hypotheses.
        logits: see `Constraints.apply`.
        allowed_logits: see `Constraints.apply`.
        k: number of continuations. If the vocabulary is smaller, fewer are returned. If its size is
            not static, k are returned, with dead hypotheses at the end.

    Returns:
        A tuple of the log probabilities of the continuations, in descending order, their newest
        tokens, and, for each hypothesis, whether every next token is forbidden.
    """
    top_logits, token_ids = top_k(allowed_logits, k)  # (batch, beam_size, k)
    best_logits = (
        top_logits[..., :1] if allowed_logits is logits else ops.max(logits, axis=-1, keepdims=True)
    )
    # Compute the log softmax only for these tokens: for the best logit, from its probability; for
    # the others, from their difference from the best logit.
    log_highest = ops.log(
        ops.max(ops.softmax(logits), axis=-1, keepdims=True)
    )  # (batch, beam_size, 1)
    log_probs = ops.expand_dims(log_probs, -1) + (top_logits - best_logits + log_highest)
    # If all logits of a row are -inf, the result is NaN, and the comparison is False.
    log_probs = ops.where(log_probs > -math.inf, log_probs, -math.inf)
    return log_probs, token_ids, ops.equal(top_logits[..., 0], -math.inf)


def stable_top_k(
    values: Annotated[Tensor, "(..., n)"], k: Dimension
) -> tuple[Annotated[Tensor, "(..., k)"], Annotated[Tensor, "int32 (..., k)"]]:
    """Computes `keras.ops.top_k`, with ties going to the lower index on every backend."""
    if keras.backend.backend() != "torch":
        highest, indices = ops.top_k(values, k)
        return highest, ops.cast(indices, "int32")
    # PyTorch's `topk` breaks ties arbitrarily.
    indices = ops.argsort(-values)[..., :k]
    return ops.take_along_axis(values, indices, axis=-1), indices


def top_k(
    logits: Annotated[Tensor, "float32 (batch, beam_size, vocab_size)"], k: Dimension
) -> tuple[
    Annotated[Tensor, "float32 (batch, beam_size, k)"],
    Annotated[Tensor, "int32 (batch, beam_size, k)"],
]:
    """Computes `stable_top_k` of long rows in two stages, which is several times as fast.

    The k highest logits are in the k groups of adjacent tokens with the highest maxima. Groups keep
    their order, so ties still go to the lower token id.

    If there are fewer than k tokens, all tokens are returned. If vocab_size is not static, the
    result still has k entries: the missing entries have logits of -inf and arbitrary token ids.
    """
    vocab_size = last_size(logits)
    if isinstance(vocab_size, int) and isinstance(k, int):
        k = min(k, vocab_size)
    group_size = _group_size(vocab_size, k)
    if group_size is None:
        return stable_top_k(logits, k)
    batch, beam_size = ops.shape(logits)[:2]
    num_groups = -(-vocab_size // group_size)
    if not isinstance(vocab_size, int):
        num_groups = ops.maximum(num_groups, k)
    missing = num_groups * group_size - vocab_size
    if not isinstance(missing, int) or missing > 0:
        # Pad at the end, so that real tokens win ties at -inf.
        logits = ops.pad(logits, ((0, 0), (0, 0), (0, missing)), constant_values=-math.inf)
    groups = reshape_inferring(logits, (batch * beam_size, num_groups, group_size))
    _, chosen = stable_top_k(ops.max(groups, axis=-1), k)
    # Sort in ascending order, with fewer operations than `ops.sort`.
    chosen = -ops.top_k(-chosen, k)[0]  # (batch * beam_size, k)
    members = reshape_inferring(gather_in_rows(groups, chosen), (batch * beam_size, k * group_size))
    top_logits, indices = stable_top_k(members, k)
    token_ids = gather_in_rows(chosen, indices // group_size) * group_size + indices % group_size
    if not isinstance(vocab_size, int):
        token_ids = ops.minimum(token_ids, vocab_size - 1)
    shape = (batch, beam_size, k)
    return reshape_inferring(top_logits, shape), reshape_inferring(token_ids, shape)


def _group_size(vocab_size: Dimension, k: Dimension) -> int | None:
    """Returns the fastest group size, or None if grouping does not pay off."""
    if not isinstance(k, int):
        return None
    if not isinstance(vocab_size, int):
        return _GROUP_SIZE

    def work(size: int) -> int:
        # The number of sorted elements, plus a sixteenth of the logits that are copied if the last
        # group needs padding.
        return -(-vocab_size // size) + k * size + (vocab_size // 16 if vocab_size % size else 0)

    best = min(range(1, math.isqrt(vocab_size) + 1), key=work)
    return best if work(best) <= vocab_size // 2 else None

"""What a search returns, and how the hypotheses of a step are continued by one token."""

import math
from typing import Any, NamedTuple

from keras import ops

from ..shapes import reshape


class Hypotheses(NamedTuple):
    """The sentences that a search found, the best first.

    A place for which no sentence of a probability above 0 was found has length 0 and the score
    -inf.

    Attributes:
        token_ids: int32 (batch, n_best, max_length), the end token included, 0 after it.
        lengths: int32 (batch, n_best), in tokens, the end token included.
        scores: float32 (batch, n_best), natural logarithms.
    """

    token_ids: Any
    lengths: Any
    scores: Any


def continuations(log_probs, logits, k):
    """The best continuations of every hypothesis by one token.

    Of equal logits the lower token id comes first.

    Args:
        log_probs: float32 (batch, beam_size), of the hypotheses; -inf for one that is dead.
        logits: (batch, beam_size, vocab_size).
        k: How many to return; fewer where the vocabulary has fewer tokens.

    Returns:
        Log probabilities of the continued hypotheses, float32 (batch, beam_size, k), the best
        first, and their newest tokens, int32 of the same shape.
    """
    vocab_size = logits.shape[-1]
    if vocab_size is None:
        raise ValueError(
            "the logits of step must have a static last dimension (vocab_size), "
            f"received the shape {tuple(logits.shape)}"
        )
    logits = reshape(ops.cast(logits, "float32"), (*ops.shape(log_probs), vocab_size))
    top_logits, token_ids = _top_k(logits, min(k, vocab_size))
    # The log softmax of these few alone: the best one's from its probability, the others' by their distance to it.
    probabilities = ops.reshape(ops.softmax(logits), (-1, vocab_size))
    most_probable = select(probabilities, ops.reshape(token_ids[..., 0], (-1, 1)))
    log_prob = reshape(ops.log(most_probable), (*ops.shape(log_probs), 1))
    continued = log_probs[..., None] + (top_logits - top_logits[..., :1] + log_prob)
    # Where all logits of a row are -inf this is not a number, for which the comparison is false.
    continued = ops.where(continued > -float("inf"), continued, -float("inf"))
    return continued, token_ids


def _top_k(logits, k):
    """`ops.top_k`, which is slow on long rows, by way of shorter ones.

    The k highest logits lie in the k groups with the highest maxima. Groups of neighbours, taken in
    their order, leave equals in their order. A vocabulary that does not divide well, or is small,
    is left to `ops.top_k` alone.
    """
    batch, beam_size, vocab_size = ops.shape(logits)
    # Where the maxima and the members of k groups are fewest together.
    sizes = [n for n in range(1, math.isqrt(vocab_size) + 1) if vocab_size % n == 0]
    size = min(sizes, key=lambda size: vocab_size // size + k * size)
    num_groups = vocab_size // size
    if num_groups + k * size > vocab_size // 2:
        top_logits, token_ids = ops.top_k(logits, k)
        return top_logits, ops.cast(token_ids, "int32")
    groups = reshape(logits, (batch * beam_size, num_groups, size))
    _, chosen = ops.top_k(ops.max(groups, axis=-1), k)
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    kept = reshape(select(groups, chosen), (batch * beam_size, k * size))
    top_logits, indices = ops.top_k(kept, k)
    indices = ops.cast(indices, "int32")
    token_ids = select(chosen, indices // size) * size + indices % size
    shape = (batch, beam_size, k)
    return reshape(top_logits, shape), reshape(token_ids, shape)


def select(values, indices):
    """values[b, indices[b, i]] for every b and i; values are (batch, n, ...)."""
    batch, n = ops.shape(values)[:2]
    rows = ops.arange(batch, dtype="int32")[:, None] * n + indices
    selected = ops.take(ops.reshape(values, (-1, *values.shape[2:])), rows, axis=0)
    # JAX returns an empty `values` as it is, whatever the indices.
    return reshape(selected, (*ops.shape(indices), *values.shape[2:]))


def check_search_arguments(max_lengths, max_length, start_id, end_id):
    """Raises ValueError for arguments that no search can work with."""
    if len(max_lengths.shape) != 1:
        raise ValueError(
            f"max_lengths must have the shape (batch,), received {tuple(max_lengths.shape)}"
        )
    if isinstance(max_length, int) and max_length < 0:
        raise ValueError(f"max_length must be at least 0, received {max_length}")
    if start_id < 0:
        raise ValueError(f"start_id must be at least 0, received {start_id}")
    if end_id < 0:
        raise ValueError(f"end_id must be at least 0, received {end_id}")

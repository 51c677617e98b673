"""How the hypotheses of a step are continued by one token."""

import math
from typing import Any

from keras import ops

from ..gather import gather_in_rows
from ..shapes import reshape_inferring


def continuations(log_probs: Any, logits: Any, k: int) -> tuple[Any, Any]:
    """Returns the k best continuations of every hypothesis by one token.

    Among equal logits the lower token id comes first.

    Args:
        log_probs: float32 (batch, beam_size), of the hypotheses; -inf for those that are not continued.
        logits: (batch, beam_size, vocab_size).
        k: int. Fewer are returned if the vocabulary is smaller.

    Returns:
        Log probabilities of the continued hypotheses, float32 (batch, beam_size, k), the best first, and their
        newest tokens, int32 (batch, beam_size, k).

    Raises:
        ValueError: The vocabulary size is not static.
    """
    vocab_size = logits.shape[-1]
    if vocab_size is None:
        raise ValueError(
            "the logits of step must have a static vocab_size as their last dimension; "
            f"received logits of shape {tuple(logits.shape)}"
        )
    sizes = ops.shape(log_probs)
    logits = reshape_inferring(ops.cast(logits, "float32"), (*sizes, vocab_size))
    top_logits, token_ids = top_k(logits, min(k, vocab_size))  # (batch, beam_size, k)
    # Of the log softmax only these entries are computed: the best from its probability, the others from their
    # distance to the best.
    probabilities = ops.reshape(ops.softmax(logits), (-1, vocab_size))  # (batch * beam_size, vocab_size)
    highest = gather_in_rows(probabilities, ops.reshape(token_ids[..., 0], (-1, 1)))  # (batch * beam_size, 1)
    log_highest = reshape_inferring(ops.log(highest), (*sizes, 1))
    continued = log_probs[..., None] + (top_logits - top_logits[..., :1] + log_highest)
    # NaN if all logits of a row are -inf; the comparison is then false.
    return ops.where(continued > -math.inf, continued, -math.inf), token_ids


def top_k(logits: Any, k: int) -> tuple[Any, Any]:
    """Computes `keras.ops.top_k` of long rows by way of shorter ones, which is several times as fast.

    The k highest logits lie in the k groups of neighbors with the highest maxima. Groups stay in their order, so
    that equal logits stay in theirs.

    Args:
        logits: float32 (batch, beam_size, vocab_size).
        k: int, at most vocab_size.

    Returns:
        The highest logits, float32 (batch, beam_size, k), and their token ids, int32 (batch, beam_size, k).
    """
    batch, beam_size, vocab_size = ops.shape(logits)
    group_size = _group_size(vocab_size, k)
    if group_size is None:
        top_logits, token_ids = ops.top_k(logits, k)
        return top_logits, ops.cast(token_ids, "int32")
    num_groups = -(-vocab_size // group_size)
    if missing := num_groups * group_size - vocab_size:
        # Behind all tokens, so that of equals at -inf a token comes first.
        logits = ops.pad(logits, ((0, 0), (0, 0), (0, missing)), constant_values=-math.inf)
    groups = reshape_inferring(logits, (batch * beam_size, num_groups, group_size))
    _, chosen = ops.top_k(ops.max(groups, axis=-1), k)
    # In ascending order, by fewer operations than `ops.sort`.
    chosen = -ops.top_k(-ops.cast(chosen, "int32"), k)[0]  # (batch * beam_size, k)
    members = reshape_inferring(gather_in_rows(groups, chosen), (batch * beam_size, k * group_size))
    top_logits, indices = ops.top_k(members, k)
    indices = ops.cast(indices, "int32")
    token_ids = gather_in_rows(chosen, indices // group_size) * group_size + indices % group_size
    shape = (batch, beam_size, k)
    return reshape_inferring(top_logits, shape), reshape_inferring(token_ids, shape)


def _group_size(vocab_size: int, k: int) -> int | None:
    """The size of groups with the least work, or None if groups do not pay."""

    def work(size: int) -> int:
        # Sorted elements, and a sixteenth of a copy of all logits if the last group has to be filled.
        return -(-vocab_size // size) + k * size + (vocab_size // 16 if vocab_size % size else 0)

    best = min(range(1, math.isqrt(vocab_size) + 1), key=work)
    return best if work(best) <= vocab_size // 2 else None

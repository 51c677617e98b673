"""How the hypotheses of a step are continued by one token."""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from keras import ops

from ..config.rules import require
from ..gather import gather_in_rows
from ..shapes import last_size, reshape_inferring
from ..tensors import Dimension, Tensor
from .hypotheses import is_any_of
from .top_k import top_k

# Stands for the last column of logits that `blocking.py` has made, which is no token.
BLOCKED = None


def continuations(
    log_probs: Annotated[Tensor, "float32 (batch, beam_size)"],
    logits: Annotated[Tensor, "(batch, beam_size, vocab_size)"],
    k: int,
    forbidden_ids: Sequence[int | None] = (),
) -> tuple[Annotated[Tensor, "float32 (batch, beam_size, k)"], Annotated[Tensor, "int32 (batch, beam_size, k)"]]:
    """Returns the k best continuations of every hypothesis by one token that is not forbidden.

    Among equal logits the lower token id comes first.

    Args:
        log_probs: of the hypotheses; -inf for those that are not continued.
        logits: of the next token.
        k: how many. Fewer are returned if the vocabulary is smaller, or dead ones if its size is not static.
        forbidden_ids: tokens that continue nothing, and `BLOCKED` if the logits have such a column. The probabilities
            of the others stay as they are. Defaults to none.

    Returns:
        Log probabilities of the continued hypotheses, the best first, and their newest tokens.

    Raises:
        ConfigError: A forbidden id is not in the vocabulary.
    """
    vocab_size = last_size(logits)
    sizes = ops.shape(log_probs)
    logits = reshape_inferring(ops.cast(logits, "float32"), (*sizes, vocab_size))
    if forbidden_ids:
        best_logits, best_ids = top_k(logits, 1)  # (batch, beam_size, 1)
        num_tokens = vocab_size - (BLOCKED in forbidden_ids)
        allowed = logits + minus_infinity_at(forbidden_ids, vocab_size)
        top_logits, token_ids = top_k(allowed, _at_most(k, num_tokens))
    else:
        top_logits, token_ids = top_k(logits, _at_most(k, vocab_size))  # (batch, beam_size, k)
        best_logits, best_ids = top_logits[..., :1], token_ids[..., :1]
    # Of the log softmax only these entries are computed: the best of all from its probability, the others from their
    # distance to the best.
    probabilities = ops.reshape(ops.softmax(logits), (-1, vocab_size))  # (batch * beam_size, vocab_size)
    highest = gather_in_rows(probabilities, ops.reshape(best_ids, (-1, 1)))  # (batch * beam_size, 1)
    log_highest = reshape_inferring(ops.log(highest), (*sizes, 1))
    continued = log_probs[..., None] + (top_logits - best_logits + log_highest)
    # NaN if all logits of a row are -inf; the comparison is then false.
    return ops.where(continued > -math.inf, continued, -math.inf), token_ids


def _at_most(k: int, size: Dimension) -> int:
    return min(k, size) if isinstance(size, int) else k


def minus_infinity_at(token_ids: Sequence[int | None], vocab_size: Dimension) -> Tensor:
    """Returns float32 (vocab_size,), which forbids tokens, and the column `BLOCKED`, if it is added to logits.

    Raises:
        ConfigError: A token is not in the vocabulary.
    """
    known = tuple(token_id for token_id in token_ids if token_id is not BLOCKED)
    if not isinstance(vocab_size, int):
        blocked = (vocab_size - 1,) if BLOCKED in token_ids else ()
        is_forbidden = is_any_of(ops.arange(vocab_size, dtype="int32"), (*known, *blocked))
        return ops.where(is_forbidden, np.float32(-math.inf), np.float32(0))
    last = vocab_size - 1 - (BLOCKED in token_ids)
    for token_id in known:
        require(0 <= token_id <= last, "forbidden_ids", f"from 0 to {last}", known)
    penalties = np.zeros(vocab_size, "float32")
    penalties[list(known)] = -math.inf
    penalties[last + 1 :] = -math.inf
    return penalties

"""Beam search with a length penalty."""

import math

import numpy as np
from keras import ops

from ..shapes import reshape
from .hypotheses import Hypotheses, check_search_arguments, continuations, select
from .live_rows import drop_done_rows, note, store

IMPOSSIBLE = -float("inf")


def beam_search(
    step,
    state,
    max_lengths,
    *,
    max_length,
    start_id,
    end_id,
    beam_size=4,
    length_penalty=0.6,
    n_best=1,
    drop_done=False,
):
    """Looks for the sentences with the highest log P / ((5 + length) / 6) ** length_penalty.

    Section 6.1 of "Attention Is All You Need", with the length penalty of Wu et al. (2016); the
    length counts the end token. At each step the best 2 * beam_size continuations of a sentence's
    live hypotheses are considered: those that end are finished, the best beam_size of the others
    stay live. At the maximum length of a sentence its hypotheses are cut: they finish as they are.
    A sentence is done as soon as nothing live can still change its n_best. Of equals the one that
    finished earlier comes first, then the lower place in the beam, then the lower token id.

    Args:
        step: The step function, see `keras_transformer.decoding`.
        state: What the first call of `step` receives: any nest of tensors.
        max_lengths: int32 (batch,), the most tokens of each sentence, the end token included. 0
            gives an empty sentence with the score 0.
        max_length: int or int32 scalar tensor, the capacity of the result; `max_lengths` above it
            are lowered to it.
        start_id: int, the token fed at position 0.
        end_id: int, the token that ends a sentence.
        beam_size: int, how many hypotheses of a sentence live at a time.
        length_penalty: float, 0 or more. At 0 the plain log probability ranks the sentences; the
            higher, the better longer ones stand.
        n_best: int, how many sentences to return, at most `beam_size`.
        drop_done: bool, whether sentences that are done leave the batch, so that they cost nothing
            any more. Shapes must be able to change in a loop: TensorFlow, with an unknown batch.

    Returns:
        `Hypotheses`.

    Raises:
        ValueError: If `beam_size`, `n_best` or `length_penalty` is out of its range, `max_lengths`
            is not of rank 1, or `max_length`, `start_id` or `end_id` is negative.

    Example:

    >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.4, 0.4]]  # [previous][next]
    >>> def step(token_ids, parents, position, state):
    ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
    >>> found = beam_search(
    ...     step, (), [5], max_length=5, start_id=0, end_id=1, beam_size=2, length_penalty=0.0
    ... )
    >>> found.token_ids[0, 0], found.scores[0, 0]
    [1, 0, 0, 0, 0], -1.204  # log 0.3, where greedy search finds 0.6 * 0.4 = 0.24
    """
    max_lengths = ops.convert_to_tensor(max_lengths, "int32")
    check_search_arguments(max_lengths, max_length, start_id, end_id)
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1, received {beam_size}")
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best must be from 1 to beam_size ({beam_size}), received {n_best}")
    if not 0 <= length_penalty < math.inf:
        raise ValueError(
            f"length_penalty must be a finite number of at least 0, received {length_penalty}"
        )
    max_lengths = ops.minimum(max_lengths, max_length)[:, None]
    batch = ops.shape(max_lengths)[0]

    def penalty(lengths):
        return ((5.0 + ops.cast(lengths, "float32")) / 6.0) ** length_penalty

    # A hypothesis is dead when its log probability is -inf, and so is all that continues it. When
    # all of a sentence's are dead, nothing reaches its finished ones any more: it is done.
    def any_live(position, history, results, live):
        return ops.any(live["log_probs"] > IMPOSSIBLE)

    # history: the links of every step, (max_length + 1, batch, beam_size, 2). The last row stays
    # unused: it gives a compiler a row to read where max_length is 0.
    # results: what was found for all sentences; those in live["rows"] have theirs in live["found"].
    def extend(position, history, results, live):
        scores, ends = live["found"]
        links = live["links"]
        logits, state = step(links[..., 1], links[..., 0], position, live["state"])
        log_probs, token_ids = continuations(live["log_probs"], logits, 2 * beam_size)
        k = token_ids.shape[-1]
        flat_shape = (ops.shape(log_probs)[0], beam_size * k)
        log_probs, indices = ops.top_k(reshape(log_probs, flat_shape), beam_size * min(2, k))
        parents = ops.cast(indices // k, "int32")
        token_ids = select(reshape(token_ids, flat_shape), indices)

        length = position + 1
        ended = (token_ids == end_id) | (length >= live["max_lengths"])
        new_scores = ops.where(ended, log_probs / penalty(length), IMPOSSIBLE)
        new_ends = ops.stack([ops.full_like(parents, length), parents, token_ids], axis=-1)
        # top_k takes the first of equals, so what finished earlier stands first.
        scores, kept = ops.top_k(ops.concatenate([scores, new_scores], axis=1), n_best)
        ends = select(ops.concatenate([ends, new_ends], axis=1), kept)

        log_probs, kept = ops.top_k(ops.where(ended, IMPOSSIBLE, log_probs), beam_size)
        links = select(ops.stack([parents, token_ids], axis=-1), kept)
        history = note(history, position, live["rows"], links)

        # log P only falls, and no length divides it by more than the maximum length does.
        attainable = log_probs[:, :1] / penalty(live["max_lengths"])
        log_probs = ops.where(scores[:, -1:] >= attainable, IMPOSSIBLE, log_probs)
        live = {
            **live,
            "found": (scores, ends),
            "links": links,
            "log_probs": log_probs,
            "state": state,
        }
        if drop_done:
            is_live = ops.any(log_probs > IMPOSSIBLE, axis=-1)
            results, live = drop_done_rows(is_live, results, live)
        return length, history, results, live

    identity = ops.broadcast_to(ops.arange(beam_size, dtype="int32"), (batch, beam_size))
    start_ids = ops.full((batch, beam_size), start_id, "int32")
    first_alone = np.where(np.arange(beam_size) == 0, 0.0, IMPOSSIBLE).astype("float32")
    results = (
        ops.where(max_lengths > 0, IMPOSSIBLE, first_alone[:n_best]),
        # An end is (length, parent, token).
        ops.zeros((batch, n_best, 3), "int32"),
    )
    live = {
        "rows": ops.arange(batch, dtype="int32"),
        "max_lengths": max_lengths,
        "found": results,
        # The parent and the token of every live hypothesis.
        "links": ops.stack([identity, start_ids], axis=-1),
        "log_probs": ops.where(max_lengths > 0, first_alone, IMPOSSIBLE),
        "state": state,
    }
    history = ops.zeros((max_length + 1, batch, beam_size, 2), "int32")
    num_steps, history, results, live = ops.while_loop(
        any_live, extend, (ops.zeros((), "int32"), history, results, live)
    )
    scores, ends = store(results, live["rows"], live["found"])
    token_ids = _read_back(history, num_steps, ends, max_length)
    return Hypotheses(token_ids, ends[..., 0], scores)


def _read_back(history, num_steps, ends, max_length):
    """Token ids, (batch, n_best, max_length), by following the links from each end to the start."""
    lengths, last_links = ends[..., 0], ends[..., 1:]

    def any_left(position, links, token_ids):
        return position >= 0

    def prepend(position, links, token_ids):
        links = select(ops.take(history, position, axis=0), links[..., 0])
        links = ops.where((position < lengths - 1)[..., None], links, last_links)
        newest = ops.where(position < lengths, links[..., 1], 0)
        token_ids = ops.scatter_update(token_ids, ops.reshape(position, (1, 1)), newest[None])
        return position - 1, links, token_ids

    token_ids = ops.zeros((max_length, *ops.shape(lengths)), "int32")
    _, _, token_ids = ops.while_loop(any_left, prepend, (num_steps - 1, last_links, token_ids))
    return ops.transpose(token_ids, (1, 2, 0))

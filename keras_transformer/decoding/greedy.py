"""Greedy search: the most probable next token, again and again."""

from keras import ops

from .hypotheses import Hypotheses, check_search_arguments, continuations
from .live_rows import drop_done_rows, note, store


def greedy_search(
    step, state, max_lengths, *, max_length, start_id, end_id, drop_done=False
):
    """Follows the most probable token at each step until the end token or the maximum length.

    The score is the plain log probability of the sentence, which is what beam search gives with a
    length penalty of 0. Greedy search has no way back. Beam search with a beam of 1 also weighs an
    end token that is only the second best, so that it may return another sentence, whose log
    probability is never lower.

    Args:
        step: The step function, see `keras_transformer.decoding`; its beam dimension is 1 here.
        state: What the first call of `step` receives: any nest of tensors.
        max_lengths: int32 (batch,), the most tokens of each sentence, the end token included. A
            sentence that reaches it is cut there; 0 gives an empty sentence with the score 0.
        max_length: int or int32 scalar tensor, the capacity of the result; `max_lengths` above it
            are lowered to it.
        start_id: int, the token fed at position 0.
        end_id: int, the token that ends a sentence.
        drop_done: bool, whether sentences that are done leave the batch, so that they cost nothing
            any more. Shapes must be able to change in a loop: TensorFlow, with an unknown batch.

    Returns:
        `Hypotheses` with n_best = 1.

    Raises:
        ValueError: If `max_lengths` is not of rank 1, or `max_length`, `start_id` or `end_id` is
            negative.

    Example:

    >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
    >>> def step(token_ids, parents, position, state):
    ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
    >>> greedy_search(step, (), [5], max_length=5, start_id=0, end_id=1).token_ids[0, 0]
    [2, 1, 0, 0, 0]
    """
    max_lengths = ops.convert_to_tensor(max_lengths, "int32")
    check_search_arguments(max_lengths, max_length, start_id, end_id)
    max_lengths = ops.minimum(max_lengths, max_length)[:, None]
    batch = ops.shape(max_lengths)[0]

    def any_live(position, history, results, live):
        return ops.any(live["is_live"])

    # results: what was found for all sentences; those in live["rows"] have theirs in live["found"].
    def extend(position, history, results, live):
        is_live = live["is_live"]
        lengths, log_probs = live["found"]
        parents = ops.zeros_like(live["token_ids"])
        logits, state = step(live["token_ids"], parents, position, live["state"])
        continued, token_ids = continuations(log_probs, logits, 1)
        token_ids = token_ids[..., 0]
        log_probs = ops.where(is_live, continued[..., 0], log_probs)
        length = position + 1
        lengths = ops.where(is_live, length, lengths)
        history = note(history, position, live["rows"], token_ids)
        possible = log_probs > -float("inf")
        is_live = is_live & possible & (token_ids != end_id) & (length < live["max_lengths"])
        live = {
            **live,
            "found": (lengths, log_probs),
            "is_live": is_live,
            "token_ids": token_ids,
            "state": state,
        }
        if drop_done:
            results, live = drop_done_rows(is_live[:, 0], results, live)
        return length, history, results, live

    results = ops.zeros((batch, 1), "int32"), ops.zeros((batch, 1), "float32")
    live = {
        "rows": ops.arange(batch, dtype="int32"),
        "max_lengths": max_lengths,
        "found": results,
        "is_live": max_lengths > 0,
        "token_ids": ops.full((batch, 1), start_id, "int32"),
        "state": state,
    }
    history = ops.zeros((max_length, batch, 1), "int32")
    _, history, results, live = ops.while_loop(
        any_live, extend, (ops.zeros((), "int32"), history, results, live)
    )
    lengths, scores = store(results, live["rows"], live["found"])
    lengths = ops.where(scores > -float("inf"), lengths, 0)
    token_ids = ops.transpose(history, (1, 2, 0))
    within = ops.arange(max_length, dtype="int32") < lengths[..., None]
    return Hypotheses(ops.where(within, token_ids, 0), lengths, scores)

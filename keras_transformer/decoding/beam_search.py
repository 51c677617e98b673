"""Beam search with a length penalty."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Generic, NamedTuple

import numpy as np
from keras import ops

from ..checks import integer, require
from ..config import search_options
from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor, reshape_inferring
from .constraints import NO_CONSTRAINTS, Constraints, History, is_any_of
from .continuations import continuations, stable_top_k
from .margins import NO_DECISION, margin_of_beam_step, margin_of_order
from .protocol import Hypotheses, State, Step
from .search_loop import Growth, check_search_arguments, extend_until_finished

IMPOSSIBLE = -math.inf


class _Results(NamedTuple):
    """The best finished hypotheses of each sequence: n_best, and one more for a margin."""

    scores: Tensor  # float32 (n, number of results)
    ends: Tensor  # int32 (n, number of results, 3): the last back pointer of each hypothesis
    margins: Any  # float32 (n,), or () if they are not computed


class _Active(NamedTuple, Generic[State]):
    """The sequences that are not finished.

    A hypothesis with a log probability of -inf is dead, and so are its continuations. A sequence is
    finished when all its hypotheses are dead.
    """

    rows: Tensor  # int32 (n,), indices in the batch
    max_lengths: Tensor  # int32 (n, 1)
    max_penalties: Tensor  # float32 (n, 1), the length penalties of the maximum lengths
    results: _Results
    back_pointers: (
        Tensor  # int32 (n, beam_size, 3): length, parent and newest token of each hypothesis
    )
    log_probs: Tensor  # float32 (n, beam_size)
    history: History
    state: State  # of the step function


def beam_search(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_ids: int | Annotated[Tensor, "int (batch, n)"],
    end_ids: int | Sequence[int],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
    growth: Growth | None = None,
    with_margins: bool = False,
) -> Hypotheses:
    """Searches for the sequences with the highest `log P / ((5 + length) / 6) ** length_penalty`.

    See section 6.1 of "Attention Is All You Need" and, for the length penalty, Wu et al. (2016).
    The length includes the end token. At each step, the best beam_size continuations that do not
    end are kept. A hypothesis is finished if its end token is among the best beam_size
    continuations. At the maximum length of a sequence, all of its hypotheses end. If every next
    token is forbidden, a hypothesis ends with the score of its tokens so far. The search for a
    sequence ends when no hypothesis can become one of its n_best results. Ties go to the hypothesis
    that finished first, then to the lower index in the beam, then to the lower token id.

    Args:
        step: step function. See `keras_transformer.decoding.protocol`.
        state: the state for the first call of `step`.
        max_lengths: maximum length of each sequence in tokens, including the end token. Longer
            sequences are truncated. A maximum of 0 returns an empty sequence with a score of 0.
        max_length: maximum length of all sequences, which is the size of the result.
        start_ids: the token at position 0, or the first tokens of each sequence, int (batch, n).
            The last of these tokens is at position 0, and the state already contains the others.
            Negative ids are padding.
        end_ids: the token that ends a sequence, or several such tokens.
        beam_size: number of hypotheses that continue at each step, at most 1,000. Defaults to 4.
        length_penalty: from 0 to 5. With 0, sequences are ranked by log probability; higher values
            favor longer sequences. Defaults to 0.6.
        n_best: number of sequences to return, at most `beam_size`. Defaults to 1.
        constraints: restrictions on the tokens. Defaults to no constraints.
        drop_finished: whether to remove finished sequences from the batch. This requires a backend
            on which shapes can change in a loop: TensorFlow, with an unknown batch size. Defaults
            to False.
        growth: how the state grows if it has room for only the first steps. Not supported with
            `drop_finished`. Defaults to None: the state has room for all steps, or every step makes
            room for itself.
        with_margins: whether to compute the margin of each sequence, see `margins.py`. Defaults to
            False.

    Returns:
        `Hypotheses`.

    Raises:
        ConfigError: An argument is invalid.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.4, 0.4]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = beam_search(
        ...     step, (), [5], max_length=5, start_ids=0, end_ids=1, beam_size=2, length_penalty=0.0
        ... )
        >>> np.array(hypotheses.token_ids[0, 0]).tolist(), round(float(hypotheses.scores[0, 0]), 3)
        ([1, 0, 0, 0, 0], -1.204)

        The score is log 0.3. Greedy search finds a probability of 0.6 * 0.4 = 0.24.
    """
    beam_size = search_options.beam_size("beam_size", beam_size)
    length_penalty = search_options.length_penalty("length_penalty", length_penalty)
    n_best = integer("n_best", n_best)
    require(1 <= n_best <= beam_size, "n_best", f"from 1 to beam_size={beam_size}", n_best)
    max_lengths, max_length, start_ids, end_ids = check_search_arguments(
        max_lengths, max_length, start_ids, end_ids, constraints
    )

    def extend(position: Tensor, active: _Active[State]) -> tuple[_Active[State], Tensor]:
        """Returns the active sequences with a new token per hypothesis, and the back pointers."""
        lengths, parents, newest = ops.unstack(active.back_pointers, 3, axis=-1)
        history = active.history.append(newest, parents)
        logits, state = step(constraints.token_at(newest), parents, position, active.state)
        logits, allowed_logits = constraints.apply(
            logits, newest, history, position, active.max_lengths, end_ids
        )
        # At least beam_size of these continuations do not end, because a hypothesis has only one
        # continuation per end token.
        num_continuations = (1 + len(end_ids)) * beam_size
        log_probs, token_ids, is_dead_end = continuations(
            active.log_probs, logits, allowed_logits, num_continuations + int(with_margins)
        )
        k = token_ids.shape[-1]  # log_probs and token_ids: (n, beam_size, k)
        flat_shape = (ops.shape(log_probs)[0], beam_size * k)
        log_probs = all_log_probs = reshape_inferring(log_probs, flat_shape)
        num_continuations = beam_size * min(1 + len(end_ids), k)
        log_probs, indices = stable_top_k(log_probs, num_continuations)
        # From here on, token_ids and log_probs are (n, num_continuations or fewer).
        parents = indices // k
        token_ids = gather_in_rows(reshape_inferring(token_ids, flat_shape), indices)

        length = position + 1
        is_end = is_any_of(token_ids, end_ids) | (length >= active.max_lengths)
        is_finished = is_end & (np.arange(is_end.shape[-1]) < beam_size)
        new_lengths = ops.full_like(parents, length)
        back_pointers = ops.stack([new_lengths, parents, token_ids], axis=-1)
        # If every next token is forbidden, a hypothesis ends with its tokens so far. It wins ties
        # against the hypotheses that end now, as do hypotheses that finished earlier.
        ending_lengths = ops.concatenate([lengths, new_lengths], axis=1)
        ending_scores = ops.where(
            ops.concatenate([is_dead_end, is_finished], axis=1),
            ops.concatenate([active.log_probs, log_probs], axis=1)
            / length_penalties(ending_lengths, length_penalty),
            IMPOSSIBLE,
        )
        scores, kept = stable_top_k(
            ops.concatenate([active.results.scores, ending_scores], axis=1), num_results
        )
        ends = gather_in_rows(
            ops.concatenate([active.results.ends, active.back_pointers, back_pointers], axis=1),
            kept,
        )

        worst_result = scores[:, n_best - 1 : n_best]
        margins = active.results.margins
        if with_margins:
            # The best of the other continuations, if there is another one.
            padded = ops.pad(all_log_probs, ((0, 0), (0, 1)), constant_values=IMPOSSIBLE)
            candidates, _ = stable_top_k(padded, num_continuations + 1)
            penalties = length_penalties(new_lengths[:, :1], length_penalty)
            margin = margin_of_beam_step(
                candidates, is_end, beam_size, worst_result, penalties, active.max_penalties
            )
            margins = ops.minimum(margins, margin)

        log_probs, kept = stable_top_k(ops.where(is_end, IMPOSSIBLE, log_probs), beam_size)
        back_pointers = gather_in_rows(back_pointers, kept)
        # The search for a sequence ends when its n_best results cannot change anymore: log P can
        # only decrease, and the maximum length has the largest divisor. Constraints must not
        # increase log P.
        attainable = log_probs[:, :1] / active.max_penalties
        log_probs = ops.where(worst_result >= attainable, IMPOSSIBLE, log_probs)
        results = _Results(scores, ends, margins)
        return active._replace(
            results=results,
            back_pointers=back_pointers,
            log_probs=log_probs,
            history=history,
            state=state,
        ), back_pointers

    # With margins, keep the best of the sequences that are not returned.
    num_results = n_best + int(with_margins)
    batch = ops.shape(max_lengths)[0]
    parents = ops.broadcast_to(ops.arange(beam_size, dtype="int32"), (batch, beam_size))
    token_ids = ops.broadcast_to(start_ids[:, -1:], (batch, beam_size))
    # All hypotheses are equal at the start, so only the first is alive.
    only_first = np.where(np.arange(beam_size + 1) == 0, 0.0, IMPOSSIBLE).astype("float32")
    has_room = max_lengths > 0
    # If the maximum length is 0, the only result is the empty sequence.
    scores = ops.where(has_room, IMPOSSIBLE, only_first[:num_results])
    margins = ops.full((batch,), NO_DECISION, "float32") if with_margins else ()
    active = _Active(
        rows=ops.arange(batch, dtype="int32"),
        max_lengths=max_lengths,
        max_penalties=length_penalties(max_lengths, length_penalty),
        results=_Results(scores, ops.zeros((batch, num_results, 3), "int32"), margins),
        back_pointers=ops.stack([ops.zeros_like(parents), parents, token_ids], axis=-1),
        log_probs=ops.where(has_room, only_first[:beam_size], IMPOSSIBLE),
        history=constraints.start_history(start_ids, max_length, beam_size),
        state=state,
    )
    # The back pointers of every step. The last row is not used, but a compiler needs a row to read
    # if max_length is 0.
    record = ops.zeros((max_length + 1, batch, beam_size, 3), "int32")
    num_steps, record, (scores, ends, margins) = extend_until_finished(
        extend,
        lambda active: ops.any(active.log_probs > IMPOSSIBLE, axis=-1),
        active,
        record,
        drop_finished,
        growth,
    )
    if with_margins:
        margins = ops.minimum(margins, margin_of_order(scores))
        scores, ends = scores[:, :n_best], ends[:, :n_best]
    token_ids = constraints.token_at(_read_back(record, num_steps, ends, max_length))
    return Hypotheses(token_ids, ends[..., 0], scores, margins if with_margins else None)


def length_penalties(
    lengths: Annotated[Tensor, "int32 (...)"], length_penalty: float
) -> Annotated[Tensor, "float32 (...)"]:
    """Returns the divisors of the log probabilities of sequences of these lengths."""
    return ((5.0 + ops.cast(lengths, "float32")) / 6.0) ** length_penalty


def _read_back(record: Tensor, num_steps: Tensor, ends: Tensor, max_length: Dimension) -> Tensor:
    """Follows the back pointers from each end (batch, n_best, 3) back to the start.

    Returns:
        int32 (batch, n_best, max_length), the token ids.
    """
    lengths = ends[..., 0]

    def prepend(
        position: Tensor, back_pointers: Tensor, token_ids: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        # (batch, n_best, 3)
        back_pointers = gather_in_rows(ops.take(record, position, axis=0), back_pointers[..., 1])
        back_pointers = ops.where((position < lengths - 1)[..., None], back_pointers, ends)
        newest = ops.where(position < lengths, back_pointers[..., 2], 0)
        token_ids = ops.scatter_update(token_ids, ops.reshape(position, (1, 1)), newest[None])
        return position - 1, back_pointers, token_ids

    start = num_steps - 1, ends, ops.zeros((max_length, *ops.shape(lengths)), "int32")
    _, _, token_ids = ops.while_loop(lambda position, *_: position >= 0, prepend, start)
    return ops.transpose(token_ids, (1, 2, 0))

"""Sampling: the next token is drawn from the model's probabilities."""

import math
from collections.abc import Sequence
from typing import Annotated

from keras import ops

from ..config.rules import Positive, Size, check, require
from ..gather import gather_in_rows
from ..shapes import last_size
from ..tensors import Dimension, Tensor
from .continuations import minus_infinity_at
from .hypotheses import Hypotheses, check_search_arguments
from .protocol import State, Step
from .random_numbers import uniform_numbers
from .restrictions import Restrictions, restrict
from .single_hypothesis import extend_single_hypothesis
from .top_k import top_k_of_rows


def sample(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    seed: Dimension,
    rows: Annotated[Tensor, "int (batch,)"] | None = None,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
    repetition_penalty: float | Tensor = 1.0,
    no_repeat_ngram_size: int = 0,
    min_length: int | Tensor = 0,
    forbidden_ids: Sequence[int] = (),
    placeholders: Annotated[Tensor, "bool (batch, n)"] | None = None,
    drop_finished: bool = False,
) -> Hypotheses:
    """Draws each next token from the model's probabilities until an end token or the maximum length.

    The logits are penalized for repetition and divided by the temperature; of the tokens that are not forbidden the
    top_k are kept, and of these the fewest that together have the probability top_p. What is kept is drawn from, in
    proportion to its probabilities.

    The numbers that are drawn depend on the seed, the row and the position only: not on the backend, nor on the rest of
    the batch. The score is the log probability of the sequence as in greedy search: before the temperature and without
    the restrictions.

    Args:
        step: the step function, see `keras_transformer.decoding.protocol`; its beam_size is 1.
        state: what the first call of `step` receives.
        max_lengths: the most tokens of each sequence, including the end token. A sequence that reaches it is truncated
            there; 0 gives an empty sequence with score 0.
        max_length: the most tokens of any sequence, the size of the result.
        start_id: the token at position 0; or the tokens that each sequence starts with, int (batch, n), of which the
            state knows all but the last, which is at position 0. Negative ids are none.
        end_id: the token that ends a sequence, or several of which each does.
        seed: int, of which 64 bits count, or int32 scalar. The same seed gives the same tokens.
        rows: the numbers of the rows, on which the numbers that are drawn depend. Defaults to None: 0, 1, 2, ...
        temperature: what the logits are divided by: below 1 for more probable tokens, above 1 for more variety.
            Defaults to 1.
        top_k: how many of the most probable tokens are kept; of equals those with lower ids. Defaults to None: all.
        top_p: the probability that is kept, above 0 and at most 1 (Holtzman et al., 2020). Defaults to None: all.
        repetition_penalty: above 1 to make tokens that a sequence has already less probable, those that it starts with
            too: their logits are divided by it if they are positive, multiplied by it otherwise (Keskar et al., 2019).
            Scores are those of the probabilities that this gives. Defaults to 1: no penalty.
        no_repeat_ngram_size: no n-gram of as many tokens is there twice, with those that a sequence starts with; the
            probabilities of what remains stay as they are. Defaults to 0: n-grams may be repeated.
        min_length: the fewest tokens, including the end token: no sequence ends before, unless it reaches its maximum.
            The probabilities of other tokens stay as they are. Defaults to 0.
        forbidden_ids: tokens that are never chosen. Defaults to none.
        placeholders: bool (batch, n). Which of the last n tokens of the vocabulary each sequence has exactly once, with
            those that it starts with: it does not end before, and has none of the others. The probabilities of other
            tokens stay as they are. A sequence's maximum must have room for them. Defaults to None: they are tokens
            like others.
        drop_finished: whether finished sequences leave the batch. Shapes must be able to change in a loop:
            TensorFlow, with an unknown batch size. Defaults to False.

    Returns:
        `Hypotheses` with n_best = 1.

    Raises:
        ConfigError: An argument breaks its rule.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> found = sample(step, (), [5, 5], max_length=5, start_id=0, end_id=1, seed=7)
        >>> np.array(found.token_ids[:, 0]).tolist()
        [[2, 1, 0, 0, 0], [2, 2, 1, 0, 0]]
    """
    limits, end_ids = check_search_arguments(max_lengths, max_length, start_id, end_id)
    _check(temperature, top_k, top_p)
    batch_size = ops.shape(limits)[0]
    numbers = uniform_numbers(seed, batch_size if rows is None else rows, max_length)

    restrictions = Restrictions(repetition_penalty, no_repeat_ngram_size, min_length, forbidden_ids, placeholders)
    step, state, not_chosen = restrict(
        step, state, restrictions, start_id, end_ids, limits=limits, max_length=max_length
    )

    def choose(log_probs: Tensor, logits: Tensor, position: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        vocab_size = last_size(logits)
        logits = ops.reshape(ops.cast(logits, "float32"), (-1, vocab_size))  # (n, vocab_size)
        # One column of the numbers of the rows that are left: (n, 1).
        drawn = ops.take(ops.take(numbers, position, axis=1), rows, axis=0)[:, None]
        allowed = logits + minus_infinity_at(not_chosen, vocab_size) if not_chosen else logits
        token_ids = draw(allowed / temperature, drawn, top_k, top_p)
        chosen = gather_in_rows(logits, token_ids) - ops.logsumexp(logits, axis=-1, keepdims=True)
        continued = log_probs + ops.where(gather_in_rows(allowed, token_ids) > -math.inf, chosen, -math.inf)
        # NaN if all logits of a row are -inf; the comparison is then false.
        return ops.where(continued > -math.inf, continued, -math.inf), token_ids

    return extend_single_hypothesis(
        step,
        state,
        limits,
        choose,
        max_length=max_length,
        start_id=start_id,
        end_ids=end_ids,
        drop_finished=drop_finished,
    )


def draw(
    logits: Annotated[Tensor, "float32 (n, vocab_size)"],
    numbers: Annotated[Tensor, "float32 (n, 1)"],
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
) -> Annotated[Tensor, "int32 (n, 1)"]:
    """Draws a token for each row from the probabilities of those that are kept.

    Args:
        logits: of all tokens; -inf is never drawn unless there is nothing else.
        numbers: uniform, from 0, inclusive, to 1, exclusive.
        top_k: how many tokens are kept. Defaults to None: all.
        top_p: the probability that is kept. Defaults to None: all.
    """
    token_ids = None
    if top_k is not None or top_p is not None:
        vocab_size = last_size(logits)
        is_known = isinstance(vocab_size, int)
        k = vocab_size if top_k is None else min(top_k, vocab_size) if is_known else top_k
        logits, token_ids = top_k_of_rows(logits, k)
    probabilities = ops.softmax(logits)  # (n, k)
    # Up to and including each token, in the order of `token_ids`.
    cumulative = ops.cumsum(probabilities, axis=-1)
    is_kept = probabilities > 0
    if top_p is not None:
        # A token is kept if those before it have less than top_p.
        is_kept = ops.logical_and(is_kept, cumulative - probabilities < top_p)
    total = ops.max(ops.where(is_kept, cumulative, 0.0), axis=-1, keepdims=True)
    is_reached = ops.logical_and(cumulative > numbers * total, is_kept)
    places = ops.cast(ops.argmax(ops.cast(is_reached, "int32"), axis=-1, keepdims=True), "int32")  # the first
    return places if token_ids is None else gather_in_rows(token_ids, places)


def _check(temperature: float | Tensor, top_k: int | None, top_p: float | Tensor | None) -> None:
    # Tensors may be inputs of a compiled search, whose values are not known.
    if isinstance(temperature, (int, float)):
        check("temperature", float(temperature), Positive)
    if top_k is not None:
        check("top_k", top_k, Size)
    if isinstance(top_p, (int, float)):
        require(0 < top_p <= 1, "top_p", "above 0 and at most 1", top_p)

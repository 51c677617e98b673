"""Greedy search: the most probable next token at every step."""

from collections.abc import Sequence
from typing import Annotated

from ..tensors import Dimension, Tensor
from .continuations import continuations
from .hypotheses import Hypotheses, check_search_arguments
from .protocol import State, Step
from .restrictions import Restrictions, restrict
from .single_hypothesis import extend_single_hypothesis


def greedy_search(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    repetition_penalty: float | Tensor = 1.0,
    no_repeat_ngram_size: int = 0,
    min_length: int | Tensor = 0,
    forbidden_ids: Sequence[int] = (),
    placeholders: Annotated[Tensor, "bool (batch, n)"] | None = None,
    drop_finished: bool = False,
) -> Hypotheses:
    """Takes the most probable token at each step until the end token or the maximum length.

    The score is the log probability of the sequence, as in beam search with a length penalty of 0. Greedy search
    never goes back. Beam search with a beam of 1 also considers an end token that is second best, so that it may
    return another sequence, whose log probability is never lower.

    Args:
        step: the step function, see `keras_transformer.decoding.protocol`; its beam_size is 1.
        state: what the first call of `step` receives.
        max_lengths: the most tokens of each sequence, including the end token. A sequence that reaches it is truncated
            there; 0 gives an empty sequence with score 0.
        max_length: the most tokens of any sequence, the size of the result.
        start_id: the token at position 0; or the tokens that each sequence starts with, int (batch, n), of which the
            state knows all but the last, which is at position 0. Negative ids are none.
        end_id: the token that ends a sequence, or several of which each does.
        repetition_penalty: above 1 to make tokens that a sequence has already less probable, those that it starts with
            too: their logits are divided by it if they are positive, multiplied by it otherwise (Keskar et al., 2019).
            Scores are those of the probabilities that this gives. Defaults to 1: no penalty.
        no_repeat_ngram_size: no n-gram of as many tokens is there twice, with those that a sequence starts with; the
            probabilities of what remains stay as they are. Defaults to 0: n-grams may be repeated.
        min_length: the fewest tokens, including the end token: no sequence ends before, unless it reaches its maximum.
            The probabilities of other tokens stay as they are. Defaults to 0.
        forbidden_ids: tokens that are never chosen; the probabilities of the others stay as they are. Defaults to
            none.
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
        >>> found = greedy_search(step, (), [5], max_length=5, start_id=0, end_id=1)
        >>> np.array(found.token_ids[0, 0]).tolist()
        [2, 1, 0, 0, 0]
    """
    limits, end_ids = check_search_arguments(max_lengths, max_length, start_id, end_id)

    restrictions = Restrictions(repetition_penalty, no_repeat_ngram_size, min_length, forbidden_ids, placeholders)
    step, state, not_chosen = restrict(
        step, state, restrictions, start_id, end_ids, limits=limits, max_length=max_length
    )

    def choose(log_probs: Tensor, logits: Tensor, position: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        continued, token_ids = continuations(log_probs, logits, 1, not_chosen)  # (n, 1, 1)
        return continued[..., 0], token_ids[..., 0]

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

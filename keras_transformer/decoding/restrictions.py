"""What a search may not choose, or only against a penalty, whatever searches."""

import functools
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from keras import ops

from ..config.rules import Count, Positive, check
from ..shapes import last_size
from ..tensors import Dimension, Tensor
from .blocking import block, ends_early, misuses_placeholders, repeats_ngram
from .continuations import BLOCKED
from .history import with_history
from .protocol import State, Step
from .repetition import penalize_repetition


class Restrictions(NamedTuple):
    """What every search can be told to avoid; see `greedy_search`.

    Attributes:
        repetition_penalty: 1 if there is none.
        no_repeat_ngram_size: 0 if n-grams may be repeated.
        min_length: the fewest tokens, including the end token.
        forbidden_ids: tokens that are never chosen.
        placeholders: bool (batch, n), which of the last n tokens each sequence has once; None if they are like others.
    """

    repetition_penalty: float | Tensor = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int | Tensor = 0
    forbidden_ids: Sequence[int] = ()
    placeholders: Tensor | None = None

    def check(self) -> None:
        """Raises a ConfigError if a value breaks its rule. Tensors may be inputs, whose values are not known."""
        if isinstance(self.repetition_penalty, (int, float)):
            check("repetition_penalty", float(self.repetition_penalty), Positive)
        check("no_repeat_ngram_size", self.no_repeat_ngram_size, Count)
        if isinstance(self.min_length, int):
            check("min_length", self.min_length, Count)


def restrict(
    step: Step[State],
    state: State,
    restrictions: Restrictions,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_ids: Sequence[int],
    *,
    limits: Annotated[Tensor, "int32 (batch, 1)"],
    max_length: Dimension,
    beam_size: int = 1,
) -> tuple[Step[Any], Any, Sequence[int | None]]:
    """Applies restrictions to a step, which stays as it is if there are none but forbidden ids.

    Args:
        step: a step function.
        state: what its first call receives.
        restrictions: what to avoid.
        start_id: the token at position 0, or the tokens that each sequence starts with, see `with_history`.
        end_ids: the tokens that end a sequence.
        limits: the most tokens of each sequence.
        max_length: the most steps.
        beam_size: hypotheses per sequence. Defaults to 1.

    Returns:
        The new step function, the state for its first call, and what continues no hypothesis, see `continuations`.

    Raises:
        ConfigError: A restriction breaks its rule.
    """
    restrictions.check()
    penalty, ngram_size, min_length, forbidden_ids, placeholders = restrictions
    penalizes = not isinstance(penalty, (int, float)) or penalty != 1
    sets_min_length = bool(end_ids) and (not isinstance(min_length, int) or min_length > 1)
    blocks = ngram_size or sets_min_length or placeholders is not None
    if not (penalizes or blocks):
        return step, state, forbidden_ids

    def change(logits: Tensor, seen: Tensor, newest: Tensor, position: Tensor, known: Any) -> Tensor:
        vocab_size = last_size(logits)
        if penalizes:
            logits = penalize_repetition(logits, seen, newest, penalty)
        is_blocked = []
        if ngram_size:
            is_blocked.append(repeats_ngram(seen, newest, ngram_size, vocab_size))
        if sets_min_length:
            is_blocked.append(ends_early(position, end_ids, min_length, vocab_size))
        if placeholders is not None:
            required, limits = known
            is_blocked.append(misuses_placeholders(seen, position, required, limits, end_ids, vocab_size))
        return block(logits, functools.reduce(ops.logical_or, is_blocked)) if is_blocked else logits

    known = () if placeholders is None else (ops.cast(placeholders, "bool"), limits)
    changed, changed_state = with_history(
        step, state, change, start_id, like=limits, max_length=max_length, beam_size=beam_size, known=known
    )
    return changed, changed_state, (*forbidden_ids, BLOCKED) if blocks else forbidden_ids

"""Common parts of greedy search and sampling, which extend one hypothesis per sequence."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, NamedTuple

from keras import ops

from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor
from .constraints import Constraints, History, is_any_of
from .margins import NO_DECISION, margin_of_choice
from .protocol import Hypotheses, State, Step
from .search_loop import Growth, check_search_arguments, extend_until_finished

# A function that returns the next tokens, int32 (n, 1), given the position of the newest tokens,
# int32 (), their row numbers in the batch, int32 (n,), and the allowed logits, float32 (n, 1,
# vocab_size).
Choose = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Results(NamedTuple):
    lengths: Tensor  # int32 (n, 1)
    log_probs: Tensor  # float32 (n, 1)
    margins: Any  # float32 (n, 1), or () if they are not computed


class Active(NamedTuple, Generic[State]):
    """The sequences that are not finished."""

    rows: Tensor  # int32 (n,), indices in the batch
    max_lengths: Tensor  # int32 (n, 1)
    results: _Results
    is_unfinished: Tensor  # bool (n, 1)
    token_ids: Tensor  # int32 (n, 1), the newest tokens, or their indices among the candidates
    history: History
    state: State  # of the step function


class SingleHypothesisSearch(Generic[State]):
    """A search that extends each sequence by one token per step.

    A sequence ends with an end token or at its maximum length. See `beam_search` for the arguments.
    """

    def __init__(
        self,
        step: Step[State],
        max_lengths: Tensor | Sequence[int],
        max_length: Dimension,
        start_ids: int | Tensor,
        end_ids: int | Sequence[int],
        constraints: Constraints,
    ) -> None:
        self._step, self._constraints = step, constraints
        self._max_lengths, self._max_length, self._start_ids, self._end_ids = (
            check_search_arguments(max_lengths, max_length, start_ids, end_ids, constraints)
        )

    @property
    def batch_size(self) -> Dimension:
        """The number of sequences."""
        return ops.shape(self._max_lengths)[0]

    def start(self, state: State, with_margins: bool = False) -> Active[State]:
        """Returns the sequences before the first step."""
        batch = self.batch_size
        margins = ops.full((batch, 1), NO_DECISION, "float32") if with_margins else ()
        return Active(
            rows=ops.arange(batch, dtype="int32"),
            max_lengths=self._max_lengths,
            results=_Results(
                ops.zeros((batch, 1), "int32"), ops.zeros((batch, 1), "float32"), margins
            ),
            is_unfinished=self._max_lengths > 0,
            token_ids=self._start_ids[:, -1][:, None],
            history=self._constraints.start_history(self._start_ids, self._max_length),
            state=state,
        )

    def extend(
        self, choose: Choose, position: Annotated[Tensor, "int32 ()"], active: Active[State]
    ) -> tuple[Active[State], Annotated[Tensor, "int32 (n, 1)"]]:
        """Adds a token to each sequence that is not finished.

        Args:
            choose: function that chooses the tokens.
            position: the number of tokens so far.
            active: the sequences.

        Returns:
            A tuple of the sequences and the new tokens. Ignore the token of a sequence whose length
            has not increased.
        """
        newest = active.token_ids
        history = active.history.append(newest)
        logits, state = self._step(
            self._constraints.token_at(newest), ops.zeros_like(newest), position, active.state
        )
        logits, allowed_logits = self._constraints.apply(
            logits, newest, history, position, active.max_lengths, self._end_ids
        )
        token_ids = choose(position, active.rows, allowed_logits)
        chosen_logits = gather_in_rows(ops.squeeze(allowed_logits, 1), token_ids)  # (n, 1)
        # If even the chosen token is forbidden, the sequence ends with its tokens so far.
        is_extended = active.is_unfinished & ops.not_equal(chosen_logits, -math.inf)
        log_probs = gather_in_rows(ops.squeeze(ops.log_softmax(logits), 1), token_ids)  # (n, 1)
        log_probs = active.results.log_probs + ops.where(is_extended, log_probs, 0.0)
        margins = active.results.margins
        if not isinstance(margins, tuple):
            margin = margin_of_choice(allowed_logits, token_ids)
            margins = ops.minimum(margins, ops.where(is_extended, margin, NO_DECISION))
        lengths = active.results.lengths + ops.cast(is_extended, "int32")
        is_end = is_any_of(token_ids, self._end_ids) | (position + 1 >= active.max_lengths)
        # The comparison is False if the model returns NaN.
        is_possible = log_probs > -math.inf
        active = active._replace(
            results=_Results(lengths, log_probs, margins),
            is_unfinished=is_extended & is_possible & ops.logical_not(is_end),
            token_ids=token_ids,
            history=history,
            state=state,
        )
        return active, token_ids

    def run(
        self,
        choose: Choose,
        state: State,
        drop_finished: bool,
        growth: Growth | None = None,
        with_margins: bool = False,
    ) -> Hypotheses:
        """Extends all sequences until they are finished. See `beam_search`."""
        record = ops.zeros((self._max_length, self.batch_size, 1), "int32")
        _, record, (lengths, scores, margins) = extend_until_finished(
            functools.partial(self.extend, choose),
            lambda active: active.is_unfinished,
            self.start(state, with_margins),
            record,
            drop_finished,
            growth,
        )
        is_possible = scores > -math.inf
        lengths = ops.where(is_possible, lengths, 0)
        scores = ops.where(is_possible, scores, -math.inf)
        # (batch, 1, max_length)
        token_ids = self._constraints.token_at(ops.transpose(record, (1, 2, 0)))
        is_token = ops.arange(self._max_length, dtype="int32") < lengths[..., None]
        token_ids = ops.where(is_token, token_ids, 0)
        return Hypotheses(token_ids, lengths, scores, margins[:, 0] if with_margins else None)

"""Constraints on a search, which forbid next tokens or make them less probable."""

import functools
import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from keras import ops

from ..checks import require
from ..config import search_options
from ..errors import ConfigError
from ..gather import gather_in_rows, take_rows
from ..tensors import Dimension, Tensor, last_size, reshape_inferring
from .logits_processor import LogitsProcessor

MINUS_INFINITY = np.float32(-math.inf)
Logits = Annotated[Tensor, "float32 (batch, beam_size, vocab_size)"]


class History(NamedTuple):
    """The data that constraints need about each sequence. A field is () if it is not needed.

    Attributes:
        token_ids: the tokens of each hypothesis up to the newest, with negative padding in front.
        exactly_once: see `Constraints`.
    """

    token_ids: Annotated[Any, "int32 (batch, beam_size, number of tokens)"]
    exactly_once: Annotated[Any, "bool (batch, n)"]

    def append(
        self,
        newest: Annotated[Tensor, "int32 (batch, beam_size)"],
        parents: Annotated[Tensor, "int32 (batch, beam_size)"] | None = None,
    ) -> "History":
        """Returns the history with the newest token of each hypothesis.

        Without `parents`, token i extends hypothesis i.
        """
        if isinstance(self.token_ids, tuple):
            return self
        token_ids = self.token_ids if parents is None else gather_in_rows(self.token_ids, parents)
        return self._replace(
            token_ids=ops.concatenate([token_ids[:, :, 1:], newest[..., None]], axis=2)
        )


class Constraints(NamedTuple):
    """Constraints on the tokens that a search may choose.

    The repetition penalty and the logits processor change the probabilities and therefore the
    scores. All other constraints forbid tokens, and do not change the probabilities of the
    remaining tokens.

    Attributes:
        repetition_penalty: from 0.01 to 100. A value above 1 makes tokens that the sequence already
            contains, including its start tokens, less probable: positive logits are divided by the
            penalty, and other logits are multiplied by it (Keskar et al., "CTRL", 2019, section
            4.1). Defaults to 1: no penalty.
        no_repeat_ngram_size: size of the n-grams that a sequence, including its start tokens, may
            contain only once; at most 100. Defaults to 0: n-grams may be repeated.
        min_length: minimum length in tokens, including the end token. A shorter sequence ends only
            if it reaches its maximum length. Defaults to 0.
        forbidden_ids: tokens that are never chosen. Defaults to no tokens.
        exactly_once: which of the last n tokens of the vocabulary (or of the candidates) each
            sequence, including its start tokens, must contain exactly once. A sequence does not end
            before it contains all required tokens, and it contains no others of the last n tokens.
            Its maximum length must leave room for the required tokens. Defaults to None: no
            required tokens.
        candidates: the tokens that may be chosen, in ascending order, if the step function returns
            only their logits. The list must start with 0, 1, 2, ... up to the highest id among the
            end tokens, the forbidden tokens and, if it is an int, the start token. Defaults to
            None: the whole vocabulary.
        logits_processor: function that changes the logits. See `LogitsProcessor`. Defaults to None.
    """

    repetition_penalty: float | Tensor = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int | Tensor = 0
    forbidden_ids: Sequence[int] = ()
    exactly_once: Annotated[Tensor, "bool (batch, n)"] | None = None
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None
    logits_processor: LogitsProcessor | None = None

    def check(self) -> None:
        """Raises a ConfigError if a value is invalid. Values of tensors are not checked."""
        if not ops.is_tensor(self.repetition_penalty):
            search_options.repetition_penalty("repetition_penalty", self.repetition_penalty)
        search_options.no_repeat_ngram_size("no_repeat_ngram_size", self.no_repeat_ngram_size)
        if not ops.is_tensor(self.min_length):
            search_options.number_of_tokens("min_length", self.min_length)
        processor = self.logits_processor
        is_function = processor is None or callable(processor)
        require(is_function, "logits_processor", "a function or None", processor)
        no_candidates = processor is None or self.candidates is None
        require(no_candidates, "logits_processor", "None if candidates are given", processor)

    # A search among candidates identifies a token by its index in the list of candidates. The list
    # is sorted, so ties are broken as in a search among all tokens.

    def place_of(
        self, token_ids: Annotated[Tensor, "int32 (batch, n)"]
    ) -> Annotated[Tensor, "int32 (batch, n)"]:
        """Returns the indices of tokens in the list of candidates. Negative ids stay unchanged."""
        if self.candidates is None:
            return token_ids
        # On TensorFlow, `ops.searchsorted` of Keras 3.15 supports only a single row.
        places = ops.searchsorted(self.candidates, ops.reshape(token_ids, (-1,)))
        return ops.where(
            token_ids < 0, token_ids, ops.cast(ops.reshape(places, ops.shape(token_ids)), "int32")
        )

    def token_at(
        self, places: Annotated[Tensor, "int32 (...)"]
    ) -> Annotated[Tensor, "int32 (...)"]:
        """Returns the tokens at these indices in the list of candidates."""
        return places if self.candidates is None else take_rows(self.candidates, places)

    def start_history(
        self,
        start_ids: Annotated[Tensor, "int32 (batch, n)"],
        max_length: Dimension,
        beam_size: int = 1,
    ) -> History:
        """Returns the history before the last start token, with room for max_length tokens."""
        if not self._reads_history:
            return History((), ())
        batch = ops.shape(start_ids)[0]
        # Pad so that at least one n-gram fits.
        room = ops.full((batch, max_length + 1 + self.no_repeat_ngram_size), -1, "int32")
        token_ids = ops.concatenate([room, start_ids[:, :-1]], axis=1)
        return History(
            ops.broadcast_to(token_ids[:, None], (batch, beam_size, ops.shape(token_ids)[1])),
            () if self.exactly_once is None else ops.cast(self.exactly_once, "bool"),
        )

    def apply(
        self,
        logits: Annotated[Tensor, "(batch, beam_size, vocab_size)"],
        newest: Annotated[Tensor, "int32 (batch, beam_size)"],
        history: History,
        position: Annotated[Tensor, "int32 ()"],
        max_lengths: Annotated[Tensor, "int32 (batch, 1)"],
        end_ids: Sequence[int],
    ) -> tuple[Logits, Logits]:
        """Applies the constraints to the logits of the next tokens.

        Args:
            history: the history, including the newest tokens.
            position: the position of the newest tokens.

        Returns:
            A tuple of the logits after the processor and the repetition penalty, from which
            probabilities are computed, and the same logits with -inf for forbidden tokens. If
            nothing is forbidden, both are the same tensor.
        """
        logits = ops.cast(logits, "float32")
        if tuple(logits.shape[:2]) != tuple(newest.shape):
            # The step function may have lost static sizes.
            logits = reshape_inferring(logits, (*ops.shape(newest), last_size(logits)))
        vocab_size = last_size(logits)
        if self.logits_processor is not None:
            processed = self.logits_processor(history.token_ids, logits, position)
            logits = _of_the_same_shape(processed, logits)
        if self._has_penalty:
            logits = _penalize_repetition(logits, history.token_ids, self.repetition_penalty)
        allowed_logits = logits
        if self.forbidden_ids:
            if isinstance(vocab_size, int):
                is_known = all(0 <= token_id < vocab_size for token_id in self.forbidden_ids)
                require(
                    is_known,
                    "forbidden_ids",
                    f"from 0 to {vocab_size - 1}",
                    tuple(self.forbidden_ids),
                )
            allowed_logits = allowed_logits + _minus_infinity_at(self.forbidden_ids, vocab_size)
        if end_ids and (ops.is_tensor(self.min_length) or self.min_length > 1):
            is_too_short = position + 1 < self.min_length
            allowed_logits = allowed_logits + ops.where(
                is_too_short, _minus_infinity_at(end_ids, vocab_size), np.float32(0)
            )
        if self.no_repeat_ngram_size:
            is_repeat = _repeats_ngram(history.token_ids, self.no_repeat_ngram_size, vocab_size)
            allowed_logits = ops.where(is_repeat, MINUS_INFINITY, allowed_logits)
        if self.exactly_once is not None:
            is_wrong = _breaks_exactly_once(history, max_lengths - position, end_ids, vocab_size)
            allowed_logits = ops.where(is_wrong, MINUS_INFINITY, allowed_logits)
        return logits, allowed_logits

    @property
    def _has_penalty(self) -> bool:
        return ops.is_tensor(self.repetition_penalty) or self.repetition_penalty != 1

    @property
    def _reads_history(self) -> bool:
        return (
            self._has_penalty
            or self.no_repeat_ngram_size > 0
            or self.exactly_once is not None
            or self.logits_processor is not None
        )


NO_CONSTRAINTS = Constraints()


def is_any_of(
    token_ids: Annotated[Tensor, "int (...)"], choices: Sequence[int]
) -> Annotated[Tensor, "bool (...)"]:
    """Returns whether each token is one of the choices."""
    if not choices:
        return ops.zeros_like(token_ids, "bool")
    return functools.reduce(ops.logical_or, [ops.equal(token_ids, choice) for choice in choices])


def _of_the_same_shape(processed: Any, logits: Tensor) -> Tensor:
    """Returns the result of a logits processor as float32, if it has the shape of the logits."""
    processed = ops.convert_to_tensor(processed)
    expected, received = tuple(logits.shape), tuple(processed.shape)
    fits = len(received) == len(expected) and all(
        None in (size, expected_size) or size == expected_size
        for size, expected_size in zip(received, expected, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"logits_processor must return logits of the shape it is given, {expected}; "
            f"received shape {received}"
        )
    return ops.cast(processed, "float32")


def _minus_infinity_at(
    token_ids: Sequence[int], vocab_size: Dimension
) -> Annotated[Tensor, "float32 (vocab_size,)"]:
    if isinstance(vocab_size, int):
        return np.where(np.isin(np.arange(vocab_size), token_ids), MINUS_INFINITY, np.float32(0))
    return ops.where(
        is_any_of(ops.arange(vocab_size, dtype="int32"), token_ids), MINUS_INFINITY, np.float32(0)
    )


def _penalize_repetition(
    logits: Tensor,  # float32 (batch, beam_size, vocab_size)
    seen: Tensor,  # int32 (batch, beam_size, number of tokens), negative before the first
    penalty: float | Tensor,
) -> Tensor:
    vocab_size = last_size(logits)
    # Replace padding by the newest token, which always exists.
    seen = ops.where(seen < 0, seen[:, :, -1:], seen)
    batch, beam_size, num_seen = ops.shape(seen)
    num_rows = batch * beam_size
    logits = ops.reshape(logits, (num_rows, vocab_size))
    seen = ops.reshape(seen, (num_rows, num_seen))
    seen_logits = gather_in_rows(logits, seen)
    seen_logits = ops.where(seen_logits > 0, seen_logits / penalty, seen_logits * penalty)
    places = ops.arange(num_rows, dtype="int32")[:, None] * vocab_size + seen
    # The logit of a repeated token is written several times, but with the same value.
    logits = ops.scatter_update(
        ops.reshape(logits, (num_rows * vocab_size,)),
        ops.reshape(places, (num_rows * num_seen, 1)),
        ops.reshape(seen_logits, (num_rows * num_seen,)),
    )
    return reshape_inferring(logits, (batch, beam_size, vocab_size))


def _repeats_ngram(
    seen: Tensor,  # int32 (batch, beam_size, number of tokens), negative before the first
    size: int,
    vocab_size: Dimension,
) -> Annotated[Tensor, "bool (batch, beam_size, vocab_size)"]:
    """Returns whether each next token would complete an n-gram that a hypothesis contains."""
    batch, beam_size, num_seen = ops.shape(seen)
    num_rows = batch * beam_size
    seen = reshape_inferring(seen, (num_rows, num_seen))
    # A token would repeat an n-gram if the first tokens of the n-gram are the newest tokens.
    last = seen[:, size - 1 :]  # (num_rows, number of n-grams)
    is_repeat = last >= 0
    for i in range(size - 1):
        newest = seen[:, i + 1 - size][:, None]
        is_repeat = is_repeat & ops.equal(seen[:, i : i + 1 - size], newest) & (newest >= 0)
    # Tokens that would repeat nothing go to an extra last column, which is removed afterwards.
    places = ops.arange(num_rows, dtype="int32")[:, None] * (vocab_size + 1) + ops.where(
        is_repeat, last, vocab_size
    )
    marks = ops.scatter_update(
        ops.zeros((num_rows * (vocab_size + 1),), "int32"),
        ops.reshape(places, (-1, 1)),
        ops.ones_like(ops.reshape(places, (-1,))),
    )
    marks = ops.reshape(marks, (num_rows, vocab_size + 1))[:, :vocab_size]
    return reshape_inferring(marks > 0, (batch, beam_size, vocab_size))


def _breaks_exactly_once(
    history: History,
    num_left: Tensor,  # int32 (batch, 1), the number of tokens that still fit
    end_ids: Sequence[int],
    vocab_size: Dimension,
) -> Annotated[Tensor, "bool (batch, beam_size, vocab_size)"]:
    """Returns whether each next token would break the rule `exactly_once`.

    A token breaks the rule if it leaves no room for a required token, repeats a required token, or
    is among the last n tokens but not required.
    """
    n = history.exactly_once.shape[1]
    first = vocab_size - n
    is_seen = ops.any(
        ops.equal(history.token_ids[..., None], first + ops.arange(n, dtype="int32")), axis=2
    )
    is_missing = ops.logical_and(
        history.exactly_once[:, None], ops.logical_not(is_seen)
    )  # (batch, beam_size, n)
    num_missing = ops.sum(ops.cast(is_missing, "int32"), axis=2)
    # There is room only for the missing tokens.
    is_full = (num_missing >= num_left)[..., None]
    is_end = is_any_of(ops.arange(vocab_size, dtype="int32"), end_ids)[:first]
    is_wrong = ops.logical_or(ops.logical_and(is_end, (num_missing > 0)[..., None]), is_full)
    return ops.concatenate([is_wrong, ops.logical_not(is_missing)], axis=-1)

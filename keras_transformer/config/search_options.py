"""Checks of search options.

They are shared by configurations, the command line, `generate`, `keras_transformer.decoding` and
`Sampling`.
"""

from typing import Any

from ..checks import (
    fraction,
    non_negative_float,
    non_negative_int,
    number,
    positive_float,
    positive_int,
)

# Every hypothesis has a score for each token, so memory grows with the beam size.
MAX_BEAM_SIZE = 1000
# Larger values would make `((5 + length) / 6) ** length_penalty` overflow in float32.
MAX_LENGTH_PENALTY = 5
# Graphs compute lengths in int32, which larger values would overflow.
MAX_TOKENS = 1_000_000


def beam_size(name: str, value: Any) -> Any:
    return positive_int(name, value, at_most=MAX_BEAM_SIZE)


def length_penalty(name: str, value: Any) -> Any:
    return non_negative_float(name, value, at_most=MAX_LENGTH_PENALTY)


def repetition_penalty(name: str, value: Any) -> Any:
    # Logits are multiplied or divided by the penalty in float32. Other values would overflow.
    return number(name, value, at_least=0.01, at_most=100)


def no_repeat_ngram_size(name: str, value: Any) -> Any:
    # The graph has operations for each token of an n-gram. Building a thousand takes seconds.
    return non_negative_int(name, value, at_most=100)


def most_new_tokens(name: str, value: Any) -> Any:
    return positive_int(name, value, at_most=MAX_TOKENS)


def number_of_tokens(name: str, value: Any) -> Any:
    return non_negative_int(name, value, at_most=MAX_TOKENS)


def temperature(name: str, value: Any, *, optional: bool = False) -> Any:
    # The search clips the temperature to values that are finite in float32.
    return positive_float(name, value, optional=optional)


def top_k(name: str, value: Any) -> Any:
    return positive_int(name, value, at_most=1_000_000, optional=True)


def top_p(name: str, value: Any) -> Any:
    return fraction(name, value, optional=True)

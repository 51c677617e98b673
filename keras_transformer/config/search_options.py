"""The ranges of search options: one check of each for configurations, the command line, `generate`,
the functions of `keras_transformer.decoding` and `Sampling`."""

from typing import Any

from ..checks import (
    fraction,
    non_negative_float,
    non_negative_int,
    number,
    positive_float,
    positive_int,
)

# The memory of a search grows with each hypothesis, which has a score for each token.
MAX_BEAM_SIZE = 1000
# With larger powers, `((5 + length) / 6) ** length_penalty` would overflow float32.
MAX_LENGTH_PENALTY = 5
# Graphs add lengths as 32-bit integers, which larger ones would overflow.
MAX_TOKENS = 1_000_000


def beam_size(name: str, value: Any) -> Any:
    return positive_int(name, value, at_most=MAX_BEAM_SIZE)


def length_penalty(name: str, value: Any) -> Any:
    return non_negative_float(name, value, at_most=MAX_LENGTH_PENALTY)


def repetition_penalty(name: str, value: Any) -> Any:
    # Logits are multiplied and divided by it in float32, which other values would overflow.
    return number(name, value, at_least=0.01, at_most=100)


def no_repeat_ngram_size(name: str, value: Any) -> Any:
    # A search has operations for each token of an n-gram: a thousand take seconds to build.
    return non_negative_int(name, value, at_most=100)


def most_new_tokens(name: str, value: Any) -> Any:
    return positive_int(name, value, at_most=MAX_TOKENS)


def fewest_new_tokens(name: str, value: Any) -> Any:
    return non_negative_int(name, value, at_most=MAX_TOKENS)


def temperature(name: str, value: Any, *, optional: bool = False) -> Any:
    # Searches clip it to values that are finite in float32.
    return positive_float(name, value, optional=optional)


def top_k(name: str, value: Any) -> Any:
    return positive_int(name, value, at_most=1_000_000, optional=True)


def top_p(name: str, value: Any) -> Any:
    return fraction(name, value, optional=True)

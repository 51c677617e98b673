"""What a search is given and what it returns."""

import functools
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from keras import ops

from ..config.rules import require
from ..errors import ConfigError
from ..tensors import Dimension, Tensor


class Hypotheses(NamedTuple):
    """The sequences that a search found, the best first.

    A place for which no sequence with a probability above 0 was found has length 0 and score -inf.

    Attributes:
        token_ids: the tokens, including the end token; 0 after it.
        lengths: in tokens, including the end token.
        scores: natural logarithms.
    """

    token_ids: Annotated[Tensor, "int32 (batch, n_best, max_length)"]
    lengths: Annotated[Tensor, "int32 (batch, n_best)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]


def check_search_arguments(
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
) -> tuple[Annotated[Tensor, "int32 (batch, 1)"], tuple[int, ...]]:
    """Checks what every search is given.

    Args:
        max_lengths: one limit per sequence.
        max_length: the limit of all sequences.
        start_id: the token at position 0, or the tokens that each sequence starts with.
        end_id: the token that ends a sequence, or several.

    Returns:
        The lower of the two limits, and the end tokens.

    Raises:
        ConfigError: An argument breaks its rule.
    """
    limits: Tensor = ops.convert_to_tensor(max_lengths, "int32")
    if len(limits.shape) != 1:
        shape = tuple(limits.shape)
        raise ConfigError(f"max_lengths must have shape (batch,); received max_lengths of shape {shape}")
    for name, value in (("max_length", max_length), ("start_id", start_id)):
        require(not isinstance(value, int) or value >= 0, name, "at least 0", value)
    if not isinstance(start_id, int) and (len(start_id.shape) != 2 or start_id.shape[1] == 0):
        shape = tuple(start_id.shape)
        raise ConfigError(f"start_id must be an int or of shape (batch, n), n at least 1; received shape {shape}")
    end_ids = (end_id,) if isinstance(end_id, int) else tuple(end_id)
    require(all(one >= 0 for one in end_ids), "end_id", "at least 0", end_id)
    return ops.minimum(limits, max_length)[:, None], end_ids


def newest_start_ids(
    start_id: int | Annotated[Tensor, "int (batch, n)"], batch: Dimension, beam_size: int
) -> Annotated[Tensor, "int32 (batch, beam_size)"]:
    """Returns the tokens at position 0 of all hypotheses."""
    if isinstance(start_id, int):
        return ops.full((batch, beam_size), start_id, "int32")
    return ops.stack([ops.cast(start_id[:, -1], "int32")] * beam_size, axis=1)


def is_any_of(token_ids: Annotated[Tensor, "int (...)"], some: Sequence[Dimension]) -> Annotated[Tensor, "bool (...)"]:
    """Returns where a token is one of some, of which there is at least one."""
    return functools.reduce(ops.logical_or, [ops.equal(token_ids, one) for one in some])


def is_none_of(token_ids: Annotated[Tensor, "int (...)"], some: Sequence[int]) -> Annotated[Tensor, "bool (...)"]:
    """Returns where a token is none of some, of which there is at least one."""
    return functools.reduce(ops.logical_and, [ops.not_equal(token_ids, one) for one in some])

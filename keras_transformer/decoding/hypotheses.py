"""What a search is given and what it returns."""

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
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int], max_length: Dimension, start_id: int, end_id: int
) -> Annotated[Tensor, "int32 (batch, 1)"]:
    """Checks what every search is given.

    Args:
        max_lengths: one limit per sequence.
        max_length: the limit of all sequences.
        start_id: the token at position 0.
        end_id: the token that ends a sequence.

    Returns:
        The lower of the two limits.

    Raises:
        ConfigError: An argument breaks its rule.
    """
    limits: Tensor = ops.convert_to_tensor(max_lengths, "int32")
    if len(limits.shape) != 1:
        shape = tuple(limits.shape)
        raise ConfigError(f"max_lengths must have shape (batch,); received max_lengths of shape {shape}")
    for name, value in (("max_length", max_length), ("start_id", start_id), ("end_id", end_id)):
        require(not isinstance(value, int) or value >= 0, name, "at least 0", value)
    return ops.minimum(limits, max_length)[:, None]

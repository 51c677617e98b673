"""What a search is given and what it returns."""

from typing import Any, NamedTuple

from keras import ops


class Hypotheses(NamedTuple):
    """The sequences that a search found, the best first.

    A place for which no sequence with a probability above 0 was found has length 0 and score -inf.

    Attributes:
        token_ids: int32 (batch, n_best, max_length), including the end token; 0 after it.
        lengths: int32 (batch, n_best), in tokens, including the end token.
        scores: float32 (batch, n_best), natural logarithms.
    """

    token_ids: Any
    lengths: Any
    scores: Any


def check_search_arguments(max_lengths: Any, max_length: Any, start_id: int, end_id: int) -> Any:
    """Checks what every search is given.

    Args:
        max_lengths: int (batch,), one limit per sequence.
        max_length: int or int scalar, the limit of all sequences.
        start_id: int.
        end_id: int.

    Returns:
        int32 (batch, 1), the lower of the two limits.

    Raises:
        ValueError: An argument breaks its rule.
    """
    max_lengths = ops.convert_to_tensor(max_lengths, "int32")
    if len(max_lengths.shape) != 1:
        shape = tuple(max_lengths.shape)
        raise ValueError(f"max_lengths must have shape (batch,); received max_lengths of shape {shape}")
    for name, value in (("max_length", max_length), ("start_id", start_id), ("end_id", end_id)):
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} must be at least 0; received {name}={value}")
    return ops.minimum(max_lengths, max_length)[:, None]

"""The positions of a sequence: their numbers, the rules for them, and the sinusoids that stand for them."""

from typing import Annotated

import keras
import numpy as np
from keras import ops

from ..errors import ConfigError
from ..shapes import reshape_inferring
from ..tensors import Dimension, Tensor


def consecutive_positions(length: Dimension, start_index: Dimension = 0) -> Annotated[Tensor, "int (1, length)"]:
    """Returns `start_index`, `start_index + 1`, ...

    Args:
        length: int or int scalar, how many.
        start_index: int or int scalar. Defaults to 0.
    """
    positions = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    if isinstance(start_index, int) and start_index == 0:
        return positions
    return ops.cast(start_index, "int32") + positions


def check_positions(
    name: str,
    length: Dimension | None,
    position_ids: Annotated[Tensor, "int (...)"] | None,
    start_index: Dimension,
    max_length: int | None,
) -> None:
    """Checks the positions of a call as far as they are known.

    Args:
        name: str. What messages call the sequence.
        length: int, int scalar or None. The length of the sequence.
        position_ids: given positions, or None.
        start_index: int or int scalar. The first position.
        max_length: int or None. Number of learned positions, or None if any position will do.

    Raises:
        ConfigError: Both are given, or a position is outside of what there is.
    """
    start = _largest(start_index)
    if position_ids is not None and start != 0:
        raise ConfigError(f"position_ids and start_index must not both be given; received start_index={start_index}")
    if start is not None and start < 0:
        raise ConfigError(f"start_index must be at least 0; received start_index={start}")
    if max_length is None:
        return
    if position_ids is not None:
        last = _largest(position_ids)
        if last is not None and last >= max_length:
            raise ConfigError(f"position_ids must be below max_length={max_length}; received position {last}")
    elif isinstance(length, int) and start is not None and start + length > max_length:
        from_start = f" from start_index={start} on" if start else ""
        raise ConfigError(f"{name} must have at most max_length={max_length} positions; received {length}{from_start}")


def _largest(numbers: Dimension) -> int | None:
    """Returns the largest of numbers if they are known: not while a graph is made, nor on an accelerator of PyTorch."""
    if keras.utils.is_keras_tensor(numbers):
        return None
    # PyTorch compiles a graph from what it sees, of which reading a number would not be a part. It reports positions
    # beyond a table by itself.
    if keras.backend.backend() == "torch" and not isinstance(numbers, (int, np.ndarray, np.generic)):
        return None
    try:
        known = np.asarray(numbers)
    except (TypeError, NotImplementedError):
        return None
    return int(known.max()) if known.size else None


def sinusoids(
    position_ids: Annotated[Tensor, "int (...)"], d_model: int, ends_at_limit: bool = False
) -> Annotated[Tensor, "float32 (..., d_model)"]:
    """Computes the positional encoding of section 3.5.

    `PE(pos, 2i) = sin(pos / 10000^(2i / d_model))` and `PE(pos, 2i + 1)` the cosine of the same angle.

    Args:
        position_ids: positions, of any shape.
        d_model: int. The width, even.
        ends_at_limit: bool. Whether the exponent is `2i / (d_model - 2)`, which ends at 1. Defaults to False.
    """
    last = max(d_model - 2, 1) if ends_at_limit else d_model
    exponents = ops.arange(0, d_model, 2, dtype="float32") / last  # (d_model / 2,)
    angles = ops.cast(position_ids, "float32")[..., None] * ops.power(10000.0, -exponents)
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., d_model / 2, 2)
    return reshape_inferring(interleaved, (*ops.shape(angles)[:-1], d_model))

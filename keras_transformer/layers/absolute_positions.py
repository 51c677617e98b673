"""Positions that are added to the inputs: sinusoids or a learned table (section 3.5)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from ..errors import ConfigError
from ..masks import known_values
from ..tensors import Dimension, Tensor, reshape_inferring
from .children import child_initializer


def sinusoids(position_ids: Tensor, d_model: int, ends_at_limit: bool = False) -> Tensor:
    """Returns the sinusoidal positional encoding (section 3.5).

    `PE(pos, 2i) = sin(pos / 10000^(2i / d_model))`, and `PE(pos, 2i + 1)` is the cosine of the same
    angle.

    Args:
        position_ids: int (...).
        d_model: int, even.
        ends_at_limit: bool. Whether to use the exponent `2i / (d_model - 2)`, so that the lowest
            frequency is exactly 1/10000. Defaults to False.

    Returns:
        float32 (..., d_model).
    """
    last = max(d_model - 2, 1) if ends_at_limit else d_model
    exponents = ops.arange(0, d_model, 2, dtype="float32") / last  # (d_model / 2,)
    angles = ops.cast(position_ids, "float32")[..., None] * ops.power(10000.0, -exponents)
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., d_model / 2, 2)
    return reshape_inferring(interleaved, (*ops.shape(angles)[:-1], d_model))


def own_initializer(initializer: Any) -> Any:
    """Returns `embeddings_initializer` as a Keras initializer, or None."""
    return None if initializer is None else keras.initializers.get(initializer)


def add_position_table(layer: Any) -> keras.Variable:
    """Adds a table of learned positions, (max_length, d_model), to a layer."""
    initializer = child_initializer(layer.embeddings_initializer, "positions")
    if initializer is None:
        initializer = keras.initializers.RandomNormal(stddev=0.02)
    return layer.add_weight(
        shape=(layer.max_length, layer.d_model),
        initializer=initializer,
        regularizer=layer.embeddings_regularizer,
        constraint=layer.embeddings_constraint,
        autocast=False,
        name="positions",
    )


def position_vectors(layer: Any, position_ids: Tensor) -> Tensor:
    """Returns the encodings of positions (...), float32 (..., d_model)."""
    if layer.positions == "learned":
        return ops.cast(ops.take(layer.position_table, position_ids, axis=0), "float32")
    ends_at_limit = layer.positions == "tensor2tensor"
    return sinusoids(position_ids, layer.d_model, ends_at_limit)


def consecutive_positions(length: Dimension, start_index: Dimension = 0) -> Tensor:
    """Returns the positions `start_index`, `start_index + 1`, ..., int32 (1, length)."""
    positions = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    if isinstance(start_index, int) and start_index == 0:
        return positions
    return ops.cast(start_index, "int32") + positions


def check_positions(
    layer: Any,
    name: str,
    length: int | None,
    position_ids: Tensor | None,
    start_index: Dimension,
) -> None:
    """Checks `position_ids` and `start_index`, if their values are known.

    Raises:
        ConfigError: Both are given, `start_index` is negative, or a position is beyond the table.
    """
    start = _largest(start_index)
    if position_ids is not None and start != 0:
        raise ConfigError(
            "position_ids and start_index must not both be given; "
            f"received start_index={start_index}"
        )
    if start is not None and start < 0:
        raise ConfigError(f"start_index must be at least 0; received start_index={start}")
    max_length = layer.max_length if layer.positions == "learned" else None
    if max_length is None:
        return
    rule = f"max_length={max_length}"
    if position_ids is not None:
        last = _largest(position_ids)
        if last is not None and last >= max_length:
            raise ConfigError(f"position_ids must be below {rule}; received position {last}")
    elif isinstance(length, int) and start is not None and start + length > max_length:
        from_start = f" positions starting at start_index={start}" if start else ""
        raise ConfigError(
            f"{name} must have at most {rule} positions; received {length}{from_start}"
        )


def _largest(numbers: Dimension) -> int | None:
    """Returns the largest number, or None if the values are not known.

    PyTorch tensors are not read, because that would break a compiled graph. PyTorch itself reports
    positions beyond the table.
    """
    on_host = isinstance(numbers, (int, np.ndarray, np.generic))
    if keras.backend.backend() == "torch" and not on_host:
        return None
    values = known_values(numbers)
    return int(values.max()) if values is not None and values.size else None

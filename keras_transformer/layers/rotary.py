"""Rotary positions (Su et al. 2021): pairs of features rotated by angles that grow with the position."""

from typing import Annotated

import keras
import numpy as np
from keras import ops

from ..tensors import Tensor

_BASE = 10000.0


def rotate(
    features: Annotated[Tensor, "(batch, ..., length, width)"],
    position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
) -> Annotated[Tensor, "(batch, ..., length, width)"]:
    """Rotates feature i and feature i + width / 2 of each position by the angle position / 10000^(2i / width).

    The product of two vectors that are rotated so depends on the difference of their positions alone.

    Args:
        features: of even width.
        position_ids: Defaults to None: 0, 1, 2, ...
    """
    half = features.shape[-1] // 2
    dtype = keras.backend.result_type(features.dtype, "float32")
    positions = ops.arange(ops.shape(features)[-2]) if position_ids is None else position_ids
    frequencies = np.asarray(_BASE ** (-np.arange(half) / half), dtype)
    angles = ops.multiply(ops.expand_dims(ops.cast(positions, dtype), -1), frequencies)
    if len(angles.shape) == 3 and len(features.shape) > 3:
        # One position for all that lies between batch and length, such as heads.
        angles = ops.expand_dims(angles, tuple(range(1, len(features.shape) - 2)))
    cosines, sines = ops.cos(angles), ops.sin(angles)
    first, second = (ops.cast(part, dtype) for part in (features[..., :half], features[..., half:]))
    rotated = ops.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
    return ops.cast(rotated, features.dtype)

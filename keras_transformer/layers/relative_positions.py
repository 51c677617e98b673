"""Relative positions of attention: rotated queries and keys, and what ALiBi and T5 add to the
scores."""

from typing import Annotated, Literal

import keras
import numpy as np
from keras import ops

from ..tensors import Shape, Tensor

RelativePositions = Literal["rotary", "alibi", "t5"]
_ROTARY_BASE = 10000.0
_NUM_BUCKETS, _MAX_DISTANCE = 32, 128


def rotate(
    features: Annotated[Tensor, "(batch, ..., length, width)"],
    position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
) -> Annotated[Tensor, "(batch, ..., length, width)"]:
    """Rotates feature i and feature i + width / 2 of each position by the angle position /
    10000^(2i / width).

    The product of two vectors that are rotated so depends on the difference of their positions
    alone.

    Args:
        features: of even width.
        position_ids: Defaults to None: 0, 1, 2, ...
    """
    half = features.shape[-1] // 2
    dtype = keras.backend.result_type(features.dtype, "float32")
    positions = ops.arange(ops.shape(features)[-2]) if position_ids is None else position_ids
    # The angles of both halves have the same cosines, and sines of opposite signs.
    frequencies = np.outer([-1, 1], _ROTARY_BASE ** (-np.arange(half) / half)).ravel().astype(dtype)
    angles = ops.multiply(ops.expand_dims(ops.cast(positions, dtype), -1), frequencies)
    if len(angles.shape) == 3 and len(features.shape) > 3:
        # All axes between batch and length, such as heads, share the positions.
        angles = ops.expand_dims(angles, tuple(range(1, len(features.shape) - 2)))
    # Not by slices, whose gradients TensorFlow would pad and add up.
    swapped = ops.concatenate(ops.split(features, 2, axis=-1)[::-1], axis=-1)
    rotated = ops.cast(features, dtype) * ops.cos(angles) + ops.cast(swapped, dtype) * ops.sin(
        angles
    )
    return ops.cast(rotated, features.dtype)


def alibi_bias(
    query_positions: Annotated[Tensor, "int (..., target length)"],
    key_positions: Annotated[Tensor, "int (..., source length)"],
    num_heads: int,
) -> Annotated[Tensor, "float32 (..., num_heads, target length, source length)"]:
    """Computes the bias of Press et al. (2022): minus the distance times the slope of each head.

    Positions may have the axis of the batch or not.
    """
    slopes = np.asarray(alibi_slopes(num_heads), "float32").reshape(-1, 1, 1)
    distances = ops.abs(_relative_positions(query_positions, key_positions))
    return ops.multiply(ops.expand_dims(ops.cast(distances, "float32"), -3), -slopes)


def alibi_slopes(num_heads: int) -> list[float]:
    """Returns 2^(-8/n), 2^(-16/n), ..., 2^-8 for n heads, if n is a power of 2.

    Otherwise the slopes for the next lower power of 2 come first, then every second slope for the
    next higher one.
    """
    below = 2 ** (num_heads.bit_length() - 1)

    def slopes(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (i + 1) / count) for i in range(count)]

    return slopes(below) + slopes(2 * below)[::2][: num_heads - below]


@keras.saving.register_keras_serializable("keras_transformer")
class T5RelativeBias(keras.layers.Layer):
    """A learned bias for each head and each bucket of distances (Raffel et al. 2020).

    Short distances have a bucket each; longer ones, up to 128, share buckets that widen with the
    logarithm. If positions may attend in both directions, half of the 32 buckets are for later
    positions. Positions may have the axis of the batch or not.
    """

    def __init__(self, num_heads: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self.embeddings = self.add_weight(
            shape=(_NUM_BUCKETS, self.num_heads), initializer="zeros", name="embeddings"
        )

    def call(
        self,
        query_positions: Annotated[Tensor, "int (..., target length)"],
        key_positions: Annotated[Tensor, "int (..., source length)"],
        bidirectional: bool = True,
    ) -> Annotated[Tensor, "(..., num_heads, target length, source length)"]:
        distances = _relative_positions(query_positions, key_positions)
        if bidirectional:
            buckets = _take_bucket(ops.abs(distances), _NUM_BUCKETS // 2)
            buckets = ops.where(distances > 0, buckets + _NUM_BUCKETS // 2, buckets)
        else:
            buckets = _take_bucket(ops.maximum(-distances, 0), _NUM_BUCKETS)
        return ops.moveaxis(ops.take(self.embeddings, buckets, axis=0), -1, -3)

    def get_config(self) -> dict[str, object]:
        return {**super().get_config(), "num_heads": self.num_heads}


def t5_buckets(num_buckets: int) -> list[int]:
    """Returns the bucket of each distance from 0 to 128, which is also that of all longer ones."""
    exact = num_buckets // 2
    wide = num_buckets - exact

    def bucket(distance: int) -> int:
        # floor(log(distance / exact) / log(128 / exact) * wide), in integers: a logarithm may round
        # to either side.
        steps = range(1, wide)
        return exact + sum(
            distance**wide * exact**step >= _MAX_DISTANCE**step * exact**wide for step in steps
        )

    return [
        distance if distance < exact else bucket(distance) for distance in range(_MAX_DISTANCE + 1)
    ]


def _take_bucket(distances: Tensor, num_buckets: int) -> Tensor:
    table = ops.convert_to_tensor(t5_buckets(num_buckets), dtype="int32")
    return ops.take(table, ops.minimum(distances, _MAX_DISTANCE), axis=0)


def _relative_positions(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    # (..., target length, source length): positive where the key comes later.
    query_positions, key_positions = (
        ops.cast(positions, "int32") for positions in (query_positions, key_positions)
    )
    return ops.expand_dims(key_positions, -2) - ops.expand_dims(query_positions, -1)

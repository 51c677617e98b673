"""Attention with linear biases, ALiBi (Press et al. 2022)."""

import keras
import numpy as np
from keras import ops

from ..tensors import Tensor
from .position_scheme import PositionScheme, relative_distances


@keras.saving.register_keras_serializable("keras_transformer")
class AlibiPositions(PositionScheme):
    """Linear biases (ALiBi), which lower each score by the head's slope times the distance.

    See Press et al. 2022, arXiv 2108.12409. The layer has no weights.

    Example:
        >>> layer = DecoderLayer(num_heads=4, d_ff=64, relative_positions="alibi")
        >>> layer(np.ones((2, 5, 32))).shape
        (2, 5, 32)
    """

    def score_bias(self, query_positions: Tensor, key_positions: Tensor, causal: bool) -> Tensor:
        """Returns float32 (..., num_heads, target length, source length)."""
        slopes = np.asarray(alibi_slopes(self.num_heads), "float32").reshape(-1, 1, 1)
        distances = ops.abs(relative_distances(query_positions, key_positions))
        return ops.multiply(ops.expand_dims(ops.cast(distances, "float32"), -3), -slopes)


def alibi_slopes(num_heads: int) -> list[float]:
    """Returns the slopes of n heads: 2^(-8/n), 2^(-16/n), ..., 2^-8 if n is a power of 2.

    Otherwise, the list starts with the slopes for the next lower power of 2 and continues with
    every other slope for the next higher power of 2.
    """
    below = 2 ** (num_heads.bit_length() - 1)

    def slopes(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (i + 1) / count) for i in range(count)]

    return slopes(below) + slopes(2 * below)[::2][: num_heads - below]

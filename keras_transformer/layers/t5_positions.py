"""The relative position bias of T5 (Raffel et al. 2020)."""

import keras
from keras import ops

from ..config.layer_options import T5_BUCKETS
from ..tensors import Shape, Tensor
from .position_scheme import PositionScheme, relative_distances

MAX_DISTANCE = 128


@keras.saving.register_keras_serializable("keras_transformer")
class T5Positions(PositionScheme):
    """Learned biases for each head and each bucket of distances (Raffel et al. 2020).

    Every short distance has its own bucket. Longer distances share buckets that are spaced
    logarithmically up to a distance of 128. If attention is not causal, half of the 32 buckets are
    for later positions. See arXiv 1910.10683, section 2.1.

    Example:
        >>> layer = EncoderLayer(num_heads=4, d_ff=64, relative_positions="t5")
        >>> layer(np.ones((2, 5, 32))).shape
        (2, 5, 32)
    """

    def build(self, scores_shape: Shape) -> None:
        super().build(scores_shape)
        self.embeddings = self.add_weight(
            shape=(T5_BUCKETS, self.num_heads),
            initializer="zeros",
            autocast=False,
            name="embeddings",
        )

    def score_bias(self, query_positions: Tensor, key_positions: Tensor, causal: bool) -> Tensor:
        """Returns float32 (..., num_heads, target length, source length)."""
        distances = relative_distances(query_positions, key_positions)
        if causal:
            buckets = _take_bucket(ops.maximum(-distances, 0), T5_BUCKETS)
        else:
            buckets = _take_bucket(ops.abs(distances), T5_BUCKETS // 2)
            buckets = ops.where(distances > 0, buckets + T5_BUCKETS // 2, buckets)
        return ops.moveaxis(ops.take(self.embeddings, buckets, axis=0), -1, -3)


def t5_buckets(num_buckets: int) -> list[int]:
    """Returns the bucket of each distance from 0 to 128, where 128 also covers larger distances."""
    exact = num_buckets // 2
    wide = num_buckets - exact

    def bucket(distance: int) -> int:
        # exact + floor(log(distance / exact) / log(128 / exact) * wide), in integers because a
        # logarithm may round to either side.
        return exact + sum(
            distance**wide * exact**step >= MAX_DISTANCE**step * exact**wide
            for step in range(1, wide)
        )

    return [
        distance if distance < exact else bucket(distance) for distance in range(MAX_DISTANCE + 1)
    ]


def _take_bucket(distances: Tensor, num_buckets: int) -> Tensor:
    table = ops.convert_to_tensor(t5_buckets(num_buckets), dtype="int32")
    return ops.take(table, ops.minimum(distances, MAX_DISTANCE), axis=0)

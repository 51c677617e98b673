"""The interface between attention and relative positions."""

from typing import Any

import keras

from ..tensors import Shape, Tensor


class PositionScheme(keras.layers.Layer):
    """Relative positions that attention applies by itself, in every layer.

    A scheme either turns queries and keys (`RotaryPositions`) or adds a bias to the scores
    (`AlibiPositions`, `T5Positions`). It overrides one of the two methods.

    A scheme may depend on the differences of positions only: in a sliding window, positions are
    counted from the start of each block.
    """

    def build(self, scores_shape: Shape) -> None:
        self.num_heads = int(scores_shape[1] or 0)  # (batch, num_heads, target, source length)

    def rotate(self, heads: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Turns queries or keys by their positions; keys are turned before they are cached.

        Args:
            heads: (batch, num_heads, length, key_dim).
            position_ids: int, broadcasts to (batch, length). Defaults to None: 0, 1, 2, ...

        Returns:
            (batch, num_heads, length, key_dim). By default, `heads` as they are.
        """
        return heads

    def score_bias(
        self, query_positions: Tensor, key_positions: Tensor, causal: bool
    ) -> Tensor | None:
        """Returns the bias that is added to the scores, or None.

        Args:
            query_positions: int (target length,) or (batch, target length).
            key_positions: int (source length,) or (batch, source length).
            causal: bool. Whether attention sees no later positions.

        Returns:
            (num_heads, target length, source length), with the axis of the batch in front if the
            positions have it. Defaults to None.
        """
        return None

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing, and keeps `quantize` of a model from a warning: a scheme stays as it is."""


def relative_distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Returns int32 (..., target length, source length), positive where the key comes later."""
    query_positions = keras.ops.cast(query_positions, "int32")
    key_positions = keras.ops.cast(key_positions, "int32")
    return keras.ops.expand_dims(key_positions, -2) - keras.ops.expand_dims(query_positions, -1)


def copy_of(relative_positions: str | PositionScheme | None) -> str | PositionScheme | None:
    """Returns the argument `relative_positions` for a layer: its scheme has weights of its own."""
    if isinstance(relative_positions, PositionScheme):
        return type(relative_positions).from_config(relative_positions.get_config())
    return relative_positions

"""The interface between attention and relative positions."""

from typing import Any

import keras

from ..tensors import Shape, Tensor


class PositionScheme(keras.layers.Layer):
    """Base class for relative positions, which attention applies in every layer.

    To implement a position scheme, override `rotate` to rotate queries and keys, as
    `RotaryPositions` does, or `score_bias` to add a bias to the scores, as `AlibiPositions` and
    `T5Positions` do.

    The scores must depend only on differences of positions: with a sliding window, positions are
    counted from the start of each block.
    """

    def build(self, scores_shape: Shape) -> None:
        self.num_heads = int(scores_shape[1] or 0)  # (batch, num_heads, target, source length)

    def rotate(self, heads: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Rotates queries or keys according to their positions.

        Keys are rotated before they are cached.

        Args:
            heads: (batch, num_heads, length, key_dim).
            position_ids: int, broadcasts to (batch, length). Defaults to None: 0, 1, 2, ...

        Returns:
            (batch, num_heads, length, key_dim). By default, `heads` unchanged.
        """
        return heads

    def score_bias(
        self, query_positions: Tensor, key_positions: Tensor, causal: bool
    ) -> Tensor | None:
        """Returns the bias that is added to the scores, or None.

        Args:
            query_positions: int (target length,) or (batch, target length).
            key_positions: int (source length,) or (batch, source length).
            causal: bool. Whether attention is causal: no position attends to later positions.

        Returns:
            (num_heads, target length, source length), with a leading batch axis if the positions
            have one. By default, None.
        """
        return None

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing, so that Keras does not warn when a model is quantized."""


def relative_distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Returns key positions minus query positions, int32 (..., target length, source length)."""
    query_positions = keras.ops.cast(query_positions, "int32")
    key_positions = keras.ops.cast(key_positions, "int32")
    return keras.ops.expand_dims(key_positions, -2) - keras.ops.expand_dims(query_positions, -1)


def copy_of(relative_positions: str | PositionScheme | None) -> str | PositionScheme | None:
    """Returns a copy of `relative_positions`, so that each layer has its own weights."""
    if isinstance(relative_positions, PositionScheme):
        return type(relative_positions).from_config(relative_positions.get_config())
    return relative_positions

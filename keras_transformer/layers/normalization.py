"""The normalization that a block is made with: by name, as arguments give it."""

from typing import Literal

import keras

from .layer_normalization import LayerNormalization

Normalization = Literal["layer", "rms"]


def make_normalization(
    normalization: Normalization, epsilon: float, dtype: keras.DTypePolicy, name: str
) -> keras.layers.Layer:
    """Makes a layer that normalizes the last axis, in float32 under every dtype policy.

    Args:
        normalization: "layer", or "rms": Keras' root mean square normalization (Zhang and Sennrich 2019,
            arXiv 1910.07467), which neither subtracts a mean nor adds a bias.
        epsilon: added to the variance, or to the mean square.
        dtype: of the layer.
        name: of the layer.
    """
    if normalization == "rms":
        rms_normalization = keras.layers.RMSNormalization(epsilon=epsilon, dtype=dtype, name=name)
        # It passes masks on like any layer that computes each position by itself, but does not say so.
        rms_normalization.supports_masking = True
        return rms_normalization
    return LayerNormalization(epsilon, dtype=dtype, name=name)

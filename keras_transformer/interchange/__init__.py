"""Layers with the weights of other libraries' layers, and back: one call each way.

No other library is imported, except by a function that makes one of its layers.
"""

from .keras_layers import from_keras, from_keras_hub, to_keras, to_keras_hub
from .torch_modules import EncoderDecoder, NormalizedStack, from_torch, to_torch

__all__ = [
    "EncoderDecoder",
    "NormalizedStack",
    "from_keras",
    "from_keras_hub",
    "from_torch",
    "to_keras",
    "to_keras_hub",
    "to_torch",
]

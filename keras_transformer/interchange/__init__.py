"""Converts layers of Keras, KerasHub and PyTorch to layers of this package, and back.

KerasHub and PyTorch are imported only by the functions that create their layers.
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

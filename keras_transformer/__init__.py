"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762) on Keras 3.

Importing this package imports neither Keras nor TensorFlow. Each public name is loaded when you
first use it.

You can load files that contain our layers, losses, metrics, schedules or models without
`custom_objects`, but the classes must be registered first. To register them, import any layer or
model, as in `from keras_transformer import EncoderLayer`, or import Keras before this package, as
in `import keras, keras_transformer`.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_MODULES = {
    "AlibiPositions": "layers",
    "Decoder": "layers",
    "DecoderLayer": "layers",
    "Encoder": "layers",
    "EncoderLayer": "layers",
    "FeedForward": "layers",
    "LanguageModel": "models",
    "MaskedAccuracy": "metrics",
    "MaskedLabelSmoothedCrossentropy": "losses",
    "MultiHeadAttention": "layers",
    "NewPositions": "layers",
    "Perplexity": "metrics",
    "PositionScheme": "layers",
    "PositionalEmbedding": "layers",
    "PositionalEncoding": "layers",
    "Residual": "layers",
    "RotaryPositions": "layers",
    "T5Positions": "layers",
    "TiedProjection": "layers",
    "Transformer": "models",
    "TransformerConfig": "config",
    "Translator": "translation",
    "WarmupInverseSqrt": "schedules",
    "build_transformer": "models",
    "from_keras": "interchange",
    "from_keras_hub": "interchange",
    "from_torch": "interchange",
    "generate": "models",
    "stream_tokens": "models",
    "to_keras": "interchange",
    "to_keras_hub": "interchange",
    "to_torch": "interchange",
}
# The translator needs TensorFlow. All other names work with any backend.
__all__ = [name for name in _MODULES if name != "Translator"]
# Importing these modules registers their classes with Keras.
_SAVED_MODULES = ("layers", "losses", "metrics", "models", "schedules")

if TYPE_CHECKING:
    from .config import TransformerConfig as TransformerConfig
    from .interchange import from_keras as from_keras
    from .interchange import from_keras_hub as from_keras_hub
    from .interchange import from_torch as from_torch
    from .interchange import to_keras as to_keras
    from .interchange import to_keras_hub as to_keras_hub
    from .interchange import to_torch as to_torch
    from .layers import AlibiPositions as AlibiPositions
    from .layers import Decoder as Decoder
    from .layers import DecoderLayer as DecoderLayer
    from .layers import Encoder as Encoder
    from .layers import EncoderLayer as EncoderLayer
    from .layers import FeedForward as FeedForward
    from .layers import MultiHeadAttention as MultiHeadAttention
    from .layers import NewPositions as NewPositions
    from .layers import PositionalEmbedding as PositionalEmbedding
    from .layers import PositionalEncoding as PositionalEncoding
    from .layers import PositionScheme as PositionScheme
    from .layers import Residual as Residual
    from .layers import RotaryPositions as RotaryPositions
    from .layers import T5Positions as T5Positions
    from .layers import TiedProjection as TiedProjection
    from .losses import MaskedLabelSmoothedCrossentropy as MaskedLabelSmoothedCrossentropy
    from .metrics import MaskedAccuracy as MaskedAccuracy
    from .metrics import Perplexity as Perplexity
    from .models import LanguageModel as LanguageModel
    from .models import Transformer as Transformer
    from .models import build_transformer as build_transformer
    from .models import generate as generate
    from .models import stream_tokens as stream_tokens
    from .schedules import WarmupInverseSqrt as WarmupInverseSqrt
    from .translation import Translator as Translator
else:
    # This function is hidden from type checkers, so that they report unknown names.
    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = value
        if sys.modules.get("keras"):
            _register_classes()
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def _register_classes() -> None:
    """Registers all classes that saved files may contain, by importing their modules."""
    for module in _SAVED_MODULES:
        importlib.import_module(f".{module}", __name__)


if sys.modules.get("keras"):
    _register_classes()

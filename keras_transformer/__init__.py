"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762) on Keras 3.

Importing this package imports neither Keras nor TensorFlow: each public name is loaded when it is first used.
"""

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import wrapt

__version__ = "0.2.0"

_MODULES = {
    "Decoder": "layers",
    "DecoderLayer": "layers",
    "Encoder": "layers",
    "EncoderLayer": "layers",
    "FeedForward": "layers",
    "MaskedAccuracy": "metrics",
    "MaskedLabelSmoothedCrossentropy": "losses",
    "MultiHeadAttention": "layers",
    "Perplexity": "metrics",
    "PositionalEmbedding": "layers",
    "TiedProjection": "layers",
    "Transformer": "models",
    "TransformerConfig": "config",
    "Translator": "translation",
    "WarmupInverseSqrt": "schedules",
    "build_transformer": "models",
}
# The translator needs TensorFlow, the rest runs on any backend.
__all__ = [name for name in _MODULES if name != "Translator"]

if TYPE_CHECKING:
    from .config import TransformerConfig as TransformerConfig
    from .layers import Decoder as Decoder
    from .layers import DecoderLayer as DecoderLayer
    from .layers import Encoder as Encoder
    from .layers import EncoderLayer as EncoderLayer
    from .layers import FeedForward as FeedForward
    from .layers import MultiHeadAttention as MultiHeadAttention
    from .layers import PositionalEmbedding as PositionalEmbedding
    from .layers import TiedProjection as TiedProjection
    from .losses import MaskedLabelSmoothedCrossentropy as MaskedLabelSmoothedCrossentropy
    from .metrics import MaskedAccuracy as MaskedAccuracy
    from .metrics import Perplexity as Perplexity
    from .models import Transformer as Transformer
    from .models import build_transformer as build_transformer
    from .schedules import WarmupInverseSqrt as WarmupInverseSqrt
    from .translation import Translator as Translator


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


@wrapt.when_imported("keras")
def _register(keras: Any) -> None:
    """Lets Keras load files with our classes without custom objects, whichever of the two is imported first."""
    for name, module in _MODULES.items():
        if module in ("layers", "losses", "metrics", "models", "schedules"):
            custom_object = wrapt.LazyObjectProxy(functools.partial(__getattr__, name), interface=Callable)
            keras.saving.get_custom_objects().setdefault(f"{__name__}>{name}", custom_object)

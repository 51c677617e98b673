"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762) on Keras 3.

Importing this package imports neither Keras nor TensorFlow: each public name is loaded when it is
first used.

Keras loads files with our layers, losses, metrics, schedules and models without custom objects: it
knows the classes as soon as both Keras and this package are imported, in any order.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
    "PositionalEncoding": "layers",
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
    "to_keras": "interchange",
    "to_keras_hub": "interchange",
    "to_torch": "interchange",
}
# The translator needs TensorFlow, the rest runs on any backend.
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
    from .layers import Decoder as Decoder
    from .layers import DecoderLayer as DecoderLayer
    from .layers import Encoder as Encoder
    from .layers import EncoderLayer as EncoderLayer
    from .layers import FeedForward as FeedForward
    from .layers import MultiHeadAttention as MultiHeadAttention
    from .layers import PositionalEmbedding as PositionalEmbedding
    from .layers import PositionalEncoding as PositionalEncoding
    from .layers import TiedProjection as TiedProjection
    from .losses import MaskedLabelSmoothedCrossentropy as MaskedLabelSmoothedCrossentropy
    from .metrics import MaskedAccuracy as MaskedAccuracy
    from .metrics import Perplexity as Perplexity
    from .models import Transformer as Transformer
    from .models import build_transformer as build_transformer
    from .models import generate as generate
    from .schedules import WarmupInverseSqrt as WarmupInverseSqrt
    from .translation import Translator as Translator
else:
    # Hidden from type checkers, so that they report unknown names.
    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def _register_classes() -> None:
    """Imports every module whose classes may be in a saved file; they register themselves."""
    for module in _SAVED_MODULES:
        importlib.import_module(f".{module}", __name__)


class _WaitForKeras:
    """Registers the classes at the end of the import, of Keras or of a module of this package, that
    imports Keras."""

    is_importing = False

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Nested imports belong to the outer one.
        if self.is_importing or (name != "keras" and not name.startswith(f"{__name__}.")):
            return None
        self.is_importing = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_importing = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            self.is_importing = True
            try:
                execute(module)
            finally:
                self.is_importing = False
            if sys.modules.get("keras") and self in sys.meta_path:
                sys.meta_path.remove(self)
                _register_classes()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if sys.modules.get("keras"):
    _register_classes()
else:
    sys.meta_path.insert(0, _WaitForKeras())

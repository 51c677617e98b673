"""Models made of the layers, and text generation."""

from .generated import Generated
from .generation import generate, start_decoding
from .language_model import LanguageModel
from .token_stream import stream_tokens
from .transformer import Transformer, build_transformer

__all__ = [
    "Generated",
    "LanguageModel",
    "Transformer",
    "build_transformer",
    "generate",
    "start_decoding",
    "stream_tokens",
]

"""Models built of the layers."""

from .generation import Generated, generate, start_decoding
from .transformer import Transformer, build_transformer

__all__ = ["Generated", "Transformer", "build_transformer", "generate", "start_decoding"]

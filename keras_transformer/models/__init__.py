"""Models built of the layers."""

from .transformer import Transformer, build_transformer

__all__ = ["Transformer", "build_transformer"]

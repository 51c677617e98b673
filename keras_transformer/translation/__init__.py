"""Text to text with a trained model."""

from .translator import Translator

__all__ = ["Translator"]

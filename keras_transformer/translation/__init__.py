"""Text to text with a trained model."""

from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .translator import Sampling, Translator

__all__ = ["Sampling", "Translator"]

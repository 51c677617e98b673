"""Translates text with a trained model."""

from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .search import Sampling
    from .translator import Translator

__all__ = ["Sampling", "Translator"]

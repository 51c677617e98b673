"""Translates text with a trained model."""

from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .searched_model import Sampling
    from .translator import Translator

__all__ = ["Sampling", "Translator"]

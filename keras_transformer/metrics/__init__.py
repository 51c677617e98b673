"""Accuracy and perplexity over real tokens."""

from .masked_accuracy import MaskedAccuracy
from .perplexity import Perplexity

__all__ = ["MaskedAccuracy", "Perplexity"]

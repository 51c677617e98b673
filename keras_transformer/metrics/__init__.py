"""Accuracy and perplexity over all tokens that are not padding."""

from .masked_accuracy import MaskedAccuracy
from .perplexity import Perplexity

__all__ = ["MaskedAccuracy", "Perplexity"]

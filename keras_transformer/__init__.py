"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762) on Keras 3."""

import os
import pathlib
import sys

__version__ = "0.1.0"

# In a checkout, training/ and export/ stand beside this folder; installed, they lie inside it.
_checkout = pathlib.Path(__file__).resolve().parent.parent
if (_checkout / "training").is_dir() and (_checkout / "setup.cfg").is_file():
    __path__.append(str(_checkout))

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MaskedAccuracy",
    "MaskedLabelSmoothedCrossentropy",
    "MultiHeadAttention",
    "Perplexity",
    "PositionalEmbedding",
    "Transformer",
    "TransformerConfig",
    "WarmupInverseSqrt",
    "build_transformer",
]

# Importing the layers registers them, so that Keras loads saved models without custom objects. Only the
# `keras-transformer` command does without: its --help need not wait for a backend.
_command = pathlib.Path((getattr(sys, "argv", None) or [""])[0]).stem
if _command not in ("keras-transformer", "-m"):
    from .config import TransformerConfig
    from .layers import (
        Decoder,
        DecoderLayer,
        Encoder,
        EncoderLayer,
        FeedForward,
        MultiHeadAttention,
        PositionalEmbedding,
    )
    from .losses import MaskedLabelSmoothedCrossentropy
    from .metrics import MaskedAccuracy, Perplexity
    from .models import Transformer, build_transformer
    from .schedules import WarmupInverseSqrt


def __getattr__(name):
    # The translator reads and writes text through TensorFlow; the layers do without it.
    if name == "Translator":
        from .translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

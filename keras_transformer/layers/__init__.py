"""The layers, one subject to a file; the public ones are imported here."""

from .attention import MultiHeadAttention
from .blocks import BlockOptions, DecoderLayer, EncoderLayer, FeedForward
from .positional_embedding import PositionalEmbedding, PositionalEncoding
from .stacks import Decoder, Encoder
from .tied_projection import TiedProjection

__all__ = [
    "BlockOptions",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "PositionalEncoding",
    "TiedProjection",
]

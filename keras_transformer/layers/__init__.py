"""The layers, one subject to a file; the public ones are imported here."""

from .decoder import Decoder
from .decoder_layer import DecoderLayer
from .encoder import Encoder
from .encoder_layer import EncoderLayer
from .feed_forward import FeedForward
from .multi_head_attention import MultiHeadAttention
from .positional_embedding import PositionalEmbedding
from .tied_projection import TiedProjection

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "TiedProjection",
]

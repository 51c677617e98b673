"""The layers, one subject to a file; the public ones are imported here."""

from .attention.multi_head_attention import MultiHeadAttention
from .blocks.decoder import Decoder
from .blocks.decoder_layer import DecoderLayer
from .blocks.encoder import Encoder
from .blocks.encoder_layer import EncoderLayer
from .blocks.feed_forward import FeedForward
from .positional_embedding import PositionalEmbedding
from .positional_encoding import PositionalEncoding
from .tied_projection import TiedProjection

__all__ = [
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

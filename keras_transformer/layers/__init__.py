"""Keras layers, one public class per file."""

from .alibi_positions import AlibiPositions
from .decoder import Decoder
from .decoder_layer import DecoderLayer
from .encoder import Encoder
from .encoder_layer import EncoderLayer
from .feed_forward import FeedForward
from .multi_head_attention import MultiHeadAttention
from .new_positions import NewPositions
from .position_scheme import PositionScheme
from .positional_embedding import PositionalEmbedding
from .positional_encoding import PositionalEncoding
from .residual import Residual
from .rotary_positions import RotaryPositions
from .t5_positions import T5Positions
from .tied_projection import TiedProjection

__all__ = [
    "AlibiPositions",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "NewPositions",
    "PositionScheme",
    "PositionalEmbedding",
    "PositionalEncoding",
    "Residual",
    "RotaryPositions",
    "T5Positions",
    "TiedProjection",
]

"""Models built of the layers."""

from .drafts import Drafter
from .generation import Generated, generate, start_decoding
from .transformer import Transformer, build_transformer

__all__ = ["Drafter", "Generated", "Transformer", "build_transformer", "generate", "start_decoding"]

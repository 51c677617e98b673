"""What hyperparameters there are, and what values they may take."""

from ..errors import ConfigError
from .data import DataConfig
from .decoding import DecodingConfig
from .model import TransformerConfig
from .sections import Config, TokenizerConfig
from .training import TrainingConfig

__all__ = [
    "Config",
    "ConfigError",
    "DataConfig",
    "DecodingConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
]

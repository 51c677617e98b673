"""Configuration classes with all hyperparameters."""

from ..errors import ConfigError
from .model import TransformerConfig
from .sections import Config, DataConfig, DecodingConfig, TokenizerConfig, TrainingConfig

__all__ = [
    "Config",
    "ConfigError",
    "DataConfig",
    "DecodingConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
]

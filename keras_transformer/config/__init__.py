"""What hyperparameters there are, and what values they may take."""

from ..errors import ConfigError
from .sections import (
    Config,
    DataConfig,
    DecodingConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)

__all__ = [
    "Config",
    "ConfigError",
    "DataConfig",
    "DecodingConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
]

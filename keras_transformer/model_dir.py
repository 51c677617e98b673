"""The model directory: the one contract between training, translating and exporting.

    config.yaml                            the whole configuration
    tokenizer.model (or vocab.txt)         the tokenizer's own file
    checkpoints/step-00001000.weights.h5   weights after so many updates, the last few and the best
    best.weights.h5                        the best on the validation text, by perplexity or by BLEU
    average.weights.h5                     the mean of the last or best checkpoints, if they were averaged
    training_state.npz                     what resuming a training needs: weights, optimizer, step, scores
    log.csv, tensorboard/                  the training's log, for people

Every file appears whole, by rename. Loading runs no code from the directory.
"""

import dataclasses
import os
import pathlib
import re
from typing import TYPE_CHECKING

from .config import Config, TransformerConfig
from .config_file import read_config, write_config
from .rules import ConfigError

if TYPE_CHECKING:
    from .models import Transformer


@dataclasses.dataclass(frozen=True, init=False)
class ModelDir:
    """A model directory. It need not exist, and any of its files may be missing.

    Args:
        path: str or path of the directory.
    """

    path: pathlib.Path

    def __init__(self, path: "str | os.PathLike[str] | ModelDir") -> None:
        object.__setattr__(self, "path", path.path if isinstance(path, ModelDir) else pathlib.Path(path))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def config_path(self) -> pathlib.Path:
        return self.path / "config.yaml"

    @property
    def best_path(self) -> pathlib.Path:
        return self.path / "best.weights.h5"

    @property
    def average_path(self) -> pathlib.Path:
        return self.path / "average.weights.h5"

    @property
    def training_state_path(self) -> pathlib.Path:
        return self.path / "training_state.npz"

    @property
    def log_path(self) -> pathlib.Path:
        return self.path / "log.csv"

    @property
    def tensorboard_path(self) -> pathlib.Path:
        return self.path / "tensorboard"

    def checkpoint_path(self, step: int) -> pathlib.Path:
        """Returns the path of the weights after `step` updates."""
        return self.path / "checkpoints" / f"step-{step:08d}.weights.h5"

    def checkpoints(self) -> dict[int, pathlib.Path]:
        """Returns the paths of all checkpoints by their steps, the oldest first."""
        found = {}
        for path in (self.path / "checkpoints").glob("step-*.weights.h5"):
            if name := re.fullmatch(r"step-(\d+)\.weights\.h5", path.name):
                found[int(name[1])] = path
        return dict(sorted(found.items()))

    def weights_path(self) -> pathlib.Path:
        """Returns the path of the weights to translate with: the average if there is one, else the best.

        Raises:
            ConfigError: There are none.
        """
        for path in (self.average_path, self.best_path):
            if path.is_file():
                return path
        raise ConfigError(f"{self}: no trained weights (neither average.weights.h5 nor best.weights.h5)")

    def read_config(self) -> Config:
        """Reads the configuration.

        Raises:
            ConfigError: The directory is not a model directory, or a value breaks its rule.
        """
        if not self.config_path.is_file():
            raise ConfigError(f"{self}: not a model directory (it has no config.yaml)")
        return read_config(self.config_path)

    def write_config(self, config: Config) -> None:
        """Writes the configuration."""
        write_config(self.config_path, config)

    def load_model(self, config: TransformerConfig, dtype: str = "float32") -> "Transformer":
        """Loads the model with the weights to translate with.

        Args:
            config: TransformerConfig, from `read_config`.
            dtype: str. The dtype of weights and computation. Defaults to "float32".

        Raises:
            ConfigError: There are no weights, or they do not fit the configuration.
        """
        from .models import build_transformer

        path = self.weights_path()
        model = build_transformer(config, dtype=dtype)
        load_weights(model, path)
        return model


def load_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Loads weights into a model.

    Raises:
        ConfigError: The file is damaged, or does not fit the model.
    """
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{path}: these weights do not fit the model in config.yaml, or the file is damaged "
            f"({str(error).splitlines()[0]})"
        ) from None

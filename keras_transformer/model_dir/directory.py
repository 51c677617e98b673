"""The model directory: the one contract between training, translating and exporting.

    config.yaml                            the format's version, and the whole configuration
    tokenizer.model (or vocab.txt)         the tokenizer's own file; source.NAME and target.NAME, if there are two
    checkpoints/step-00001000.weights.h5   weights after so many updates, the last few and the best
    best.weights.h5                        the best on the validation text, by perplexity or by BLEU
    average.weights.h5                     the mean of the last or best checkpoints, if they were averaged
    training_state.npz                     what resuming a training run needs: weights, optimizer, step, scores, log
    training_state.previous.npz            the one before
    alignment.npz                          while `align` runs: what it needs to resume
    shortlist.npz                          for each source piece the target pieces that may translate it
    evaluation.json                        the scores that `evaluate` measured last
    log.csv, tensorboard/                  the training run's log, for people
    NAME.sha256                            the checksum of a binary file or of the tokenizer's
    .train.lock                            while a training run uses the directory: its process

Every file appears whole, by rename. Loading runs no code from the directory.
"""

import dataclasses
import logging
import os
import pathlib
import re
from typing import TYPE_CHECKING

from ..config import Config, TransformerConfig
from ..errors import ConfigError, DamagedFileError
from ..runtime.memory import require_memory
from .config_file import read_config, write_config
from .weights_file import load_weights

if TYPE_CHECKING:
    from ..models import Transformer

_log = logging.getLogger(__name__)


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
    def previous_state_path(self) -> pathlib.Path:
        return self.path / "training_state.previous.npz"

    @property
    def lock_path(self) -> pathlib.Path:
        return self.path / ".train.lock"

    @property
    def log_path(self) -> pathlib.Path:
        return self.path / "log.csv"

    @property
    def evaluation_path(self) -> pathlib.Path:
        return self.path / "evaluation.json"

    @property
    def shortlist_path(self) -> pathlib.Path:
        return self.path / "shortlist.npz"

    @property
    def alignment_path(self) -> pathlib.Path:
        return self.path / "alignment.npz"

    @property
    def tensorboard_path(self) -> pathlib.Path:
        return self.path / "tensorboard"

    @property
    def checkpoints_path(self) -> pathlib.Path:
        return self.path / "checkpoints"

    def checkpoint_path(self, step: int) -> pathlib.Path:
        """Returns the path of the weights after `step` updates."""
        return self.checkpoints_path / f"step-{step:08d}.weights.h5"

    def checkpoints(self) -> dict[int, pathlib.Path]:
        """Returns the paths of all checkpoints by their steps, the oldest first."""
        found = {}
        for path in self.checkpoints_path.glob("step-*.weights.h5"):
            if name := re.fullmatch(r"step-(\d+)\.weights\.h5", path.name):
                found[int(name[1])] = path
        return dict(sorted(found.items()))

    def is_trained(self) -> bool:
        """Returns whether there are weights or a training state of this configuration."""
        paths = (self.best_path, self.average_path, self.training_state_path, self.previous_state_path)
        return self.config_path.is_file() and (any(path.is_file() for path in paths) or bool(self.checkpoints()))

    def weights_path(self) -> pathlib.Path:
        """Returns the path of the weights to translate with: the average if there is one, otherwise the best.

        Raises:
            ConfigError: There are none.
        """
        return self._weights_paths()[0]

    def require_weights(self) -> None:
        """Checks that there are weights to translate with.

        Raises:
            ConfigError: There are none.
        """
        self._weights_paths()

    def _weights_paths(self) -> list[pathlib.Path]:
        """All weights that can translate, the ones to prefer first."""
        paths = [path for path in (self.average_path, self.best_path) if path.is_file()]
        paths += reversed(self.checkpoints().values())
        if not paths:
            raise ConfigError(f"{self}: no trained weights (neither average.weights.h5 nor best.weights.h5)")
        return paths

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
        """Makes a model and loads the weights to translate with.

        Args:
            config: TransformerConfig, from `read_config`.
            dtype: str. The dtype of weights and computation. Defaults to "float32".

        Raises:
            ConfigError: There are no weights, all are damaged, or they do not fit the configuration.
            MemoryLimitError: The weights take more memory than the machine has.
        """
        from ..models import build_transformer

        # Before the model is built, which takes a while.
        self.require_weights()
        require_memory(config.num_parameters, 2 if dtype in ("bfloat16", "float16") else 4, "to translate")
        model = build_transformer(config, dtype=dtype)
        self.load_weights(model)
        return model

    def load_weights(self, model: "Transformer") -> pathlib.Path:
        """Sets a model to the weights to translate with, and returns their path.

        If they are damaged, the best or otherwise the newest checkpoint takes their place, and a warning is logged.

        Raises:
            ConfigError: There are no weights, all are damaged, or they do not fit the model.
        """
        damaged = []
        for path in self._weights_paths():
            try:
                load_weights(model, path)
            except DamagedFileError as error:
                damaged.append(error)
                continue
            if damaged:
                _log.warning(f"{'; '.join(map(str, damaged))}; {path.name} is used instead")
            return path
        raise damaged[0]

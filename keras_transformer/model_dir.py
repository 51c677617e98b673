"""The model directory: the one contract between training, translating and exporting.

    config.yaml                            the resolved configuration
    tokenizer.model (or vocab.txt)         the tokenizer's own file
    checkpoints/step-00001000.weights.h5   the last few, oldest removed first
    best.weights.h5                        the best on the validation text, by perplexity or by BLEU
    average.weights.h5                     the mean of the last or best checkpoints, if they were averaged
    training_state.npz                     what a resumed training needs: weights, optimizer, step
    log.csv, tensorboard/                  the training's log

Every file appears whole, by rename. Loading runs no code from the directory.
"""

import contextlib
import dataclasses
import pathlib
import re

import yaml

from .config import ConfigError, DecodingConfig, TokenizerConfig, TransformerConfig, check_keys, from_dict
from .files import replacing


@dataclasses.dataclass(frozen=True)
class ModelDir:
    """A model directory, of which all, some or nothing may stand yet.

    Args:
        path: the directory.
    """

    path: pathlib.Path

    def __init__(self, path):
        object.__setattr__(self, "path", pathlib.Path(path))

    def __str__(self):
        return str(self.path)

    @property
    def config_path(self):
        return self.path / "config.yaml"

    @property
    def best_path(self):
        return self.path / "best.weights.h5"

    @property
    def average_path(self):
        return self.path / "average.weights.h5"

    @property
    def training_state_path(self):
        return self.path / "training_state.npz"

    @property
    def log_path(self):
        return self.path / "log.csv"

    @property
    def tensorboard_path(self):
        return self.path / "tensorboard"

    def checkpoint_path(self, step):
        """Where the weights after `step` updates stand."""
        return self.path / "checkpoints" / f"step-{step:08d}.weights.h5"

    def checkpoints(self):
        """Paths of the checkpoints, the oldest first."""
        found = (self.path / "checkpoints").glob("step-*.weights.h5")
        return sorted(path for path in found if re.fullmatch(r"step-\d+\.weights\.h5", path.name))

    def weights_path(self):
        """The weights to translate with: the average if there is one, else the best.

        Raises:
            ConfigError: there are none.
        """
        for path in (self.average_path, self.best_path):
            if path.is_file():
                return path
        raise ConfigError(f"{self}: no trained weights here (neither average.weights.h5 nor best.weights.h5)")

    def read_config(self):
        """The sections of config.yaml as `(TransformerConfig, TokenizerConfig, DecodingConfig, training dict)`.

        Raises:
            ConfigError: the directory is none, or a value breaks a rule.
        """
        if not self.config_path.is_file():
            raise ConfigError(f"{self}: not a model directory (no config.yaml in it)")
        sections = read_yaml(self.config_path)
        with naming(self.config_path):
            check_keys(sections, ("model", "tokenizer", "decoding", "training"))
            return (
                from_dict(TransformerConfig, sections.get("model", {}), "model"),
                from_dict(TokenizerConfig, sections.get("tokenizer", {}), "tokenizer"),
                from_dict(DecodingConfig, sections.get("decoding", {}), "decoding"),
                sections.get("training", {}),
            )

    def write_config(self, model, tokenizer, decoding, training):
        """Writes config.yaml from the four dataclasses."""
        sections = dict(model=model, tokenizer=tokenizer, decoding=decoding, training=training)
        text = yaml.safe_dump(
            {name: dataclasses.asdict(section) for name, section in sections.items()}, sort_keys=False
        )
        with replacing(self.config_path) as path:
            path.write_text(text, encoding="utf-8")

    def load_model(self, dtype="float32"):
        """The model with the weights to translate with."""
        from .models import build_transformer

        path = self.weights_path()
        model = build_transformer(self.read_config()[0], dtype=dtype)
        try:
            model.load_weights(path)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{path}: these weights do not fit {self.config_path}, or the file is damaged "
                f"({str(error).splitlines()[0]})"
            ) from None
        return model


@contextlib.contextmanager
def naming(path):
    """Puts a file's name before the message of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_yaml(path):
    """A YAML file's mapping; an empty file is an empty mapping.

    Raises:
        ConfigError: the file is not to be read, or not YAML, or not a mapping.
    """
    try:
        values = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not YAML ({getattr(error, 'problem', None) or error})") from None
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold a mapping; received {type(values).__name__}")
    return values

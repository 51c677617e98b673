"""The model directory: the one contract between training, translating and exporting.

    config.yaml                           the version of the format, and the whole configuration
    tokenizer.model (or vocab.txt)        the tokenizer's own file; source.NAME and target.NAME if
                                          there are two
    checkpoints/step-00001000.weights.h5  weights after so many updates, the last few and the best
    best.weights.h5                       the best weights on the validation text
    average.weights.h5                    the mean of checkpoints, if they were averaged
    training_state.npz                    weights, optimizer, step, scores and log, from which a
                                          training run is resumed
    training_state.previous.npz           the state before
    alignment.npz                         the state of `build-shortlist`, while it runs
    shortlist.npz                         for each source token the target tokens that may
                                          translate it
    evaluation.json                       the scores that `evaluate` measured last
    log.csv, tensorboard/                 the log of the training run, for people
    NAME.sha256                           the checksum of a binary file or of the tokenizer's
    .train.lock                           the process that trains in the directory, while it runs

Every file appears whole, by rename. Loading runs no code from the directory.
"""

import collections
import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import math
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..checks import require
from ..config import Config, TransformerConfig
from ..config.origins import naming_line
from ..config.values import from_dict
from ..config.yaml_file import read_sections, yaml_of
from ..errors import ConfigError, DamagedFileError, Error, InvalidFileError, MemoryLimitError
from .files import (
    UNREADABLE,
    locked,
    read_limited,
    replacing,
    replacing_with_checksum,
    require_undamaged,
)

if TYPE_CHECKING:
    import h5py

    from ..models import Transformer

_log = logging.getLogger(__name__)
# Raise this number when releases cannot read each other's model directories.
_FORMAT_VERSION = 2
# The files in the list above, and the folders in which every file is one of the directory.
_FILES = re.compile(
    r"config\.yaml|(source\.|target\.)?(tokenizer\.model|vocab\.txt)|(best|average)\.weights\.h5|"
    r"training_state(\.previous)?\.npz|(alignment|shortlist)\.npz|evaluation\.json|log\.csv|"
    r"\.(train|align)\.lock"
)
_FOLDERS = ("checkpoints", "tensorboard")
# Those of a file of weights: far above what the deepest model has.
_MAX_DEPTH = 20
_MAX_ITEMS = 200_000
_MAX_EVALUATION_BYTES = 2**20
_CONTAINER_LIMITS = (
    pathlib.Path("/sys/fs/cgroup/memory.max"),
    pathlib.Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class ModelDir:
    """A model directory. It need not exist, and any of its files may be missing."""

    def __init__(self, path: "str | os.PathLike[str] | ModelDir") -> None:
        self.path: pathlib.Path = path.path if isinstance(path, ModelDir) else pathlib.Path(path)
        self.config_path = self.path / "config.yaml"
        self.checkpoints_path = self.path / "checkpoints"
        self.best_path = self.path / "best.weights.h5"
        self.average_path = self.path / "average.weights.h5"
        self.training_state_path = self.path / "training_state.npz"
        self.previous_state_path = self.path / "training_state.previous.npz"
        self.alignment_path = self.path / "alignment.npz"
        self.shortlist_path = self.path / "shortlist.npz"
        self.evaluation_path = self.path / "evaluation.json"
        self.log_path = self.path / "log.csv"
        self.tensorboard_path = self.path / "tensorboard"
        self.lock_path = self.path / ".train.lock"

    def __str__(self) -> str:
        return str(self.path)

    def checkpoint_path(self, step: int) -> pathlib.Path:
        return self.checkpoints_path / f"step-{step:08d}.weights.h5"

    def checkpoints(self) -> dict[int, pathlib.Path]:
        """Returns the paths of all checkpoints by their steps, the oldest first."""
        paths = {}
        for path in self.checkpoints_path.glob("step-*.weights.h5"):
            name = re.fullmatch(r"step-(\d+)\.weights\.h5", path.name)
            if name:
                paths[int(name[1])] = path
        return dict(sorted(paths.items()))

    def lock_for_training(self) -> contextlib.AbstractContextManager[None]:
        """Returns the lock that a training run holds: `with model_dir.lock_for_training(): ...`.

        Raises:
            LockedError: On entering, if another process holds it.
            ConfigError: On entering, if the lock is not a file, such as a symbolic link.
        """
        return locked(self.lock_path, "another training runs here")

    def has_as_file(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path, however it is spelled, is or would be a file of this directory."""
        # The name itself may be a link: then both the link and its target count.
        folder, name = os.path.split(os.path.abspath(path))
        spellings = (os.path.join(os.path.realpath(folder), name), os.path.realpath(path))
        root = os.path.realpath(self.path)
        for spelling in spellings:
            parts = pathlib.Path(os.path.relpath(spelling, root)).parts
            if parts and (parts[0] in _FOLDERS or (len(parts) == 1 and _is_own_name(parts[0]))):
                return True
        if not os.path.exists(path):
            return False
        # A hard link, or the target of a link in the directory.
        own = [file for file in self.path.glob("*") if _is_own_name(file.name)]
        own += [file for folder in _FOLDERS for file in (self.path / folder).rglob("*")]
        return any(file.exists() and os.path.samefile(file, path) for file in own)

    def is_trained(self) -> bool:
        """Whether there are weights or a training state of this configuration."""
        if not self.config_path.is_file():
            return False
        paths = [
            self.best_path,
            self.average_path,
            self.training_state_path,
            self.previous_state_path,
        ]
        return any(path.is_file() for path in paths) or bool(self.checkpoints())

    def read_config(self) -> Config:
        """Reads the configuration.

        Raises:
            ConfigError: The directory is not a model directory, its format is another one, or a
                value breaks its rule.
        """
        if not self.config_path.is_file():
            raise ConfigError(
                f"{self}: not a model directory (it has no config.yaml); "
                "create one with train or import"
            )
        sections = read_sections(self.config_path)
        with naming_line(self.config_path):
            version = sections.pop("format_version", None)
            rule = f"{_FORMAT_VERSION}, the one that this release of keras3-transformer reads"
            require(version == _FORMAT_VERSION, "format_version", rule, version)
            return from_dict(Config, sections)

    def write_config(self, config: Config) -> None:
        sections = {"format_version": _FORMAT_VERSION, **dataclasses.asdict(config)}
        with replacing(self.config_path) as temporary:
            temporary.write_text(yaml_of(sections), encoding="utf-8")

    def weights_path(self) -> pathlib.Path:
        """Returns the path of the weights to translate with: the average, or the best weights."""
        return self._weights_paths()[0]

    def _weights_paths(self) -> list[pathlib.Path]:
        """All weights that can translate, the ones to prefer first."""
        paths = [path for path in (self.average_path, self.best_path) if path.is_file()]
        paths += reversed(self.checkpoints().values())
        if not paths:
            raise ConfigError(
                f"{self}: no trained weights (neither average.weights.h5 nor best.weights.h5)"
            )
        return paths

    def load_model(self, config: TransformerConfig, dtype: str = "float32") -> "Transformer":
        """Makes a model and loads the weights to translate with.

        Raises:
            ConfigError: There are no weights, all are damaged, or they do not fit the
                configuration.
            MemoryLimitError: The weights take more memory than the machine has.
        """
        from ..models import build_transformer

        # Check this before the model is built, which takes a while.
        require_fitting(self.weights_path(), config)
        bytes_per_parameter = 2 if dtype in ("bfloat16", "float16") else 4
        require_memory(config.num_parameters, bytes_per_parameter, "to translate")
        model = build_transformer(config, dtype=dtype)
        self.load_weights(model)
        return model

    def load_weights(self, model: "Transformer") -> pathlib.Path:
        """Sets a model to the weights to translate with, and returns their path.

        If they are damaged, the best or otherwise the newest checkpoint takes their place, and a
        warning is logged.

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

    def weights_sha256(self) -> str:
        """Returns the checksum of the weights to translate with."""
        with open(self.weights_path(), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write_evaluation(self, text: str, scores: Mapping[str, str]) -> None:
        """Writes scores of the weights for model cards.

        Args:
            text: the text on which they were measured.
            scores: the signature of each score.
        """
        values = {"weights_sha256": self.weights_sha256(), "text": text, "scores": dict(scores)}
        content = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        try:
            with replacing(self.evaluation_path) as temporary:
                # The name of a file need not be UTF-8.
                temporary.write_text(content, "utf-8", "replace")
        except OSError as error:
            _log.warning(f"{error}; model cards will not show the scores")

    def read_evaluation(self) -> list[str]:
        """Returns the scores of the weights with their signatures and texts.

        There are none if the last scores are of other weights.
        """
        if not self.evaluation_path.is_file():
            return []
        try:
            content = json.loads(read_limited(self.evaluation_path, _MAX_EVALUATION_BYTES))
            if content["weights_sha256"] != self.weights_sha256():
                return []
            return [
                f"{score} ({signature}), {content['text']}"
                for score, signature in content["scores"].items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            _log.warning(
                f"{self.evaluation_path}: not what evaluate wrote; "
                "the model card does not show its scores"
            )
            return []


def _is_own_name(name: str) -> bool:
    return _FILES.fullmatch(name.removesuffix(".sha256")) is not None


class _WeightsInMemory(io.BytesIO):
    """A file in memory, because HDF5 itself would end the process when the disk is full."""

    def __str__(self) -> str:
        # Keras looks at the suffix.
        return "memory.weights.h5"


def save_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Writes the weights of a model, and their checksum; if that fails, the file before stays."""
    content = _WeightsInMemory()
    model.save_weights(content)
    with replacing_with_checksum(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def load_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Loads weights into a model.

    Raises:
        DamagedFileError: The file is damaged, or holds numbers that are not finite.
        InvalidFileError: The file does not have exactly the weights of the model.
    """
    from keras import ops

    with _naming_damage(path):
        require_undamaged(path)
    received = collections.Counter(_shapes(path))
    # Keras ignores weights that the model does not have.
    expected = collections.Counter(tuple(weight.shape) for weight in model.weights)
    if received != expected:
        shape = min((received - expected) | (expected - received))
        raise InvalidFileError(
            f"{path}: these weights do not fit the model in config.yaml: "
            f"the file has {received[shape]} of the shape {shape}, the model {expected[shape]}"
        )
    with _naming_damage(path):
        model.load_weights(path)
    for variable in model.weights:
        if not ops.all(ops.isfinite(variable)):
            raise DamagedFileError(f"{path}: weights are NaN or infinite, such as {variable.path}")


def require_fitting(path: pathlib.Path, config: TransformerConfig) -> None:
    """Raises an InvalidFileError if a file has more or fewer numbers than a model's weights.

    This takes milliseconds, and the model of a configuration with a thousand layers is built for
    minutes. Nothing is said of a damaged file.
    """
    try:
        received = sum(map(math.prod, _shapes(path)))
    except DamagedFileError:
        return
    if received != config.num_parameters:
        raise InvalidFileError(
            f"{path}: these weights do not fit the model in config.yaml: "
            f"the file has {received:,} numbers, the model {config.num_parameters:,}"
        )


def _shapes(path: pathlib.Path) -> list[tuple[int, ...]]:
    """Returns the shapes of a model's weights in a file.

    Raises:
        DamagedFileError: The file cannot be read, or holds something else than Keras writes.
    """
    import h5py

    with _naming_damage(path), h5py.File(path) as file:
        shapes = []
        # A compiled model's file also has its optimizer, outside of this group. h5py's own walk
        # takes cubic time in the depth, and does not show links.
        waiting = [("layers", file, "layers")] if "layers" in file else []
        seen = set()
        while waiting:
            name, group, key = waiting.pop()
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is a link")
            item = group[key]
            place = h5py.h5o.get_info(item.id).addr
            if place in seen:
                raise ValueError(f"{name} has two names")
            seen.add(place)
            if len(seen) > _MAX_ITEMS:
                raise ValueError(f"it has more than {_MAX_ITEMS:,} groups and arrays")
            if isinstance(item, h5py.Group):
                if name.count("/") == _MAX_DEPTH:
                    raise ValueError(f"groups are nested deeper than {_MAX_DEPTH} levels")
                waiting += [(f"{name}/{child}", item, child) for child in item]
            elif isinstance(item, h5py.Dataset) and _is_array_of_numbers(item):
                shapes.append(item.shape)
            else:
                raise ValueError(f"{name} is not an array of numbers")
    return shapes


@contextlib.contextmanager
def _naming_damage(path: pathlib.Path) -> Iterator[None]:
    """Turns what h5py and Keras raise for damaged files into a DamagedFileError."""
    try:
        yield
    except Error:
        raise
    except UNREADABLE as error:
        problem = "cannot be read" if isinstance(error, OSError) else "is damaged"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedFileError(f"{path}: the file {problem} ({reason})") from None


def _is_array_of_numbers(item: "h5py.Dataset") -> bool:
    """Returns whether Keras can load a dataset, whose numbers are in its own file.

    Keras would read text and records in full before it finds that they are not numbers.
    """
    if item.shape is None or item.dtype.kind not in "fiub" or item.dtype.itemsize > 8:
        return False
    if item.is_virtual or item.external:
        return False
    return math.prod(item.chunks or ()) <= max(item.size, 1)


def memory_size() -> int:
    """Returns the bytes of memory of this machine or container."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER_LIMITS:
        # Not in a container, or "max".
        with contextlib.suppress(OSError, ValueError):
            size = min(size, int(path.read_text()))
    return size


def require_memory(num_parameters: int, bytes_per_parameter: int, purpose: str) -> None:
    """Raises a MemoryLimitError if a model's parameters take more memory than the machine has."""
    needed = num_parameters * bytes_per_parameter
    available = memory_size()
    if needed > available:
        raise MemoryLimitError(
            f"the sizes in the section model make {num_parameters:,} parameters, "
            f"which take at least {needed / 2**30:,.1f} GiB of memory {purpose}; "
            f"this machine has {available / 2**30:,.1f} GiB"
        )

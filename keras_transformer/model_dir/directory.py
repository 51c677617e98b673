"""The model directory, which connects training, translation and export.

    config.yaml                           format version and full configuration
    tokenizer.model (or vocab.txt)        tokenizer file, or source.NAME and target.NAME if there
                                          are two
    checkpoints/step-00001000.weights.h5  weights at this step, for the most recent and the best
                                          checkpoints
    best.weights.h5                       best weights on the validation text
    average.weights.h5                    average of checkpoints, if they were averaged
    training_state.npz                    weights, optimizer, step, scores and log for resuming a
                                          training run
    training_state.previous.npz           previous training state
    alignment.npz                         state of `build-shortlist` while it runs
    shortlist.npz                         target tokens that may translate each source token
    evaluation.json                       scores from the last run of `evaluate`
    log.csv, tensorboard/                 training log
    tokens/                               token ids of the training and validation text
    NAME.sha256                           checksum of a binary file or a tokenizer file
    .train.lock                           lock file with the process that trains in the directory

Files are written under a temporary name and then renamed, so they are never incomplete. Loading a
model does not run any code from the directory.
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
# Increase this number when releases cannot read each other's model directories.
_FORMAT_VERSION = 2
# Files in the list above, and folders in which every file belongs to the model directory.
_FILES = re.compile(
    r"config\.yaml|(source\.|target\.)?(tokenizer\.model|vocab\.txt)|(best|average)\.weights\.h5|"
    r"training_state(\.previous)?\.npz|(alignment|shortlist)\.npz|evaluation\.json|log\.csv|"
    r"\.(train|align)\.lock"
)
_FOLDERS = ("checkpoints", "tensorboard", "tokens")
# Limits on weights files, far above the deepest model.
_MAX_DEPTH = 20
_MAX_ITEMS = 200_000
_MAX_EVALUATION_BYTES = 2**20
_CONTAINER_LIMITS = (
    pathlib.Path("/sys/fs/cgroup/memory.max"),
    pathlib.Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class ModelDir:
    """A model directory. The directory does not have to exist, and any file may be missing."""

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
        self.tokens_path = self.path / "tokens"
        self.lock_path = self.path / ".train.lock"

    def __str__(self) -> str:
        return str(self.path)

    def checkpoint_path(self, step: int) -> pathlib.Path:
        return self.checkpoints_path / f"step-{step:08d}.weights.h5"

    def checkpoints(self) -> dict[int, pathlib.Path]:
        """Returns a dict that maps steps to checkpoint paths, oldest first."""
        paths = {}
        for path in self.checkpoints_path.glob("step-*.weights.h5"):
            name = re.fullmatch(r"step-(\d+)\.weights\.h5", path.name)
            if name:
                paths[int(name[1])] = path
        return dict(sorted(paths.items()))

    def lock_for_training(self) -> contextlib.AbstractContextManager[None]:
        """Returns the lock of a training run: `with model_dir.lock_for_training(): ...`.

        Raises:
            LockedError: On entry, if another process holds the lock.
            ConfigError: On entry, if the lock is not a regular file, such as a symbolic link.
        """
        return locked(self.lock_path, "another training run uses this directory")

    def has_as_file(self, path: str | os.PathLike[str]) -> bool:
        """Returns whether a path, however written, is or would be a file of this directory."""
        # If the path is a link, check both the link and its target.
        folder, name = os.path.split(os.path.abspath(path))
        spellings = (os.path.join(os.path.realpath(folder), name), os.path.realpath(path))
        root = os.path.realpath(self.path)
        for spelling in spellings:
            parts = pathlib.Path(os.path.relpath(spelling, root)).parts
            if parts and (parts[0] in _FOLDERS or (len(parts) == 1 and _is_own_name(parts[0]))):
                return True
        if not os.path.exists(path):
            return False
        # The path may be a hard link, or the target of a link in the directory.
        own = [file for file in self.path.glob("*") if _is_own_name(file.name)]
        own += [file for folder in _FOLDERS for file in (self.path / folder).rglob("*")]
        return any(file.exists() and os.path.samefile(file, path) for file in own)

    def is_trained(self) -> bool:
        """Returns whether the directory has a configuration, and weights or a training state."""
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
            ConfigError: If this is not a model directory, the format version is not supported, or a
                value is invalid.
        """
        if not self.config_path.is_file():
            raise ConfigError(
                f"{self}: not a model directory (it has no config.yaml); "
                "create one with train or import"
            )
        sections = read_sections(self.config_path)
        with naming_line(self.config_path):
            version = sections.pop("format_version", None)
            rule = (
                f"{_FORMAT_VERSION}, the only version that this release of keras3-transformer reads"
            )
            require(version == _FORMAT_VERSION, "format_version", rule, version)
            return from_dict(Config, sections)

    def write_config(self, config: Config) -> None:
        sections = {"format_version": _FORMAT_VERSION, **dataclasses.asdict(config)}
        with replacing(self.config_path) as temporary:
            temporary.write_text(yaml_of(sections), encoding="utf-8")

    def weights_path(self) -> pathlib.Path:
        """Returns the path of the weights for translation.

        These are the average of checkpoints if it exists, otherwise the best weights, otherwise the
        newest checkpoint.
        """
        return self._weights_paths()[0]

    def _weights_paths(self) -> list[pathlib.Path]:
        """Returns the paths of all weights for translation, in order of preference."""
        paths = [path for path in (self.average_path, self.best_path) if path.is_file()]
        paths += reversed(self.checkpoints().values())
        if not paths:
            raise ConfigError(
                f"{self}: no trained weights (neither average.weights.h5 nor best.weights.h5)"
            )
        return paths

    def load_model(self, config: TransformerConfig, dtype: str = "float32") -> "Transformer":
        """Builds a model and loads the weights for translation.

        Raises:
            ConfigError: If there are no weights, all weights are damaged, or they do not match the
                configuration.
            MemoryLimitError: If the weights need more memory than the machine has.
        """
        from ..models import build_transformer

        # Check the file first, because building the model takes longer.
        require_fitting(self.weights_path(), config)
        bytes_per_parameter = 2 if dtype in ("bfloat16", "float16") else 4
        require_memory(config.num_parameters, bytes_per_parameter, "to translate")
        model = build_transformer(config, dtype=dtype)
        self.load_weights(model)
        return model

    def load_weights(self, model: "Transformer") -> pathlib.Path:
        """Loads the weights for translation into a model and returns their path.

        If they are damaged, this method loads the best weights, or otherwise the newest undamaged
        checkpoint, and logs a warning.

        Raises:
            ConfigError: If there are no weights, all weights are damaged, or they do not match the
                model.
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
        """Returns the checksum of the weights for translation."""
        with open(self.weights_path(), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write_evaluation(self, text: str, scores: Mapping[str, str]) -> None:
        """Writes the evaluation scores of the weights, which model cards show.

        Args:
            text: description of the test set and the search options.
            scores: dict that maps each score to its signature.
        """
        values = {"weights_sha256": self.weights_sha256(), "text": text, "scores": dict(scores)}
        content = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        try:
            with replacing(self.evaluation_path) as temporary:
                # The text contains a file name, which may not be UTF-8.
                temporary.write_text(content, "utf-8", "replace")
        except OSError as error:
            _log.warning(f"{error}; model cards will not show the scores")

    def read_evaluation(self) -> list[str]:
        """Returns the scores of the weights with their signatures and test sets.

        The list is empty if the last scores belong to other weights.
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
                f"{self.evaluation_path}: not written by evaluate; "
                "the model card will not show scores"
            )
            return []


def _is_own_name(name: str) -> bool:
    return _FILES.fullmatch(name.removesuffix(".sha256")) is not None


class _WeightsInMemory(io.BytesIO):
    """In-memory file for HDF5, which would terminate the process if it wrote to a full disk."""

    def __str__(self) -> str:
        # Keras checks the suffix.
        return "memory.weights.h5"


def save_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Writes the weights of a model and their checksum.

    If writing fails, the previous file stays in place.
    """
    content = _WeightsInMemory()
    model.save_weights(content)
    with replacing_with_checksum(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def load_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Loads weights into a model.

    Raises:
        DamagedFileError: If the file is damaged or contains NaN or infinite values.
        InvalidFileError: If the weights in the file do not match the model exactly.
    """
    from keras import ops

    with _naming_damage(path):
        require_undamaged(path)
    received = collections.Counter(_shapes(path))
    # Keras would ignore weights that the model does not have.
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
    """Raises an InvalidFileError if a file has more or fewer numbers than the model has parameters.

    This check takes milliseconds, while building a model with a thousand layers takes minutes. It
    ignores damaged files.
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
    """Returns the shapes of the weights in a file.

    Raises:
        DamagedFileError: If the file cannot be read or contains anything that Keras does not write.
    """
    import h5py

    with _naming_damage(path), h5py.File(path) as file:
        shapes = []
        # The file of a compiled model also contains the optimizer, outside this group. h5py's
        # `visit` takes time that is cubic in the depth, and does not report links.
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
    """Converts the errors of h5py and Keras for damaged files into a DamagedFileError."""
    try:
        yield
    except Error:
        raise
    except UNREADABLE as error:
        problem = "cannot be read" if isinstance(error, OSError) else "is damaged"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedFileError(f"{path}: the file {problem} ({reason})") from None


def _is_array_of_numbers(item: "h5py.Dataset") -> bool:
    """Returns whether a dataset contains numbers, stored in the same file, that Keras can load.

    Keras would read text and records in full before it rejects them.
    """
    if item.shape is None or item.dtype.kind not in "fiub" or item.dtype.itemsize > 8:
        return False
    if item.is_virtual or item.external:
        return False
    return math.prod(item.chunks or ()) <= max(item.size, 1)


def memory_size() -> int:
    """Returns the memory size of this machine or container in bytes."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER_LIMITS:
        # The file does not exist outside of containers, and may contain "max".
        with contextlib.suppress(OSError, ValueError):
            size = min(size, int(path.read_text()))
    return size


def require_memory(num_parameters: int, bytes_per_parameter: int, purpose: str) -> None:
    """Raises a MemoryLimitError if the parameters need more memory than the machine has."""
    needed = num_parameters * bytes_per_parameter
    available = memory_size()
    if needed > available:
        raise MemoryLimitError(
            f"the sizes in the section model result in {num_parameters:,} parameters, "
            f"which take at least {needed / 2**30:,.1f} GiB of memory {purpose}; "
            f"this machine has {available / 2**30:,.1f} GiB"
        )

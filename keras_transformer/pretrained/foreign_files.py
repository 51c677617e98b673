"""Files that other programs wrote. They are read here, within limits, and each value is checked for its type.

If such a file is missing, too large or damaged, or holds something else, that is an InvalidFileError which names it. A
reader (`marian.py`, `hugging_face.py`) gets plain values from here, and decides what they mean.
"""

import contextlib
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import yaml

from ..config.yaml_file import read_sections
from ..errors import ConfigError, InvalidFileError
from ..model_dir.files import UNREADABLE
from ..rules import check, require, shown

Value = TypeVar("Value", bool, int, float, str)

# Far above what any model needs, so that no file asks for more memory than its size explains.
_MAX_OPTIONS_BYTES = 2**20
_MAX_VOCABULARY_BYTES = 16 * 2**20  # also of SentencePiece models
_MAX_SAFETENSORS_HEADER_BYTES = 8 * 2**20
# Weights hardly become smaller when they are compressed.
_MAX_COMPRESSION = 20
_MAX_NAME_LENGTH = 200
_SAFETENSORS_TYPES = ("F64", "F32", "F16", "BF16")


@contextlib.contextmanager
def reading(path: pathlib.Path, *damages: type[Exception]) -> Iterator[None]:
    """Turns a ConfigError about what a file holds into an InvalidFileError that names the file.

    So it does with `damages`, which libraries raise for damaged files.
    """
    try:
        yield
    except ConfigError as error:
        raise InvalidFileError(f"{path}: {error}") from None
    except damages as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InvalidFileError(f"{path}: the file cannot be read ({reason})") from None


def read_bytes(path: pathlib.Path, max_bytes: int = _MAX_VOCABULARY_BYTES) -> bytes:
    _require_file(path)
    try:
        with open(path, "rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidFileError(f"{path}: {error.strerror}") from None
    if len(content) > max_bytes:
        raise InvalidFileError(f"{path}: the file must have at most {max_bytes:,} bytes")
    return content


def read_json(path: pathlib.Path, max_bytes: int = _MAX_OPTIONS_BYTES) -> dict[str, Any]:
    content = read_bytes(path, max_bytes)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidFileError(f"{path}: the file cannot be read as JSON") from None
    if not isinstance(values, dict):
        raise InvalidFileError(f"{path}: the file must hold a mapping; received {type(values).__name__}")
    return values


def read_yaml(path: pathlib.Path) -> dict[str, object]:
    _require_file(path)
    try:
        return read_sections(path)
    except ConfigError as error:
        raise InvalidFileError(str(error)) from None


def read_json_vocabulary(path: pathlib.Path) -> dict[str, int]:
    ids = read_json(path, _MAX_VOCABULARY_BYTES)
    with reading(path):
        for piece, token_id in ids.items():
            check(f"the id of {shown(piece)}", token_id, int)
    return ids


def read_yaml_vocabulary(path: pathlib.Path) -> dict[str, int]:
    content = read_bytes(path)
    try:
        # Every scalar is text: yaml-cpp writes "yes" and "1" without quotes. libyaml limits the depth.
        ids = yaml.load(content, yaml.CBaseLoader)
        return {piece: int(token_id) for piece, token_id in ids.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError):
        raise InvalidFileError(f"{path}: it must map pieces to ids") from None


def option(options: Mapping[str, object], name: str, kind: type[Value], default: Value | None = None) -> Value:
    """Returns the value of an option, checked for its type; one that is null counts as missing.

    An int passes for a float. Without a default, a missing option is a ConfigError.
    """
    value: Any = options.get(name)
    value = default if value is None else value
    check(name, value, kind)
    try:
        return kind(value)
    except OverflowError:
        raise ConfigError(f"{name} must be a finite number; received {shown(value)}") from None


def require_supported(options: Mapping[str, object], supported: Mapping[str, tuple[object, ...]]) -> None:
    """Raises a ConfigError if an option has another value than those that this package supports.

    An option that is missing or null has the first of its values.
    """
    for name, values in supported.items():
        value = options.get(name)
        # In Python, True equals 1.
        if value is not None and (type(value), value) not in [(type(known), known) for known in values]:
            raise ConfigError(f"the option {name}: {shown(value)} is not supported")


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file, which must not claim to hold more than the file's size explains."""
    _require_file(path)
    with reading(path, *UNREADABLE), zipfile.ZipFile(path) as archive:
        members, num_bytes = archive.infolist(), path.stat().st_size
        claimed = sum(member.file_size for member in members)
        if claimed > _MAX_COMPRESSION * num_bytes:
            raise ConfigError(f"it claims to hold {claimed:,} bytes, which cannot be {num_bytes:,} compressed ones")
        return {
            _array_name(member.filename): np.lib.format.read_array(io.BytesIO(archive.read(member)))
            for member in members
        }


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a .safetensors file, which must be floating-point numbers."""
    from safetensors import SafetensorError, safe_open

    _require_file(path)
    arrays = {}
    with reading(path, *UNREADABLE, SafetensorError):
        with open(path, "rb") as content:
            header_bytes = int.from_bytes(content.read(8), "little")
        rule = f"at most {_MAX_SAFETENSORS_HEADER_BYTES:,} bytes"
        require(header_bytes <= _MAX_SAFETENSORS_HEADER_BYTES, "the size of the header", rule, header_bytes)
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118
                dtype = file.get_slice(_array_name(name)).get_dtype()
                if dtype not in _SAFETENSORS_TYPES:
                    raise ConfigError(f"the weight {name} of type {dtype} is not supported")
                arrays[name] = file.get_tensor(name)
    return arrays


def _require_file(path: pathlib.Path) -> None:
    """Refuses directories, and pipes that never end."""
    # Unlike `path.is_file()`, this is False also for a name that is too long for any file.
    if not os.path.isfile(path):
        raise InvalidFileError(f"{path}: {'this is no file' if os.path.exists(path) else 'the file is missing'}")


def _array_name(filename: str) -> str:
    name = filename.removesuffix(".npy")
    if not (name.isprintable() and 0 < len(name) <= _MAX_NAME_LENGTH):
        raise ConfigError(f"the file cannot be read (an array is called {shown(name)})")
    return name

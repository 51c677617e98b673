"""Files that other programs wrote. They are read here, within limits, and each value is checked for its type.

If such a file is missing, too large or damaged, or holds something else, that is an InvalidFileError which names it. A
reader (`marian.py`, `hugging_face.py`) gets plain values from here, and decides what they mean.
"""

import contextlib
import json
import math
import pathlib
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import yaml

from ..config.yaml_file import read_sections
from ..errors import ConfigError, InvalidFileError
from ..rules import check, require, shown

Value = TypeVar("Value", bool, int, float, str)

# Far above what any model needs, so that no file asks for more memory than its size explains.
_MAX_OPTIONS_BYTES = 2**20
_MAX_VOCABULARY_BYTES = 16 * 2**20  # also of SentencePiece models
_MAX_SAFETENSORS_HEADER_BYTES = 8 * 2**20
# Weights hardly become smaller when they are compressed.
_MAX_COMPRESSION = 20
_MAX_NAME_LENGTH = 200
# What NumPy writes in front of an array: for numbers, one line of this form, padded.
_NPY_HEADER = re.compile(
    r"\{'descr': '([<>|=]?[bfiu][1248])', 'fortran_order': (True|False), "
    r"'shape': \(((?:[0-9]{1,18}, ?)*(?:[0-9]{1,18})?)\),? ?\}\s*"
)
_SAFETENSORS_TYPES = ("F64", "F32", "F16", "BF16")


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator[None]:
    """Turns a ConfigError about what a file holds into an InvalidFileError that names the file."""
    try:
        yield
    except ConfigError as error:
        raise InvalidFileError(f"{path}: {error}") from None


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
    try:
        values = json.loads(read_bytes(path, max_bytes))
    except InvalidFileError:
        raise
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
    ids = {}
    for piece, token_id in read_json(path, _MAX_VOCABULARY_BYTES).items():
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise InvalidFileError(
                f"{path}: the ids must be whole numbers; the id of {shown(piece)} is {shown(token_id)}"
            )
        ids[piece] = token_id
    return ids


def read_yaml_vocabulary(path: pathlib.Path) -> dict[str, int]:
    content = read_bytes(path)
    ids = {}
    try:
        # Every scalar is text: yaml-cpp writes "yes" and "1" without quotes.
        texts = _flat_yaml(content.decode())
        for piece, token_id in zip(texts, texts, strict=True):
            if piece in ids:
                raise InvalidFileError(f"{path}: the piece {shown(piece)} is given twice")
            ids[piece] = int(token_id)
    except InvalidFileError:
        raise
    except (yaml.YAMLError, ValueError):
        raise InvalidFileError(f"{path}: it must map pieces to ids") from None
    return ids


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
    """Reads the arrays of an .npz file; they must hold numbers, and not claim more than the file's size explains."""
    _require_file(path)
    with reading(path):
        try:
            with zipfile.ZipFile(path) as archive:
                _check_archive(archive, path.stat().st_size)
                members = archive.infolist()
                return {_array_name(member.filename): _parse_npy(archive.read(member), member) for member in members}
        except (
            *(OSError, EOFError, UnicodeError, struct.error, zlib.error, zipfile.BadZipFile),
            # Where entries contradict each other.
            *(NotImplementedError, OverflowError, RuntimeError),
        ) as error:
            raise ConfigError(f"the file cannot be read ({_reason(error)})") from None


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a .safetensors file, which must be floating-point numbers."""
    from safetensors import SafetensorError, safe_open

    _require_file(path)
    arrays = {}
    with reading(path):
        try:
            with open(path, "rb") as content:
                header_bytes = int.from_bytes(content.read(8), "little")
            require(
                header_bytes <= _MAX_SAFETENSORS_HEADER_BYTES,
                "the size of the header",
                f"at most {_MAX_SAFETENSORS_HEADER_BYTES:,} bytes",
                header_bytes,
            )
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118
                    claimed = file.get_slice(_array_name(name))
                    if claimed.get_dtype() not in _SAFETENSORS_TYPES:
                        raise ConfigError(f"the weight {name} of type {claimed.get_dtype()} is not supported")
                    _check_shape(name, claimed.get_shape())
                    arrays[name] = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"the file cannot be read ({_reason(error)})") from None
    return arrays


def _require_file(path: pathlib.Path) -> None:
    """Not a directory, nor a pipe that never ends."""
    with reading(path):
        try:
            if not path.is_file():
                raise ConfigError("this is no file" if path.exists() else "the file is missing")
        except ValueError as error:
            # A name that no file can have.
            raise ConfigError(_reason(error)) from None


def _flat_yaml(text: str) -> Iterator[str]:
    """The keys and values of a mapping of scalars.

    Events come one by one: a text that is nested a million times deep ends at the second level.
    """
    expected = [yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.MappingStartEvent]
    for event in yaml.parse(text, yaml.CBaseLoader):
        if expected and isinstance(event, expected[0]):
            del expected[0]
        elif not expected and isinstance(event, yaml.ScalarEvent):
            yield event.value
        elif not expected and isinstance(event, yaml.MappingEndEvent):
            expected = [yaml.DocumentEndEvent, yaml.StreamEndEvent]
        else:
            raise ValueError("not a mapping of scalars")


def _check_archive(archive: zipfile.ZipFile, num_bytes: int) -> None:
    for member in archive.infolist():
        if member.flag_bits & 1:
            raise ConfigError("the file cannot be read (it is encrypted)")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ConfigError(f"the file cannot be read (compression method {member.compress_type})")
    claimed = sum(member.file_size for member in archive.infolist())
    if claimed > _MAX_COMPRESSION * num_bytes:
        raise ConfigError(f"the file claims to hold {claimed:,} bytes, which cannot be {num_bytes:,} compressed ones")


def _parse_npy(content: bytes, member: zipfile.ZipInfo) -> np.ndarray:
    name = _array_name(member.filename)
    size_bytes = 2 if content[6:7] == b"\1" else 4
    start = 8 + size_bytes + int.from_bytes(content[8 : 8 + size_bytes], "little")
    header = _NPY_HEADER.fullmatch(content[8 + size_bytes : start].decode("latin-1"))
    if not content.startswith(b"\x93NUMPY") or header is None:
        raise ConfigError(f"the file cannot be read ({name} is not an array of numbers)")
    dtype, order, sizes = header.groups()
    shape = tuple(int(size) for size in re.findall("[0-9]+", sizes))
    _check_shape(name, shape)
    try:
        array = np.frombuffer(content, dtype, offset=start)
    except (ValueError, TypeError):
        array = np.empty(0)
    if array.size != math.prod(shape):
        raise ConfigError(f"the file cannot be read ({name} claims to be {_shown_shape(shape)} {dtype})")
    return array.reshape(shape, order="F" if order == "True" else "C")


def _check_shape(name: str, shape: tuple[int, ...] | list[int]) -> None:
    if not (len(shape) <= 8 and all(size > 0 for size in shape)):
        raise ConfigError(f"the array {name} has the shape {_shown_shape(shape)}")


def _shown_shape(shape: tuple[int, ...] | list[int]) -> str:
    return "×".join(map(str, shape[:8])) + ("×…" if len(shape) > 8 else "") if shape else "()"


def _array_name(filename: str) -> str:
    name = filename.removesuffix(".npy")
    if not (name.isprintable() and 0 < len(name) <= _MAX_NAME_LENGTH):
        raise ConfigError(f"the file cannot be read (an array is called {shown(name)})")
    return name


def _reason(error: Exception) -> str:
    """The first line of a library's message."""
    return next(iter(str(error).splitlines()), type(error).__name__)

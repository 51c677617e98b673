"""TensorFlow Serving's REST API (https://www.tensorflow.org/tfx/serving/api_rest): its requests, answers and errors."""

import base64
import binascii
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of tokenizers)

from ..errors import ConfigError, Error, InvalidFileError
from ..tensors import Tensor

_TYPES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number", type(None): "Null"}
# NumPy's arrays had no more before NumPy 2.
_MOST_AXES = 32
_TOO_DEEP = "JSON Parse error: lists or objects are nested too deeply"


class RequestError(Error):
    """A request that cannot be answered."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


class Signature(NamedTuple):
    """A way to call a servable: its inputs by name, and what computes outputs by name from them."""

    inputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Mapping[str, Tensor]]


class Servable(NamedTuple):
    """A version of a SavedModel, as `export` writes it."""

    name: str
    version: int
    signatures: dict[str, Signature]


def load_servable(path: str | os.PathLike[str]) -> Servable:
    """Loads a version, or the highest one in a directory. A SavedModel may compute anything: load none from strangers.

    Raises:
        ConfigError: There is no version.
        InvalidFileError: The version cannot be loaded.
    """
    directory = pathlib.Path(path).resolve()
    folders = [
        folder
        for folder in (directory, *directory.iterdir())
        if folder.name.isascii() and folder.name.isdigit() and (folder / "saved_model.pb").is_file()
    ]
    if not folders:
        raise ConfigError(f"{path}: there is no folder of a version, such as 1, with a saved_model.pb")
    folder = max(folders, key=lambda folder: int(folder.name))
    try:
        functions = tf.saved_model.load(str(folder)).signatures
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        raise InvalidFileError(f"{folder}: the SavedModel cannot be loaded: {str(error).splitlines()[0]}") from None
    signatures = {name: Signature(functions[name].structured_input_signature[1], functions[name]) for name in functions}
    return Servable(folder.parent.name, int(folder.name), signatures)


class RestApi:
    """Answers requests as TensorFlow Serving does; one that cannot be answered is a RequestError.

    Args:
        name: the model's name, which is a part of the paths.
        max_rows: the most rows of a request.
        version: that of a model directory, which has none, is 1.
    """

    def __init__(self, name: str, signatures: Mapping[str, Signature], max_rows: int, version: int = 1) -> None:
        self.name = name
        self.version = version
        self.signatures = signatures
        self.max_rows = max_rows

    def get(self, path: str) -> dict[str, object]:
        """Answers a GET request: whether the model is there."""
        model = re.fullmatch(r"/v1/models/([^/:]+)(?:/versions/(\d+))?", path)
        if model is None:
            raise RequestError(f"Malformed request: GET {path}")
        if not self._is_served(*model.groups()):
            raise RequestError(f"Could not find any versions of model {model[1]}", HTTPStatus.NOT_FOUND)
        status = {"error_code": "OK", "error_message": ""}
        return {"model_version_status": [{"version": str(self.version), "state": "AVAILABLE", "status": status}]}

    def post(self, path: str, body: bytes) -> dict[str, object]:
        """Answers a POST request: predicts."""
        try:
            return self._post(path, body)
        except RecursionError:
            raise RequestError(_TOO_DEEP) from None

    def _post(self, path: str, body: bytes) -> dict[str, object]:
        model = re.fullmatch(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict", path)
        if model is None:
            raise RequestError(f"Malformed request: POST {path}")
        request = _parse(body)
        name = request.get("signature_name", "")
        if not isinstance(name, str):
            rule = "not formatted correctly. 'signature_name' key must be a string value."
            raise RequestError(f"JSON Value: {_shown(request)} {rule}")
        if not self._is_served(*model.groups()):
            wanted = f"Latest({model[1]})" if model[2] is None else f"Specific({model[1]}, {model[2]})"
            raise RequestError(f"Servable not found for request: {wanted}", HTTPStatus.NOT_FOUND)
        name = name or "serving_default"
        if name not in self.signatures:
            raise RequestError(f'Serving signature name: "{name}" not found in signature def')
        return self._predict(self.signatures[name], request)

    def _is_served(self, name: str, version: str | None) -> bool:
        return name == self.name and (version is None or version.lstrip("0") == str(self.version))

    def _predict(self, signature: Signature, request: dict[str, object]) -> dict[str, object]:
        if "instances" in request and "inputs" in request:
            rule = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
            raise RequestError(f"JSON Value: {_shown(request)} {rule}")
        if "instances" in request:
            inputs = _read_rows(request, signature.inputs)
        elif "inputs" in request:
            inputs = _read_columns(request["inputs"], signature.inputs)
        else:
            raise RequestError("Missing 'inputs' or 'instances' key")
        for name, array in inputs.items():
            shape = signature.inputs[name].shape
            if not shape.is_compatible_with(array.shape):
                raise RequestError(f"{name} must be of shape {shape}; received {array.shape}")
            if len(array) > self.max_rows:
                raise RequestError(f"a request must have at most {self.max_rows} rows; received {len(array)}")
        try:
            outputs = signature.function(**{name: tf.constant(array) for name, array in inputs.items()})
        except tf.errors.InvalidArgumentError as error:
            # Such as an unknown tag. The other lines say where in the graph.
            raise RequestError(error.message.rpartition("assertion failed: ")[2].splitlines()[0]) from None
        columns = {name: _write(np.asarray(output)) for name, output in sorted(outputs.items())}
        (only, *others) = columns.values()
        if "inputs" in request:
            return {"outputs": columns if others else only}
        rows = zip(*columns.values(), strict=True)
        return {"predictions": [dict(zip(columns, row)) if others else row[0] for row in rows]}


def _parse(body: bytes) -> dict[str, object]:
    if not body:
        raise RequestError("JSON Parse error: The document is empty")
    try:
        request = json.loads(body.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise RequestError(f"JSON Parse error: Invalid value. at offset: {error.pos}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"JSON Parse error: Invalid encoding in string. at offset: {error.start}") from None
    except ValueError:
        # A number of thousands of digits.
        raise RequestError("JSON Parse error: Invalid value. at offset: 0") from None
    if not isinstance(request, dict):
        raise RequestError(f"JSON Value: {_shown(request)} Is not object")
    return request


def _read_rows(request: dict[str, object], specs: Mapping[str, tf.TensorSpec]) -> dict[str, np.ndarray]:
    rows = request["instances"]
    if not isinstance(rows, list):
        raise RequestError(f"JSON Value: {_shown(request)} Excepting 'instances' to be an list/array")
    if not rows:
        raise RequestError(f"JSON Value: {_shown(request)} No values in 'instances' array")
    if not isinstance(rows[0], dict) and len(specs) > 1:
        raise RequestError(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    are_named = _is_named(rows[0])
    columns: dict[str, list[np.ndarray]] = {name: [] for name in specs}
    for number, row in enumerate(rows):
        if _is_named(row) != are_named:
            expected, received = ("object", "list") if are_named else ("value/list", "object")
            raise RequestError(f"Expecting {expected} but got {received} at item {number} of input list")
        for name, value in row.items() if are_named else [(next(iter(specs)), row)]:
            key = f" key: {name}" if are_named else ""
            try:
                if name not in specs:
                    raise RequestError(f"JSON object: does not have named input: {name}")
                array = _read(value, specs[name])
                first = columns[name][0] if columns[name] else array
                if array.size != first.size:
                    raise RequestError(f"Expecting tensor size: {first.size} but got: {array.size}")
                if array.shape != first.shape:
                    raise RequestError(f"Expecting shape {_sizes(first)} but got: {_sizes(array)}")
            except RequestError as error:
                message = f"Failed to process element: {number}{key} of 'instances' list. Error: INVALID_ARGUMENT: "
                raise RequestError(f"{message}{error}") from None
            columns[name].append(array)
        if are_named and {*row} != {*specs}:
            message = f"Failed to process element: {number} of 'instances' list. JSON object: {_shown(row)}"
            raise RequestError(f"{message} keys must be equal to: {','.join(sorted(specs))}")
    return {name: np.stack(column) for name, column in columns.items()}


def _read_columns(columns: object, specs: Mapping[str, tf.TensorSpec]) -> dict[str, np.ndarray]:
    if isinstance(columns, dict) and _is_named(columns):
        for name in sorted(specs):
            if name not in columns:
                raise RequestError(f"Missing named input: {name} in 'inputs' object.")
        return {name: _read(columns[name], spec) for name, spec in specs.items()}
    if len(specs) > 1:
        raise RequestError(
            "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
            "tensorinfo_map"
        )
    return {name: _read(columns, spec) for name, spec in specs.items()}


def _is_named(value: object) -> bool:
    """Whether it is an object with inputs by name, and not bytes."""
    return isinstance(value, dict) and not ([*value] == ["b64"] and isinstance(value["b64"], str))


def _read(value: object, spec: tf.TensorSpec) -> np.ndarray:
    """An array of the shape of lists in lists."""
    shape: list[int] = []
    inner = value
    while isinstance(inner, list):
        if len(shape) == _MOST_AXES:
            raise RequestError(_TOO_DEEP)
        shape.append(len(inner))
        inner = inner[0] if inner else None
    leaves: list[object] = []
    _collect(value, 0, shape, spec, leaves)
    array = np.empty(len(leaves), object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
    array[:] = leaves
    return array.reshape(shape)


def _collect(value: object, level: int, shape: Sequence[int], spec: tf.TensorSpec, leaves: list[object]) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            where = f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            raise RequestError(f"JSON Value: {_shown(value)} {where}")
        leaves.append(_leaf(value, spec))
        return
    if level >= len(shape):
        raise RequestError(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        where = f"at level: {level} expected size: {shape[level]}"
        raise RequestError(f"Encountered list at unexpected size: {len(value)} {where}")
    for inner in value:
        _collect(inner, level + 1, shape, spec, leaves)


def _leaf(value: object, spec: tf.TensorSpec) -> object:
    if spec.dtype == tf.string:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise RequestError("JSON Parse error: The surrogate pair in string is invalid.") from None
        if isinstance(value, dict):
            if _is_named(value):
                raise RequestError(f"JSON Value: {_shown(value)} not formatted correctly for base64 data")
            try:
                return base64.b64decode(value["b64"], validate=True)
            except (binascii.Error, ValueError):
                raise RequestError("Unable to base64 decode") from None
    elif isinstance(value, int) and not isinstance(value, bool) and spec.dtype.min <= value <= spec.dtype.max:
        return value
    kind = str(value) if isinstance(value, bool) else _TYPES[type(value)]
    message = f"JSON Value: {_shown(value)} Type: {kind} is not of expected type: {spec.dtype.name}"
    raise RequestError(message)


def _write(array: np.ndarray) -> list[object]:
    if array.dtype.kind == "f":
        # As few digits as tell a number from the next one of its type.
        return array.astype("U").astype("float64").tolist()
    if array.dtype.kind == "O":
        return np.frompyfunc(lambda text: text.decode("utf-8", "replace"), 1, 1)(array).tolist()
    return array.tolist()


def _sizes(array: np.ndarray) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _shown(value: object) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False)

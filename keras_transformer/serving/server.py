"""Local server for trying out a model, in a single process on the loopback interface.

It provides the REST API of TensorFlow Serving, https://www.tensorflow.org/tfx/serving/api_rest.
"""

import base64
import contextlib
import html
import http.server
import json
import logging
import os
import pathlib
import re
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of tokenizers)

from ..checks import shown
from ..errors import ConfigError, Error, InvalidFileError
from ..tensors import Tensor

MAX_BYTES = 2**20
MAX_ROWS = 128
# Requests up to this size take a second or two. They do not wait for larger requests.
SMALL_BYTES = 2000
# Maximum number of waiting small requests, and of waiting large requests.
MAX_WAITING = 32
# Maximum number of connections, including waiting requests. Every connection has a thread.
MAX_CONNECTIONS = 64
_RETRY_SECONDS = 1
_TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: %d\r\n"
    b"Connection: close\r\n\r\n" % _RETRY_SECONDS
)
_LOOPBACK = "127.0.0.1"
_SECONDS = 30
_log = logging.getLogger(__name__)
_PAGE = pathlib.Path(__file__).with_name("page.html")


class RequestError(Error):
    """Error for a request that the server cannot answer.

    Args:
        message: str. Error message for the client.
        status: HTTPStatus. Status of the response. Defaults to 400 Bad Request.
        retry_seconds: int. Number of seconds after which the client may retry. Defaults to 0: a
            retry does not help.
    """

    def __init__(
        self,
        message: str,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        retry_seconds: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds


class _Queue:
    """Queue that runs one request at a time while a limited number of requests wait."""

    def __init__(self) -> None:
        self._is_free = threading.Lock()
        self._places = threading.BoundedSemaphore(1 + MAX_WAITING)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for earlier requests, then runs the block.

        Raises:
            RequestError: If too many requests are waiting.
        """
        if not self._places.acquire(blocking=False):
            raise RequestError(
                f"the server is busy: {MAX_WAITING} requests are already waiting; try again later",
                HTTPStatus.SERVICE_UNAVAILABLE,
                _RETRY_SECONDS,
            )
        try:
            with self._is_free:
                yield
        finally:
            self._places.release()


class ServedFunction(NamedTuple):
    """A signature that is served: inputs by name, and a function that returns outputs by name."""

    inputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Mapping[str, Tensor]]


class RestApi(NamedTuple):
    """REST API of TensorFlow Serving. Invalid requests raise a RequestError.

    Attributes:
        name: name of the model in URL paths.
        signatures: dict that maps names to signatures.
        max_rows: maximum number of rows in a request.
        version: version of the SavedModel, or 1 for a model directory.
    """

    name: str
    signatures: Mapping[str, ServedFunction]
    max_rows: int = MAX_ROWS
    version: int = 1

    @property
    def url_path(self) -> str:
        """The URL path of the model. Bytes that are not ASCII are percent-encoded."""
        name = urllib.parse.quote(self.name, safe="", errors="surrogateescape")
        return f"/v1/models/{name}"

    def get(self, path: str) -> dict[str, object]:
        """Answers a GET request with the status of the model."""
        self._check_path(path, "")
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": str(self.version), "state": "AVAILABLE", "status": status}
        return {"model_version_status": [version]}

    def post(self, path: str, body: bytes) -> dict[str, object]:
        """Answers a POST request with predictions."""
        self._check_path(path, ":predict")
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the request is not JSON: {error}") from None
        return self._predict(request if isinstance(request, dict) else {})

    def _check_path(self, path: str, verb: str) -> None:
        pattern = rf"/v1/models/{re.escape(self.name)}(/versions/0*{self.version})?{verb}"
        if not re.fullmatch(pattern, path):
            message = (
                f"this server has /v1/models/{self.name}{verb}, version {self.version}; "
                f"received {shown(path)}"
            )
            raise RequestError(message, HTTPStatus.NOT_FOUND)

    def _predict(self, request: dict[str, object]) -> dict[str, object]:
        name = request.get("signature_name") or "serving_default"
        if not isinstance(name, str) or name not in self.signatures:
            known = ", ".join(self.signatures)
            raise RequestError(f"signature_name must be one of {known}; received {shown(name)}")
        signature = self.signatures[name]
        columns = request.get("inputs")
        if ("instances" in request) == ("inputs" in request):
            raise RequestError("a request must have either instances or inputs")
        if "instances" in request:
            columns = _columns_of(request["instances"], signature.inputs)
        elif not _is_named(columns) and len(signature.inputs) == 1:
            columns = dict.fromkeys(signature.inputs, columns)
        if not isinstance(columns, dict) or {*columns} != {*signature.inputs}:
            keys = ", ".join(signature.inputs)
            raise RequestError(f"inputs must have the keys {keys}; received {shown(columns)}")
        arrays = {name: _read(name, columns[name], spec) for name, spec in signature.inputs.items()}
        lengths = {name: len(array) for name, array in arrays.items()}
        num_rows = max(lengths.values())
        if min(lengths.values()) < num_rows:
            raise RequestError(
                f"all inputs must have the same number of rows; received {shown(lengths)}"
            )
        if num_rows > self.max_rows:
            raise RequestError(
                f"a request must have at most {self.max_rows} rows; received {num_rows}"
            )
        tensors = {name: tf.constant(array) for name, array in arrays.items()}
        try:
            outputs = signature.function(**tensors)
        except tf.errors.InvalidArgumentError as error:
            # For example, an unknown tag. The other lines name the location in the graph.
            message = error.message.split("assertion failed: ", 1)[-1]
            raise RequestError(message.splitlines()[0]) from None
        columns = {name: _write(np.asarray(output)) for name, output in sorted(outputs.items())}
        # Like TensorFlow Serving, omit the name if there is only one output.
        if len(columns) == 1:
            (column,) = columns.values()
            return {"outputs" if "inputs" in request else "predictions": column}
        if "inputs" in request:
            return {"outputs": columns}
        rows = zip(*columns.values(), strict=True)
        return {"predictions": [dict(zip(columns, row)) for row in rows]}


def _columns_of(rows: object, specs: Mapping[str, tf.TensorSpec]) -> dict[str, list[object]]:
    """Converts rows to inputs by name. A row is a dict of inputs or the value of the only input."""
    if not isinstance(rows, list) or not rows:
        raise RequestError(
            f"instances must be a list with at least one row; received {shown(rows)}"
        )
    if len(specs) == 1 and not any(map(_is_named, rows)):
        return dict.fromkeys(specs, rows)
    for row in rows:
        if not isinstance(row, dict) or {*row} != {*specs}:
            raise RequestError(
                f"every instance must have the keys {', '.join(specs)}; received {shown(row)}"
            )
    return {name: [row[name] for row in rows] for name in specs}


def _is_named(value: object) -> bool:
    """Returns whether a value is a dict of inputs by name, and not base64-encoded bytes."""
    return isinstance(value, dict) and not ([*value] == ["b64"] and isinstance(value["b64"], str))


def _read(name: str, value: object, spec: tf.TensorSpec) -> np.ndarray:
    """Converts nested lists of text, bytes or integers to an array that matches `spec`."""
    is_text = spec.dtype == tf.string
    # Read the limits once, because this takes microseconds and there may be 500,000 numbers.
    smallest, largest = (0, 0) if is_text else (spec.dtype.min, spec.dtype.max)

    def is_valid(leaf: object) -> bool:
        if is_text:
            return isinstance(leaf, bytes)
        # Reject booleans, which are integers in Python.
        return type(leaf) is int and smallest <= leaf <= largest

    try:
        array = np.array(_with_bytes(value), object)
        fits = spec.shape.is_compatible_with(array.shape) and all(map(is_valid, array.flat))
    except (ValueError, RecursionError):
        # Text is not Unicode, bytes are not base64, or lists have different lengths or are nested
        # too deeply.
        fits = False
    if not fits:
        raise RequestError(
            f"{name} must be {spec.dtype.name} of shape {spec.shape}; received {shown(value)}"
        )
    return array if is_text else array.astype(spec.dtype.as_numpy_dtype)


def _with_bytes(value: object) -> object:
    """Returns nested lists in which text and base64 objects are replaced by bytes."""
    if isinstance(value, list):
        return [_with_bytes(inner) for inner in value]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and not _is_named(value):
        return base64.b64decode(value["b64"], validate=True)
    return value


def _write(array: np.ndarray) -> list[object]:
    if array.dtype.kind == "f":
        # Write the shortest decimal number that identifies the float.
        return array.astype("U").astype("float64").tolist()
    if array.dtype.kind == "O":
        return np.frompyfunc(lambda text: text.decode("utf-8", "replace"), 1, 1)(array).tolist()
    return array.tolist()


def version_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the folder of a version: `path` itself, or the folder of the highest version in it.

    Raises:
        ConfigError: If there is no version.
    """
    directory = pathlib.Path(path).resolve()
    folders = []
    for folder in [directory, *directory.iterdir()]:
        is_version = folder.name.isascii() and folder.name.isdigit()
        if is_version and (folder / "saved_model.pb").is_file():
            folders.append(folder)
    if not folders:
        raise ConfigError(
            f"{path}: no saved_model.pb here or in a folder that is named by a version, such as 1"
        )
    return max(folders, key=lambda folder: int(folder.name))


def load_servable(path: str | os.PathLike[str]) -> RestApi:
    """Loads a version of a SavedModel, or the highest version in a directory.

    A SavedModel can run arbitrary code. Only load models that you trust.

    Raises:
        ConfigError: If there is no version.
        InvalidFileError: If the version cannot be loaded.
    """
    folder = version_folder(path)
    try:
        functions = tf.saved_model.load(str(folder)).signatures
        signatures = {
            name: ServedFunction(functions[name].structured_input_signature[1], functions[name])
            for name in functions
        }
    except MemoryError:
        raise
    # TensorFlow raises errors of any type for damaged files, even an IndexError without a message.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InvalidFileError(f"{folder}: the SavedModel cannot be loaded: {reason}") from None
    _check_signatures(folder, signatures)
    return RestApi(folder.parent.name, signatures, version=int(folder.name))


def _check_signatures(folder: pathlib.Path, signatures: Mapping[str, ServedFunction]) -> None:
    """Raises an InvalidFileError unless all signatures accept rows of text or integers."""
    if not signatures:
        raise InvalidFileError(f"{folder}: the SavedModel has no signatures")
    for name, signature in signatures.items():
        if not signature.inputs:
            raise InvalidFileError(f"{folder}: the signature {name} has no inputs")
        for key, spec in signature.inputs.items():
            is_known = spec.dtype == tf.string or spec.dtype.is_integer
            if not is_known or not spec.shape.rank:
                raise InvalidFileError(
                    f"{folder}: the input {key} of the signature {name} must be rows of texts or "
                    f"of integers; it is {spec.dtype.name} of shape {spec.shape}"
                )


def make_server(api: RestApi, port: int) -> http.server.ThreadingHTTPServer:
    """Creates a server for requests from this machine. Run it with `serve_forever`.

    Port 0 selects any free port. `GET /` returns a page with a text box, which uses the signatures
    `translate_n_best` and `align`. All other paths follow the REST API of TensorFlow Serving.

    Small and large requests have separate queues, so a small request never waits for a large
    request. If more than `MAX_WAITING` requests wait in a queue, or there are more than
    `MAX_CONNECTIONS` connections, the server returns 503 Service Unavailable.
    """
    handler = type("Handler", (_Handler,), {"api": api, "small": _Queue(), "large": _Queue()})
    return _Server((_LOOPBACK, port), handler)


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, or returns 503 if there are too many connections."""
        if self._connections.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:
                self._connections.release()
                raise
            return
        request.setblocking(False)
        with contextlib.suppress(OSError):
            request.send(_TOO_MANY_CONNECTIONS)
            request.shutdown(socket.SHUT_WR)
            # Closing a connection with unread bytes may discard the response.
            request.recv(65_536)
        request.close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def close_request(self, request: Any) -> None:
        # Read the rest of a rejected request. Otherwise, a client that is still sending would get
        # an error instead of the response.
        request.settimeout(_SECONDS)
        deadline = time.monotonic() + _SECONDS
        with contextlib.suppress(OSError):
            while request.recv(65_536) and time.monotonic() < deadline:
                pass
        super().close_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        # Ignore clients that have disconnected.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(http.server.BaseHTTPRequestHandler):
    api: RestApi
    small: _Queue
    large: _Queue
    server_version = "keras-transformer"
    protocol_version = "HTTP/1.1"
    # Seconds after which the server disconnects a silent client.
    timeout = _SECONDS

    def do_GET(self) -> None:
        """Answers a request with the result or an error."""
        try:
            self._check_origin()
            if self.command == "POST":
                body = self._body()
                queue = self.small if len(body) <= SMALL_BYTES else self.large
                with queue.turn():
                    answer = self._ask(self.api.post, body)
                self._send_json(answer)
            elif self.path.partition("?")[0] == "/":
                page = _PAGE.read_text(encoding="utf-8")
                page = page.replace("{{model}}", html.escape(self.api.name))
                self._send("text/html; charset=utf-8", page.encode(errors="replace"))
            else:
                self._send_json(self._ask(self.api.get))
        except RequestError as error:
            self._send_json({"error": str(error)}, error.status, error.retry_seconds)

    do_POST = do_GET

    def _check_origin(self) -> None:
        """Rejects requests from other sites, which may map their own host name to this machine."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin", f"http://{host}")
        site = self.headers.get("Sec-Fetch-Site", "none")
        is_own_page = origin == f"http://{host}" and site in ("same-origin", "none")
        # Other sites may link to the page.
        is_wanted = is_own_page or self.command == "GET"
        is_local = re.fullmatch(rf"(localhost|{re.escape(_LOOPBACK)})(:\d+)?", host)
        if not (is_wanted and is_local):
            message = "this server only accepts requests to localhost, and none from other sites"
            self._refuse_unread(message, HTTPStatus.FORBIDDEN)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse_unread("a request must have a Content-Length", HTTPStatus.LENGTH_REQUIRED)
        if len(length) > 9 or int(length) > MAX_BYTES:
            message = f"a request must have at most {MAX_BYTES:,} bytes"
            self._refuse_unread(message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            return self.rfile.read(int(length))
        except TimeoutError:
            message = f"the request timed out after {_SECONDS} seconds without data"
            self._refuse_unread(message, HTTPStatus.REQUEST_TIMEOUT)

    def _refuse_unread(self, message: str, status: HTTPStatus) -> NoReturn:
        # Otherwise, the unread body would be parsed as the next request.
        self.close_connection = True
        raise RequestError(message, status)

    def _ask(
        self, function: Callable[..., dict[str, object]], *arguments: bytes
    ) -> dict[str, object]:
        path = urllib.parse.unquote(self.path.partition("?")[0], errors="surrogateescape")
        if not path.startswith("/v1/"):
            raise RequestError("Not Found", HTTPStatus.NOT_FOUND)
        try:
            return function(path, *arguments)
        except RequestError:
            raise
        except Exception as error:
            _log.warning(f"{self.command} {shown(self.path)} failed: {shown(error)}")
            message = f"the server failed: {type(error).__name__}"
            raise RequestError(message, HTTPStatus.INTERNAL_SERVER_ERROR) from None

    def _send_json(
        self,
        content: dict[str, object],
        status: HTTPStatus = HTTPStatus.OK,
        retry_seconds: int = 0,
    ) -> None:
        text = json.dumps(content, indent=4, ensure_ascii=False)
        self._send("application/json", text.encode(errors="replace"), status, retry_seconds)

    def _send(
        self,
        content_type: str,
        content: bytes,
        status: HTTPStatus = HTTPStatus.OK,
        retry_seconds: int = 0,
    ) -> None:
        self.send_response(status)
        if retry_seconds:
            self.send_header("Retry-After", str(retry_seconds))
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Disables the request log."""

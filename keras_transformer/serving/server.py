"""The server: one process on the loopback interface, for trying a model."""

import contextlib
import html
import http.server
import json
import logging
import pathlib
import re
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NoReturn

from ..rules import shown
from .rest import RequestError, RestApi

MAX_BYTES = 2**20
MAX_ROWS = 128
_LOOPBACK = "127.0.0.1"
_SECONDS = 30
_log = logging.getLogger(__name__)
_PAGE = pathlib.Path(__file__).with_name("page.html")


def make_server(api: RestApi, port: int) -> http.server.ThreadingHTTPServer:
    """Makes a server, which `serve_forever` runs, of this machine's own requests; the port 0 takes one that is free.

    `GET /` is a page with a box for text, which asks for the signatures `translate_n_best` and `align`. The rest is
    TensorFlow Serving's REST API. Requests are answered one after the other.
    """
    handler = type("Handler", (_Handler,), {"api": api, "lock": threading.Lock()})
    return _Server((_LOOPBACK, port), handler)


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        # The client has disconnected and needs no answer.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(http.server.BaseHTTPRequestHandler):
    api: RestApi
    lock: threading.Lock
    server_version = "keras-transformer"
    protocol_version = "HTTP/1.1"
    # A silent client loses its connection after this time.
    timeout = _SECONDS

    def do_GET(self) -> None:
        with self._answering_errors():
            self._check_origin()
            if self.path.partition("?")[0] == "/":
                page = _PAGE.read_text(encoding="utf-8").replace("{{model}}", html.escape(self.api.name))
                self._send("text/html; charset=utf-8", page.encode(errors="replace"))
            else:
                self._send_json(self._ask(self.api.get))

    def do_POST(self) -> None:
        with self._answering_errors():
            self._check_origin()
            self._send_json(self._ask(self.api.post, self._body()))

    @contextlib.contextmanager
    def _answering_errors(self) -> Iterator[None]:
        """Sends what is wrong with a request as its answer."""
        try:
            yield
        except RequestError as error:
            self._send_json({"error": str(error)}, error.status)

    def _check_origin(self) -> None:
        """Refuses what a page of another site sends; such a site may have its own name for this machine."""
        host = self.headers.get("Host", "")
        origin, site = self.headers.get("Origin", f"http://{host}"), self.headers.get("Sec-Fetch-Site", "none")
        is_own_page = origin == f"http://{host}" and site in ("same-origin", "none")
        # Other sites may link to the page.
        is_wanted = is_own_page or self.command == "GET"
        if not (is_wanted and re.fullmatch(rf"(localhost|{re.escape(_LOOPBACK)})(:\d+)?", host)):
            self._refuse_unread("This server answers to localhost only", HTTPStatus.FORBIDDEN)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse_unread("a request must have a Content-Length", HTTPStatus.LENGTH_REQUIRED)
        if len(length) > 9 or int(length) > MAX_BYTES:
            message = f"a request must have at most {MAX_BYTES:,} bytes"
            self._refuse_unread(message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return self.rfile.read(int(length))

    def _refuse_unread(self, message: str, status: HTTPStatus) -> NoReturn:
        # The body would be read as the next request.
        self.close_connection = True
        raise RequestError(message, status)

    def _ask(self, function: Callable[..., dict[str, object]], *arguments: bytes) -> dict[str, object]:
        path = urllib.parse.unquote(self.path.partition("?")[0])
        if not path.startswith("/v1/"):
            raise RequestError("Not Found", HTTPStatus.NOT_FOUND)
        try:
            with self.lock:
                return function(path, *arguments)
        except RequestError:
            raise
        except Exception as error:
            _log.warning(f"{self.command} {shown(self.path)} failed: {shown(error)}")
            message = f"the server failed: {type(error).__name__}"
            raise RequestError(message, HTTPStatus.INTERNAL_SERVER_ERROR) from None

    def _send_json(self, content: dict[str, object], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send("application/json", json.dumps(content, indent=4, ensure_ascii=False).encode(), status)

    def _send(self, content_type: str, content: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing for requests that are answered."""

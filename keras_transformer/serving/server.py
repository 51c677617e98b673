"""The server: one process on the loopback interface, for trying a model."""

import html
import http.server
import json
import logging
import pathlib
import re
import sys
import threading
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus

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
        if self._is_foreign():
            return
        path = self._decoded_path()
        if path == "/":
            page = _PAGE.read_text(encoding="utf-8").replace("{{model}}", html.escape(self.api.name))
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", page.encode(errors="replace"))
        elif path.startswith("/v1/"):
            self._answer(lambda: self.api.get(path))
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "Not Found")

    def do_POST(self) -> None:
        if self._is_foreign():
            return
        body = self._body()
        if body is None:
            return
        path = self._decoded_path()
        if path.startswith("/v1/"):
            self._answer(lambda: self.api.post(path, body))
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "Not Found")

    def _is_foreign(self) -> bool:
        """Whether a page of another site sent the request; such a site may have its own name for this machine."""
        host = self.headers.get("Host", "")
        origin, site = self.headers.get("Origin", f"http://{host}"), self.headers.get("Sec-Fetch-Site", "none")
        is_own_page = origin == f"http://{host}" and site in ("same-origin", "none")
        # Other sites may link to the page.
        is_wanted = is_own_page or self.command == "GET"
        if is_wanted and re.fullmatch(rf"(localhost|{re.escape(_LOOPBACK)})(:\d+)?", host):
            return False
        self.close_connection = True
        self._send_error(HTTPStatus.FORBIDDEN, "This server answers to localhost only")
        return True

    def _decoded_path(self) -> str:
        return urllib.parse.unquote(self.path.partition("?")[0])

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            self._send_error(HTTPStatus.LENGTH_REQUIRED, "a request must have a Content-Length")
            return None
        if len(length) > 9 or int(length) > MAX_BYTES:
            self.close_connection = True
            message = f"a request must have at most {MAX_BYTES:,} bytes"
            self._send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
            return None
        return self.rfile.read(int(length))

    def _answer(self, compute: Callable[[], dict[str, object]]) -> None:
        try:
            with self.lock:
                answer = compute()
        except RequestError as error:
            self._send_error(error.status, str(error))
            return
        except Exception as error:
            _log.warning(f"{self.command} {shown(self.path)} failed: {shown(error)}")
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, f"the server failed: {type(error).__name__}")
            return
        self._send_json(HTTPStatus.OK, answer)

    def _send_error(self, status: HTTPStatus, message: str) -> None:
        self._send_json(status, {"error": message})

    def _send_json(self, status: HTTPStatus, content: dict[str, object]) -> None:
        self._send(status, "application/json", json.dumps(content, indent=4, ensure_ascii=False).encode())

    def _send(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing for requests that are answered."""

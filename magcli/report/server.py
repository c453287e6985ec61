"""Serve a page on this machine, to those who have its link.

The server listens on 127.0.0.1 alone, and every address needs the token of the link. A page of another site that has
its own name resolve to 127.0.0.1 (DNS rebinding) is refused by the name under which it asks. Only the standard library
is used: one reader and a page every few seconds need no more.
"""

import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from magcli.run.local_http import names_this_machine

ADDRESS = "127.0.0.1"
TOKEN_BYTES = 24
CLIENT_SECONDS = 10.0
"""Time that a client has to send its request, or to take the answer."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer: it is not stored, framed, or interpreted as another type, and its address not passed on."""


class Answer(NamedTuple):
    """What an address answers: the media type, and the text."""

    kind: str
    text: str


Answers = Mapping[str, Callable[[], Answer]]
"""The answer of each path, computed when it is asked for."""


class PageServer:
    """Answers requests in threads of its own within a ``with`` block."""

    def __init__(self, answers: Answers) -> None:
        self._server = _Server(answers, secrets.token_urlsafe(TOKEN_BYTES))
        self._thread = threading.Thread(target=self._server.serve_forever, name="magcli-server", daemon=True)

    @property
    def link(self) -> str:
        """The address of the page, with the token."""
        return f"http://{ADDRESS}:{self._server.server_port}/?token={self._server.token}"

    @property
    def seconds_since_asked(self) -> float:
        """How long ago the last request with the token was; infinite before the first."""
        return time.monotonic() - self._server.asked_at

    def raise_failure(self) -> None:
        """Raise the exception that an answer raised, if one did."""
        if self._server.failure is not None:
            raise self._server.failure

    def __enter__(self) -> "PageServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The loop ends, then the socket closes; threads that still answer are daemons.
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """The listening socket, and what its handlers share."""

    def __init__(self, answers: Answers, token: str) -> None:
        super().__init__((ADDRESS, 0), _Handler)
        self.answers = answers
        self.token = token
        self.asked_at = float("-inf")
        self.failure: Exception | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep the exception of an answer for the main thread; a client that went away is none."""
        # ``socketserver`` calls this while it handles the exception.
        failure = sys.exception()
        if isinstance(failure, Exception) and not isinstance(failure, ConnectionError | TimeoutError | socket.timeout):
            self.failure = failure


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    timeout = CLIENT_SECONDS
    server_version = "magcli"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request that has the token."""
        address = urlsplit(self.path)
        # A page of another site may ask under its own name for this machine (DNS rebinding).
        is_local = names_this_machine(self.headers.get("Host", ""))
        if not is_local or not self._has_token(address.query):
            self._send(HTTPStatus.FORBIDDEN, Answer("text/plain", "Open the link that magcli printed.\n"))
            return
        # Only requests with the token count: others do not keep the server from ending.
        self.server.asked_at = time.monotonic()
        answer = self.server.answers.get(address.path)
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, Answer("text/plain", "There is no such page.\n"))
        else:
            self._send(HTTPStatus.OK, answer())

    def _has_token(self, query: str) -> bool:
        token = parse_qs(query).get("token", [""])[0]
        # In a time that does not depend on how much of it is right.
        # Bytes, because it takes texts in ASCII only.
        return secrets.compare_digest(token.encode(errors="replace"), self.server.token.encode())

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        body = answer.text.encode(errors="backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the token is in their address."""

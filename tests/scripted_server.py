"""An OpenAI-compatible server on 127.0.0.1 that answers as a test says, and a client that asks it once."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from magcli.errors import EnvironmentFault
from magcli.generate.server import ServerGenerator
from magcli.generate.types import Completion, Sampling
from magcli.model.model import Model

Answer = Callable[["Handler"], None]


class ScriptedServer(ThreadingHTTPServer):
    """Answers each request for a completion by calling ``answer`` with its handler."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Answer = lambda handler: handler.send(b"{}")
        self.num_requests = 0
        self.num_connections = 0
        self.bodies: list[dict[str, Any]] = []
        self.bytes_sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1#tiny"

    def handle_error(self, request, client_address) -> None:
        """Ignore clients that disconnect."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def setup(self) -> None:
        super().setup()
        self.server.num_connections += 1

    def log_message(self, *_) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.num_requests += 1
        self.server.answer(self)

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.begin(status, Content_Length=str(len(body)), **headers)
        self.wfile.write(body)

    def send_without_end(self, part: bytes, status: int = 200, **headers: str) -> None:
        """Send the same part until the client hangs up."""
        self.begin(status, Connection="close", **headers)
        self.close_connection = True
        while True:
            self.wfile.write(part)
            self.server.bytes_sent += len(part)


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: ScriptedServer, deadline: float = 60.0, *, times: int = 1) -> list[Completion]:
    """The completions of requests after one another."""

    async def scenario() -> list[Completion]:
        generator = ServerGenerator(Model.open(server.url), deadline=deadline)
        try:
            return [await _one(generator) for _ in range(times)]
        finally:
            await generator.close()

    return asyncio.run(scenario())


async def _one(generator: ServerGenerator) -> Completion:
    (done,) = await generator.complete([{"role": "user", "content": "1+2?"}], Sampling(30), seeds=[1])
    return done


def refusal(server: ScriptedServer, deadline: float = 60.0) -> str:
    """The message of the error with which a request ends."""
    with pytest.raises(EnvironmentFault) as refused:
        ask(server, deadline)
    message = str(refused.value)
    assert message.startswith(server.url.partition("#")[0])
    assert message.isprintable()  # so it is one line, without control characters of the terminal
    assert len(message) < 500
    return message

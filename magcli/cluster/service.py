"""A server in a process of the cluster that many other processes ask, such as an engine that shards share.

Requests to it are calls. One long poll of a client returns all of its answers since the last poll, for the reason that
``magcli.cluster.mailbox`` gives. The process that starts a server replaces it when it is lost; clients find the new one
by its name, and ask again what the lost one had not answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import ray

from magcli.cluster.errors import MemberLost
from magcli.cluster.mailbox import (
    SILENT_SECONDS,
    Location,
    Outbox,
    actor_of,
    end_actor,
    killed_unless_open,
    own_location,
    placed,
)
from magcli.cluster.ray_errors import as_magcli_error
from magcli.cluster.types import ProcessKind, Surroundings
from magcli.errors import EnvironmentFault, MagError, first_line
from magcli.run.tasks import end_all

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster

STATUS_SECONDS = 1.0
"""How often the process that started a server asks for its status, which is the sign of life."""

FIND_SECONDS = 0.5
"""How often a client looks for a server that is being replaced."""

NAME_SECONDS = 30.0
"""How long the name of a lost server may stay taken."""

THREADS = "OMP_NUM_THREADS"


class Server(Protocol):
    """What a service runs."""

    @property
    def opened(self) -> Any:
        """What the process that started it must know."""

    @property
    def status(self) -> Any:
        """What it has done so far."""

    async def answer(self, request: Any) -> Any:
        """The answer to a request; several are answered at once."""


OpenServer = Callable[[], Server]
"""Opens a server in its process; it is sent there by pickle, so it is a function of a module or a partial of one."""

Answer = tuple[int, Any, MagError | None]
"""The number of a request, and its answer or the error."""


def enter(surroundings: Surroundings) -> None:
    """Take over the starting process's surroundings, the threads of its compute libraries included.

    Ray sets their number to that of the CPUs that a process takes.
    """
    # Removed first: the surroundings have it only where it is to be set.
    os.environ.pop(THREADS, None)
    surroundings.enter()


class ServiceActor:
    """The actor. ``open`` may take as long as loading a model; calls before it has returned wait."""

    def __init__(self, surroundings: Surroundings) -> None:
        enter(surroundings)
        self._server: Server | None = None
        self._outboxes: dict[str, Outbox] = {}
        self._requests: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def where(self) -> Location:
        """The host, the process and the node that the actor runs in."""
        return own_location(socket.gethostname())

    async def open(self, pickled: bytes) -> Any:
        """Open the server; returns what it says when it is open. Errors of magcli reach the caller as they are."""
        open_server: OpenServer = pickle.loads(pickled)
        self._server = open_server()
        return self._server.opened

    async def status(self) -> Any:
        """What the server has done so far."""
        assert self._server is not None, "its status was asked for before it was open"
        return self._server.status

    async def ask(self, client: str, number: int, request: Any) -> None:
        """Begin to answer a request; the answer comes with a poll of the client."""
        outbox = self._outboxes.setdefault(client, Outbox())
        self._requests[client, number] = asyncio.create_task(self._answer(outbox, client, number, request))

    async def poll(self, client: str) -> list[Answer]:
        """The answers to a client's requests since its last poll; an empty list about once a second."""
        answers: list[Answer] = await self._outboxes.setdefault(client, Outbox()).next_messages()
        return answers

    async def forget(self, client: str) -> None:
        """Stop answering a client, which has ended or was lost."""
        for asked, task in list(self._requests.items()):
            if asked[0] == client:
                task.cancel()
        self._outboxes.pop(client, None)

    async def _answer(self, outbox: Outbox, client: str, number: int, request: Any) -> None:
        assert self._server is not None, "a request came before the server was open"
        try:
            # Errors are answers, too: one request that fails must not fail the poll of all.
            outbox.put((number, await self._server.answer(request), None))
        except MagError as error:
            outbox.put((number, None, error))
        except Exception as error:
            fault = EnvironmentFault(f"{type(error).__name__}: {first_line(error)}")
            outbox.put((number, None, fault))
        finally:
            del self._requests[client, number]


@dataclass
class Service:
    """The end of a server in the process that started it. Open it with ``Service.start``."""

    actor: Any
    name: str
    """Its name in messages."""
    process: int
    opened: Any
    """What the server said when it was open."""
    status: Any = None
    """What it has done, as of the last second."""

    @classmethod
    async def start(
        cls,
        cluster: Cluster,
        address: str,
        kind: ProcessKind,
        open_server: OpenServer,
        *,
        waiting: Callable[[str], None],
    ) -> Service:
        """Start a server where there is room, and wait until it is open.

        Args:
            cluster: where.
            address: the name by which clients find it, unique in the cluster.
            kind: what it is.
            open_server: opens the server in its process.
            waiting: told every 30 seconds what it waits for.

        Raises:
            MemberLost: the process was killed before its server was open, or did not open in time.
            MagError: what opening the server raised.
        """
        create = partial(_named_actor, address, kind)
        actor, location = await placed(create, cluster, kind, waiting)
        name = f"{kind.what} process {location.process} on {location.host}"
        async with killed_unless_open(actor, name, kind):
            opened = await actor.open.remote(pickle.dumps(open_server))
        return cls(actor, name, location.process, opened)

    async def watch(self) -> MemberLost:
        """Ask for its status until it is lost; returns why."""
        while True:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    self.status = await self.actor.status.remote()
            except TimeoutError:
                return MemberLost(f"{self.name} died: no sign of life in {SILENT_SECONDS:g} s")
            except Exception as error:
                lost = as_magcli_error(error, self.name)
                return lost if isinstance(lost, MemberLost) else MemberLost(f"{self.name} failed: {lost}")
            await asyncio.sleep(STATUS_SECONDS)

    def forget(self, client: str) -> None:
        """Tell it that a client was lost."""
        self.actor.forget.remote(client)

    def kill(self) -> None:
        """End its process at once."""
        end_actor(self.actor)


async def _named_actor(address: str, kind: ProcessKind) -> Any:
    """An actor under a name that a lost one may still have for a moment.

    Raises:
        EnvironmentFault: the name stays taken.
    """
    actor_class = actor_of(
        ServiceActor, kind.resources, name=address, max_concurrency=10_000, scheduling_strategy="SPREAD"
    )
    for _ in range(int(NAME_SECONDS / FIND_SECONDS)):
        # Ray's error for a name that is still taken.
        with contextlib.suppress(ValueError):
            return actor_class.remote(kind.surroundings)
        await asyncio.sleep(FIND_SECONDS)
    raise EnvironmentFault(f"the cluster has not ended {address} in {NAME_SECONDS:g} s; start the command again")


@dataclass
class _Connection:
    """A client's requests to one server, by number: how much each asks for, and who waits for the answer."""

    address: str
    actor: Any = None
    weights: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    @property
    def load(self) -> int:
        """How much has been asked for and not been answered."""
        return sum(self.weights.values())

    async def ask(self, client: str, number: int, request: Any, weight: int) -> Any:
        """The answer to a request.

        Raises:
            MemberLost: the server was lost before it answered.
            MagError: what the server raised.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.weights[number] = weight
        self.waiting[number] = answer
        self.actor.ask.remote(client, number, request)
        try:
            return await answer
        finally:
            self.weights.pop(number, None)
            self.waiting.pop(number, None)

    def deliver(self, answers: Sequence[Answer]) -> None:
        """Hand answers to who waits for them."""
        for number, value, error in answers:
            future = self.waiting.get(number)
            # Nobody waits any more, after a cancellation.
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def fail(self, error: MemberLost) -> None:
        """Tell all who wait that the server was lost."""
        self.actor = None
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(error)


class ServiceClient:
    """Asks the servers of a run from another process of the cluster: the one that it has asked for least.

    Use it in one event loop.
    """

    def __init__(self, addresses: Sequence[str], client: str) -> None:
        self._client = client
        self._connections = [_Connection(address) for address in addresses]
        self._numbers = itertools.count()
        self._changed: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: MagError | None = None

    async def call(self, request: Any, weight: int = 1) -> Any:
        """The answer to a request; one that a lost server did not answer is asked again.

        Args:
            request: what to ask; it is sent by pickle.
            weight: how much it asks for, such as the number of completions.

        Raises:
            MagError: what the server raised, or what ``fail`` was told.
        """
        self._loop = asyncio.get_running_loop()
        while True:
            connection = await self._least_busy()
            # What a lost server did not answer is asked of whichever is the least busy then.
            with contextlib.suppress(MemberLost):
                return await connection.ask(self._client, next(self._numbers), request, weight)

    def fail(self, error: MagError) -> None:
        """End all calls, those to come too, with an error: a lost server has no successor. Any thread may call this."""
        self._error = error
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_calls)

    def _end_calls(self) -> None:
        for connection in self._connections:
            connection.fail(MemberLost(str(self._error)))  # each call then finds the error
        if self._changed is not None:
            self._changed.set()

    async def close(self) -> None:
        """Tell the servers that nothing is waited for any more."""
        await end_all(self._tasks)
        for connection in self._connections:
            if connection.actor is not None:
                connection.actor.forget.remote(self._client)

    async def _least_busy(self) -> _Connection:
        # Tasks need a running loop, which whoever makes the client need not have.
        if self._changed is None:
            self._changed = asyncio.Event()
            self._tasks = [asyncio.create_task(self._follow(connection)) for connection in self._connections]
        while True:
            if self._error is not None:
                raise self._error
            ready = [connection for connection in self._connections if connection.actor is not None]
            if ready:
                return min(ready, key=lambda connection: connection.load)
            # Nothing else runs between the look and this, so no server that came up is missed.
            self._changed.clear()
            await self._changed.wait()

    async def _follow(self, connection: _Connection) -> None:
        """Hand on a server's answers, and find the one that replaces it when it is lost."""
        assert self._changed is not None
        while True:
            # The successor of a lost server has its name.
            actor = await _actor_named(connection.address)
            error = await self._received(connection, actor)
            connection.fail(error)
            await asyncio.sleep(FIND_SECONDS)

    async def _received(self, connection: _Connection, actor: Any) -> MemberLost:
        """Hand on a server's answers until it is lost; returns why."""
        assert self._changed is not None
        try:
            await _within(SILENT_SECONDS, actor.status.remote())  # a dead one may still be found by its name
            connection.actor = actor
            self._changed.set()
            while True:
                answers = await _within(SILENT_SECONDS, actor.poll.remote(self._client))
                connection.deliver(answers)
        except TimeoutError:
            return MemberLost(f"{connection.address}: no sign of life in {SILENT_SECONDS:g} s")
        except Exception as error:
            return MemberLost(str(as_magcli_error(error, connection.address)))


async def _within(seconds: float, reference: Any) -> Any:
    async with asyncio.timeout(seconds):
        return await reference


async def _actor_named(address: str) -> Any:
    """The actor of a name, as soon as there is one."""
    while True:
        # Ray's error for a name that nobody has.
        with contextlib.suppress(ValueError):
            return ray.get_actor(address)
        await asyncio.sleep(FIND_SECONDS)

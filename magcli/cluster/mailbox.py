"""An endpoint in a process of the cluster that exchanges messages with the process that started it.

Messages to it are calls; its own are collected in an outbox. One long poll a second at most returns all of them: a call
for each would cost 40 times the CPU of a frame on a socket (docs/cluster.md). An empty answer is the sign of life.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import ray

from magcli.cluster.errors import MemberLost, NodeLost
from magcli.cluster.ray_errors import as_magcli_error
from magcli.cluster.types import WAITING_SECONDS, ProcessKind, Resources, Surroundings
from magcli.run.tasks import end_all

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster

POLL_SECONDS = 1.0
"""How long a poll waits for messages before it answers that there are none."""

SILENT_SECONDS = 20.0
"""Seconds without an answer to a poll after which a process counts as dead."""


class Outbox:
    """The messages of an endpoint that have not been fetched; ``put`` is for the thread of its event loop."""

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._arrival = asyncio.Event()

    def put(self, message: Any) -> None:
        """Add a message."""
        self._messages.append(message)
        self._arrival.set()

    async def next_messages(self) -> list[Any]:
        """All messages since the last call; an empty list after ``POLL_SECONDS`` without any."""
        # The time being over is no error: an empty answer is the sign of life.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._arrival.wait()
        # Nothing else of the loop runs between this and the exchange, so no message is lost.
        self._arrival.clear()
        messages, self._messages = self._messages, []
        return messages


class Location(NamedTuple):
    """Where an actor runs: the host's name or address, the id of the process, and Ray's id of the node."""

    host: str
    process: int
    node: str


def own_location(host: str) -> Location:
    """Where this process runs, on a host of this name or address."""
    return Location(host, os.getpid(), ray.get_runtime_context().get_node_id())


class Endpoint(Protocol):
    """What a mailbox serves."""

    async def handle(self, message: Any) -> None:
        """Act on a message; returns when the next may come. It answers through its outbox."""


OpenEndpoint = Callable[[Outbox], Endpoint | Awaitable[Endpoint]]
"""Opens an endpoint in its process; it is sent there by pickle, so it is a function of a module or a partial of one.

What it puts into the outbox while it is awaited is heard at once.
"""


class Mailbox:
    """The actor. ``open`` may take as long as loading a model; what the endpoint says meanwhile can be polled."""

    def __init__(self, surroundings: Surroundings) -> None:
        surroundings.enter()
        self._endpoint: Endpoint | None = None
        self._outbox = Outbox()

    async def open(self, pickled: bytes) -> None:
        """Open the endpoint. Errors of magcli reach the caller as they are."""
        open_endpoint: OpenEndpoint = pickle.loads(pickled)
        opened = open_endpoint(self._outbox)
        # A coroutine lets polls be answered while it opens.
        self._endpoint = await opened if isinstance(opened, Awaitable) else opened

    async def where(self) -> Location:
        """The host, the process and the node that the actor runs in."""
        return own_location(socket.gethostname())

    async def deliver(self, message: Any) -> None:
        """Hand a message to the endpoint."""
        assert self._endpoint is not None, "a message came before the endpoint was open"
        await self._endpoint.handle(message)

    async def poll(self) -> list[Any]:
        """The endpoint's messages since the last poll."""
        return await self._outbox.next_messages()


class Member:
    """This end of a mailbox: a process of the cluster and what it says. Open it with ``Member.start``."""

    def __init__(self, actor: Any, what: str, location: Location) -> None:
        self._actor = actor
        self.host, self.process, self.node = location
        self.name = f"{what} process {self.process} on {self.host}"
        """Its name in messages."""

    @classmethod
    async def start(
        cls,
        cluster: Cluster,
        kind: ProcessKind,
        open_endpoint: OpenEndpoint,
        *,
        say: Callable[[str], None],
        heard: Callable[[str, Any], None] | None = None,
    ) -> Member:
        """Start a process where there is room, and wait until its endpoint is open.

        Args:
            cluster: where.
            kind: what it is.
            open_endpoint: opens the endpoint in the process.
            say: told every 30 seconds what it waits for.
            heard: told each message that comes while the endpoint opens, with the name of the member.

        Raises:
            MemberLost: the process was killed before its endpoint was open.
            EnvironmentFault: the endpoint did not open in time.
            MagError: what the endpoint raised.
        """
        actor_class = actor_of(Mailbox, kind.resources, max_concurrency=1000, scheduling_strategy="SPREAD")

        async def create() -> Any:
            return actor_class.remote(kind.surroundings)

        actor, location = await placed(create, cluster, kind, say)
        member = cls(actor, kind.what, location)
        async with killed_unless_open(actor, member.name, kind), member._hearing(heard):
            await actor.open.remote(pickle.dumps(open_endpoint))
        return member

    @contextlib.asynccontextmanager
    async def _hearing(self, heard: Callable[[str, Any], None] | None) -> AsyncIterator[None]:
        """Pass on what the endpoint says in the block, the last of it too."""
        over = False

        async def listen(to: Callable[[str, Any], None]) -> None:
            while not over:
                for message in await self._actor.poll.remote():
                    to(self.name, message)

        listener = asyncio.create_task(listen(heard)) if heard else None
        try:
            yield
            # The poll that runs still brings what was said before; then the listener ends.
            over = True
            if listener is not None:
                await listener
        finally:
            if listener is not None:
                await end_all([listener])

    def tell(self, message: Any) -> None:
        """Send a message; whether it arrives shows in what the member says."""
        self._actor.deliver.remote(message)

    async def next_messages(self) -> Sequence[Any]:
        """What the member has said since the last call, an empty list about once a second if nothing.

        Raises:
            MemberLost: it is gone, or has not answered for ``SILENT_SECONDS``.
            MagError: an error of its endpoint.
        """
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                # A living actor answers within ``POLL_SECONDS``, with nothing if it has nothing to say.
                messages: list[Any] = await self._actor.poll.remote()
                return messages
        except TimeoutError:
            raise MemberLost(f"{self.name} died: no sign of life in {SILENT_SECONDS:g} s") from None
        except Exception as error:
            raise as_magcli_error(error, self.name) from error

    def kill(self) -> None:
        """End the process at once."""
        end_actor(self._actor)


def actor_of(actor: type, resources: Resources, **options: Any) -> Any:
    """Ray's class of an actor that takes these resources of its node; ``options`` are Ray's.

    It is not restarted by Ray: it would have lost its state, and callers would not know.
    """
    return ray.remote(actor).options(
        num_cpus=resources.cpus, num_gpus=resources.gpus, max_restarts=0, max_task_retries=0, **options
    )


def end_actor(actor: Any) -> None:
    """End an actor and its process at once."""
    with contextlib.suppress(Exception):  # Ray is shut down already, and the process with it
        ray.kill(actor)


@contextlib.asynccontextmanager
async def killed_unless_open(actor: Any, name: str, kind: ProcessKind) -> AsyncIterator[None]:
    """Open an actor in the block, in the time that its kind may take; it is killed if that fails.

    Raises:
        MemberLost: it took too long, or its process was killed.
        MagError: what opening it raised.
    """
    try:
        async with asyncio.timeout(kind.start_seconds):
            yield
    except TimeoutError:
        ray.kill(actor)
        raise MemberLost(f"{name} died: it did not come up in {kind.start_seconds:g} s") from None
    except asyncio.CancelledError:
        ray.kill(actor)
        raise
    except Exception as error:
        ray.kill(actor)
        raise as_magcli_error(error, f"the {kind.what}") from error


async def placed(
    create: Callable[[], Awaitable[Any]], cluster: Cluster, kind: ProcessKind, say: Callable[[str], None]
) -> tuple[Any, Location]:
    """An actor that ``create`` has made, and where it runs, as soon as it does.

    Ray learns of the death of a node after some seconds, and until then may choose it. Such an actor never runs, and is
    made again.

    Raises:
        MemberLost: its process was killed.
        MagError: what its constructor raised.
    """
    while True:
        actor = await create()
        try:
            return actor, await _location_of(actor, cluster, kind, say)
        except asyncio.CancelledError:
            ray.kill(actor)
            raise
        except Exception as error:
            ray.kill(actor)
            failure = as_magcli_error(error, f"the {kind.what}")
            # Only a node that was gone before the actor ran is a reason to make it again.
            if not isinstance(failure, NodeLost):
                raise failure from error


async def _location_of(actor: Any, cluster: Cluster, kind: ProcessKind, say: Callable[[str], None]) -> Location:
    """Wait until Ray has room for an actor and started it there; says every 30 seconds what is missing."""
    # One call for the whole wait: ``asyncio.wait`` does not cancel it when its time is over.
    answer = asyncio.ensure_future(actor.where.remote())
    try:
        while True:
            done, _ = await asyncio.wait({answer}, timeout=WAITING_SECONDS)
            if done:
                location: Location = answer.result()
                return location
            free = cluster.free()
            say(f"waiting for {kind.resources} on one node for the {kind.what}; the cluster has {free} free")
    finally:
        answer.cancel()

"""Servers of one kind on a cluster: started, watched, and replaced when they are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from magcli.cluster.errors import MemberLost
from magcli.cluster.service import OpenServer, Service, ServiceClient
from magcli.cluster.types import Demand, ProcessKind
from magcli.console import Console
from magcli.errors import EnvironmentFault
from magcli.run.tasks import run_all

if TYPE_CHECKING:
    from magcli.cluster.runtime import Cluster

MAX_DEATHS = 5
"""How often a server may die without having finished anything meanwhile."""

MAX_FIRST_DEATHS = 2
"""How often it may die before it has been open: one that is always lost as it loads will be so the next time too."""


class ServiceGroup:
    """The servers behind some addresses. The status of each is the number of units of work that it has finished.

    Args:
        cluster: where they run.
        kind: what they are.
        addresses: the names by which clients find them, unique in the cluster.
        opener_of: the function that opens the server of an address, by its position; called for each start.
        stage: the name of the stage in messages.
        console: where losses and waits are reported.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: ProcessKind,
        addresses: Sequence[str],
        opener_of: Callable[[int], OpenServer],
        *,
        stage: str,
        console: Console,
    ) -> None:
        self.addresses = addresses
        self._cluster = cluster
        self._kind = kind
        self._opener_of = opener_of
        self._stage, self._console = stage, console
        self._services: dict[int, Service] = {}
        self._finished_by_lost = 0

    @property
    def num_finished(self) -> int:
        """Units of work finished so far, those of lost servers included."""
        return self._finished_by_lost + sum(service.status or 0 for service in self._services.values())

    def service(self, number: int) -> Service:
        """The server that has an address now."""
        return self._services[number]

    def check_room(self) -> None:
        """Refuse a group for which the cluster has no room.

        Raises:
            EnvironmentFault: the message says for how many there is room.
        """
        self._cluster.check_room([Demand(f"{self._kind.what}s", len(self.addresses), self._kind.resources)])

    async def start(self, numbers: Sequence[int]) -> None:
        """Start the servers of these addresses at once.

        Raises:
            MemberLost: one was lost again and again before it was open.
            MagError: what opening a server raised.
        """
        await run_all(self._start_until_open(number, MAX_FIRST_DEATHS) for number in numbers)

    async def watch(self) -> None:
        """Start the servers that are not started yet, and replace those that are lost, until one cannot be replaced.

        Raises:
            EnvironmentFault: it dies again and again.
            MagError: what opening a server raised.
        """
        await run_all(self._keep(number) for number in range(len(self.addresses)))

    def client(self, name: str) -> ServiceClient:
        """Asks the servers from this process, under a name that is unique among their clients."""
        return ServiceClient(self.addresses, name)

    def forget(self, client: str) -> None:
        """Tell all servers that a client was lost."""
        for service in self._services.values():
            service.forget(client)

    def close(self) -> None:
        """End all servers."""
        for service in self._services.values():
            service.kill()

    async def _keep(self, number: int) -> None:
        """Watch the server of an address and its successors."""
        if number not in self._services:
            await self._start_until_open(number, MAX_FIRST_DEATHS)
        deaths = 0
        while True:
            service = self._services[number]
            lost = await service.watch()
            service.kill()
            # One that has finished something since its start was sound: the count begins again with this death.
            deaths = 1 if service.status else deaths + 1
            if deaths > MAX_DEATHS:
                raise EnvironmentFault(f"{self._stage}: {lost}, after {MAX_DEATHS} others in a row")
            # Counted once: this server stays in the table until its successor is open.
            self._finished_by_lost += service.status or 0
            service.status = 0
            self._warn(f"{lost}; another is started, and is asked again what was not answered")
            await self._start_until_open(number, MAX_DEATHS)

    async def _start_until_open(self, number: int, max_deaths: int) -> None:
        """Start a server, again if its process is lost before it is open."""
        # The error of one more attempt after these is the caller's.
        for _ in range(max_deaths):
            try:
                return await self._start(number)
            except MemberLost as error:
                self._warn(f"{error}; trying again")
        return await self._start(number)

    async def _start(self, number: int) -> None:
        address, open_server = self.addresses[number], self._opener_of(number)
        service = await Service.start(self._cluster, address, self._kind, open_server, waiting=self._say_waiting)
        self._services[number] = service

    def _warn(self, text: str) -> None:
        self._console.warn(f"{self._stage}: {text}", event=f"{self._kind.what}-lost")

    def _say_waiting(self, text: str) -> None:
        self._console.say(f"{self._stage}: {text}", event="waiting")

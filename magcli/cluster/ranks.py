"""Processes that work in step: each does its part of every call, at the same time, and one that is lost ends all.

The ranks of a trainer are such a group. They find each other through a port of the first one. When one of them is lost,
its neighbours usually fail first, in a collective; the error of a group names the rank that is gone.
"""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray import cloudpickle

from magcli.cluster.errors import MemberLost, NodeLost, RanksLost
from magcli.cluster.mailbox import Location, actor_of, end_actor, own_location
from magcli.cluster.meeting import free_port
from magcli.cluster.ray_errors import as_magcli_error
from magcli.cluster.runtime import Cluster
from magcli.cluster.types import ANY_ROOM, WAITING_SECONDS, Demand, Room, Surroundings
from magcli.errors import EnvironmentFault, MagError

SEARCH_SECONDS = 8.0
"""How long a group looks for a rank that is gone after one of them failed."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What a rank of a group knows of itself and of where the ranks meet."""

    rank: int
    size: int
    local_rank: int
    host: str
    port: int


Open = Callable[[Seat], Any]
"""Makes the state that a rank keeps between calls."""

Part = Callable[[Any], Any]
"""A rank's part of a call: gets its state, and returns what only of rank 0 is sent back."""


class RankActor:
    """The actor of one rank."""

    def __init__(self, surroundings: Surroundings) -> None:
        surroundings.enter()
        self._state: Any = None

    def where(self) -> Location:
        """The address, the process and the node of the rank."""
        return own_location(str(ray.util.get_node_ip_address()))

    def free_port(self, host: str) -> int:
        """A port of this machine on which the ranks can meet."""
        return free_port(host)

    def open(self, pickled: bytes, seat: Seat) -> None:
        """Make the rank's state. Errors of magcli reach the caller as they are."""
        open_state: Open = pickle.loads(pickled)
        self._state = open_state(seat)

    def call(self, pickled: bytes, *, returns: bool) -> Any:
        """Do this rank's part; ``returns``: its result is wanted."""
        part: Part = pickle.loads(pickled)
        result = part(self._state)
        return result if returns else None


class RankGroup:
    """The ranks, seen from the process that started them. Open it with ``RankGroup.start``.

    A group is used by one thread at a time. After an error its processes are gone.
    """

    def __init__(self, actors: Sequence[Any], names: Sequence[str], timeout: float) -> None:
        self._actors = list(actors)
        self._names = names
        self._timeout = timeout

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._names)

    @classmethod
    def start(
        cls,
        cluster: Cluster,
        ranks: Demand,
        open_state: Open,
        *,
        surroundings: Surroundings,
        say: Callable[[str], None],
        timeout: float,
        room: Room = ANY_ROOM,
    ) -> "RankGroup":
        """Start the processes where there is room, those of a node next to each other, and make their states.

        Args:
            cluster: where.
            ranks: how many, and what each takes of its node.
            open_state: makes the state of a rank.
            surroundings: working directory and variables of each.
            say: told every 30 seconds what is waited for.
            timeout: seconds that a call may take.
            room: what they leave, and how long they wait for it.

        Raises:
            EnvironmentFault: there is no room for them, or not beside the others.
            RanksLost: one of them was killed, or its node was lost and no other came.
            MagError: what ``open_state`` raised in one of them.
        """
        cluster.check_room([*room.beside, ranks])
        actor_class = actor_of(RankActor, ranks.resources)
        names = [f"rank {rank}" for rank in range(ranks.number)]
        # Without actors at first, so that ``close`` ends those that were made before an error.
        group = cls([], names, timeout)
        try:
            with cluster.room_kept(room.beside, say):
                create = partial(actor_class.remote, surroundings)
                group._actors = [create() for _ in names]
                wait = _Wait(cluster, ranks, room, say)
                locations = group._placed(create, wait)
            group._take_seats(cluster, open_state, locations)
        except BaseException:
            group.close()
            raise
        return group

    def _take_seats(self, cluster: Cluster, open_state: Open, locations: Sequence[Location]) -> None:
        """Number the ranks node by node, and have each make its state."""
        # By node, so that neighbours in number are on one machine, where gathering weights is fast.
        order = sorted(range(self.size), key=lambda index: (locations[index].node, index))
        self._actors = [self._actors[index] for index in order]
        locations = [locations[index] for index in order]
        self._names = []
        for rank, location in enumerate(locations):
            self._names.append(f"rank {rank} (process {location.process} on {location.host})")
        # All ranks meet at rank 0.
        host = cluster.own_address() if cluster.is_local else locations[0].host
        # Only rank 0 can say which ports of its machine are free.
        (port,) = self._results([self._actors[0].free_port.remote(host)])
        pickled = _pickled(open_state)
        references = []
        for rank, (actor, location) in enumerate(zip(self._actors, locations, strict=True)):
            # Its number among the ranks of its node, by which it finds its GPU where it sees several.
            local_rank = sum(other.node == location.node for other in locations[:rank])
            seat = Seat(rank, self.size, local_rank, host, port)
            references.append(actor.open.remote(pickled, seat))
        self._results(references)

    def _placed(self, create: Callable[[], Any], wait: "_Wait") -> list[Location]:
        """Where each rank runs, as soon as all do; those that Ray put on a node that was gone are made again."""
        references = [actor.where.remote() for actor in self._actors]
        while True:
            _, waiting = ray.wait(references, num_returns=len(references), timeout=wait.seconds)
            if waiting:
                wait.go_on(len(waiting))
                continue
            unplaced = [index for index, reference in enumerate(references) if _never_ran(reference)]
            if not unplaced:
                return self._results(references)
            # The others keep their places.
            for index in unplaced:
                self._actors[index] = create()
                references[index] = self._actors[index].where.remote()

    def call(self, parts: Sequence[Part]) -> Any:
        """Have each rank do its part, at the same time; returns rank 0's result.

        Raises:
            RanksLost: a rank is gone, or did not answer in time; the message names it.
            MagError: what a rank raised.
        """
        if not self._actors:
            raise RanksLost("training stopped: the ranks have ended")
        references = []
        for rank, (actor, part) in enumerate(zip(self._actors, parts, strict=True)):
            references.append(actor.call.remote(_pickled(part), returns=rank == 0))
        return self._results(references)[0]

    def close(self) -> None:
        """End all processes."""
        for actor in self._actors:
            end_actor(actor)
        self._actors = []

    def _results(self, references: Sequence[Any]) -> list[Any]:
        """The results of calls to the first ranks; ends the group if one of them fails."""
        results: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        waiting = list(references)
        end = time.monotonic() + self._timeout
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=max(0.0, end - time.monotonic()))
            if not ready:
                break
            rank = references.index(ready[0])
            try:
                results[rank] = ray.get(ready[0])
            except Exception as failure:
                failures[rank] = failure
                # Whoever waits for the lost one in a collective would wait on; the lost one itself is noticed soon.
                end = min(end, time.monotonic() + SEARCH_SECONDS)
                if isinstance(self._explained(failures), RanksLost):
                    break
        if failures:
            self.close()
            raise self._explained(failures)
        if waiting:
            self.close()
            names = ", ".join(self._names[references.index(reference)] for reference in waiting)
            raise RanksLost(f"training stopped: {names} did not answer in {self._timeout:.0f} s")
        return [results[rank] for rank in range(len(references))]

    def _explained(self, failures: dict[int, Exception]) -> MagError:
        """The error of a group: of a rank that is gone, else of the first that failed."""
        errors = {rank: as_magcli_error(failure, self._names[rank]) for rank, failure in failures.items()}
        # That of a neighbour in a collective is only a consequence of the loss.
        for error in errors.values():
            if isinstance(error, MemberLost):
                return RanksLost(f"training stopped: {error}")
        rank, first = next(iter(errors.items()))
        name = self._names[rank]
        # Errors of other types are kept as they are, since callers tell them apart.
        if type(first) is EnvironmentFault and not str(first).startswith(name):
            return EnvironmentFault(f"{name}: {first}")
        return first


class _Wait:
    """The wait for room for ranks, of which people are told every 30 seconds."""

    def __init__(self, cluster: Cluster, ranks: Demand, room: Room, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._ranks = ranks
        self._room = room
        self._say = say
        self._start = time.monotonic()
        # No longer than the patience, whose end would be noticed too late.
        self.seconds = min(WAITING_SECONDS, room.patience)
        """How long to wait before ``go_on``."""

    def go_on(self, missing: int) -> None:
        """Say how many ranks have no place yet.

        Raises:
            RanksLost: the nodes that are alive are too few, and the patience is at an end.
        """
        number, resources = self._ranks.number, self._ranks.resources
        free = self._cluster.free()
        self._say(f"waiting for {resources} each for {missing} of {number} trainer ranks; the cluster has {free} free")
        places = self._cluster.places_for(resources, beside=self._room.beside)
        if places < number and time.monotonic() - self._start >= self._room.patience:
            raise RanksLost(f"training stopped: the nodes have room for {places} of {number} trainer ranks")


def _never_ran(reference: Any) -> bool:
    """Whether the node of an actor was gone before the actor could say where it is."""
    try:
        ray.get(reference)
    except Exception as error:
        return isinstance(as_magcli_error(error, "a rank"), NodeLost)
    return False


def _pickled(value: Any) -> bytes:
    """Functions inside of functions are sent too."""
    pickled: bytes = cloudpickle.dumps(value)
    return pickled

"""The processes that train one model together: what rank 0 tells the others, and who has fallen silent.

Rank 0 runs everything; the others do what it orders. Every wait has a deadline, and an error names the rank that is
waited for: collectives alone would hang, or blame a socket. Orders are announced and answered through the launcher's
key-value store, where each process also leaves a sign of life every second, so that a process that died, hangs or
failed is told from one that is slow.
"""

import itertools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from magcli.errors import EnvironmentFault

DEADLINE = 600.0
"""Seconds that ranks may lie apart: in a collective, in answering an order."""

SILENCE = 30.0
"""Seconds without a sign of life after which a process counts as dead."""

AFTERMATH = 5.0
"""The same where a collective has failed already and only who is to blame is asked."""

BEAT = 1.0
POLL, LONGEST_POLL = 0.01, 0.3

LAUNCH = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")
"""The variables by which torchrun tells a process what it is."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process among those that train together.

    Weights are sharded over ``mesh``, which is None for a process by itself. ``deadline``: seconds that ranks may lie
    apart. ``store`` is where the launcher keeps what they tell each other.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    mesh: DeviceMesh | None = None
    deadline: float = DEADLINE
    store: tuple[str, int] = ("", 0)

    def total(self, value: float) -> float:
        """The sum of a number over all ranks, the same on each."""
        tensor = torch.tensor(value, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor.item()

    def gather(self, value: Any) -> list[Any]:
        """An object of every rank, in their order, on rank 0; an empty list on the others."""
        gathered: list[Any] = [value] * self.size if self.rank == 0 else []
        if self.size > 1:
            dist.gather_object(value, gathered or None)
        return gathered

    def share(self, value: Any = None) -> Any:
        """Rank 0's object, on every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box)
        return box[0]


def open_ranks(device: str = "cpu", *, deadline: float = DEADLINE) -> Ranks:
    """Join the processes that torchrun started; without torchrun, a process by itself.

    Weights and gradients travel between GPUs by NCCL, everything else by gloo. Torchrun's variables leave the
    environment, for processes that are started later are no ranks.

    Raises:
        EnvironmentFault: torchrun's variables are incomplete, or the other processes did not come in time.
    """
    size = _variable("WORLD_SIZE", "1")
    if size == 1:
        return Ranks(device=torch.device(device), deadline=deadline)
    rank, on_gpu = _variable("RANK"), device.startswith("cuda")
    place = torch.device("cuda", _variable("LOCAL_RANK")) if on_gpu else torch.device(device)
    if on_gpu:
        torch.cuda.set_device(place)
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=deadline))
    except (RuntimeError, ValueError) as error:
        raise EnvironmentFault(f"rank {rank} did not meet all {size} ranks: {first_line(error)}") from error
    mesh, store = init_device_mesh(place.type, (size,)), (os.environ["MASTER_ADDR"], _variable("MASTER_PORT"))
    for name in filter(LAUNCH.fullmatch, list(os.environ)):
        del os.environ[name]
    return Ranks(rank, size, place, mesh, deadline, store)


def close_ranks() -> None:
    """Leave the other processes, if there are any."""
    if dist.is_initialized():
        dist.destroy_process_group()


class Pulse:
    """Signs of life: a thread counts up in the store every second, and stops with its process, however that ends."""

    def __init__(self, ranks: Ranks) -> None:
        self.store = _client(ranks.store)
        self._seen: dict[int, tuple[int, float]] = {}
        self._stopped = threading.Event()
        self.store.set(f"who/{ranks.rank}", f"rank {ranks.rank} (process {os.getpid()} on {socket.gethostname()})")
        self.store.set(f"beat/{ranks.rank}", "0")
        own = _client(ranks.store)  # a client takes one call at a time, and waiting is one
        threading.Thread(target=self._beat, args=(own, ranks.rank), name="magcli-pulse", daemon=True).start()

    def name(self, rank: int) -> str:
        """A rank as a message calls it."""
        return str(self.store.get(f"who/{rank}").decode())

    def count(self, rank: int) -> int:
        """A rank's signs of life so far."""
        return int(self.store.get(f"beat/{rank}"))

    def silence(self, rank: int) -> float:
        """Seconds for which a rank's count has stood still, as seen by asking again and again."""
        count, now = self.count(rank), time.monotonic()
        last, since = self._seen.get(rank, (-1, now))
        self._seen[rank] = (count, since if count == last else now)
        return now - self._seen[rank][1]

    def dead(self, rank: int, *, patience: float) -> str | None:
        """Why a rank counts as dead, or None."""
        silent = self.silence(rank)
        return f"has died or hangs: no sign of life for {silent:.0f} s" if silent > patience else None

    def stop(self) -> None:
        """Give no more signs of life."""
        self._stopped.set()

    def _beat(self, store: Any, rank: int) -> None:
        for count in itertools.count(1):
            if self._stopped.wait(BEAT):
                return
            try:
                store.set(f"beat/{rank}", str(count))
            except RuntimeError:
                return


class Post:
    """Orders of rank 0 to the others, and their answers. Every rank makes one, all at the same time."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.pulse = ranks, Pulse(ranks)
        self.patience = min(ranks.deadline, SILENCE)
        """Seconds of silence after which a rank counts as dead."""
        self.store = self.pulse.store
        self.others = range(1, ranks.size)
        self.number = 0
        """Orders so far."""
        self.in_step = True
        """On rank 0: whether all others have carried out the last order and wait for the next."""
        self._reply({})
        ranks.total(0.0)  # until all have replied, there is nobody to ask after

    def send(self, orders: Sequence[Any]) -> None:
        """On rank 0: give each other rank its order; the first of ``orders``, rank 0's own, stays here."""
        self.number, self.in_step = self.number + 1, False
        with _store_lives():
            self.store.set(f"order/{self.number}", "")
            self.store.delete_key(f"order/{self.number - 1}")
        self._scatter([None, *orders[1:]])

    def receive(self) -> Any:
        """On another rank: the next order, waited for as long as rank 0 lives.

        Raises:
            EnvironmentFault: rank 0 or the launcher has died or hangs.
        """
        self.number += 1
        begun = time.monotonic()
        with _store_lives():
            while not self.store.check([f"order/{self.number}"]):
                if dead := self.pulse.dead(0, patience=self.patience):
                    raise EnvironmentFault(f"{self.pulse.name(0)} {dead}")
                time.sleep(min(POLL + (time.monotonic() - begun) / 10, LONGEST_POLL))
        return self._scatter(None)

    def answer(self, error: BaseException | None = None) -> None:
        """On another rank: the order is carried out, or failed; of several failures the first is told from the rest."""
        self._reply({} if error is None else {"why": first_line(error), "place": self.store.add("failures", 1)})

    def settle(self, error: Exception | None = None) -> None:
        """On rank 0: wait until all have carried out the order; ``error`` is what rank 0's own part of it ended with.

        Raises:
            EnvironmentFault: a rank died, failed, or did not answer within the deadline; or torch failed on rank 0.
            Exception: ``error``, when it is of another kind and no other rank explains it.
        """
        with _store_lives():
            reason = self._reason(error)
        if reason:
            raise EnvironmentFault(f"training stopped: {reason}") from error
        if error is not None:
            raise error

    def close(self) -> None:
        """Give no more signs of life."""
        self.pulse.stop()

    def _reason(self, error: Exception | None) -> str:
        """Which rank ended the order and why: the dead before the first that failed; empty if none did."""
        silent = self._silent(error)
        told = {rank: self._told(rank) for rank in self.others if rank not in silent}
        failed = sorted((answer["place"], rank, answer["why"]) for rank, answer in told.items() if "why" in answer)
        behind = ", ".join(str(rank) for rank, answer in told.items() if answer["order"] < self.number)
        self.in_step = not (silent or failed or behind)
        for rank, why in silent.items():
            return f"{self.pulse.name(rank)} {why}"
        for _, rank, why in failed:
            return f"{self.pulse.name(rank)} failed: {why}"
        if isinstance(error, RuntimeError):
            return f"{self.pulse.name(0)} failed: {first_line(error)}" + (
                f"; not done: rank {behind}" if behind else ""
            )
        return ""

    def _scatter(self, orders: list[Any] | None) -> Any:
        box: list[Any] = [None]
        dist.scatter_object_list(box, orders)
        return box[0]

    def _reply(self, answer: dict[str, Any]) -> None:
        self.store.set(f"answer/{self.ranks.rank}", json.dumps({"order": self.number} | answer))

    def _told(self, rank: int) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.store.get(f"answer/{rank}"))
        return answer

    def _silent(self, error: Exception | None) -> dict[int, str]:
        """The ranks that do not answer, and how that is known.

        After an error of rank 0 itself the others may wait for rank 0: those that live are not waited for.
        """
        waiting, silent = set(self.others), dict[int, str]()
        until = time.monotonic() + self.ranks.deadline
        patience = self.patience if error is None else min(self.patience, AFTERMATH)
        start = {rank: self.pulse.count(rank) for rank in waiting}
        while waiting := {rank for rank in waiting if self._told(rank)["order"] < self.number}:
            for rank in sorted(waiting):
                if dead := self.pulse.dead(rank, patience=patience):
                    silent[rank] = dead
                elif error is None and time.monotonic() > until:
                    silent[rank] = f"lives, but has not answered for {self.ranks.deadline:.0f} s"
            living = {rank for rank in waiting if error is not None and self.pulse.count(rank) > start[rank] + 1}
            waiting -= silent.keys() | living
            time.sleep(POLL)
        return silent


def _client(place: tuple[str, int]) -> Any:
    """A connection of its own to the launcher's store."""
    tcp = dist.TCPStore(*place, is_master=False)  # type: ignore[attr-defined]
    return dist.PrefixStore("magcli", tcp)  # type: ignore[attr-defined]


@contextmanager
def _store_lives() -> Iterator[None]:
    """Say whose end it means that the store does not answer."""
    try:
        yield
    except dist.DistNetworkError as error:
        raise EnvironmentFault("the launcher of the ranks, or rank 0, has died: its store does not answer") from error


def _variable(name: str, default: str = "") -> int:
    value = os.environ.get(name, default)
    if not value.isdigit():
        raise EnvironmentFault(f"{name} is {value!r}, not a number: start all ranks by torchrun")
    return int(value)


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]

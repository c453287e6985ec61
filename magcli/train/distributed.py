"""The processes that train one model together: commands from rank 0, and detection of dead or hung ranks.

Every wait has a timeout, and errors name the rank that is waited for: collectives alone would hang, or blame a socket.
Commands are announced and answered through the launcher's key-value store, where each process also updates a heartbeat
every second, so that a process that died, hangs or failed can be distinguished from a slow one.
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

from magcli.errors import EnvironmentFault, first_line

TIMEOUT = 600.0
"""Seconds to wait for other ranks, in a collective or for the answer to a command."""

HEARTBEAT_TIMEOUT = 30.0
"""Seconds without a heartbeat after which a process counts as dead."""

FAILED_RANK_TIMEOUT = 5.0
"""Time allowed to identify the failed rank after a collective error, in seconds."""

HEARTBEAT_INTERVAL = 1.0
POLL, LONGEST_POLL = 0.01, 0.3

LAUNCH = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")
"""The variables by which torchrun tells a process what it is."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process among those that train together.

    Weights are sharded over the last dimension of ``mesh``, and replicated over the first if it has two; it is None for
    a single process. ``timeout``: seconds to wait for other ranks.
    ``store``: host and port of the launcher's key-value store.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    mesh: DeviceMesh | None = None
    timeout: float = TIMEOUT
    store: tuple[str, int] = ("", 0)

    @property
    def sharing(self) -> int:
        """Number of ranks that share one copy of the weights, with successive numbers."""
        return 1 if self.mesh is None else self.mesh.size(self.mesh.ndim - 1)

    def sum(self, value: float) -> float:
        """The sum of a number over all ranks, the same on each."""
        tensor = torch.tensor(value, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor.item()

    def gather(self, value: Any) -> list[Any]:
        """The objects of all ranks, by rank, on rank 0; an empty list on the others."""
        gathered: list[Any] = [value] * self.size if self.rank == 0 else []
        if self.size > 1:
            dist.gather_object(value, gathered or None)
        return gathered

    def broadcast(self, value: Any = None) -> Any:
        """Rank 0's object, on every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box)
        return box[0]


def open_ranks(device: str = "cpu", *, timeout: float = TIMEOUT) -> Ranks:
    """Join the processes that torchrun started; without torchrun, a single process.

    Weights and gradients travel between GPUs by NCCL, everything else by gloo. Torchrun's variables are removed from
    the environment, since child processes are not ranks.

    Raises:
        EnvironmentFault: torchrun's variables are incomplete, or the other processes did not join in time.
    """
    size = _variable("WORLD_SIZE", "1")
    if size == 1:
        return Ranks(device=torch.device(device), timeout=timeout)
    rank, on_gpu = _variable("RANK"), device.startswith("cuda")
    place = torch.device("cuda", _variable("LOCAL_RANK")) if on_gpu else torch.device(device)
    if on_gpu:
        torch.cuda.set_device(place)
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        raise EnvironmentFault(f"rank {rank} could not connect to all {size} ranks: {first_line(error)}") from error
    mesh, store = init_device_mesh(place.type, (size,)), (os.environ["MASTER_ADDR"], _variable("MASTER_PORT"))
    for name in filter(LAUNCH.fullmatch, list(os.environ)):
        del os.environ[name]
    return Ranks(rank, size, place, mesh, timeout, store)


def join_ranks(
    rank: int,
    size: int,
    local_rank: int,
    store: tuple[str, int],
    device: str,
    *,
    fsdp_size: int = 0,
    timeout: float = TIMEOUT,
) -> Ranks:
    """Join the other ranks at the store of the first one, which is at this host and port; devices as ``open_ranks``.

    Args:
        fsdp_size: number of ranks that share one copy of the weights; 0 is all.

    Raises:
        EnvironmentFault: the others did not join in time.
    """
    on_gpu = device.startswith("cuda")
    # Of a cluster a process sees only the GPU that Ray has given it; under a local Ray it sees all.
    index = local_rank if on_gpu and torch.cuda.device_count() > 1 else 0
    own = torch.device("cuda", index) if on_gpu else torch.device(device)
    if on_gpu:
        torch.cuda.set_device(own)
    host, port = store
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            init_method=f"tcp://{host}:{port}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
        )
    except (RuntimeError, ValueError) as error:
        raise EnvironmentFault(f"rank {rank} could not connect to all {size} ranks: {first_line(error)}") from error
    return Ranks(rank, size, own, _mesh(own.type, size, fsdp_size or size), timeout, store)


def _mesh(device_type: str, size: int, sharing: int) -> DeviceMesh:
    """Ranks that share one copy of the weights or, of hybrid sharding (HSDP), several such groups."""
    if sharing == size:
        return init_device_mesh(device_type, (size,))
    return init_device_mesh(device_type, (size // sharing, sharing), mesh_dim_names=("replicate", "shard"))


def close_ranks() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


class Heartbeat:
    """Heartbeats: a thread increments a counter in the store every second until its process ends, however it ends."""

    def __init__(self, ranks: Ranks) -> None:
        self.store = _client(ranks.store)
        self._seen: dict[int, tuple[int, float]] = {}
        self._stopped = threading.Event()
        self.store.set(f"who/{ranks.rank}", f"rank {ranks.rank} (process {os.getpid()} on {socket.gethostname()})")
        self.store.set(f"heartbeat/{ranks.rank}", "0")
        own = _client(ranks.store)  # a client takes one call at a time, and waiting is one
        threading.Thread(target=self._beat, args=(own, ranks.rank), name="magcli-heartbeat", daemon=True).start()

    def name(self, rank: int) -> str:
        """A rank's name in messages."""
        return str(self.store.get(f"who/{rank}").decode())

    def count(self, rank: int) -> int:
        """A rank's heartbeats so far."""
        return int(self.store.get(f"heartbeat/{rank}"))

    def silent_seconds(self, rank: int) -> float:
        """Seconds since a rank's counter last changed, as observed by repeated calls."""
        count, now = self.count(rank), time.monotonic()
        last, since = self._seen.get(rank, (-1, now))
        self._seen[rank] = (count, since if count == last else now)
        return now - self._seen[rank][1]

    def dead(self, rank: int, *, timeout: float) -> str | None:
        """Why a rank counts as dead, or None."""
        silent = self.silent_seconds(rank)
        return f"has died or hangs: no heartbeat for {silent:.0f} s" if silent > timeout else None

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._stopped.set()

    def _beat(self, store: Any, rank: int) -> None:
        for count in itertools.count(1):
            if self._stopped.wait(HEARTBEAT_INTERVAL):
                return
            try:
                store.set(f"heartbeat/{rank}", str(count))
            except RuntimeError:
                return


class RankChannel:
    """Commands from rank 0 to the others, and their answers. Every rank creates one, all at the same time."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.heartbeat = ranks, Heartbeat(ranks)
        self.heartbeat_timeout = min(ranks.timeout, HEARTBEAT_TIMEOUT)
        """Seconds without a heartbeat after which a rank counts as dead."""
        self.store = self.heartbeat.store
        self.others = range(1, ranks.size)
        self.number = 0
        """Commands so far."""
        self.in_step = True
        """On rank 0: whether all others have finished the last command and wait for the next."""
        self._reply({})
        ranks.sum(0.0)  # a barrier: every rank has an answer in the store from now on

    def send(self, commands: Sequence[Any]) -> None:
        """On rank 0: send each other rank its command; the first of ``commands`` is rank 0's own and is not sent."""
        self.number, self.in_step = self.number + 1, False
        with _store_lives():
            self.store.set(f"command/{self.number}", "")
            self.store.delete_key(f"command/{self.number - 1}")
        self._scatter([None, *commands[1:]])

    def receive(self) -> Any:
        """On another rank: the next command, waited for as long as rank 0 is alive.

        Raises:
            EnvironmentFault: rank 0 or the launcher has died or hangs.
        """
        self.number += 1
        begun = time.monotonic()
        with _store_lives():
            while not self.store.check([f"command/{self.number}"]):
                if dead := self.heartbeat.dead(0, timeout=self.heartbeat_timeout):
                    raise EnvironmentFault(f"{self.heartbeat.name(0)} {dead}")
                time.sleep(min(POLL + (time.monotonic() - begun) / 10, LONGEST_POLL))
        return self._scatter(None)

    def answer(self, error: BaseException | None = None) -> None:
        """On another rank: report the command as done or failed; failures are numbered, so that the first is known."""
        self._reply({} if error is None else {"why": first_line(error), "failure": self.store.add("failures", 1)})

    def wait(self, error: Exception | None = None) -> None:
        """On rank 0: wait until all ranks have finished the command; ``error`` is what rank 0's own part raised.

        Raises:
            EnvironmentFault: a rank died, failed, or did not answer within the timeout; or torch failed on rank 0.
            Exception: ``error``, if it is not an error of torch and no other rank explains it.
        """
        with _store_lives():
            reason = self._reason(error)
        if reason:
            raise EnvironmentFault(f"training stopped: {reason}") from error
        if error is not None:
            raise error

    def close(self) -> None:
        """Stop the heartbeats."""
        self.heartbeat.stop()

    def _reason(self, error: Exception | None) -> str:
        """Which rank caused the failure and why, dead ranks before the first that failed; empty if none did."""
        silent = self._silent(error)
        answers = {rank: self._answer_of(rank) for rank in self.others if rank not in silent}
        failed = sorted((answer["failure"], rank, answer["why"]) for rank, answer in answers.items() if "why" in answer)
        behind = ", ".join(str(rank) for rank, answer in answers.items() if answer["command"] < self.number)
        self.in_step = not (silent or failed or behind)
        for rank, why in silent.items():
            return f"{self.heartbeat.name(rank)} {why}"
        for _, rank, why in failed:
            return f"{self.heartbeat.name(rank)} failed: {why}"
        if isinstance(error, RuntimeError):
            return f"{self.heartbeat.name(0)} failed: {first_line(error)}" + (
                f"; not finished: rank {behind}" if behind else ""
            )
        return ""

    def _scatter(self, commands: list[Any] | None) -> Any:
        box: list[Any] = [None]
        dist.scatter_object_list(box, commands)
        return box[0]

    def _reply(self, answer: dict[str, Any]) -> None:
        self.store.set(f"answer/{self.ranks.rank}", json.dumps({"command": self.number} | answer))

    def _answer_of(self, rank: int) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.store.get(f"answer/{rank}"))
        return answer

    def _silent(self, error: Exception | None) -> dict[int, str]:
        """The ranks that do not answer, and why they are considered lost.

        After an error on rank 0 itself the others may be waiting for rank 0, so living ranks are not waited for.
        """
        waiting, silent = set(self.others), dict[int, str]()
        until = time.monotonic() + self.ranks.timeout
        timeout = self.heartbeat_timeout if error is None else min(self.heartbeat_timeout, FAILED_RANK_TIMEOUT)
        start = {rank: self.heartbeat.count(rank) for rank in waiting}
        while waiting := {rank for rank in waiting if self._answer_of(rank)["command"] < self.number}:
            for rank in sorted(waiting):
                if dead := self.heartbeat.dead(rank, timeout=timeout):
                    silent[rank] = dead
                elif error is None and time.monotonic() > until:
                    silent[rank] = f"is alive, but has not answered for {self.ranks.timeout:.0f} s"
            living = {rank for rank in waiting if error is not None and self.heartbeat.count(rank) > start[rank] + 1}
            waiting -= silent.keys() | living
            time.sleep(POLL)
        return silent


def _client(place: tuple[str, int]) -> Any:
    """A connection of its own to the launcher's store."""
    tcp = dist.TCPStore(*place, is_master=False)  # type: ignore[attr-defined]
    return dist.PrefixStore("magcli", tcp)  # type: ignore[attr-defined]


@contextmanager
def _store_lives() -> Iterator[None]:
    """Explain a store that does not answer: whoever runs it has died."""
    try:
        yield
    except dist.DistNetworkError as error:
        raise EnvironmentFault("the launcher of the ranks, or rank 0, has died: its store does not answer") from error


def _variable(name: str, default: str = "") -> int:
    value = os.environ.get(name, default)
    if not value.isdigit():
        raise EnvironmentFault(f"{name} is {value!r}, not a number: start all ranks with torchrun")
    return int(value)

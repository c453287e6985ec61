"""Ranks of a trainer as processes of a test, without Ray; and a command with ranks under Ray that is killed."""

import contextlib
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from calling import quiet
from forking import Running, fork_server

from magcli.cluster.meeting import free_port
from magcli.cluster.runtime import FOLDER_PREFIX
from magcli.train.commands import OpenState, RankCommand, RankState
from magcli.train.distributed import Ranks, join_ranks

PATIENCE = 120.0
LOOPBACK = "127.0.0.1"
OF_RANKS = {"GLOO_SOCKET_IFNAME": "lo"}
"""Variables of ranks on one machine."""


@dataclass
class Rank:
    """A process, and where it says what its function returned or raised."""

    process: Any
    pipe: Connection

    def result(self) -> Any:
        """What the function returned.

        Raises:
            AssertionError: it raised, or the process died; with its traceback.
        """
        kind, value = self.outcome()
        assert kind == "returned", value
        return value

    def outcome(self) -> tuple[str, Any]:
        """How it ended: returned, raised or died, and with what."""
        if not self.pipe.poll(PATIENCE):
            return "hung", None
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except EOFError:
            return "died", None


@contextlib.contextmanager
def started(function: Callable[..., Any], *arguments: Any, size: int) -> Iterator[list[Rank]]:
    """Processes that each call ``function(ranks, *arguments)``; what is left of them is killed at the end."""
    context = fork_server()
    port = free_port(LOOPBACK)
    ranks = []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(theirs, (rank, size, port), function, arguments))
        process.start()
        theirs.close()
        ranks.append(Rank(process, ours))
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.process.join(PATIENCE if rank.process.exitcode is None and rank.pipe.poll() else 0)
            rank.process.kill()
            rank.process.join()


def on_ranks(function: Callable[..., Any], *arguments: Any, size: int = 2) -> list[Any]:
    """What ``function(ranks, *arguments)`` returned on each rank."""
    with started(function, *arguments, size=size) as ranks:
        return [rank.result() for rank in ranks]


def until(condition: Callable[[], object]) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def killed_once(command: Sequence[object], appeared: Path) -> None:
    """Run a command line until a file or folder has appeared, and kill it; its ranks are gone too when this returns."""

    def has_appeared() -> bool:
        assert process.poll() is None, process.communicate()[1].decode()
        return appeared.exists()

    with Running(*command, env=quiet()) as process:
        until(has_appeared)
        process.kill()
        process.communicate()
    sessions = Path(tempfile.gettempdir())
    until(lambda: not list(sessions.glob(f"{FOLDER_PREFIX}{process.pid}-*")))


class InStep:
    """An executor of the controller for ranks that all run the same program, each with a controller of its own."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.state: RankState | None = None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._ranks.size

    def open(self, open_state: OpenState, *, bf16: bool) -> None:
        """Load this rank's state."""
        self.state = open_state(self._ranks, bf16)

    def run(self, commands: Sequence[RankCommand]) -> Any:
        """Run this rank's command; every rank gets rank 0's result."""
        assert self.state is not None
        return self._ranks.broadcast(commands[self._ranks.rank].run(self.state))


def _run(pipe: Connection, place: tuple[int, int, int], function: Callable[..., Any], arguments: Any) -> None:
    rank, size, port = place
    os.environ.update(OF_RANKS)
    torch.set_num_threads(1)
    try:
        ranks = join_ranks(rank, size, rank, (LOOPBACK, port), "cpu", timeout=20.0) if size > 1 else Ranks()
        pipe.send_bytes(pickle.dumps(("returned", function(ranks, *arguments))))
        if size > 1:
            dist.destroy_process_group()
    except BaseException as error:
        pipe.send_bytes(pickle.dumps(("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))

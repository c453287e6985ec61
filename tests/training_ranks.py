"""Ranks of a trainer as processes of a test: as torchrun starts them, with a store that outlives each."""

import contextlib
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from calling import flags_of, quiet
from forking import Running, fork_server

from magcli.train.distributed import close_ranks, open_ranks

PATIENCE = 120.0


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
def started(function: Callable[..., Any], *arguments: Any, size: int, timeout: float = 20.0) -> Iterator[list[Rank]]:
    """Processes that each call ``function(ranks, *arguments)``; what is left of them is killed at the end."""
    context = fork_server()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        where = environment_of(rank, size, store.port)
        process = context.Process(target=_run, args=(theirs, where, timeout, function, arguments))
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
    """Wait for something that ranks do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Launched(NamedTuple):
    """The ranks of a stage, and the store by which they find each other."""

    ranks: list[Running]
    store: dist.TCPStore


def launched(stage: str, *inputs: object, ranks: int = 2, **options: Any) -> Launched:
    """A stage on ranks with the environment that torchrun gives them."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    command = [stage, *inputs, *flags_of(options)]
    places = [environment_of(rank, ranks, store.port) for rank in range(ranks)]
    return Launched([Running(*command, env=quiet() | place, session=True) for place in places], store)


def environment_of(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun sets for a rank, with a store that outlives it."""
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    fixed = {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo"}
    return fixed | {name: str(value) for name, value in where.items()}


def finished(launch: Launched, code: int = 0) -> str:
    """What the ranks of a launch said, once they have ended with that exit code."""
    errors = "".join([rank.communicate(timeout=240)[1].decode() for rank in launch.ranks])
    assert [rank.returncode for rank in launch.ranks] == [code] * len(launch.ranks), errors
    return errors


def killed_once(launch: Launched, seen: Path) -> None:
    """Kill all processes of a launch when a file or folder has appeared."""
    deadline = time.monotonic() + 120
    while not seen.exists():
        assert all(rank.poll() is None for rank in launch.ranks), finished(launch)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for rank in launch.ranks:
        os.killpg(rank.pid, signal.SIGKILL)
    for rank in launch.ranks:
        rank.communicate()


def _run(pipe: Connection, where: dict[str, str], timeout: float, function: Callable[..., Any], arguments: Any) -> None:
    os.environ |= where
    torch.set_num_threads(1)
    try:
        pipe.send_bytes(pickle.dumps(("returned", function(open_ranks(timeout=timeout), *arguments))))
        close_ranks()
    except BaseException as error:
        pipe.send_bytes(pickle.dumps(("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))

"""Ranks of a trainer as processes of a test: as torchrun starts them, with a store that outlives each; or by it."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from calling import PRELOADED, flags_of, quiet

from magcli.train.distributed import close_ranks, open_ranks

CONTEXT = multiprocessing.get_context("forkserver")
PATIENCE = 120.0


@dataclass
class Rank:
    """A process, and where it says what its function returned or raised."""

    process: Any
    told: Connection

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
        if not self.told.poll(PATIENCE):
            return "hung", None
        try:
            return pickle.loads(self.told.recv_bytes())
        except EOFError:
            return "died", None


@contextlib.contextmanager
def started(function: Callable[..., Any], *arguments: Any, size: int, timeout: float = 20.0) -> Iterator[list[Rank]]:
    """Processes that each call ``function(ranks, *arguments)``; what is left of them is killed at the end."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in range(size):
        ours, theirs = CONTEXT.Pipe(duplex=False)
        where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": store.port}
        process = CONTEXT.Process(target=_run, args=(theirs, where, timeout, function, arguments))
        process.start()
        theirs.close()
        ranks.append(Rank(process, ours))
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.process.join(PATIENCE if rank.process.exitcode is None and rank.told.poll() else 0)
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


def launched(stage: str, *inputs: object, ranks: int = 2, **options: Any) -> subprocess.Popen[bytes]:
    """A stage under torchrun, in a process group of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "magcli", "--", stage, *map(str, inputs), *flags_of(options)]
    environment = quiet() | {"GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, start_new_session=True)


def finished(process: subprocess.Popen[bytes], code: int = 0) -> str:
    """What the processes of a launch said, once they have ended with that exit code."""
    errors = process.communicate(timeout=240)[1].decode()
    assert process.returncode == code, errors
    return errors


def killed_once(process: subprocess.Popen[bytes], seen: Path) -> None:
    """Kill all processes of a launch when a file or folder has appeared."""
    deadline = time.monotonic() + 120
    with process:
        while not seen.exists():
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _run(told: Connection, where: dict[str, int], timeout: float, function: Callable[..., Any], arguments: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {name: str(value) for name, value in where.items()}
    torch.set_num_threads(1)
    try:
        told.send_bytes(pickle.dumps(("returned", function(open_ranks(timeout=timeout), *arguments))))
        close_ranks()
    except BaseException as error:
        told.send_bytes(pickle.dumps(("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))

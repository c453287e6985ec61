"""Kills nodes and processes of a Ray cluster at random instants while a command of magcli works on it."""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kills
from calling import quiet
from forking import fork_magcli
from ray_machines import Machines, workers_on

MOST_IN_A_ROW = 2
"""Kills without progress in between: a third process lost with the same work may end a command, which says so."""

NEW_NODE_SECONDS = 3.0
"""A node comes in the place of a lost one after so long at most."""

PATIENCE = 400.0
"""Seconds in which something must happen."""

Progress = Callable[[], tuple[int, ...]]
"""How far the work of a command is; a larger value is further."""


@dataclass(frozen=True)
class Command:
    """A command line that runs in a session of its own; what it says goes to a file."""

    process: Any
    log: Path

    @classmethod
    def start(cls, arguments: Sequence[object], log: Path, machines: Machines) -> "Command":
        """Start a command as one of the cluster."""
        environment = {**quiet(), **machines.environment}
        with open(os.devnull, "r+b") as nothing, log.open("ab") as messages:
            streams = [nothing.fileno(), nothing.fileno(), messages.fileno()]
            return cls(fork_magcli(arguments, streams, env=environment, session=True), log)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it ends within that time."""
        self.process.join(seconds)
        return self.process.exitcode is not None

    def exit_code(self) -> int | None:
        """Its exit code, as soon as it has ended."""
        self.process.join(PATIENCE)
        code: int | None = self.process.exitcode
        return code

    def kill(self) -> None:
        """Kill it, and wait until the processes that it has started on this machine are gone."""
        self.process.kill()
        self.process.join()
        until(lambda: not kills.processes(self.process.pid), "a process outlives the command")

    def wait_for(self, progress: Progress, before: tuple[int, ...]) -> None:
        """Wait until it has made progress, or has ended."""
        until(lambda: self.has_ended(0.05) or progress() > before, f"no progress; see {self.log}")


def until(condition: Callable[[], object], failure: str) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(0.05)


class Pace:
    """Chooses random instants of a command for kills, about half of them soon after it has made progress."""

    def __init__(self, command: Command, progress: Progress, draw: random.Random, horizon: float) -> None:
        self._command, self._progress, self._draw, self._horizon = command, progress, draw, horizon
        self._before = progress()
        self._in_a_row = 0

    def next_instant(self) -> bool:
        """Wait for the next instant; returns whether the command still runs."""
        if self._in_a_row == MOST_IN_A_ROW or self._draw.random() < 0.5:
            self._command.wait_for(self._progress, self._before)
        has_ended = self._command.has_ended(self._draw.uniform(0, self._horizon))
        done = self._progress()
        self._in_a_row = self._in_a_row + 1 if done <= self._before else 1
        self._before = done
        return not has_ended


def kill_raylets(command: Command, machines: Machines, pace: Pace, draw: random.Random, most: int) -> list[str]:
    """Kill raylets of random nodes until a command ends, and replace each node; returns what had run on them."""
    landed: list[str] = []
    while len(landed) < most and pace.next_instant():
        node = draw.choice(machines.nodes)
        roles = sorted(workers_on(node).values())
        machines.kill_raylet(node)
        landed.append("+".join(roles) or "nothing")
        time.sleep(draw.uniform(0, NEW_NODE_SECONDS))
        machines.replace(node)
    return landed


def kill_workers(
    command: Command, machines: Machines, pace: Pace, draw: random.Random, roles: Sequence[str]
) -> Sequence[str]:
    """Kill a random process of each of these roles, one after the other, until a command ends; returns those left."""
    left = list(roles)
    while left and pace.next_instant():
        processes = processes_of(left[0], command, machines)
        if not processes:
            break
        os.kill(draw.choice(processes), signal.SIGKILL)
        del left[0]
    return left


def processes_of(role: str, command: Command, machines: Machines) -> list[int]:
    """The processes that do this for a command, as soon as there are any; none if it ends before."""
    processes: list[int] = []

    def have_appeared() -> bool:
        processes[:] = [process for process, role_of in machines.workers().items() if role_of == role]
        return bool(processes) or command.has_ended()

    until(have_appeared, f"no process is a {role}; see {command.log}")
    return processes

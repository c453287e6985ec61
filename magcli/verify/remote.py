"""A worker process as the pool sees it: jobs go in, answers come out, and it is known why there is silence."""

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from magcli.run import orphan
from magcli.verify.worker import LOADING, READY, receive, send

START_SECONDS = 120.0
LISTEN_SECONDS = 10.0
"""How long a worker may take to read what it is sent; it has nothing else to do then."""
LOOK_SECONDS = 0.5
"""How often a silent worker is looked at."""


class Lost(Exception):
    """The worker is gone or was stopped: whatever it worked on is not to blame."""


class Remote:
    """One worker process and the socket to it.

    Args:
        memory: Address space in bytes; 0 for no bound.
        function: The user's own reward, as ``magcli.verify.custom`` names it; empty for that of the recipe.
        warm: Whether it is ready only when all its tools are loaded.
    """

    def __init__(self, memory: int, function: str = "", *, warm: bool = False) -> None:
        ours, theirs = socket.socketpair()
        self.sock = ours
        self._patient = bool(function)
        self._cpu = 0.0
        with theirs:
            self.process = subprocess.Popen(
                orphan.command("magcli.verify.worker", theirs.fileno(), memory, int(warm), function),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def ready(self) -> bool:
        """Wait until the worker has said that it is ready; False when it is lost before."""
        try:
            return bool(self._message(START_SECONDS) == READY)
        except (TimeoutError, Lost):
            return False

    def send(self, jobs: Sequence[object]) -> None:
        """Hand over a batch.

        Raises:
            Lost: the worker does not read it.
        """
        self.sock.settimeout(LISTEN_SECONDS)
        try:
            send(self.sock, list(jobs))
        except OSError:
            raise Lost from None

    def answer(self, seconds: float) -> Any:
        """The worker's answer to the next job of the batch. The time begins anew when a tool has been loaded for it.

        Raises:
            TimeoutError: none came in time.
            Lost: none came, and not for the job's sake.
        """
        while (message := self._message(seconds)) == LOADING:
            self._cpu, _ = self._loaded()
        self._cpu, outcome = message
        return outcome

    def _loaded(self) -> Any:
        """What the worker says when its tool is loaded; raises Lost where it does not say so."""
        try:
            return self._message(START_SECONDS)
        except TimeoutError:
            raise Lost from None

    def _message(self, seconds: float) -> Any:
        """The next message; the process is looked at while there is none. Raises as ``answer`` does."""
        end = time.monotonic() + seconds
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        while not waiting.poll(1000 * max(0.0, min(LOOK_SECONDS, end - time.monotonic()))):
            if self.stopped():
                raise Lost
            if time.monotonic() >= end:
                raise TimeoutError
        self.sock.settimeout(LISTEN_SECONDS)
        try:
            return receive(self.sock)
        except (OSError, EOFError):
            raise Lost from None

    def usable(self) -> bool:
        """Whether the process is there and runs."""
        return self.process.poll() is None and not self.stopped()

    def gave_up(self) -> bool:
        """Whether the process ended by itself, not by a signal from outside."""
        return (self.process.poll() or 0) > 0

    def stopped(self) -> bool:
        """Whether a signal has stopped the process, so that its silence is not the job's fault."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def starved(self, seconds: float) -> bool:
        """Whether the job under way got less than half of the time that it was given: the machine is busy.

        A user's own reward may wait for something else than a processor, so it is never starved.
        """
        if self._patient:
            return False
        try:
            used = _cpu_seconds(self.process.pid) - self._cpu
        except OSError:
            return False
        return used < seconds / 2

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.sock.close()


def _cpu_seconds(pid: int) -> float:
    """Processor time that a process has used.

    Raises:
        OSError: the system does not tell.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

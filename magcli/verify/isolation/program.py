"""One untrusted program and its runs: limits in, outcome out."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from magcli.verify.isolation.launch import Box, Isolation, Runner, memory_file, start
from magcli.verify.isolation.runner import IDLE, REPLY, REQUEST

Status = Literal["exited", "signalled", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "lost"]

STDERR_CAP = 64 << 10
SPARE_SPACE = 1 << 30
"""Bytes of address space beyond the memory limit: stacks of threads and tables that are never touched cost nothing."""
GRACE = 20.0
"""Seconds that the runner may be late with its answer on a busy machine before it is given up."""
LONGEST = 1 / IDLE
"""How much longer than its CPU time a run can take without counting as asleep."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of a program may use.

    ``cpu`` is in seconds of CPU time, of all threads together; ``memory`` in bytes of peak resident memory; ``output``
    in bytes of stdout, and of stderr and the report each; ``processes`` counts threads, since a program cannot start
    processes. An allocation that would take the address space beyond ``memory`` and a gibibyte is refused, which a
    program sees as ``MemoryError`` or ``std::bad_alloc``.
    """

    cpu: float = 4.0
    memory: int = 300 << 20
    output: int = 16 << 20
    processes: int = 16

    @property
    def wall(self) -> float:
        """Seconds after which a run that sleeps is ended; one that others keep waiting has twenty times ``cpu``."""
        return 2 * self.cpu + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one run; never what it means.

    ``code`` is the exit code, or the number of the signal that ended it. ``stderr`` holds at most 64 KiB, ``report``
    what was written to descriptor 3. ``cpu`` and ``wall`` are seconds, ``memory`` is the peak in bytes (at least that
    of the runner, 10 MB). ``lost`` means that our own machinery failed or that somebody
    else killed or stopped the program (it cannot do that to itself); ``stderr`` says how.
    """

    status: Status
    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    report: bytes = b""
    cpu: float = 0.0
    wall: float = 0.0
    memory: int = 0


@dataclass(slots=True)
class Program:
    """One program in a sandbox of its own, run any number of times; a context manager for one thread.

    A runner that is lost is replaced at the next run.
    """

    isolation: Isolation
    box: Box
    _runner: Runner | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, stdin: bytes, limits: Limits = Limits()) -> Outcome:
        """Run the program once, as a new process that shares nothing with the run before."""
        return self._run(stdin, limits, None)

    def make(self, limits: Limits, into: Path) -> Outcome:
        """``run`` for a compiler: where it succeeds, its product is copied to ``into``, readable and executable.

        Its first process sleeps while others work for it, so the wall clock holds for it on a busy machine too.
        """
        return self._run(b"", limits, into)

    def _run(self, stdin: bytes, limits: Limits, into: Path | None) -> Outcome:
        with ExitStack() as stack:
            try:
                written = [_open(memory_file(name, b""), stack) for name in ("stdout", "stderr", "report")]
                reply, made = self._ask([_open(_read_only(stdin), stack), *written], limits)
            except (OSError, EOFError) as error:
                return Outcome("lost", stderr=self._lost(error))
            for file in made:
                _open(file, stack)
            outcome = _outcome(reply, written, limits)
            if outcome.status == "lost":
                self._stop()
            if into is None or outcome.status != "exited" or outcome.code != 0:
                return outcome
            return _keep(made, into, outcome)

    def _ask(self, files: list[int], limits: Limits) -> tuple[bytes, list[int]]:
        """Have the runner run it: the reply, and what a compiler made, open to read."""
        if self._runner is None:
            self._runner = start(self.isolation, self.box)
        control = self._runner.control
        control.settimeout(max(limits.wall, limits.cpu * LONGEST) + GRACE)
        space = limits.memory + SPARE_SPACE
        request = REQUEST.pack(limits.cpu, limits.wall, space, limits.output + 1, limits.processes)
        socket.send_fds(control, [request], files, socket.MSG_NOSIGNAL)
        reply, made, _, _ = socket.recv_fds(control, 1 << 12, 1)
        if not reply:
            raise EOFError("the runner ended")
        return reply, made

    def _lost(self, error: Exception) -> bytes:
        """Give the runner up; the last that it said."""
        said = _content(self._runner.errors, STDERR_CAP) if self._runner else b""
        self._stop()
        return said or f"{type(error).__name__}: {error}".encode()

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            self._runner = None


def _open(file: int, stack: ExitStack) -> int:
    """An open file that is closed with ``stack``."""
    stack.callback(os.close, file)
    return file


def _read_only(content: bytes) -> int:
    """A file in memory that cannot be written through the descriptor."""
    file = memory_file("stdin", content)
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(file)


def _content(file: int, most: int) -> bytes:
    return os.pread(file, most, 0)


def _outcome(reply: bytes, written: list[int], limits: Limits) -> Outcome:
    late, status, cpu, wall, memory = REPLY.unpack_from(reply)
    trouble = reply[REPLY.size :]
    if trouble:
        return Outcome("lost", stderr=trouble)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    output = max(os.fstat(file).st_size for file in written)
    found = _broken(output, memory, cpu, bool(late), limits) or ("signalled" if ended_by else "exited")
    if found == "signalled" and ended_by == signal.SIGKILL:
        return Outcome("lost", stderr=b"it was killed from outside")
    return Outcome(
        found,
        ended_by or os.WEXITSTATUS(status),
        _content(written[0], limits.output),
        _content(written[1], STDERR_CAP),
        _content(written[2], limits.output),
        cpu,
        wall,
        memory,
    )


def _broken(output: int, memory: int, cpu: float, late: bool, limits: Limits) -> Status | None:
    """The limit that was broken, by what was measured."""
    if output > limits.output:
        return "output-limit"
    if memory > limits.memory:
        return "memory-limit"
    if cpu > limits.cpu:
        return "cpu-limit"
    return "wall-limit" if late else None


def _keep(made: list[int], into: Path, outcome: Outcome) -> Outcome:
    """Copy a product to where it is wanted; without one, the compiler's success is none."""
    if not made or not stat.S_ISREG(os.fstat(made[0]).st_mode):
        return replace(outcome, code=1, stderr=outcome.stderr + b"\nnothing was made\n")
    with (
        tempfile.NamedTemporaryFile(dir=into.parent, delete=False) as copy,
        open(made[0], "rb", closefd=False) as product,
    ):
        shutil.copyfileobj(product, copy, 1 << 20)
    os.chmod(copy.name, 0o755)
    os.replace(copy.name, into)
    return outcome

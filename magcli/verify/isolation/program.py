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
from magcli.verify.isolation.runner import LATE, REPLY, REQUEST, STREAMS, WAITED

Status = Literal["exited", "signalled", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "lost"]

STDERR_CAP = 64 << 10
SPARE_SPACE = 1 << 30
"""Bytes of address space beyond the memory limit: stacks of threads and tables that are never touched cost nothing."""
GRACE = 20.0
"""Seconds that the runner may be late with its answer on a busy machine before it is given up."""
LONGEST = 20
"""How many times its CPU limit a run may take on a machine that keeps it waiting for a processor."""


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
        """Seconds after which a run is ended, without those in which others kept it from a processor.

        A run takes no longer where a processor is free for it. These seconds are the kernel's, of the thread that
        waited most; a kernel that does not count them (no ``/proc/PID/schedstat``) gives none.
        """
        return 2 * self.cpu + 1

    @property
    def longest(self) -> float:
        """Seconds after which a run is ended in any case."""
        return LONGEST * self.cpu + 1


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
    _named: list[int] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, stdin: bytes, limits: Limits = Limits()) -> Outcome:
        """Run the program once, as a new process that shares nothing with the run before."""
        return self._run(stdin, limits, None)

    def make(self, limits: Limits, into: Path) -> Outcome:
        """``run`` for a compiler: where it succeeds, its product is copied to ``into``, readable and executable.

        Its first process sleeps while others work for it, so what bounds all of them together is the wall clock.
        """
        return self._run(b"", limits, into)

    def _run(self, stdin: bytes, limits: Limits, into: Path | None) -> Outcome:
        with ExitStack() as stack:
            try:
                files = self._files(stdin, stack)
                written = files[1:]
                reply, made = self._ask(files, limits)
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

    def _files(self, stdin: bytes, stack: ExitStack) -> list[int]:
        """A run's stdin, stdout, stderr and report, the first three with names where the sandbox has names for them.

        What is written goes to the end, also where the program has opened its stdout once more by its name.
        """
        if self._runner is None:
            self._runner = start(self.isolation, self.box)
            self._named = _named(self._runner) if self._runner.named else []
        report, *made = [_open(memory_file("file", b""), stack) for _ in range(4 - len(self._named))]
        streams = self._named or made
        for file in self._named:
            os.ftruncate(file, 0)
        _fill(streams[0], stdin)
        flags = (os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_APPEND)
        opened = [_open(_again(file, flag), stack) for file, flag in zip(streams, flags, strict=True)]
        return [*opened, report]

    def _ask(self, files: list[int], limits: Limits) -> tuple[bytes, list[int]]:
        """Have the runner run it: the reply, and what a compiler made, open to read."""
        assert self._runner is not None
        control = self._runner.control
        control.settimeout(limits.longest + GRACE)
        times = (limits.cpu, limits.wall, limits.longest)
        request = REQUEST.pack(*times, limits.memory + SPARE_SPACE, limits.output + 1, limits.processes)
        socket.send_fds(control, [request], files, socket.MSG_NOSIGNAL)
        while True:
            reply, made, _, _ = socket.recv_fds(control, 1 << 12, 1)
            if not reply:
                raise EOFError("the runner ended")
            if reply != LATE:
                return reply, made
            with os.fdopen(made[0]) as process:
                control.send(WAITED.pack(kept_waiting(process.fileno())), socket.MSG_NOSIGNAL)

    def _lost(self, error: Exception) -> bytes:
        """Give the runner up; the last that it said."""
        said = _content(self._runner.errors, STDERR_CAP) if self._runner else b""
        self._stop()
        return said or f"{type(error).__name__}: {error}".encode()

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            self._runner, self._named = None, []


def _open(file: int, stack: ExitStack) -> int:
    """An open file that is closed with ``stack``."""
    stack.callback(os.close, file)
    return file


def _named(runner: Runner) -> list[int]:
    """The files that have names inside, which the runner sends when it is ready."""
    runner.control.settimeout(GRACE)
    message, files, _, _ = socket.recv_fds(runner.control, 1 << 12, len(STREAMS))
    for file in files:
        runner.undo.callback(os.close, file)
    if not message:
        raise EOFError("the runner did not start")
    return files


def _fill(file: int, content: bytes) -> None:
    """Write an empty file."""
    view, at = memoryview(content), 0
    while at < len(view):
        at += os.pwrite(file, view[at:], at)


def _again(file: int, flags: int) -> int:
    """The same file opened once more, with a place and rights of its own."""
    return os.open(f"/proc/self/fd/{file}", flags | os.O_CLOEXEC)


def kept_waiting(process: int) -> float:
    """Seconds that a process or a child of it was ready to run and had no processor: of the thread with most of them.

    0 where the kernel does not say.
    """
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{process}").read_text().splitlines())
    waiting, most = [fields["Pid"].strip()], 0
    while waiting:
        for task in Path("/proc", waiting.pop(), "task").glob("*"):
            try:
                most = max(most, int((task / "schedstat").read_text().split()[1]))
                waiting += (task / "children").read_text().split()
            except (OSError, IndexError):
                continue
    return most / 1e9


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

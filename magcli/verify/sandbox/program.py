"""One untrusted program and its runs: limits in, outcome out."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from magcli.errors import EnvironmentFault
from magcli.run.limits import exhausted, exhausted_by
from magcli.verify.sandbox.launch import Isolation, ProgramSpec, Runner, memory_file, start, write_all
from magcli.verify.sandbox.runner import LATE, REPLY, REQUEST, STREAMS, WAITED

Status = Literal["exited", "signalled", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "lost"]

STDERR_CAP = 64 << 10
MAX_DETAIL = 160
"""Characters of a line of output in messages."""
ADDRESS_SPACE_MARGIN = 1 << 30
"""Bytes of address space beyond the memory limit, for thread stacks and tables that are never touched."""
RUNNER_GRACE = 20.0
"""Seconds that the runner's reply may be late on a busy machine."""
MAX_WALL_FACTOR = 20
"""Maximum wall time of a run that waits for a CPU, as a multiple of its CPU limit."""


START_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to start a sandbox while descriptors or processes are exhausted."""


class CannotStart(EnvironmentFault):
    """This machine has no descriptor or process left for a sandbox."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run of a program.

    ``cpu``: seconds of CPU time of all threads; ``memory``: bytes of peak resident memory; ``output``: bytes of stdout,
    and of stderr and the report each; ``processes``: threads, since a program cannot start processes. An allocation
    beyond ``memory`` plus 1 GiB of address space fails (``MemoryError``, ``std::bad_alloc``).
    """

    cpu: float = 4.0
    memory: int = 300 << 20
    output: int = 16 << 20
    processes: int = 16

    @property
    def wall(self) -> float:
        """Wall seconds of a run, not counting those in which it waited for a CPU.

        Waiting time is that of the thread that waited longest, by the kernel; 0 without ``/proc/PID/schedstat``.
        """
        return 2 * self.cpu + 1

    @property
    def max_wall(self) -> float:
        """Wall seconds of a run in any case."""
        return MAX_WALL_FACTOR * self.cpu + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in one run, without interpretation.

    ``code`` is the exit code or signal number; ``stderr`` at most 64 KiB; ``report`` what was written to descriptor 3;
    ``cpu`` and ``wall`` seconds; ``memory`` the peak in bytes (at least the runner's 10 MB). ``lost``: the sandbox
    failed, or somebody else killed or stopped the program (which cannot do that to itself); ``stderr`` says how.
    """

    status: Status
    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    report: bytes = b""
    cpu: float = 0.0
    wall: float = 0.0
    memory: int = 0


def last_line(output: bytes) -> str:
    """The last non-empty line, truncated and printable."""
    return printable(output[-4096:].rstrip().rpartition(b"\n")[2])


def printable(line: bytes) -> str:
    """A line of output for a table: decoded, truncated, without control characters."""
    text = line[: 4 * MAX_DETAIL].decode(errors="replace").strip()[:MAX_DETAIL]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


@dataclass(slots=True)
class Program:
    """One program in its own sandbox, run any number of times; a context manager for one thread.

    A lost runner is replaced at the next run.
    """

    isolation: Isolation
    spec: ProgramSpec
    _runner: Runner | None = field(default=None, init=False)
    _streams: list[int] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, stdin: bytes, limits: Limits = Limits()) -> Outcome:
        """Run the program once, in a new process that shares nothing with previous runs.

        Raises EnvironmentFault if this machine has no descriptor or process left for it.
        """
        return self._run(stdin, limits, None)

    def make(self, limits: Limits, into: Path) -> Outcome:
        """``run`` for a compiler: on success its product is copied to ``into``, readable and executable.

        Its first process sleeps while its children work, so only the wall clock bounds all of them together.
        """
        return self._run(b"", limits, into)

    def _run(self, stdin: bytes, limits: Limits, into: Path | None) -> Outcome:
        """One run; if descriptors or processes ran out, another attempt, since others may end meanwhile."""
        for pause in START_PAUSES:
            with suppress(CannotStart):
                return self._run_once(stdin, limits, into)
            time.sleep(pause)
        return self._run_once(stdin, limits, into)

    def _run_once(self, stdin: bytes, limits: Limits, into: Path | None) -> Outcome:
        with ExitStack() as stack:
            try:
                files = self._files(stdin, stack)
                written = files[1:]
                reply, made = self._ask(files, limits)
            except (OSError, EOFError) as error:
                said = self._lost(error)
                if fault := exhausted(error) or exhausted_by(said):
                    raise CannotStart(f"a program's sandbox cannot be started: {fault}") from error
                return Outcome("lost", stderr=said)
            for file in made:
                _closing(file, stack)
            outcome = _outcome(reply, written, limits)
            if outcome.status == "lost":
                self._stop()
            if into is None or outcome.status != "exited" or outcome.code != 0:
                return outcome
            return _save_product(made, into, outcome)

    def _files(self, stdin: bytes, stack: ExitStack) -> list[int]:
        """A run's stdin, stdout, stderr and report; the first three are the sandbox's named files if it has them.

        Output is appended, even if the program opens ``/dev/stdout`` again.
        """
        if self._runner is None:
            self._runner = start(self.isolation, self.spec)
            self._streams = _stream_files(self._runner) if self._runner.sends_streams else []
        report, *made = [_closing(memory_file("file", b""), stack) for _ in range(4 - len(self._streams))]
        streams = self._streams or made
        for file in self._streams:
            os.ftruncate(file, 0)
        write_all(streams[0], stdin)
        flags = (os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_APPEND)
        opened = [_closing(_reopen(file, flag), stack) for file, flag in zip(streams, flags, strict=True)]
        return [*opened, report]

    def _ask(self, files: list[int], limits: Limits) -> tuple[bytes, list[int]]:
        """Have the runner run the program: its reply, and a compiler's output file, open for reading."""
        assert self._runner is not None
        control = self._runner.control
        control.settimeout(limits.max_wall + RUNNER_GRACE)
        times = (limits.cpu, limits.wall, limits.max_wall)
        request = REQUEST.pack(*times, limits.memory + ADDRESS_SPACE_MARGIN, limits.output + 1, limits.processes)
        socket.send_fds(control, [request], files, socket.MSG_NOSIGNAL)
        while True:
            reply, made = _receive(control, 1)
            if not reply:
                raise EOFError("the runner ended")
            if reply != LATE:
                return reply, made
            with os.fdopen(made[0]) as process:
                control.send(WAITED.pack(time_waiting(process.fileno())), socket.MSG_NOSIGNAL)

    def _lost(self, error: Exception) -> bytes:
        """Stop the runner; returns its last error message."""
        said = _content(self._runner.errors, STDERR_CAP) if self._runner else b""
        self._stop()
        return said or f"{type(error).__name__}: {error}".encode()

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            self._runner, self._streams = None, []


def _receive(control: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and its open files; raises OSError if this process may not open as many."""
    message, files, flags, _ = socket.recv_fds(control, 1 << 12, most)
    if flags & socket.MSG_CTRUNC:
        for file in files:
            os.close(file)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return message, files


def _closing(file: int, stack: ExitStack) -> int:
    """An open file that is closed with ``stack``."""
    stack.callback(os.close, file)
    return file


def _stream_files(runner: Runner) -> list[int]:
    """The named stdin, stdout and stderr that the runner sends when it is ready."""
    runner.control.settimeout(RUNNER_GRACE)
    message, files = _receive(runner.control, len(STREAMS))
    for file in files:
        runner.cleanup.callback(os.close, file)
    if not message:
        raise EOFError("the runner did not start")
    return files


def _reopen(file: int, flags: int) -> int:
    """Open a file again, with its own offset and access mode."""
    return os.open(f"/proc/self/fd/{file}", flags | os.O_CLOEXEC)


def time_waiting(process: int) -> float:
    """Seconds that the longest-waiting thread of a process or its children was runnable without a CPU; 0 if unknown."""
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
    found = _exceeded_limit(output, memory, cpu, bool(late), limits) or ("signalled" if ended_by else "exited")
    if found == "signalled" and ended_by == signal.SIGKILL:
        return Outcome("lost", stderr=b"the program was killed from outside")
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


def _exceeded_limit(output: int, memory: int, cpu: float, late: bool, limits: Limits) -> Status | None:
    """The limit that the measurements exceed."""
    if output > limits.output:
        return "output-limit"
    if memory > limits.memory:
        return "memory-limit"
    if cpu > limits.cpu:
        return "cpu-limit"
    return "wall-limit" if late else None


def _save_product(made: list[int], into: Path, outcome: Outcome) -> Outcome:
    """Copy a compiler's product to ``into``; without one, the outcome is a failure."""
    if not made or not stat.S_ISREG(os.fstat(made[0]).st_mode):
        return replace(outcome, code=1, stderr=outcome.stderr + b"\nno output file\n")
    with (
        tempfile.NamedTemporaryFile(dir=into.parent, delete=False) as copy,
        open(made[0], "rb", closefd=False) as product,
    ):
        shutil.copyfileobj(product, copy, 1 << 20)
    os.chmod(copy.name, 0o755)
    os.replace(copy.name, into)
    return outcome

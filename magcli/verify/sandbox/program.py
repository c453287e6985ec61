"""One untrusted program and its runs: limits in, outcome out."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeVar

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


T = TypeVar("T")

START_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to start a sandbox while descriptors or processes are exhausted."""


class CannotStart(EnvironmentFault):
    """This machine has no descriptor or process left for a sandbox."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run of a program.

    ``cpu``: seconds of CPU time of all threads; ``memory``: bytes of peak resident memory; ``output``: bytes of stdout,
    and of stderr and the report each; ``processes``: threads, since a program cannot start processes. An allocation
    beyond ``memory`` plus 1 GiB of address space fails (``MemoryError``, ``std::bad_alloc``). ``waits``: it waits for
    another program, which has a clock of its own, so that only ``max_wall`` ends it.
    """

    cpu: float = 4.0
    memory: int = 300 << 20
    output: int = 16 << 20
    processes: int = 16
    waits: bool = field(default=False, repr=False)  # the others' text is part of stored digests

    @property
    def wall(self) -> float:
        """Wall seconds of a run, not counting those in which it waited for a CPU.

        Waiting time is that of the thread that waited longest, by the kernel; 0 without ``/proc/PID/schedstat``.
        """
        return self.max_wall if self.waits else 2 * self.cpu + 1

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


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that has been started: its open files, those that the program writes, and its limits."""

    stack: ExitStack
    written: list[int]
    limits: Limits


Answer = tuple[bytes, list[int]] | Exception
"""A runner's reply with a compiler's output file, open for reading; or why there is none."""


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

    def run(self, stdin: bytes, limits: Limits = Limits(), into: Path | None = None) -> Outcome:
        """Run the program once, in a new process that shares nothing with previous runs.

        The product of a compiler is on success copied to ``into``, readable and executable. Its first process sleeps
        while its children work, so only the wall clock bounds all of them together.

        Raises EnvironmentFault if this machine has no descriptor or process left for it.
        """

        def attempt() -> Outcome:
            started = self.begin(stdin, limits)
            return started if isinstance(started, Outcome) else self.finish(started, into)

        return attempt_often(attempt)

    def begin(self, stdin: bytes, limits: Limits, channel: int | None = None) -> StartedRun | Outcome:
        """Start a run without waiting for it; an outcome if the runner is lost.

        ``channel`` becomes the program's descriptor 4, the end of a socket to another program.

        Raises CannotStart if this machine has no descriptor or process left for it.
        """
        stack = ExitStack()
        # The stack closes the run's files here; the runner gets copies of them.
        try:
            files = self._files(stdin, stack)
            self._request(files if channel is None else [*files, channel], limits)
            return StartedRun(stack, files[1:], limits)
        except (OSError, EOFError) as error:
            stack.close()
            return self._lost(error)

    def finish(self, started: StartedRun, into: Path | None = None) -> Outcome:
        """The outcome of a run, after waiting for it."""
        answer: Answer | None = None
        while answer is None:
            answer = self.next_answer()
        return self.outcome(started, answer, into)

    def outcome(self, started: StartedRun, answer: Answer, into: Path | None = None) -> Outcome:
        """The outcome of a run by the runner's answer; closes the run's files."""
        with started.stack as stack:
            if isinstance(answer, Exception):
                return self._lost(answer)
            reply, made = answer
            for file in made:
                _closing(file, stack)
            outcome = _outcome(reply, started.written, started.limits)
            # What is left in its sandbox is not known then.
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
        report = _closing(memory_file("file", b""), stack)
        if self._streams:
            streams = self._streams
            # The sandbox's named files are there for all runs, so they are emptied.
            for file in streams:
                os.ftruncate(file, 0)
        else:
            streams = [_closing(memory_file("file", b""), stack) for _ in range(3)]
        write_all(streams[0], stdin)
        # Opened again, so that each run starts at offset 0 and cannot write its stdin.
        flags = (os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_APPEND)
        opened = [_closing(_reopen(file, flag), stack) for file, flag in zip(streams, flags, strict=True)]
        return [*opened, report]

    def _request(self, files: list[int], limits: Limits) -> None:
        """Have the runner start the program."""
        assert self._runner is not None
        control = self._runner.control
        control.settimeout(limits.max_wall + RUNNER_GRACE)
        times = (limits.cpu, limits.wall, limits.max_wall)
        # One byte more than allowed, to see whether a program wrote more.
        request = REQUEST.pack(*times, limits.memory + ADDRESS_SPACE_MARGIN, limits.output + 1, limits.processes)
        socket.send_fds(control, [request], files, socket.MSG_NOSIGNAL)

    def next_answer(self) -> Answer | None:
        """The runner's reply, or why there is none; None if it only asked how long the program waited for a CPU."""
        assert self._runner is not None
        control = self._runner.control
        try:
            # With the reply comes a compiler's product, with ``LATE`` the process that is late.
            reply, made = _receive(control, 1)
            if reply != LATE:
                return (reply, made) if reply else EOFError("the runner ended")
            with os.fdopen(made[0]) as process:
                control.send(WAITED.pack(time_waiting(process.fileno())), socket.MSG_NOSIGNAL)
        except OSError as error:
            return error
        return None

    def abandon(self, started: StartedRun) -> None:
        """End a run without an outcome, and the runner."""
        started.stack.close()
        self._stop()

    def control_file(self) -> int:
        """The descriptor on which the runner's answers arrive."""
        assert self._runner is not None
        return self._runner.control.fileno()

    def _lost(self, error: Exception) -> Outcome:
        """Stop the runner; the outcome has its last error message.

        Raises CannotStart if this machine has no descriptor or process left for it.
        """
        # Read before it is closed with the runner.
        said = os.pread(self._runner.errors, STDERR_CAP, 0) if self._runner else b""
        self._stop()
        said = said or f"{type(error).__name__}: {error}".encode()
        if fault := exhausted(error) or exhausted_by(said):
            raise CannotStart(f"a program's sandbox cannot be started: {fault}") from error
        return Outcome("lost", stderr=said)

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            self._runner, self._streams = None, []


def attempt_often(attempt: Callable[[], T]) -> T:
    """What an attempt returns; if descriptors or processes ran out, of a later one, since others may end meanwhile.

    Raises CannotStart if the last attempt did.
    """
    for pause in START_PAUSES:
        with suppress(CannotStart):
            return attempt()
        time.sleep(pause)
    return attempt()


def finish_together(runs: Sequence[tuple[Program, StartedRun]]) -> list[Outcome]:
    """The outcomes of runs that talk to each other, in order, after waiting for all.

    Raises CannotStart as ``Program.run`` does; no run is left then.
    """
    outcomes: dict[int, Outcome] = {}
    try:
        _collect(runs, outcomes)
    except BaseException:
        for number, (program, started) in enumerate(runs):
            if number not in outcomes:
                program.abandon(started)
        raise
    return [outcomes[number] for number in range(len(runs))]


def _collect(runs: Sequence[tuple[Program, StartedRun]], outcomes: dict[int, Outcome]) -> None:
    """Put the outcome of each run into ``outcomes`` when it ends."""
    # By descriptor, the number of the run whose answer arrives there.
    waiting = {program.control_file(): number for number, (program, _) in enumerate(runs)}
    poll = select.poll()
    for file in waiting:
        poll.register(file, select.POLLIN)
    longest = max(started.limits.max_wall for _, started in runs) + RUNNER_GRACE
    while waiting:
        # If nothing arrives in time, each is asked in vain and is lost.
        ready = poll.poll(longest * 1000) or [(file, 0) for file in waiting]
        for file, _ in ready:
            program, started = runs[waiting[file]]
            answer = program.next_answer()
            if answer is not None:
                poll.unregister(file)
                outcomes[waiting.pop(file)] = program.outcome(started, answer)


def _receive(control: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and its open files; raises OSError if this process may not open as many."""
    message, files, flags, _ = socket.recv_fds(control, 1 << 12, most)
    # The kernel drops the files that this process may not open.
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
    # A pidfd says which process it is; ``most`` is in nanoseconds.
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{process}").read_text().splitlines())
    waiting, most = [fields["Pid"].strip()], 0
    while waiting:
        for task in Path("/proc", waiting.pop(), "task").glob("*"):
            try:
                # Time on a CPU, time waiting for one, and the number of time slices.
                most = max(most, int((task / "schedstat").read_text().split()[1]))
                waiting += (task / "children").read_text().split()
            except (OSError, IndexError):
                continue  # it has ended meanwhile, or the kernel does not say
    return most / 1e9


def _outcome(reply: bytes, written: list[int], limits: Limits) -> Outcome:
    late, wait_status, cpu, wall, memory = REPLY.unpack_from(reply)
    trouble = reply[REPLY.size :]
    if trouble:
        return Outcome("lost", stderr=trouble)
    ended_by = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else 0
    output = max(os.fstat(file).st_size for file in written)
    status = _exceeded_limit(output, memory, cpu, bool(late), limits) or ("signalled" if ended_by else "exited")
    # The filter lets no program kill itself so, and no limit was exceeded.
    if status == "signalled" and ended_by == signal.SIGKILL:
        return Outcome("lost", stderr=b"the program was killed from outside")
    return Outcome(
        status,
        ended_by or os.WEXITSTATUS(wait_status),
        os.pread(written[0], limits.output, 0),
        os.pread(written[1], STDERR_CAP, 0),
        os.pread(written[2], limits.output, 0),
        cpu,
        wall,
        memory,
    )


def _exceeded_limit(output: int, memory: int, cpu: float, late: bool, limits: Limits) -> Status | None:
    """The limit that the measurements exceed."""
    # In this order: a program that fills its output or memory may use up its time, too.
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
    # Complete or not at all, as others may look for it.
    with (
        tempfile.NamedTemporaryFile(dir=into.parent, delete=False) as copy,
        open(made[0], "rb", closefd=False) as product,
    ):
        shutil.copyfileobj(product, copy, 1 << 20)
    os.chmod(copy.name, 0o755)
    os.replace(copy.name, into)
    return outcome

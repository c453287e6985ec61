"""Grading in processes that can be killed: a deadline that holds whatever the text does.

Each thread of the pool owns a worker process (``WorkerProcess``) and hands it small batches of jobs over a socket;
every job is answered on its own, so the clock of a job starts when the one before it is answered. A worker that
overruns is killed and replaced (``timeout``); where the machine was too busy to give it half of its time, the job has
one more chance. A worker that dies or is stopped from outside is replaced too, and its job tried again, five times in
all (``infra-error``). Jobs that had not started are simply queued again. One more worker is kept warm, so that a
replacement costs nothing.
"""

import asyncio
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magcli.errors import EnvironmentFault, MagError
from magcli.run import orphan
from magcli.verify.reward import Reward, RewardRule, raised, undecided
from magcli.verify.worker import LOADING, READY, grade, grader_of, receive, send

START_SECONDS = 120.0
LISTEN_SECONDS = 10.0
"""How long a worker may take to read what it is sent; it has nothing else to do then."""
LOOK_SECONDS = 0.5
"""How often a silent worker is looked at."""


class Lost(Exception):
    """The worker died or was stopped, which is not the fault of its job."""


class WorkerProcess:
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
        """The worker's answer to the next job of the batch. The clock restarts after a tool has been loaded for it.

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
        OSError: the system does not say.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


MAX_BATCH = 64
MAX_ATTEMPTS = 5
MAX_STARTS = 3
SPARE_AFTER = 1.0
"""Seconds after the first verdict at which a spare worker is started: short work needs none."""
_KEYS = ("id", "kind", "prompt", "answer")

Job = tuple[str, int, Mapping[str, Any], RewardRule]
"""Arguments of ``reward``: completion, its length in tokens, problem row, rule."""


@dataclass(slots=True)
class _Ticket:
    """A job on its way, and how often a worker was lost on it."""

    job: Job
    future: "Future[Reward]" = field(default_factory=Future)
    attempts: int = 0


class Pool:
    """Worker processes that grade. Use it from asyncio (``await reward``) or from threads (``rewards``).

    Args:
        workers: Number of processes, without the spare; 0 grades in the calling thread, without deadline, for tests.
        deadline: Seconds of wall time for one job once a worker has started on it.
        memory: Address space of a worker in bytes; a user's own reward has no bound.
        function: A user's own reward, as ``magcli.verify.custom`` names it; empty for that of the recipe.
    """

    def __init__(self, workers: int = 1, *, deadline: float = 2.0, memory: int = 2 << 30, function: str = "") -> None:
        self._deadline = deadline
        self._memory = 0 if function else memory
        self._function = function
        self._waiting: deque[_Ticket] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._live: set[WorkerProcess] = set()
        self._spare: WorkerProcess | None = None
        self._begun = threading.Event()
        self._threads = [threading.Thread(target=self._serve, name=f"verify-{i}", daemon=True) for i in range(workers)]
        self._keeper = threading.Thread(target=self._keep_spare, name="verify-spare", daemon=True)
        for thread in (*self._threads, self._keeper):
            thread.start()

    async def reward(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        """Grade one completion; see ``magcli.verify.reward.reward``.

        Raises:
            DataError: the problem is of a kind that cannot be graded.
            EnvironmentFault: workers do not start.
        """
        return await asyncio.wrap_future(self.submit([(text, num_tokens, row, rule)])[0])

    def rewards(self, jobs: Sequence[Job]) -> list[Reward]:
        """Grade many completions, in order; waits for all. Raises as ``reward`` does."""
        return [future.result() for future in self.submit(jobs)]

    async def close(self) -> None:
        """Kill the workers and wait until they are gone; jobs under way fail with EnvironmentFault."""
        await asyncio.to_thread(self.shutdown)

    def shutdown(self) -> None:
        """``close`` for callers without an event loop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._begun.set()
            for worker in self._live:
                worker.process.kill()
        for thread in (*self._threads, self._keeper):
            thread.join()

    def submit(self, jobs: Sequence[Job]) -> "list[Future[Reward]]":
        """Queue completions; the rewards come when they are there."""
        tickets = [_Ticket((text, tokens, self._needed(row), rule)) for text, tokens, row, rule in jobs]
        if not self._threads:
            grader = grader_of(self._function)
            for ticket in tickets:
                _settle(ticket, grade(ticket.job, grader))
        else:
            self._queue(tickets)
        return [ticket.future for ticket in tickets]

    def _needed(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the workers are sent of a row: a user's own reward may look at all of it."""
        return row if self._function else {key: row[key] for key in _KEYS if key in row}

    def _queue(self, tickets: Sequence[_Ticket], *, first: bool = False) -> None:
        """Put tickets in line, or back at its head."""
        with self._changed:
            if self._closed:
                return _fail(tickets, _closed())
            if first:
                self._waiting.extendleft(reversed(tickets))
            else:
                self._waiting.extend(tickets)
            self._changed.notify_all()

    def _next(self) -> list[_Ticket]:
        """The next batch, a fair share of what waits; empty when the pool closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                _fail(self._waiting, _closed())
                self._waiting.clear()
            share = -(-len(self._waiting) // len(self._threads))
            return [self._waiting.popleft() for _ in range(min(share, MAX_BATCH))]

    def _serve(self) -> None:
        """Main loop of a thread: own one worker and feed it."""
        worker: WorkerProcess | None = None
        while batch := self._next():
            try:
                worker = self._working(worker)
            except MagError as error:
                _fail(batch, error)
                continue
            rest = self._feed(worker, batch)
            if rest is not None:
                self._retire(worker)
                worker = None
                self._queue(rest, first=True)
        if worker:
            self._retire(worker)

    def _feed(self, worker: WorkerProcess, batch: list[_Ticket]) -> list[_Ticket] | None:
        """Have a batch graded. None when all is well, else what must be queued again, the worker being lost."""
        done = 0
        try:
            worker.send([ticket.job for ticket in batch])
            for ticket in batch:
                _settle(ticket, worker.answer(self._deadline))
                done += 1
                self._begun.set()
        except TimeoutError:
            if batch[done].attempts or not worker.starved(self._deadline):
                _settle(batch[done], undecided("timeout", f"over {self._deadline:g} s"))
                return batch[done + 1 :]
        except Lost:
            pass
        except (
            Exception
        ) as error:  # such as a row that cannot be sent: it must end no thread and leave no caller waiting
            for ticket in batch[done:]:
                _settle(ticket, undecided("infra-error", raised(error)))
            return []
        else:
            return None
        return [*_tried(batch[done]), *batch[done + 1 :]]

    def _working(self, worker: WorkerProcess | None) -> WorkerProcess:
        """This worker if it still runs, else the spare one, else a new one.

        Raises:
            EnvironmentFault: none starts.
        """
        if worker is None:
            with self._changed:
                worker, self._spare = self._spare, None
                self._changed.notify_all()
        if worker is not None and worker.usable():
            return worker
        if worker is not None:
            self._retire(worker)
            return self._working(None)
        return self._start()

    def _keep_spare(self) -> None:
        """Main loop of the spare's thread: keep one worker ready once there has been work."""
        self._begun.wait()
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout=SPARE_AFTER)
        while not self._closed:
            try:
                spare = self._start(warm=True)
            except MagError:
                break
            with self._changed:
                self._spare = spare
                self._changed.wait_for(lambda: self._spare is None or self._closed)
        if self._spare is not None:
            self._retire(self._spare)

    def _start(self, *, warm: bool = False) -> WorkerProcess:
        """A worker that has said it is ready.

        Raises:
            EnvironmentFault: several gave up, or all were lost for too long.
        """
        failed, begun = 0, time.monotonic()
        while failed < MAX_STARTS and time.monotonic() - begun < START_SECONDS:
            with self._changed:
                if self._closed:
                    raise _closed()
                worker = WorkerProcess(self._memory, self._function, warm=warm)
                self._live.add(worker)
            if worker.ready():
                return worker
            failed += worker.gave_up()
            self._retire(worker)
        raise EnvironmentFault("verify: grading workers do not start; their own error is above")

    def _retire(self, worker: WorkerProcess) -> None:
        worker.kill()
        with self._changed:
            self._live.discard(worker)


def _settle(ticket: _Ticket, outcome: Reward | MagError) -> None:
    """Resolve the future, unless it was cancelled."""
    if not ticket.future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, MagError):
        ticket.future.set_exception(outcome)
    else:
        ticket.future.set_result(outcome)


def _closed() -> EnvironmentFault:
    return EnvironmentFault("verify: the pool was closed before this completion was graded")


def _fail(batch: Iterable[_Ticket], error: MagError) -> None:
    for ticket in batch:
        _settle(ticket, error)


def _tried(ticket: _Ticket) -> list[_Ticket]:
    """The ticket again, one attempt older; settled and gone after the last attempt."""
    ticket.attempts += 1
    if ticket.attempts < MAX_ATTEMPTS:
        return [ticket]
    _settle(ticket, undecided("infra-error", f"the worker was lost {MAX_ATTEMPTS} times"))
    return []

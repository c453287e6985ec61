"""Grading in worker processes that can be killed: a deadline that holds for any text.

Each thread of the pool owns a worker process and sends it small batches of jobs over a socket; jobs are answered one by
one, and the clock of a job starts when the one before is answered. A worker that exceeds the deadline is killed and
replaced (``timeout``); if the machine was too busy to give it half of that in CPU time, the job is retried once. A
worker that dies or is stopped from outside is replaced too, and its job retried, up to five attempts (``infra-error``).
Jobs that had not started are queued again. A custom reward that ends its worker is a ``reward-error``: at once if it
exits, the second time if it crashes. A spare worker is kept warm, so replacement is immediate.
"""

import contextlib
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

from magcli.errors import EnvironmentFault, MagError, first_line
from magcli.run import family, orphan
from magcli.run.limits import exhausted
from magcli.verify.environment import Ask, Message, Reply
from magcli.verify.reward import Reward, RewardRule, describe_error, ungraded
from magcli.verify.types import AnswerPair, Verdict
from magcli.verify.worker import LOADING, READY, grade, load_grader, receive, send

START_TIMEOUT = 120.0
SEND_TIMEOUT = 10.0
"""Seconds in which an idle worker must read a batch."""
POLL_SECONDS = 0.5
"""Interval at which a silent worker is checked."""
END_SECONDS = 1.0
"""Time from the end of a worker's socket to that of its process."""
CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP})
"""Signals by which compiled code ends its own process."""


class WorkerLost(Exception):
    """The worker died or was stopped, not because of its job."""


class WorkerProcess:
    """One worker process and the socket to it.

    Args:
        memory: Address space in bytes; 0 for no limit.
        function: A custom reward (see ``magcli.verify.custom``); empty for the recipe's.
        sandbox: If not empty, ``function`` is an environment, whose programs have this isolation.
        warm: Load all libraries before reporting ready.
    """

    def __init__(self, memory: int, function: str = "", sandbox: str = "", *, warm: bool = False) -> None:
        ours, theirs = socket.socketpair()
        self.sock = ours
        self._custom = bool(function)
        # In its environment, by which ``family`` finds what a custom reward started in other groups.
        self._mark = family.new_mark() if function else ""
        self._cpu = 0.0
        with theirs:
            self.process = subprocess.Popen(
                orphan.command("magcli.verify.worker", theirs.fileno(), memory, int(warm), function, sandbox),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={**os.environ, family.MARK: self._mark} if function else None,
            )

    def ready(self) -> bool:
        """Wait until the worker reports ready; False if it is lost before."""
        try:
            return bool(self._message(START_TIMEOUT) == READY)
        except (TimeoutError, WorkerLost):
            return False

    def send(self, jobs: Sequence[object]) -> None:
        """Send a batch; raises WorkerLost if the worker does not read it."""
        self.sock.settimeout(SEND_TIMEOUT)
        try:
            send(self.sock, list(jobs))
        except OSError:
            raise WorkerLost from None

    def answer(self, seconds: float) -> Any:
        """The worker's answer to the next job of the batch. The clock restarts after a library has been loaded for it.

        Raises:
            TimeoutError: no answer in time.
            WorkerLost: no answer, and not because of the job.
        """
        while (message := self._message(seconds)) == LOADING:
            # The message after loading has the CPU time until then, which the job is not charged for.
            try:
                self._cpu, _ = self._message(START_TIMEOUT)
            except TimeoutError:
                raise WorkerLost from None
        self._cpu, outcome = message
        return outcome

    def _message(self, seconds: float) -> Any:
        """The next message; checks the process while waiting. Raises as ``answer`` does."""
        end = time.monotonic() + seconds
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        # In short intervals: nothing arrives from a worker that is stopped.
        while not waiting.poll(1000 * max(0.0, min(POLL_SECONDS, end - time.monotonic()))):
            if self.stopped():
                raise WorkerLost
            if time.monotonic() >= end:
                raise TimeoutError
        # A frame that has begun arrives, unless the worker is lost in it.
        self.sock.settimeout(SEND_TIMEOUT)
        try:
            return receive(self.sock)
        except (OSError, EOFError):
            raise WorkerLost from None

    def alive(self) -> bool:
        """Whether the process runs and is not stopped."""
        return self.process.poll() is None and not self.stopped()

    def exited(self) -> bool:
        """Whether the process exited with an error, not by a signal."""
        return (self.process.poll() or 0) > 0  # negative: ended by a signal

    def end(self) -> int | None:
        """The exit status of a lost worker, or minus the signal that ended it; None if it still runs."""
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def stopped(self) -> bool:
        """Whether a signal has stopped the process, so that its silence is not because of the job."""
        try:
            # WNOWAIT leaves the status for ``Popen``.
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def starved(self, seconds: float) -> bool:
        """Whether the current job got less than half of ``seconds`` as CPU time on a busy machine.

        Never for a custom reward, which may wait for something other than a CPU.
        """
        if self._custom:
            return False
        try:
            used = _cpu_seconds(self.process.pid) - self._cpu
        except OSError:
            return False
        return used < seconds / 2

    def kill(self) -> None:
        """Kill the process, with all that a custom reward started in it, and wait for it."""
        # Once it is waited for, its id may be another process's.
        if self._custom and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.sock.close()
        if self._custom:
            family.end(self._mark)


def _cpu_seconds(pid: int) -> float:
    """CPU time that a process has used; raises OSError if unknown."""
    # Fields after the command's name, which may have blanks and brackets: 11 and 12 are utime and stime, in ticks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


MAX_BATCH = 64
MAX_ATTEMPTS = 5
MAX_STARTS = 3
SPARE_AFTER = 1.0
"""Seconds after the first verdict at which a spare worker is started; short work needs none."""
_KEYS = ("id", "kind", "prompt", "answer")

Job = tuple[str, int, Mapping[str, Any], RewardRule]
"""Arguments of ``reward``: completion, its length in tokens, problem row, rule."""

Question = tuple[Ask, Mapping[str, Any], Sequence[Message]]
"""To an environment: what is asked, problem row, conversation."""


@dataclass(slots=True)
class _QueuedJob:
    """A submitted job, its future reward or verdict, and how many workers were lost on it."""

    job: Job | AnswerPair | Question
    future: "Future[Any]" = field(default_factory=Future)
    attempts: int = 0


class Pool:
    """Worker processes that grade.

    Args:
        workers: Number of processes, without the spare; 0 grades in the calling thread, without deadline, for tests.
        deadline: Wall seconds of one job after a worker has started on it.
        memory: Address space of a worker in bytes; a custom reward has no limit.
        function: A custom reward (see ``magcli.verify.custom``); empty for the recipe's.
        sandbox: If not empty, ``function`` is an environment (``magcli.verify.environment``), which is asked for
            replies and rewards; its programs have this isolation.
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        deadline: float = 2.0,
        memory: int = 2 << 30,
        function: str = "",
        sandbox: str = "",
    ) -> None:
        self._deadline = deadline
        self._memory = 0 if function else memory
        self._function = function
        self._sandbox = sandbox
        self._waiting: deque[_QueuedJob] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._live: set[WorkerProcess] = set()
        self._spare: WorkerProcess | None = None
        self._first_verdict = threading.Event()
        self._threads = [threading.Thread(target=self._run, name=f"verify-{i}", daemon=True) for i in range(workers)]
        self._spare_thread = threading.Thread(target=self._run_spare, name="verify-spare", daemon=True)
        for thread in (*self._threads, self._spare_thread):
            thread.start()

    def rewards(self, jobs: Sequence[Job]) -> list[Reward]:
        """Grade completions, in order; waits for all. Raises DataError or EnvironmentFault as their futures do."""
        return [future.result() for future in self.submit(jobs)]

    def shutdown(self) -> None:
        """Kill the workers and wait for them; pending jobs fail with EnvironmentFault."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            # The spare's thread may wait for it.
            self._first_verdict.set()
            # Their threads notice that they are lost, and end.
            for worker in self._live:
                worker.process.kill()
        for thread in (*self._threads, self._spare_thread):
            thread.join()

    def submit(self, jobs: Sequence[Job]) -> "list[Future[Reward]]":
        """Queue completions; returns futures of their rewards.

        They fail with DataError if a problem is of a kind that cannot be graded, EnvironmentFault if no worker starts.
        """
        return self._start_jobs([(text, tokens, self._worker_row(row), rule) for text, tokens, row, rule in jobs])

    def ask(self, what: Ask, row: Mapping[str, Any], messages: Sequence[Message]) -> "Future[Reply | Reward]":
        """Queue a question to the environment; a failure of it is a reward with the reason.

        The future fails with EnvironmentFault if no worker starts.
        """
        return self._start_jobs([(what, row, messages)])[0]

    def equal(self, pair: AnswerPair) -> bool:
        """Whether two answers are equal; False if that cannot be said in time. Waits.

        Raises EnvironmentFault if no worker starts.
        """
        outcome: Verdict | Reward = self._start_jobs([pair])[0].result()
        return outcome.reason == "correct"

    def _start_jobs(self, jobs: Sequence[Job | AnswerPair | Question]) -> "list[Future[Any]]":
        """Queue jobs, or without workers grade them now; returns their futures."""
        queued_jobs = [_QueuedJob(job) for job in jobs]
        if not self._threads:
            grader = load_grader(self._function, self._sandbox)
            for queued in queued_jobs:
                _resolve(queued, grade(queued.job, grader))
        else:
            self._queue(queued_jobs)
        return [queued.future for queued in queued_jobs]

    def _worker_row(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The columns of a row that workers are sent; all of them for a custom reward."""
        return row if self._function else {key: row[key] for key in _KEYS if key in row}

    def _queue(self, queued_jobs: Sequence[_QueuedJob], *, first: bool = False) -> None:
        """Append jobs to the queue, or put them back at its head."""
        with self._changed:
            if self._closed:
                return _fail(queued_jobs, _closed())
            if first:
                self._waiting.extendleft(reversed(queued_jobs))
            else:
                self._waiting.extend(queued_jobs)
            self._changed.notify_all()

    def _next(self) -> list[_QueuedJob]:
        """The next batch, a fair share of the queue; empty when the pool closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                _fail(self._waiting, _closed())
                self._waiting.clear()
            # Rounded up, so that all threads together take the whole queue.
            share = -(-len(self._waiting) // len(self._threads))
            return [self._waiting.popleft() for _ in range(min(share, MAX_BATCH))]

    def _run(self) -> None:
        """Main loop of a thread: own one worker and send it batches."""
        worker: WorkerProcess | None = None
        while batch := self._next():
            try:
                worker = self._live_worker(worker)
            except MagError as error:
                _fail(batch, error)
                continue
            rest = self._grade_batch(worker, batch)
            if rest is not None:
                self._retire(worker)
                worker = None
                self._queue(rest, first=True)
        if worker:
            self._retire(worker)

    def _grade_batch(self, worker: WorkerProcess, batch: list[_QueuedJob]) -> list[_QueuedJob] | None:
        """Grade a batch. None on success, else the jobs to queue again because the worker is lost."""
        done = 0
        started = False
        try:
            worker.send([queued.job for queued in batch])
            started = True
            for queued in batch:
                _resolve(queued, worker.answer(self._deadline))
                done += 1
                self._first_verdict.set()
        # A job that has been tried before has had its chance.
        except TimeoutError:
            if batch[done].attempts or not worker.starved(self._deadline):
                _resolve(batch[done], ungraded("timeout", f"over {self._deadline:g} s"))
                return batch[done + 1 :]
        except WorkerLost:
            if started and (fault := self._own_fault(worker, batch[done])):
                _resolve(batch[done], ungraded("reward-error", fault))
                return batch[done + 1 :]
        # such as a row that cannot be pickled: the thread must survive and no caller wait forever
        except Exception as error:
            for queued in batch[done:]:
                _resolve(queued, ungraded("infra-error", describe_error(error)))
            return []
        else:
            return None
        return [*_retried(batch[done]), *batch[done + 1 :]]

    def _own_fault(self, worker: WorkerProcess, queued: _QueuedJob) -> str:
        """How a custom reward ended its worker; empty if something else did, or may have done."""
        end = worker.end() if self._function else None
        if end is None:
            return ""
        if end >= 0:
            return f"{self._function} ended its process with exit status {end}; it must return a reward instead"
        if -end in CRASHES and queued.attempts:
            return f"{self._function} crashed its process twice, by {signal.Signals(-end).name}"
        return ""

    def _live_worker(self, worker: WorkerProcess | None) -> WorkerProcess:
        """This worker if it is alive, else the spare one, else a new one; raises EnvironmentFault if none starts."""
        if worker is None:
            with self._changed:
                worker, self._spare = self._spare, None
                self._changed.notify_all()
        if worker is not None and worker.alive():
            return worker
        if worker is not None:
            self._retire(worker)
            return self._live_worker(None)
        return self._start()

    def _run_spare(self) -> None:
        """Main loop of the spare's thread: keep one worker ready after the first verdict."""
        self._first_verdict.wait()
        # Until SPARE_AFTER has passed, or the pool closes.
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
        """A worker that is ready; raises EnvironmentFault if none can be started, several fail, or none is in time."""
        failed = 0
        start_time = time.monotonic()
        while failed < MAX_STARTS and time.monotonic() - start_time < START_TIMEOUT:
            # Under the lock, so that ``shutdown`` sees the process and kills it.
            with self._changed:
                if self._closed:
                    raise _closed()
                worker = self._start_process(warm=warm)
                self._live.add(worker)
            if worker.ready():
                return worker
            # Not if it was killed, as when memory is short for a moment.
            failed += worker.exited()
            self._retire(worker)
        raise EnvironmentFault("verify: grading workers do not start; their own error is above")

    def _start_process(self, *, warm: bool) -> WorkerProcess:
        """A new worker, not yet ready; raises EnvironmentFault if this machine has no room for a process."""
        try:
            return WorkerProcess(self._memory, self._function, self._sandbox, warm=warm)
        except OSError as error:
            reason = exhausted(error) or first_line(error)
            raise EnvironmentFault(f"verify: a grading worker cannot be started: {reason}") from error

    def _retire(self, worker: WorkerProcess) -> None:
        worker.kill()
        with self._changed:
            self._live.discard(worker)


def _resolve(queued: _QueuedJob, outcome: Reward | Verdict | Reply | MagError) -> None:
    """Resolve the future, unless it was cancelled."""
    if not queued.future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, MagError):
        queued.future.set_exception(outcome)
    else:
        queued.future.set_result(outcome)


def _closed() -> EnvironmentFault:
    return EnvironmentFault("verify: the pool was closed before this completion was graded")


def _fail(batch: Iterable[_QueuedJob], error: MagError) -> None:
    for queued in batch:
        _resolve(queued, error)


def _retried(queued: _QueuedJob) -> list[_QueuedJob]:
    """The job with one more attempt counted; resolved and dropped after the last one."""
    queued.attempts += 1
    if queued.attempts < MAX_ATTEMPTS:
        return [queued]
    _resolve(queued, ungraded("infra-error", f"the worker was lost {MAX_ATTEMPTS} times"))
    return []

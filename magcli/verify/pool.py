"""Grading in processes that can be killed: a deadline that holds whatever the text does.

A thread of the pool owns each worker process and hands it small batches of jobs over a socket; every job is answered
on its own, so the clock of a job starts when the one before it is answered. A worker that overruns is killed and
replaced (``timeout``). One that dies or is stopped from outside is replaced and its job tried again, three times in
all (``infra-error``). Jobs that had not started are simply queued again.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from magcli.errors import EnvironmentFault, MagError
from magcli.verify.reward import Reward, RewardRule, reward, undecided
from magcli.verify.worker import READY, receive, send

MAX_BATCH = 64
MAX_ATTEMPTS = 3
MAX_STARTS = 3
START_SECONDS = 120.0
_KEYS = ("id", "kind", "prompt", "answer")

Job = tuple[str, int, Mapping[str, Any], RewardRule]
"""Arguments of ``reward``: completion, its length in tokens, problem row, rule."""


@dataclass(slots=True)
class _Ticket:
    """A job on its way, and how often a worker was lost on it."""

    job: Job
    future: "Future[Reward]" = field(default_factory=Future)
    attempts: int = 0


class _Worker:
    """One worker process and the socket to it."""

    def __init__(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        self.sock = ours
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "magcli.verify.worker",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    str(memory),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def receive(self, seconds: float) -> Any:
        """The worker's next message.

        Raises:
            TimeoutError: none came in time.
            EOFError, ConnectionError: the worker is gone.
        """
        self.sock.settimeout(seconds)
        return receive(self.sock)

    def stopped(self) -> bool:
        """Whether a signal has stopped the process, so that its silence is not the job's fault."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.sock.close()


class Pool:
    """Worker processes that grade. Use it from asyncio (``await reward``) or from threads (``rewards``).

    Args:
        workers: Number of processes; 0 grades in the calling thread, without deadline, for tests.
        deadline: Seconds of wall time for one job once a worker has started on it.
        memory: Address space of a worker in bytes.
    """

    def __init__(self, workers: int = 1, *, deadline: float = 2.0, memory: int = 2 << 30) -> None:
        self._deadline = deadline
        self._memory = memory
        self._waiting: deque[_Ticket] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._live: set[_Worker] = set()
        self._threads = [threading.Thread(target=self._serve, name=f"verify-{i}", daemon=True) for i in range(workers)]
        for thread in self._threads:
            thread.start()

    async def reward(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        """Grade one completion; see ``magcli.verify.reward.reward``.

        Raises:
            DataError: the problem is of a kind that cannot be graded.
            EnvironmentFault: workers do not start.
        """
        return await asyncio.wrap_future(self._submit([(text, num_tokens, row, rule)])[0])

    def rewards(self, jobs: Sequence[Job]) -> list[Reward]:
        """Grade many completions, in order; waits for all. Raises as ``reward`` does."""
        return [future.result() for future in self._submit(jobs)]

    async def close(self) -> None:
        """Kill the workers and wait until they are gone; jobs under way fail with EnvironmentFault."""
        await asyncio.to_thread(self.shutdown)

    def shutdown(self) -> None:
        """``close`` for callers without an event loop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for worker in self._live:
                worker.process.kill()
        for thread in self._threads:
            thread.join()

    def _submit(self, jobs: Sequence[Job]) -> "list[Future[Reward]]":
        tickets = [
            _Ticket((text, tokens, {k: row[k] for k in _KEYS if k in row}, rule)) for text, tokens, row, rule in jobs
        ]
        if not self._threads:
            for ticket in tickets:
                _grade_here(ticket)
        else:
            self._queue(tickets)
        return [ticket.future for ticket in tickets]

    def _queue(self, tickets: Sequence[_Ticket], *, first: bool = False) -> None:
        """Put tickets in line, or back at its head."""
        with self._changed:
            if self._closed:
                return _fail(tickets, _closed())
            if first:
                self._waiting.extendleft(reversed(tickets))
            else:
                self._waiting.extend(tickets)
            self._changed.notify(len(tickets))

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
        """A thread's life: keep one worker and feed it."""
        worker: _Worker | None = None
        while batch := self._next():
            try:
                worker = worker or self._start()
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

    def _feed(self, worker: _Worker, batch: list[_Ticket]) -> list[_Ticket] | None:
        """Have a batch graded. None when all is well, else what must be queued again, the worker being lost."""
        done = 0
        try:
            worker.sock.settimeout(START_SECONDS)
            send(worker.sock, [ticket.job for ticket in batch])
            while done < len(batch):
                _settle(batch[done], worker.receive(self._deadline))
                done += 1
        except TimeoutError:
            if not worker.stopped():
                _settle(batch[done], undecided("timeout", f"over {self._deadline:g} s"))
                return batch[done + 1 :]
        except (OSError, EOFError):
            pass
        else:
            return None
        return [*_tried(batch[done]), *batch[done + 1 :]]

    def _start(self) -> _Worker:
        """A worker that has said it is ready.

        Raises:
            EnvironmentFault: several in a row died or stayed silent.
        """
        for _ in range(MAX_STARTS):
            with self._changed:
                if self._closed:
                    raise _closed()
                worker = _Worker(self._memory)
                self._live.add(worker)
            try:
                if worker.receive(START_SECONDS) == READY:
                    return worker
            except (OSError, EOFError):
                pass
            self._retire(worker)
        raise EnvironmentFault(f"verify: {MAX_STARTS} grading workers in a row did not start; their own error is above")

    def _retire(self, worker: _Worker) -> None:
        worker.kill()
        with self._changed:
            self._live.discard(worker)


def _settle(ticket: _Ticket, outcome: Reward | MagError) -> None:
    """Answer whoever waits, unless they have gone."""
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


def _grade_here(ticket: _Ticket) -> None:
    try:
        _settle(ticket, reward(*ticket.job))
    except MagError as error:
        _settle(ticket, error)

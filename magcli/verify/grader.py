"""Grades completions of any kind: answers in the pool's worker processes, programs in sandboxes.

    from magcli.verify import Grader

    rewards = Grader().grade(completions, [{"prompt": question, "answer": answer}, ...])

A thread drives the sandbox of each program, so ``workers`` bounds both the worker processes and the programs that run
at once. A custom reward replaces both.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from magcli.errors import DataError, EnvironmentFault, MagError
from magcli.verify import math
from magcli.verify.pool import Job, Pool
from magcli.verify.reward import Reward, RewardRule, failed, gold_answer, problem_kind, reward
from magcli.verify.types import AnswerPair, Verdict

if TYPE_CHECKING:
    from magcli.verify.code.judge import Programs
    from magcli.verify.sandbox import Choice


EQUALITY_CACHE = 1 << 14
"""Pairs of answers whose equality is cached."""


class CompletionGrader(Protocol):
    """What grades completions: a ``Grader`` of this process, or verifiers elsewhere."""

    async def reward(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        """Grade one completion; see ``Grader.reward``."""


class Grader:
    """Use it from asyncio (``await reward``) or from threads (``grade``, ``rewards``), and close it.

    Args:
        workers: Number of concurrent verdicts.
        deadline: Seconds for the verdict on an answer; programs have the limits of their tests.
        sandbox: Isolation of programs: ``full``, ``restricted``, ``auto`` or ``none``.
        accept_unsandboxed: With ``none``, accept that programs run with the user's rights.
        function: A custom reward, see ``magcli.verify.custom``.
        own_reward: An environment has its own reward, so that no row needs a ground truth.

    ``is_custom``: whether a custom reward or an environment grades, which needs no ground truth.
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        deadline: float = 2.0,
        sandbox: "Choice" = "full",
        accept_unsandboxed: bool = False,
        function: str = "",
        own_reward: bool = False,
    ) -> None:
        self._pool = Pool(workers, deadline=deadline, function=function)
        # Programs run in sandboxes, so a thread each suffices.
        self._judge_threads = _DaemonThreads(max(1, workers))
        self.is_custom = bool(function) or own_reward
        self._lock = threading.Lock()
        self._programs: Programs | None = None
        self._sandbox: tuple[Choice, bool] = (sandbox, accept_unsandboxed)
        self._equal = lru_cache(EQUALITY_CACHE)(self._compare)

    def check(self, row: Mapping[str, Any]) -> None:
        """Reject a problem that cannot be graded before any work.

        Raises:
            DataError: its kind is unknown.
            EnvironmentFault: it asks for a program, and this machine cannot isolate programs.
        """
        if self._asks_program(row):
            self._code_programs().judge()

    def _asks_program(self, row: Mapping[str, Any]) -> bool:
        """Whether a program is judged; a custom reward gets its text only. Raises DataError for an unknown kind."""
        return not self.is_custom and problem_kind(row) == "code"

    def gradable(self, row: Mapping[str, Any]) -> bool:
        """Whether the ground truth of a problem, its answer or its tests, can be parsed."""
        return not self.fault(row)

    def fault(self, row: Mapping[str, Any]) -> str:
        """What is wrong with the ground truth of a problem; empty if it can be parsed."""
        if self.is_custom:
            return ""
        if problem_kind(row) == "math":
            gold = gold_answer(row)
            return "" if math.parsable(gold) else f"the answer {gold[:80]!r} cannot be verified"
        from magcli.verify.code.judge import check_problem

        try:
            check_problem(row)
        except DataError as error:
            return str(error)
        return ""

    async def reward(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        """Grade one completion; see ``magcli.verify.reward.reward``.

        Raises:
            DataError: the problem is of a kind that is not known.
            EnvironmentFault: workers do not start, or programs cannot be isolated or compiled.
        """
        return await asyncio.wrap_future(self._submit([(text, num_tokens, row, rule)])[0])

    def rewards(self, jobs: Sequence[Job]) -> list[Reward]:
        """Grade many completions, in order; waits for all. Raises as ``reward`` does."""
        return [future.result() for future in self._submit(jobs)]

    def grade(
        self,
        completions: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        rule: RewardRule | None = None,
        *,
        num_tokens: Sequence[int] | None = None,
    ) -> list[Reward]:
        """Grade one completion per problem. Lengths are needed only for rules with a length penalty."""
        lengths = num_tokens if num_tokens is not None else [0] * len(completions)
        chosen = rule or RewardRule()
        return self.rewards([(*job, chosen) for job in zip(completions, lengths, rows, strict=True)])

    def equal(self, one: str, other: str) -> bool:
        """Whether two answers are equal by the verifier; cached, thread-safe."""
        # Integers need no worker.
        if one.isascii() and other.isascii() and one.isdigit() and other.isdigit():
            return one.lstrip("0") == other.lstrip("0")
        return self._equal(one, other)

    def _compare(self, one: str, other: str) -> bool:
        return self._pool.equal(AnswerPair(one, other))

    async def close(self) -> None:
        """Stop the workers and wait for them; pending jobs fail with EnvironmentFault."""
        await asyncio.to_thread(self.shutdown)

    def shutdown(self) -> None:
        """``close`` for callers without an event loop."""
        self._judge_threads.close()
        self._pool.shutdown()

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _submit(self, jobs: Sequence[Job]) -> "list[Future[Reward]]":
        answers = iter(self._pool.submit([job for job in jobs if not self._asks_program(job[2])]))
        # The futures of answers and programs in the order of the jobs.
        return [
            self._judge_threads.submit(self._judge, *job) if self._asks_program(job[2]) else next(answers)
            for job in jobs
        ]

    def _judge(self, text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
        programs = self._code_programs()

        def verify(answer: str, problem: Mapping[str, Any]) -> Verdict:
            return programs.verify(answer, problem, rule)

        try:
            return reward(text, num_tokens, row, rule, verify)
        except MagError:
            raise
        except Exception as error:
            return failed(error)

    def _code_programs(self) -> "Programs":
        """Created for the first code problem, as grading answers needs no sandbox."""
        from magcli.verify.code.judge import Programs

        with self._lock:
            choice, accept = self._sandbox
            self._programs = self._programs or Programs(choice, accept_unsandboxed=accept)
            return self._programs


_Task = tuple[Callable[..., Reward], tuple[Any, ...], "Future[Reward]"]


class _DaemonThreads:
    """Daemon threads that serve a queue; unlike those of an executor they do not block interpreter exit."""

    def __init__(self, size: int) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._size, self._threads = size, 0
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, work: Callable[..., Reward], *arguments: Any) -> "Future[Reward]":
        future: Future[Reward] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(_closed())
                return future
            if self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"judge-{self._threads}", daemon=True).start()
            # Under the lock, so that ``close`` puts its ends behind all tasks.
            self._tasks.put((work, arguments, future))
        return future

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._tasks.put(None)  # ends one thread

    def _serve(self) -> None:
        while task := self._tasks.get():
            work, arguments, future = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                # What still waited is not begun any more.
                if self._closed:
                    raise _closed()
                future.set_result(work(*arguments))
            except BaseException as error:
                future.set_exception(error)


def _closed() -> EnvironmentFault:
    return EnvironmentFault("verify: the grader was closed before this program was judged")

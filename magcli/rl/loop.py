"""The RL loop: take a batch of groups, update the policy, hand the new weights to the generator, write it down."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from magcli.errors import Stopped
from magcli.rl import health
from magcli.rl.curriculum import AllSolved
from magcli.rl.flow import Flow
from magcli.rl.metrics import UpdateMetrics, group_metrics, speeds
from magcli.rl.plan import Plan
from magcli.rl.progress import Records
from magcli.rl.rollouts import Group
from magcli.rl.trainer import Trainer
from magcli.run.rundir import RunDir

Report = Callable[[dict[str, Any]], None]
ReportMismatch = Callable[[Mapping[str, float]], None]
Result = TypeVar("Result")


def catch_up(trainer: Trainer, plan: Plan, records: Records, report: Report, report_mismatch: ReportMismatch) -> None:
    """Make again, from the groups on disk, the updates that were begun after the checkpoint.

    Raises:
        Stopped: engine and trainer were too far apart in the first of them.
    """
    if trainer.done == 0:
        records.keep_weights(trainer)
    checked = False
    while (kept := records.batch(trainer.done + 1)) is not None:
        groups, dropped = kept
        trainer.enter(plan.legs[plan.stage(records.lines[: trainer.done])])
        begun = time.monotonic()
        if not checked:
            check_mismatch(trainer.mismatch(groups), report_mismatch)
            checked = True
        metrics = trainer.learn(groups)
        line = _written(trainer, records, groups, dropped, metrics, seconds=time.monotonic() - begun, generating=0.0)
        records.keep(trainer)
        report(line)


async def train(
    trainer: Trainer,
    flow: Flow,
    plan: Plan,
    records: Records,
    *,
    schedule: Literal["sync", "async"],
    beside: bool,
    generating: Callable[[], float],
    report: Report,
    report_mismatch: ReportMismatch,
) -> str | None:
    """Run all updates that are not done yet; returns why the run has ended before the last, or None.

    Raises:
        Stopped: the run cannot learn any more; the message says why.

    Args:
        beside: update in a thread of its own, while other processes generate; else both take turns on one device.
        generating: tells the seconds the generators have worked so far, on average.
        report: called with each line of metrics.
        report_mismatch: called before this process's first update with what engine and trainer make of the same
            tokens.
    """
    collect = flow.synchronous if schedule == "sync" else flow.asynchronous
    pace, checked = Pace(generating), False
    try:
        while trainer.done < trainer.updates:
            stage = plan.stage(records.lines)
            flow.enter(stage, plan.legs[stage])
            trainer.enter(plan.legs[stage])
            groups = await collect()
            dropped = flow.take_dropped()
            if not checked:
                check_mismatch(await _do(partial(trainer.mismatch, groups), beside=beside), report_mismatch)
                checked = True
            metrics = await _do(partial(trainer.learn, groups), beside=beside)
            await flow.roller.policy.load(await _do(trainer.controller.weights, beside=beside), trainer.done)
            seconds, work = pace.lap()
            line = _written(trainer, records, groups, dropped, metrics, seconds=seconds, generating=work)
            await _do(partial(records.keep, trainer), beside=beside)
            report(line)
            if reason := health.fault(records.lines):
                raise Stopped(f"rl: {reason}")
    except AllSolved as end:
        if flow.stage < len(plan.legs) - 1:
            raise
        await flow.abandon("all-solved")
        return f"{end}; ended after {trainer.done} updates"
    finally:
        await flow.stop()
    return None


class Pace:
    """Seconds from update to update, and how many of them the generators worked."""

    def __init__(self, generating: Callable[[], float]) -> None:
        self._generating = generating
        self._begun, self._worked = time.monotonic(), generating()

    def lap(self) -> tuple[float, float]:
        """Both since this was last asked."""
        before, self._begun, self._worked = (self._begun, self._worked), time.monotonic(), self._generating()
        return self._begun - before[0], self._worked - before[1]


async def _do(work: Callable[[], Result], *, beside: bool) -> Result:
    """A long computation, or long writes: here, or in a thread while the event loop serves the generators."""
    return await _in_thread(work) if beside else work()


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run in a daemon thread, which unlike an executor's does not keep a cancelled process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run, name="magcli-trainer", daemon=True).start()
    return await done


def check_mismatch(found: Mapping[str, float], report_mismatch: ReportMismatch) -> None:
    """Report the mismatch of engine and trainer, before a process changes any weight, and stop if it is too large."""
    report_mismatch(found)
    if reason := health.mismatch_fault(found):
        raise Stopped(f"rl: before the first update: {reason}")


def _written(
    trainer: Trainer,
    records: Records,
    groups: Sequence[Group],
    dropped: Sequence[Group],
    metrics: UpdateMetrics,
    *,
    seconds: float,
    generating: float,
) -> dict[str, Any]:
    """The metrics of the update just done, written down with it; generators worked ``generating`` of its ``seconds``.

    What is written after an update, such as a checkpoint, is in the time of the next.
    """
    line = {"step": trainer.done, "lr": trainer.controller.lr}
    line |= group_metrics(groups, dropped, trainer.done - 1) | metrics.line()
    line |= speeds(line, metrics.seconds, generating, seconds) | records.ledger.facts[trainer.done]
    records.close_update(trainer, groups, dropped, metrics, line)
    return line


def finish(trainer: Trainer, folder: RunDir) -> None:
    """Write the trained model; its being there is what makes the run finished."""
    trainer.controller.save_model(folder.model)
    clear(folder)


def clear(folder: RunDir) -> None:
    """Remove the checkpoints of a finished run."""
    shutil.rmtree(folder.checkpoints, ignore_errors=True)

"""The RL loop: take a batch of groups, update the policy, hand the new weights to the generator, write it down."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from magcli.errors import Stopped
from magcli.rl import health
from magcli.rl.curriculum import AllSolved
from magcli.rl.flow import Flow
from magcli.rl.objective import Tally
from magcli.rl.plan import Plan
from magcli.rl.progress import Records
from magcli.rl.records import group_metrics
from magcli.rl.rollouts import Group
from magcli.rl.trainer import Trainer, in_thread
from magcli.rl.update import BeforeStep
from magcli.run.rundir import RunDir

Report = Callable[[dict[str, Any]], None]
Result = TypeVar("Result")


def catch_up(trainer: Trainer, plan: Plan, records: Records, report: Report, report_mismatch: BeforeStep) -> None:
    """Make again, from the groups on disk, the updates that were begun after the checkpoint.

    Raises:
        Stopped: engine and trainer were too far apart in the first of them.
    """
    look: BeforeStep | None = first_look(report_mismatch)
    if trainer.done == 0:
        records.keep_weights(trainer)
    while (kept := records.batch(trainer.done + 1)) is not None:
        groups, dropped = kept
        trainer.enter(plan.legs[plan.stage(records.lines[: trainer.done])])
        begun = time.monotonic()
        tally = trainer.learn(groups, look)
        look = None
        line = _written(trainer, records, groups, dropped, tally, seconds=time.monotonic() - begun, generating=0.0)
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
    report_mismatch: BeforeStep,
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
    look: BeforeStep | None = first_look(report_mismatch)
    pace = Pace(generating)
    try:
        while trainer.done < trainer.updates:
            stage = plan.stage(records.lines)
            flow.enter(stage, plan.legs[stage])
            trainer.enter(plan.legs[stage])
            groups = await collect()
            dropped = flow.take_dropped()
            tally = await _do(partial(trainer.learn, groups, look), beside=beside)
            look = None
            await flow.roller.policy.load(await _do(trainer.controller.weights, beside=beside), trainer.done)
            seconds, work = pace.lap()
            line = _written(trainer, records, groups, dropped, tally, seconds=seconds, generating=work)
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
    """A long computation, or long writes: here, or beside the event loop, which has processes to listen to."""
    return await in_thread(work) if beside else work()


def first_look(report_mismatch: BeforeStep) -> BeforeStep:
    """Before a process changes any weight, report the mismatch of engine and trainer, and stop if it is too large."""

    def look(summary: Mapping[str, float]) -> None:
        report_mismatch(summary)
        if reason := health.mismatch_fault(summary):
            raise Stopped(f"rl: before the first update: {reason}")

    return look


def _written(
    trainer: Trainer,
    records: Records,
    groups: Sequence[Group],
    dropped: Sequence[Group],
    tally: Tally,
    *,
    seconds: float,
    generating: float,
) -> dict[str, Any]:
    """The metrics of the update just done, written down with it; generators worked ``generating`` of its ``seconds``.

    What is written after an update, such as a checkpoint, is in the time of the next.
    """
    line = {"step": trainer.done, "lr": trainer.controller.lr}
    line |= group_metrics(groups, dropped, trainer.done - 1) | tally.metrics()
    line |= speeds(line, tally.seconds, generating, seconds) | records.ledger.facts[trainer.done]
    records.close_update(trainer, groups, dropped, tally, line)
    return line


def speeds(line: dict[str, Any], training: float, generating: float, wall: float) -> dict[str, float]:
    """Tokens a second of both sides while they work, and the share of the update's wall time each stood still.

    Where all of an update's tokens were made before it began, nothing was generated meanwhile: 0 a second.
    """
    return {
        "seconds": wall,
        "train_tokens_per_s": line["trained_tokens"] / max(training, 1e-9),
        "generate_tokens_per_s": line["generated_tokens"] / generating if generating > 0 else 0.0,
        "trainer_idle": max(0.0, 1 - training / wall),
        "generator_idle": max(0.0, 1 - generating / wall),
    }


def finish(trainer: Trainer, folder: RunDir) -> None:
    """Write the trained model; its being there is what makes the run finished."""
    trainer.controller.save_model(folder.model)
    clear(folder)


def clear(folder: RunDir) -> None:
    """Remove the checkpoints of a finished run."""
    shutil.rmtree(folder.checkpoints, ignore_errors=True)

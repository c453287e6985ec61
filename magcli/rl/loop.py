"""The RL loop: take a batch of groups, update the policy, send the new weights to the engine, record the update.

``train`` is the whole loop; ``repeat_updates`` repeats the updates of an interrupted process since its checkpoint.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from magcli.errors import Stopped
from magcli.generate.types import Sampler
from magcli.rl.checkpointing import Checkpointing
from magcli.rl.curriculum import AllSolved
from magcli.rl.metrics import UpdateMetrics, fault, group_metrics, mismatch_fault, speeds
from magcli.rl.schedule import Schedule
from magcli.rl.scheduler import Batch, RolloutScheduler
from magcli.rl.trainer import Trainer
from magcli.run.rundir import Line

Result = TypeVar("Result")


class Monitor(Protocol):
    """Shows the progress of a run."""

    def update(self, line: Line) -> None: ...
    def mismatch(self, found: Line) -> None: ...


async def train(
    trainer: Trainer,
    engine: Sampler,
    scheduler: RolloutScheduler,
    schedule: Schedule,
    checkpointing: Checkpointing,
    monitor: Monitor,
    *,
    background: bool,
) -> str | None:
    """Run the remaining updates; returns why the run ended early, or None.

    ``background``: update in a thread while other processes generate; else generation and training alternate on one
    device.

    Raises:
        Stopped: the run cannot learn any more; the message says why.
    """
    run = _in_thread if background else _inline
    first, clock = trainer.done, Clock(engine)
    try:
        while trainer.done < trainer.updates:
            stage = schedule.stage_at(checkpointing.lines)
            settings = schedule.settings[stage]
            batch = await scheduler.next_batch(stage)
            if trainer.done == first:
                check_mismatch(await run(partial(trainer.mismatch, batch.trained, settings)), monitor)
            metrics = await run(partial(trainer.learn, batch.trained, settings))
            await engine.load(await run(trainer.controller.weights), trainer.done)
            line = record(trainer, checkpointing, batch, metrics, *clock.lap())
            await run(partial(checkpointing.save_due, trainer))
            monitor.update(line)
            if reason := fault(checkpointing.lines):
                raise Stopped(f"rl: {reason}")
    except AllSolved as end:
        if scheduler.stage < len(schedule.stages) - 1:
            raise
        await scheduler.abandon("all-solved")
        return f"{end}; ended after {trainer.done} updates"
    finally:
        await scheduler.stop()
    return None


def repeat_updates(trainer: Trainer, schedule: Schedule, checkpointing: Checkpointing, monitor: Monitor) -> None:
    """Repeat the updates that were begun after the checkpoint, with their groups on disk.

    Raises:
        Stopped: the mismatch of engine and trainer is too large in the first of them.
    """
    first = trainer.done
    if trainer.done == 0:
        checkpointing.save_trajectory(trainer)
    while (batch := checkpointing.begun_batch(trainer.done + 1)) is not None:
        begun = time.monotonic()
        settings = schedule.settings[schedule.stage_at(checkpointing.lines[: trainer.done])]
        if trainer.done == first:
            check_mismatch(trainer.mismatch(batch.trained, settings), monitor)
        metrics = trainer.learn(batch.trained, settings)
        line = record(trainer, checkpointing, batch, metrics, time.monotonic() - begun, 0.0)
        checkpointing.save_due(trainer)
        monitor.update(line)


def check_mismatch(found: Line, monitor: Monitor) -> None:
    """Show the mismatch of engine and trainer before the first update of a process, and stop if it is too large."""
    monitor.mismatch(found)
    if reason := mismatch_fault(found):
        raise Stopped(f"rl: before the first update: {reason}")


def record(
    trainer: Trainer,
    checkpointing: Checkpointing,
    batch: Batch,
    metrics: UpdateMetrics,
    seconds: float,
    generating: float,
) -> dict[str, Any]:
    """Record the last update; returns its metrics.

    ``seconds`` is the time since the update before, during ``generating`` of which the engines worked.
    The time of writes after an update, such as a checkpoint, counts in the next one.
    """
    line = {"step": trainer.done, "lr": trainer.controller.lr}
    line |= group_metrics(batch.trained, batch.dropped, trainer.done - 1) | metrics.line()
    line |= speeds(line, metrics.seconds, generating, seconds) | checkpointing.ledger.batch_fields[trainer.done]
    checkpointing.record(trainer.done, batch, metrics.advantages, line)
    return line


class Clock:
    """Measures the time between updates and the time that the engines worked in between, averaged over engines."""

    def __init__(self, engine: Sampler) -> None:
        self._engine = engine
        self._begun, self._worked = time.monotonic(), engine.seconds

    def lap(self) -> tuple[float, float]:
        """Seconds since the last call, and seconds of it that the engines worked."""
        begun, worked = self._begun, self._worked
        self._begun, self._worked = time.monotonic(), self._engine.seconds
        return self._begun - begun, self._worked - worked


async def _inline(work: Callable[[], Result]) -> Result:
    return work()


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run in a daemon thread while the event loop serves the generators; unlike an executor's thread, it does not keep
    a cancelled process alive.
    """
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

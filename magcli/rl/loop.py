"""The RL loop: take a batch of groups, update the policy, send the new weights to the engine, record the update.

``train`` is the whole loop; ``repeat_updates`` repeats the updates of an interrupted process since its checkpoint, with
the groups that are on disk (see ``magcli.rl.checkpointing``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from magcli.errors import Stopped
from magcli.generate.types import RolloutEngine, Sampler
from magcli.generate.weights.digest import WeightsFault, check_arrivals, combined
from magcli.rl.checkpointing import Checkpointing
from magcli.rl.curriculum import AllSolved
from magcli.rl.evaluation import Measure
from magcli.rl.metrics import (
    group_metrics,
    mismatch_fault,
    mismatch_summary,
    speeds,
    stop_reason,
    training_metrics,
    unused_end,
    with_probe,
)
from magcli.rl.outcomes import GroupOutcomes
from magcli.rl.probe import PROBE_TOKENS, Executor, inline, probe
from magcli.rl.scheduler import RolloutScheduler
from magcli.rl.trainer import Trainer
from magcli.rl.training_stages import TrainingStages
from magcli.rl.types import Batch, StageSettings, Times, UpdateMetrics
from magcli.rl.utilization import repeated_idle
from magcli.run.rundir import Line
from magcli.run.shutdown import SaveFirst
from magcli.run.units import WorkThread, every, in_daemon_thread

COUNTS_EVERY = 60.0
"""Seconds between the lines that count groups, also while all of them are dropped."""


class Monitor(Protocol):
    """Shows the progress of a run."""

    def update(self, line: Line) -> None: ...
    def mismatch(self, summary: Line) -> None: ...
    def evaluation(self, step: int, values: Line) -> None: ...
    def groups(self, outcomes: GroupOutcomes, update: int) -> None: ...
    def reward_failed(self, error: str) -> None: ...
    def saved_first(self, step: int) -> None: ...


Evaluate = Callable[[int, str | None], Coroutine[Any, Any, None]]
"""``evaluate_due`` of a run."""


async def train(
    trainer: Trainer,
    engine: RolloutEngine,
    scheduler: RolloutScheduler,
    stages: TrainingStages,
    checkpointing: Checkpointing,
    monitor: Monitor,
    measure: Measure | None = None,
) -> str | None:
    """Run the remaining updates; returns why the run ended early, or None.

    Updates run in a thread beside engines in other processes; else generation and training alternate on one device.
    An engine that ``sleeps`` gives its memory back from an update's start to the delivery of its weights.
    ``measure`` evaluates the weights when it is due, while the trainer waits and running groups go on.

    Raises:
        Stopped: the run cannot learn any more, or an engine does not compute what the trainer does.
        WeightsFault: new weights did not arrive in an engine as they were sent.
    """
    thread = WorkThread()
    run: Executor = thread.run if scheduler.generates_during_updates or engine.sleeps else inline
    first = trainer.done
    updates = Updates(trainer, checkpointing, Clock(engine, scheduler))
    counting = _counting(trainer, scheduler, monitor)
    evaluate = partial(evaluate_due, scheduler=scheduler, checkpointing=checkpointing, monitor=monitor, measure=measure)
    try:
        end = stages.end_of_run(checkpointing.lines)
        await evaluate(trainer.done, end)
        while trainer.done < trainer.updates and end is None:
            # A batch of finished groups; generators go on with the next ones.
            batch = await scheduler.next_batch(stages.stage_at(checkpointing.lines))
            settings = scheduler.settings
            if trainer.done == first:
                check_mismatch(await first_mismatch(trainer, engine, batch, settings, run), monitor)
            await engine.sleep()
            await run(partial(updates.learn, batch, settings))
            # The new weights, in flight: running sequences keep their KV cache and continue with them.
            with scheduler.trainer_in("weights"):
                delivered = await deliver(trainer, engine, run)
                scheduler.update_finished()
                delivered |= await probe(trainer, engine, batch.trained, settings, run)
            with scheduler.trainer_in("saving"):  # the line of metrics, and a checkpoint if it is due
                line = updates.record(delivered)
                await run(updates.save_due)
            end = stages.end_of_run(checkpointing.lines)
            await evaluate(trainer.done, end)
            monitor.update(line)
            check_update(delivered, checkpointing.lines)
        return await end_by_rule(end, scheduler)
    except AllSolved as solved:
        return await end_all_solved(solved, stages, scheduler, trainer.done, evaluate)
    except asyncio.CancelledError:  # by SIGTERM, if that was requested
        if updates.ending.requested and await run(updates.save_before_end):
            monitor.saved_first(trainer.done)
        raise
    finally:
        updates.close()
        counting.cancel()
        thread.close()
        await scheduler.stop()


async def end_by_rule(end: str | None, scheduler: RolloutScheduler) -> str | None:
    """Drop the outstanding groups of a run that the rule of its last stage has ended; returns why, or None."""
    if end is None:
        return None
    await scheduler.abandon("run-ended")
    return f"rl: {end}"


async def end_all_solved(
    solved: AllSolved, stages: TrainingStages, scheduler: RolloutScheduler, updates: int, evaluate: Evaluate
) -> str:
    """End a run of which no problem is left after so many updates: the outstanding groups are dropped, and the weights
    are evaluated; returns why.

    Raises:
        AllSolved: there are stages after this one, which its problems would not reach.
    """
    # A later stage may have other problems, so this is not the end that was asked for.
    if scheduler.stage < len(stages.options) - 1:
        raise solved
    await scheduler.abandon("all-solved")
    end = f"{solved}; ended after {updates} updates"
    await evaluate(updates, end)
    return end


def _counting(trainer: Trainer, scheduler: RolloutScheduler, monitor: Monitor) -> asyncio.Task[None]:
    """Show the counts of groups from time to time, and the first failure of a reward at once."""
    outcomes = scheduler.outcomes
    outcomes.on_first_error = monitor.reward_failed

    def show_counts() -> None:
        # After the last update there is no next one.
        next_update = min(trainer.done + 1, trainer.updates)
        monitor.groups(outcomes, next_update)

    return asyncio.create_task(every(COUNTS_EVERY, show_counts))


def check_update(delivered: Line, lines: Sequence[Line]) -> None:
    """Stop after an update if engine and trainer differ too much, or if the run does not learn any more."""
    check_probe(delivered, len(lines))
    if reason := stop_reason(lines):
        raise Stopped(f"rl: {reason}")


class Updates:
    """The updates of a process: learned, recorded, and in a checkpoint before SIGTERM ends it."""

    def __init__(self, trainer: Trainer, checkpointing: Checkpointing, clock: Clock) -> None:
        self.ending = SaveFirst(polls=False)
        self.ending.open()
        self._trainer = trainer
        self._checkpointing = checkpointing
        self._clock = clock
        self._learned: tuple[Batch, UpdateMetrics] | None = None
        """An update that is not recorded yet."""

    def learn(self, batch: Batch, settings: StageSettings) -> None:
        """Train on a batch."""
        self.ending.started()
        metrics = self._trainer.learn(batch.trained, settings)
        self._learned = batch, metrics
        self.ending.finished(metrics.seconds)

    def record(self, delivered: Line) -> dict[str, Any]:
        """Record what was learned; see the function ``record``."""
        assert self._learned is not None, "learned before"
        batch, metrics = self._learned
        line = record(self._trainer, self._checkpointing, batch, metrics, self._clock.lap(), delivered)
        self._learned = None
        return line

    def save_due(self) -> None:
        """Write what is due after an update."""
        if self._checkpointing.save_due(self._trainer):
            self.ending.saved()

    def save_before_end(self) -> bool:
        """Write a checkpoint of all finished updates; whether that could be done."""
        if self._learned is not None:
            self.record(mismatch_summary([]))  # its weights were not delivered
        # A run does not resume from a checkpoint whose update is not in the metrics.
        if self._trainer.done != len(self._checkpointing.lines):
            return False
        self._checkpointing.complete_save(self._trainer)
        self.ending.saved()
        return True

    def close(self) -> None:
        """Let SIGTERM end the process at once again."""
        self.ending.close()


async def evaluate_due(
    step: int,
    end: str | None,
    *,
    scheduler: RolloutScheduler,
    checkpointing: Checkpointing,
    monitor: Monitor,
    measure: Measure | None,
) -> None:
    """Evaluate the weights of an update, which the engines have, if it is due and was not done before.

    ``end``: why the run ends early with this update, or None.
    """
    if measure is None or not checkpointing.lacks_evaluation(step, ends=end is not None):
        return
    with scheduler.trainer_in("evaluation"):
        values = await measure()
    checkpointing.record_evaluation(step, values)
    monitor.evaluation(step, values)


async def deliver(trainer: Trainer, engine: RolloutEngine, run: Executor) -> dict[str, Any]:
    """Send the engines the trainer's weights; returns their version and digest for the line of metrics.

    Raises:
        WeightsFault: they did not arrive in an engine as they were sent.
    """
    try:
        if trainer.sends_to is not None:
            sent, arrivals = await trainer.sends_to.load_from_ranks(trainer)
        else:
            weights, sent = await run(partial(trainer.weights, engine.sent_dtype))
            arrivals = await engine.load(weights, trainer.done)
    except WeightsFault as fault:
        raise WeightsFault(f"weights of update {trainer.done}: {fault}") from fault
    check_arrivals(sent, arrivals, trainer.done)
    return {"weights_version": trainer.done, "weights_digest": combined(sent)}


async def first_mismatch(
    trainer: Trainer, engine: RolloutEngine, batch: Batch, settings: StageSettings, run: Executor
) -> Line:
    """The mismatch of engine and trainer before the first update of a process: on tokens that the current weights
    sampled, or, if the run was resumed with older samples, on a probe.
    """
    sampled: Line = await run(partial(trainer.mismatch, batch.trained, settings))
    if sampled["mismatch_tokens"]:
        return sampled
    return await probe(trainer, engine, batch.trained, settings, run, tokens=PROBE_TOKENS)


@dataclass(frozen=True, slots=True)
class RepeatedUpdate:
    """A repeated update that is to be recorded when an engine has its weights."""

    batch: Batch
    settings: StageSettings
    metrics: UpdateMetrics
    times: Times


def repeat_updates(
    trainer: Trainer, stages: TrainingStages, checkpointing: Checkpointing, monitor: Monitor
) -> RepeatedUpdate | None:
    """Repeat the updates that were begun after the checkpoint, with their groups on disk.

    Returns the last one if it has not been recorded, for ``record_repeated``. (If a power cut took the lines of
    several, those of the others lack the delivery of their weights.)

    Raises:
        Stopped: the mismatch of engine and trainer is too large in the first of them.
    """
    first = trainer.done
    if trainer.done == 0:
        checkpointing.save_trajectory(trainer)
    while (batch := checkpointing.begun_batch(trainer.done + 1)) is not None:
        started = time.monotonic()
        settings = stages.settings[stages.stage_at(checkpointing.lines[: trainer.done])]
        if trainer.done == first:
            check_mismatch(trainer.mismatch(batch.trained, settings), monitor)
        metrics = trainer.learn(batch.trained, settings)
        seconds = time.monotonic() - started
        # No engine is running yet.
        idle = repeated_idle(metrics.seconds, seconds)
        times = Times(seconds, generating=0.0, generated_tokens=0, idle=idle)
        repeated = RepeatedUpdate(batch, settings, metrics, times)
        is_last = trainer.done == max(checkpointing.ledger.batches)
        is_recorded = trainer.done <= len(checkpointing.lines)
        if is_last and not is_recorded:
            return repeated
        # No engine had its weights, so there is no mismatch to record.
        finish_update(repeated, mismatch_summary([]), trainer, checkpointing, monitor)
    return None


def finish_update(
    repeated: RepeatedUpdate, delivered: Line, trainer: Trainer, checkpointing: Checkpointing, monitor: Monitor
) -> None:
    """Record a repeated update, write what is due after it, and show it."""
    line = record(trainer, checkpointing, repeated.batch, repeated.metrics, repeated.times, delivered)
    checkpointing.save_due(trainer)
    monitor.update(line)


async def record_repeated(
    repeated: RepeatedUpdate,
    delivered: Line,
    trainer: Trainer,
    engine: RolloutEngine,
    checkpointing: Checkpointing,
    monitor: Monitor,
) -> None:
    """Record a repeated update, whose weights have been delivered, as ``train`` records the others.

    Raises:
        Stopped: an engine does not compute what the trainer does.
    """
    # Ranks that send a replaced generator its weights need the event loop meanwhile.
    run: Executor = in_daemon_thread if trainer.sends_to is not None else inline
    probed = await probe(trainer, engine, repeated.batch.trained, repeated.settings, run)
    delivered = {**delivered, **probed}
    finish_update(repeated, delivered, trainer, checkpointing, monitor)
    check_probe(delivered, trainer.done)


def check_probe(delivered: Line, update: int) -> None:
    """Stop if engine and trainer differ too much at the weights of an update."""
    if reason := mismatch_fault(delivered):
        raise Stopped(f"rl: after update {update}: {reason}")


def check_mismatch(summary: Line, monitor: Monitor) -> None:
    """Show the mismatch of engine and trainer before the first update of a process, and stop if it is too large."""
    monitor.mismatch(summary)
    if reason := mismatch_fault(summary):
        raise Stopped(f"rl: before the first update: {reason}")


def record(
    trainer: Trainer,
    checkpointing: Checkpointing,
    batch: Batch,
    metrics: UpdateMetrics,
    times: Times,
    delivered: Line,
) -> dict[str, Any]:
    """Record the last update; returns its metrics. ``delivered`` are those of the delivery of its weights.

    The time of writes after an update, such as a checkpoint, counts in the next one.
    """
    step = trainer.done
    sampled = [*batch.trained, *batch.dropped]
    rollouts = [rollout for group in sampled for rollout in group.rollouts]
    line = {"step": step, "lr": trainer.last_lr}
    line |= group_metrics(batch.trained, batch.dropped, version=step - 1)
    line |= with_probe(training_metrics(metrics), delivered)
    line |= unused_end(rollouts, trainer.unused_ends)
    line |= speeds(line, metrics.seconds, times)
    line |= checkpointing.ledger.batch_fields[step]
    checkpointing.record(step, batch, metrics.advantages, line)
    return line


class Clock:
    """Measures the times of each update: the engines' work, and what trainer and slots waited for."""

    def __init__(self, engine: Sampler, scheduler: RolloutScheduler) -> None:
        self._engine, self._scheduler = engine, scheduler
        self._before = self._totals()

    def _totals(self) -> tuple[float, float, float, int]:
        """The time, and what the engines have done so far: seconds of work and of loading weights, tokens."""
        engine = self._engine
        return time.monotonic(), engine.seconds, engine.load_seconds, self._scheduler.generated_tokens

    def lap(self) -> Times:
        """The times since the last call."""
        totals = self._totals()
        # All totals grow, so that a replaced generator does not make a difference negative.
        differences = [after - before for after, before in zip(totals, self._before, strict=True)]
        seconds, working, loading, tokens = differences
        self._before = totals
        # Where both take turns on one device, the slots are idle during an update anyway, with the same cause.
        load_share = loading / seconds if self._scheduler.generates_during_updates else 0.0
        idle = self._scheduler.utilization.metrics(totals[0], load_share=load_share)
        return Times(seconds, working, int(tokens), idle)

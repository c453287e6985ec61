"""Run `magcli rl`: train, show its progress, and output the rollouts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magcli.stages.rl import build
from magcli.stages.rl.config import Config, reads, settings
from magcli.stages.shared import engines, grading, training

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.console import Console, Progress
    from magcli.data.source import Rows
    from magcli.rl.curriculum import Row
    from magcli.rl.live import Curves
    from magcli.rl.loop import Checkpointing
    from magcli.rl.schedule import Schedule
    from magcli.rl.trackers import LogLines
    from magcli.rl.trainer import Trainer
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.train.controller import RankController
    from magcli.verify.grader import Grader


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row per rollout."""
    from magcli.rl.store import ROLLOUT

    return ROLLOUT


def serve_rank(config: Config) -> bool:
    """Run as a non-zero torchrun rank; False if this process is rank 0."""
    return training.serve_rank(config.device, lambda: build.open_state(config), needed=True)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Train, then return all rollouts in the order of the updates."""
    from magcli.data import table
    from magcli.rl.loop import remove_checkpoints
    from magcli.rl.store import RolloutStore
    from magcli.train.controller import RankController
    from magcli.train.distributed import open_ranks

    with contextlib.ExitStack() as stack:
        controller = RankController(open_ranks(config.device))
        stack.callback(controller.stop)
        problems = [row for batch in rows for row in batch.to_pylist()]
        folder = stack.enter_context(training.run_folder("rl", config, settings(config), job))
        with build.tracked(config, folder, job) as log_lines:
            config = training.resolve_formats(config, folder, job, exact=config.schedule == "sync")
            if folder.finished:
                remove_checkpoints(folder)
                log_lines(folder.metrics())
                job.console.say(f"rl: {folder.model} is finished", event="up-to-date")
            else:
                pools = [problems, *build.stage_rows(config, reads(config), job)]
                _train(config, pools, job, folder, controller, log_lines)
        for path in RolloutStore(folder.path).tables():
            yield from table.read(str(path)).rows


def _train(
    config: Config,
    problems: Sequence[Sequence[dict[str, Any]]],
    job: Job,
    folder: RunDir,
    controller: RankController,
    log_lines: LogLines,
) -> None:
    """Train from the last update in the folder to the end, and write the model.

    ``problems`` are those of the run, then those of each stage with its own table.

    Raises:
        Stopped: the run cannot learn any more; the message says why.
    """
    from magcli.rl import loop
    from magcli.rl.ledger import Ledger, account, read
    from magcli.rl.live import Curves
    from magcli.rl.loop import Checkpointing
    from magcli.rl.store import RolloutStore
    from magcli.run.units import AsyncRunner

    with contextlib.ExitStack() as stack:
        grader = grading.open_grader(config, config.reward)
        stack.callback(grader.shutdown)
        system = engines.system_text(config.system)
        rows = [engines.answerable(part, config.model, system, grader, job) for part in problems]
        trainer, schedule = build.trainer(config, controller), build.schedule(config)
        ledger = Ledger(folder.ledger)
        stack.callback(ledger.close)
        every = config.checkpoint_every, config.keep_checkpoints, config.trajectory_every
        checkpointing = Checkpointing(folder, ledger, RolloutStore(folder.path), *every)
        checkpointing.resume(trainer)
        curves = Curves(checkpointing.lines[: trainer.done])
        log_lines(checkpointing.lines)
        with job.console.progress(config.updates, "updates", "rl", curves.draw) as bar:
            monitor = Display(checkpointing.lines, bar, curves, log_lines, job.console)
            if begun := max(ledger.batches, default=0):
                text = f"rl: resuming from update {begun}; repeating {begun - trainer.done} with the same groups"
                job.console.say(text, event="resume", step=begun)
            bar.advance(trainer.done, reused=True)
            loop.repeat_updates(trainer, schedule, checkpointing, monitor)
            with AsyncRunner() as events:
                ended = events.run(_loop(config, trainer, schedule, checkpointing, rows, grader, monitor, job))
        if ended:
            job.console.say(ended, event="ended-early")
        checkpointing.finish(trainer)
    job.console.say(f"rl: {account(read(ledger.path))}", event="ledger")
    job.console.say(f"rl: model in {folder.model}", event="model", path=str(folder.model))


async def _loop(
    config: Config,
    trainer: Trainer,
    schedule: Schedule,
    checkpointing: Checkpointing,
    rows: Sequence[Sequence[Row]],
    grader: Grader,
    monitor: Display,
    job: Job,
) -> str | None:
    """Generate and train; returns why the run ended early, or None."""
    from magcli.rl import loop
    from magcli.rl.scheduler import RolloutScheduler

    async with build.engine(config, job) as engine:
        if trainer.done:
            await engine.load(trainer.controller.weights(), trainer.done)
        scheduler = RolloutScheduler(
            build.group_sampler(config, engine, grader, trainer),
            build.curriculum(config, rows, checkpointing.ledger),
            checkpointing.ledger,
            checkpointing.store,
            schedule,
            synchronous=config.schedule == "sync",
            staleness=config.staleness,
            updates=config.updates,
        )
        background = config.generators > 0
        return await loop.train(trainer, engine, scheduler, schedule, checkpointing, monitor, background=background)


class Display:
    """Shows a run on the terminal, in JSON events and in trackers."""

    def __init__(
        self, lines: Sequence[Mapping[str, Any]], bar: Progress, curves: Curves, log_lines: LogLines, console: Console
    ) -> None:
        self._lines, self._bar, self._curves, self._log_lines, self._console = lines, bar, curves, log_lines, console

    def update(self, line: Mapping[str, Any]) -> None:
        """Show the metrics of an update."""
        from magcli.rl.metrics import summary

        self._curves.add(line)
        self._bar.advance(note=summary(line))
        self._log_lines(self._lines)
        if self._console.as_json:
            self._console.say("", event="update", **line)

    def mismatch(self, found: Mapping[str, Any]) -> None:
        """Show the mismatch of engine and trainer before the first update."""
        from magcli.rl.metrics import comparison

        self._console.say(f"rl: {comparison(found)}", event="mismatch", **found)

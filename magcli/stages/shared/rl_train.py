"""What `magcli rl` does between the door and the finished model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magcli.stages.shared import engines, grading, rl_setup

if TYPE_CHECKING:
    from magcli.rl.curriculum import Row
    from magcli.rl.loop import Report, ReportMismatch
    from magcli.rl.plan import Plan
    from magcli.rl.progress import Records
    from magcli.rl.trackers import LogLines
    from magcli.rl.trainer import Trainer
    from magcli.run.job import Job
    from magcli.run.rundir import RunDir
    from magcli.stages.rl import Config
    from magcli.train.controller import RankController
    from magcli.verify.grader import Grader


def train(
    config: Config,
    problems: Sequence[Sequence[dict[str, Any]]],
    job: Job,
    folder: RunDir,
    controller: RankController,
    log_lines: LogLines,
) -> None:
    """Train from the last update that the folder holds to the end, and leave the model in it.

    Args:
        config: the options of the run.
        problems: the run's own, then those of each stage.
        job: says how it goes.
        folder: of the run.
        controller: runs commands on all ranks.
        log_lines: uploads the lines of metrics to trackers.

    Raises:
        Stopped: nothing can be learned any more, and why.
    """
    from magcli.rl import loop
    from magcli.rl.ledger import Ledger, account, read
    from magcli.rl.progress import Records, load_checkpoint
    from magcli.rl.store import Store

    with contextlib.ExitStack() as held:
        grader = grading.open_grader(config, config.reward)
        held.callback(grader.shutdown)
        system = engines.system_text(config.system)
        rows = [engines.answerable(part, config.model, system, grader, job) for part in problems]
        trainer = rl_setup.trainer(config, controller)
        ledger = Ledger(folder.ledger)
        held.callback(ledger.close)
        every = config.checkpoint_every, config.keep_checkpoints, config.trajectory_every
        records = Records(folder, ledger, Store(folder.path), *every)
        load_checkpoint(trainer, records)
        _loop(config, trainer, records, rows, grader, job, log_lines)
        ledger.sync()
        loop.finish(trainer, folder)
    job.console.say(f"rl: {account(read(ledger.path))}", event="ledger")
    job.console.say(f"rl: model in {folder.model}", event="model", path=str(folder.model))


def _loop(
    config: Config,
    trainer: Trainer,
    records: Records,
    rows: Sequence[Sequence[Row]],
    grader: Grader,
    job: Job,
    log_lines: LogLines,
) -> None:
    from magcli.rl import loop
    from magcli.rl.health import comparison
    from magcli.rl.live import Curves
    from magcli.rl.metrics import summary
    from magcli.run.loop import Loop

    plan, curves = rl_setup.plan(config), Curves(records.lines[: trainer.done])
    log_lines(records.lines)
    with job.console.progress(config.updates, "updates", "rl", curves.draw) as bar:

        def report(line: dict[str, Any]) -> None:
            curves.add(line)
            bar.advance(note=summary(line))
            log_lines(records.lines)
            if job.console.as_json:
                job.console.say("", event="update", **line)

        def report_mismatch(found: Mapping[str, float]) -> None:
            job.console.say(f"rl: {comparison(found)}", event="mismatch", **found)

        if records.ledger.taken:
            begun = max(records.ledger.taken)
            told = f"rl: going on from update {begun}; {begun - trainer.done} to make again from their groups"
            job.console.say(told, event="resume", step=begun)
        bar.advance(trainer.done, reused=True)
        loop.catch_up(trainer, plan, records, report, report_mismatch)
        with Loop() as events:
            ended = events.run(
                _generate_and_train(config, trainer, plan, records, rows, grader, report, report_mismatch, job)
            )
    if ended:
        job.console.say(ended, event="ended-early")


async def _generate_and_train(
    config: Config,
    trainer: Trainer,
    plan: Plan,
    records: Records,
    rows: Sequence[Sequence[Row]],
    grader: Grader,
    report: Report,
    report_mismatch: ReportMismatch,
    job: Job,
) -> str | None:
    from magcli.rl import loop
    from magcli.rl.flow import Flow

    async with rl_setup.sampler(config, job) as sampler:
        if trainer.done:
            await sampler.load(trainer.controller.weights(), trainer.done)
        flow = Flow(
            rl_setup.roller(config, sampler, grader, trainer, plan),
            rl_setup.curriculum(config, rows, records.ledger),
            records.ledger,
            records.store,
            plan.legs[0],
            staleness=config.staleness,
            updates=config.updates,
        )
        return await loop.train(
            trainer,
            flow,
            plan,
            records,
            schedule=config.schedule,
            beside=config.generators > 0,
            generating=lambda: sampler.seconds,
            report=report,
            report_mismatch=report_mismatch,
        )

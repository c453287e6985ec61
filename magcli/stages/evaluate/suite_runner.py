"""Run suite tasks: stored completions are reused, missing ones are sampled in one stream and graded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from magcli.errors import DataError, PromptRefused, PromptTooLong
from magcli.run.stage import fingerprint
from magcli.stages.shared import engines, grading

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Journal, Result
    from magcli.stages.evaluate.config import Config
    from magcli.stages.evaluate.suite_tasks import SuiteTask
    from magcli.verify.grader import Grader


def run_tasks(tasks: Sequence[SuiteTask], config: Config, job: Job) -> Iterator[tuple[SuiteTask, Rows]]:
    """Each task with its graded completions, which must be read before those of the next task.

    The model is loaded once for all tasks, and only if completions are missing.
    """
    missing = []
    for task in tasks:
        if (rows := _stored(task, job)) is None:
            missing.append(task)
        else:
            yield task, rows
    if missing:
        yield from _sampled(missing, config, job)


def clear_journals(tasks: Sequence[SuiteTask]) -> None:
    """Remove the journals of finished tasks."""
    from magcli.data import durable

    for task in tasks:
        if task.journal is not None:
            durable.remove(task.journal)


def _stored(task: SuiteTask, job: Job) -> Rows | None:
    """The stored completions of this task; stale completions trigger a message."""
    from magcli import __version__
    from magcli.data import seal, table

    if task.table is None or job.restart or not task.table.exists():
        return None
    source = table.read(str(task.table))
    link = source.chain[-1] if source.chain else None
    identity, before = fingerprint(task.identity), fingerprint(link.config) if link else {}
    if link and link.version == __version__ and seal.pack(before) == seal.pack(identity):
        job.console.say(f"evaluate: reusing the completions in {task.table}", event="reused")
        return _completed(source.rows, task, job)
    differs = [key for key in identity if not link or before.get(key) != identity[key]]
    changes = ", ".join(differs) or "version"
    job.console.say(f"evaluate: {task.table} is stale (other {changes}); sampling again", event="stale")
    return None


def _completed(rows: Rows, task: SuiteTask, job: Job) -> Rows:
    """Stored completions; problems without any were dropped during sampling, and are counted as dropped again."""
    assert task.table is not None
    answered: set[str] = set()
    reasons = _drop_reasons(task.table)
    for batch in rows:
        answered.update(batch.column("id").to_pylist())
        yield batch
    for row in (row for batch in task.problems for row in batch.to_pylist() if row["id"] not in answered):
        job.drops.row(row["id"], reasons.get(row["id"], PromptTooLong.reason), row)


def _reasons_path(table: Path) -> Path:
    return table.with_name(f"{table.name}.left-out.json")


def _drop_reasons(table: Path) -> dict[str, str]:
    """Why problems have no completions in a stored table, by id."""
    path = _reasons_path(table)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _store_reasons(table: Path, reasons: Mapping[str, str]) -> None:
    from magcli.data import durable

    if not reasons:
        durable.remove(_reasons_path(table))
        return
    with durable.atomic_file(_reasons_path(table)) as file:
        file.write((json.dumps(reasons, ensure_ascii=False, indent=1) + "\n").encode())


def _sampled(tasks: Sequence[SuiteTask], config: Config, job: Job) -> Iterator[tuple[SuiteTask, Rows]]:
    """Sample and grade tasks: one stream of problems for the model, split by task."""
    from magcli.run.units import drain, in_order

    runner = _Runner(tasks, config, job)
    samples = min(task.plan.samples for task in tasks)
    results = drain(in_order(runner.units(), runner.finish, max(2, 2 * config.slots // samples + 2)), runner.close)
    with runner.bar:
        for number, parts in groupby(results, key=lambda each: each[0]):
            yield tasks[number], runner.rows(tasks[number], (result for _, result in parts))


class _Runner:
    """The model, the graders by reward function, and the journals of running tasks."""

    def __init__(self, tasks: Sequence[SuiteTask], config: Config, job: Job) -> None:
        self.tasks, self.job = tasks, job
        self.journals = [_journal(task, job) for task in tasks]
        unfinished = [journal for journal in self.journals if journal is not None]
        self.generator: Generator = engines.open_engine(config, job, unfinished)
        self.graders: dict[str, Grader] = {
            function: grading.open_grader(config, function) for function in {task.function for task in tasks}
        }
        total = sum(batch.num_rows for task in tasks for batch in task.problems)
        self.bar = job.console.progress(total, "problems", job.stage)
        if done := sum(len(journal.positions) for journal in unfinished):
            text = f"{job.stage}: resuming, {done} of {total} problems are finished"
            job.console.say(text, event="resumed", done=done)

    def units(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All problems, each with the number of its task and a key."""
        from magcli.data.table import rechunk
        from magcli.run.units import keyed

        for number, task in enumerate(self.tasks):
            for key, part in keyed(rechunk(iter(task.problems), 1)):
                yield f"{number}:{key}", part

    async def finish(self, name: str, part: pa.RecordBatch) -> tuple[int, Result]:
        """The graded samples of a problem, from the journal if it has them."""
        number, _, key = name.partition(":")
        task, journal = self.tasks[int(number)], self.journals[int(number)]
        if journal is not None and key in journal:
            self.bar.advance(reused=True)
            return int(number), journal.get(key)
        result = await self._graded(task, part)
        if journal is not None:
            journal.put(key, result)
        self.bar.advance()
        return int(number), result

    async def _graded(self, task: SuiteTask, part: pa.RecordBatch) -> Result:
        from magcli.curate.sampling import completion_columns, grade_samples, sample_problem
        from magcli.data.schema import repeat_rows, with_columns
        from magcli.run.job import drop_result
        from magcli.run.journal import Result
        from magcli.verify.reward import columns

        row, grader = part.to_pylist()[0], self.graders[task.function]
        grader.check(row)
        try:
            samples = await sample_problem(self.generator, row, task.plan)
        except PromptRefused as error:
            return drop_result(row, error.reason, task.schema, error=str(error))
        rewards = await grade_samples(grader, row, samples, task.rule)
        many = with_columns(repeat_rows(part.select(task.columns), len(samples)), completion_columns(samples))
        return Result(with_columns(many, columns(rewards)))

    def rows(self, task: SuiteTask, results: Iterator[Result]) -> Rows:
        """The rows of a task, written to its table while they pass."""
        rows = self._rows(task, results)
        return _tee(rows, task.table, replace(self.job, settings=task.identity)) if task.table else rows

    def _rows(self, task: SuiteTask, results: Iterator[Result]) -> Rows:
        reasons = {}
        for result in results:
            for dropped in result.dropped:
                self.job.drops.add(dropped)
                reasons[dropped.id] = dropped.reason
            yield result.rows
        if task.table is not None:
            _store_reasons(task.table, reasons)

    async def close(self) -> None:
        """Close the model, the graders and the journals, which stay on disk."""
        await self.generator.close()
        for grader in self.graders.values():
            await grader.close()
        for journal in self.journals:
            if journal is not None:
                journal.close()


def _tee(rows: Rows, path: Path, job: Job) -> Rows:
    """Pass rows on and write them to ``path``, which appears when the last one has passed.

    Raises:
        DataError: there are no rows, so the columns are unknown.
    """
    from magcli.data import seal, table

    first = next(rows, None)
    if first is None:
        raise DataError(f"{job.stage}: no rows for {path}")
    count = 0
    with table.write(str(path), first.schema, seal.pack({"stage": job.stage})) as sink:
        for batch in table.rechunk(chain([first], rows)):
            sink.write(batch)
            count += batch.num_rows
            yield batch
        sink.finish(job.history(count))


def _journal(task: SuiteTask, job: Job) -> Journal | None:
    from magcli import __version__
    from magcli.data import durable
    from magcli.run.journal import Journal

    if task.journal is None:
        return None
    task.journal.parent.mkdir(parents=True, exist_ok=True)
    if job.restart:
        durable.remove(task.journal)
    return Journal.open(task.journal, task.schema, {"stage": job.stage, "version": __version__, **task.identity})

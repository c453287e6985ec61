"""Sitting exams: what is kept is used, the rest is asked of the model in one stream and graded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from magcli.errors import PromptRefused, PromptTooLong
from magcli.run.identity import decisive
from magcli.stages.parts import setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Journal, Result
    from magcli.stages.evaluate import Config
    from magcli.stages.parts.exams import Exam
    from magcli.verify.grader import Grader


def graded(exams: Sequence[Exam], config: Config, job: Job) -> Iterator[tuple[Exam, Rows]]:
    """Each exam with its graded completions, which must be read before the next exam is.

    The model is opened only if completions are missing, and once for all exams.
    """
    missing = []
    for exam in exams:
        if (rows := _stored(exam, job)) is None:
            missing.append(exam)
        else:
            yield exam, rows
    if missing:
        yield from _sat(missing, config, job)


def forget(exams: Sequence[Exam]) -> None:
    """Remove the journals of exams whose results are safe."""
    from magcli.data import durable

    for exam in exams:
        if exam.journal is not None:
            durable.remove(exam.journal)


def _stored(exam: Exam, job: Job) -> Rows | None:
    """The completions that are kept already, if they are of this exam; those of another one are told of."""
    from magcli import __version__
    from magcli.data import seal, table

    if exam.table is None or job.restart or not exam.table.exists():
        return None
    source = table.read(str(exam.table))
    told = source.chain[-1] if source.chain else None
    identity, before = decisive(exam.identity), decisive(told.config) if told else {}
    if told and told.version == __version__ and seal.pack(before) == seal.pack(identity):
        job.console.say(f"evaluate: completions of {exam.table}; the model is not asked", event="reused")
        return _completed(source.rows, exam, job)
    differs = [key for key in identity if not told or before.get(key) != identity[key]]
    job.console.say(f"evaluate: {exam.table} is of other {', '.join(differs) or 'versions'}; made anew", event="anew")
    return None


def _completed(rows: Rows, exam: Exam, job: Job) -> Rows:
    """Kept completions; problems without any were left out when they were made, and are counted again."""
    assert exam.table is not None
    answered: set[str] = set()
    reasons = _left_out(exam.table)
    for batch in rows:
        answered.update(batch.column("id").to_pylist())
        yield batch
    for row in (row for batch in exam.problems for row in batch.to_pylist() if row["id"] not in answered):
        job.drops.row(row["id"], reasons.get(row["id"], PromptTooLong.reason), row)


def _reasons_path(table: Path) -> Path:
    return table.with_name(f"{table.name}.left-out.json")


def _left_out(table: Path) -> dict[str, str]:
    """Why problems have no completions in a kept table, by their ids."""
    path = _reasons_path(table)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _keep_reasons(table: Path, reasons: Mapping[str, str]) -> None:
    from magcli.data import durable

    if not reasons:
        durable.remove(_reasons_path(table))
        return
    with durable.atomic_file(_reasons_path(table)) as file:
        file.write((json.dumps(reasons, ensure_ascii=False, indent=1) + "\n").encode())


def _sat(exams: Sequence[Exam], config: Config, job: Job) -> Iterator[tuple[Exam, Rows]]:
    """Exams that must be sat: one stream of problems for the model, cut where an exam ends."""
    from magcli.run.units import drain, in_order

    sitting = _Sitting(exams, config, job)
    most = min(exam.ask.samples for exam in exams)
    results = drain(in_order(sitting.units(), sitting.finish, max(2, 2 * config.slots // most + 2)), sitting.close)
    with sitting.bar:
        for number, parts in groupby(results, key=lambda each: each[0]):
            yield exams[number], sitting.rows(exams[number], (result for _, result in parts))


class _Sitting:
    """The model, the graders by their functions and the journals of exams under way."""

    def __init__(self, exams: Sequence[Exam], config: Config, job: Job) -> None:
        self.exams, self.job = exams, job
        self.journals = [_journal(exam, job) for exam in exams]
        kept = [journal for journal in self.journals if journal is not None]
        self.generator: Generator = setup.open_engine(config, job, kept)
        self.graders: dict[str, Grader] = {
            function: setup.open_grader(config, function) for function in {exam.function for exam in exams}
        }
        total = sum(batch.num_rows for exam in exams for batch in exam.problems)
        self.bar = job.console.progress(total, "problems", job.stage)
        if done := sum(len(journal.places) for journal in kept):
            job.console.say(f"{job.stage}: goes on, {done} of {total} problems are there", event="resumed", done=done)

    def units(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All problems, each with the number of its exam and a key."""
        from magcli.data.table import rechunk
        from magcli.run.units import keyed

        for number, exam in enumerate(self.exams):
            for key, part in keyed(rechunk(iter(exam.problems), 1)):
                yield f"{number}:{key}", part

    async def finish(self, name: str, part: pa.RecordBatch) -> tuple[int, Result]:
        """The samples of a problem, from the journal if they are there."""
        number, _, key = name.partition(":")
        exam, journal = self.exams[int(number)], self.journals[int(number)]
        if journal is not None and key in journal:
            self.bar.advance(reused=True)
            return int(number), journal.get(key)
        result = await self._asked(exam, part)
        if journal is not None:
            journal.put(key, result)
        self.bar.advance()
        return int(number), result

    async def _asked(self, exam: Exam, part: pa.RecordBatch) -> Result:

        from magcli.curate.sampling import completion_columns, rewards_of, samples_of
        from magcli.data.columns import attach, repeated
        from magcli.run.job import left_out
        from magcli.run.journal import Result
        from magcli.verify.reward import columns

        row, grader = part.to_pylist()[0], self.graders[exam.function]
        grader.check(row)
        try:
            samples = await samples_of(self.generator, row, exam.ask)
        except PromptRefused as error:
            return left_out(row, error.reason, exam.schema, error=str(error))
        rewards = await rewards_of(grader, row, samples, exam.rule)
        many = attach(repeated(part.select(exam.columns), len(samples)), completion_columns(samples))
        return Result(attach(many, columns(rewards)))

    def rows(self, exam: Exam, results: Iterator[Result]) -> Rows:
        """The rows of an exam, kept in its table on the way."""
        from magcli.run.keep import kept

        rows = self._told(exam, results)
        return kept(rows, exam.table, replace(self.job, settings=exam.identity)) if exam.table else rows

    def _told(self, exam: Exam, results: Iterator[Result]) -> Rows:
        reasons = {}
        for result in results:
            for dropped in result.dropped:
                self.job.drops.add(dropped)
                reasons[dropped.id] = dropped.reason
            yield result.rows
        if exam.table is not None:
            _keep_reasons(exam.table, reasons)

    async def close(self) -> None:
        """End the model and the graders; journals stay."""
        await self.generator.close()
        for grader in self.graders.values():
            await grader.close()
        for journal in self.journals:
            if journal is not None:
                journal.close()


def _journal(exam: Exam, job: Job) -> Journal | None:
    from magcli import __version__
    from magcli.data import durable
    from magcli.run.journal import Journal

    if exam.journal is None:
        return None
    exam.journal.parent.mkdir(parents=True, exist_ok=True)
    if job.restart:
        durable.remove(exam.journal)
    return Journal.open(exam.journal, exam.schema, {"stage": job.stage, "version": __version__, **exam.identity})

"""Suite tasks: problems to sample and grade, and everything that determines their completions.

The completions of a finished task are a table whose history records this; an unfinished task has a journal next to it.
Stored completions are reused, missing ones are sampled in one stream and graded. Options that only change the metrics,
such as ``--ks``, need no new samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from magcli import __version__
from magcli.curate.sampling import completion_columns, grade_samples, sample_problem
from magcli.data import durable, seal, table
from magcli.data.schema import COMPLETION, REWARD, extend_schema, repeat_rows, with_columns
from magcli.data.table import rechunk
from magcli.data.values import to_rows
from magcli.errors import DataError, PromptRefused, PromptTooLong
from magcli.evaluation import programs, rows
from magcli.evaluation import suite as suites
from magcli.run import units
from magcli.run.each_row import Drop, result_of
from magcli.run.journal import Journal
from magcli.run.settings import fingerprint
from magcli.run.types import Result
from magcli.run.units import drain, in_order, keyed, reporting, with_rows
from magcli.stages.evaluate.config import completions_table, sampling_options
from magcli.stages.shared import engines, environments, graders, templates
from magcli.verify.reward import ALL_TESTS, RewardRule
from magcli.verify.reward_columns import columns
from magcli.verify.trial import check_reward, try_reward

if TYPE_CHECKING:
    from magcli.console import Progress
    from magcli.curate.sampling import SamplingPlan
    from magcli.data.source import Rows
    from magcli.environments.environment import Environment
    from magcli.evaluation.suite import Suite
    from magcli.generate.types import Generator
    from magcli.model.chat.thoughts import ThoughtForm
    from magcli.model.model import Model
    from magcli.run.job import Job
    from magcli.stages.evaluate.config import Config
    from magcli.stages.shared.cluster_engines import ClusterEngines
    from magcli.stages.shared.options import SamplingOptions
    from magcli.verify.grader import Grader

MAX_TEST_BYTES = 16 << 20
"""Maximum total size of a suite's tests that are stored with every completion, so that it can be graded again."""


class SuiteTask(NamedTuple):
    """One suite, or a table of problems (its name is empty then).

    ``sampling`` are the options from which ``plan`` is made. ``identity`` is everything that determines its
    completions. ``table``: where they are stored, if requested.
    ``journal``: the journal of unfinished work, if the command has an output. ``note`` is printed with the metrics.
    """

    name: str
    problems: Sequence[pa.RecordBatch]
    sampling: SamplingOptions
    plan: SamplingPlan
    function: str
    rule: RewardRule
    identity: Mapping[str, Any]
    table: Path | None
    journal: Path | None
    note: str = ""

    @property
    def num_problems(self) -> int:
        """The number of its problems."""
        return sum(batch.num_rows for batch in self.problems)

    @property
    def columns(self) -> list[str]:
        """The columns of a problem that are repeated in its completions: all, except large tests of a suite."""
        names: list[str] = self.problems[0].schema.names
        if not self.name or "tests" not in names:
            return names
        # Repeated for each sample, large tests would fill the disk; the suite has them anyway.
        size = sum(batch.column("tests").nbytes for batch in self.problems)
        return [name for name in names if name != "tests" or size <= MAX_TEST_BYTES]

    @property
    def schema(self) -> pa.Schema:
        """The columns of its graded completions."""
        problems = self.problems[0].schema
        repeated = pa.schema([problems.field(name) for name in self.columns], problems.metadata)
        return extend_schema(extend_schema(repeated, COMPLETION), REWARD)


def tasks_of_suites(config: Config, output: str | None) -> list[SuiteTask]:
    """The tasks of a command's suites.

    Raises:
        UsageError, DataError: a suite is unknown, or its data is missing.
        EnvironmentFault: a package that a suite's verifier needs is not installed.
    """
    model = templates.open_model(config)
    tasks = []
    for suite in suites.load(config.suite):
        if suite.verifier == "ifeval":
            suites.require_ifeval()
        problems = rows.problems(suite, config.data, config.seed)
        notes = (suite.note, programs.in_process_note(problems))
        noted = replace(suite, note="; ".join(filter(None, notes)))
        batches = pa.Table.from_pylist(problems).to_batches()
        tasks.append(_task(config, model, noted, batches, output))
    return tasks


def task_of_table(config: Config, problems: Sequence[pa.RecordBatch], output: str | None) -> SuiteTask:
    """The task of a table of problems."""
    return _task(config, templates.open_model(config), None, problems, output)


def _task(
    config: Config,
    model: Model,
    suite: Suite | None,
    problems: Sequence[pa.RecordBatch],
    output: str | None,
) -> SuiteTask:
    sampling = sampling_options(config, suite)
    name, function, note, language = "", "", "", config.language
    if suite:
        name, function, note = suite.name, suite.function, suite.note
        language = language or suite.language
    identity = {
        "suite": name,
        # By content: a suite's data may come from a folder or from the hub.
        "problems_sha256": digest(problems),
        "model": config.model,
        **{part: getattr(config, part) for part in ("engine", "dtype", "deterministic", "verify_deadline", "sandbox")},
        **{part: getattr(sampling, part) for part in ("samples", "max_tokens", "temperature", "top_p", "seed")},
        "language": language,
        "stop": list(config.stop),
        "thoughts": config.thoughts,
        **engines.model_identity(model, sampling.system),
        **graders.grader_identity(config, function, config.environment),
    }
    table = completions_table(config.completions, name)
    base = table
    # Without a table for them completions are journaled beside the output; with neither, not at all.
    if base is None and output not in (None, "-"):
        base = Path(f"{output}.{name or 'completions'}")
    journal = base.with_name(f".{base.name}.journal") if base else None
    rule = RewardRule(use_language=language, num_tests=ALL_TESTS)
    # With the usual form of thoughts; ``_in_form`` replaces it once the model is open.
    plan = engines.sampling_plan(sampling)
    return SuiteTask(name, problems, sampling, plan, function, rule, identity, table, journal, note)


def _in_form(task: SuiteTask, model: Model, environment: Environment | None, thoughts: ThoughtForm) -> SuiteTask:
    """The task for a model with this form of thoughts: its system prompt names it, and the reward expects it."""
    episodes = environments.text_episodes(environment, model, task.sampling.system) if environment is not None else None
    plan = engines.sampling_plan(task.sampling, thoughts, episodes)
    return task._replace(plan=plan, rule=replace(task.rule, thoughts=thoughts))


def digest(problems: Sequence[pa.RecordBatch]) -> str:
    """SHA-256 of problems, as values."""
    sha = hashlib.sha256()
    for batch in problems:
        # ``repr`` tells 1 from "1" and None from "None".
        sha.update(repr((batch.schema.names, to_rows(batch))).encode("utf-8", "surrogatepass"))
    return sha.hexdigest()


def run_tasks(tasks: Sequence[SuiteTask], config: Config, job: Job) -> Iterator[tuple[SuiteTask, Rows]]:
    """Each task with its graded completions, which must be read before those of the next task.

    The model is loaded once for all tasks, and only if completions are missing.
    """
    missing = []
    for task in tasks:
        # Stored ones come first, before a model is loaded for the others.
        rows = _stored(task, job)
        if rows is None:
            missing.append(task)
        else:
            yield task, rows
    if missing:
        yield from _sampled(missing, config, job)


def clear_journals(tasks: Sequence[SuiteTask]) -> None:
    """Remove the journals of finished tasks."""
    for task in tasks:
        if task.journal is not None:
            durable.remove(task.journal)


def _stored(task: SuiteTask, job: Job) -> Rows | None:
    """The stored completions of this task; stale completions trigger a message."""
    if task.table is None or job.restart or not task.table.exists():
        return None
    source = table.read(str(task.table))
    identity = fingerprint(task.identity)
    differs = list(identity)
    if source.chain:
        link = source.chain[-1]
        before = fingerprint(link.config)
        # Packed, because a history has lists where the identity may have tuples.
        if link.version == __version__ and seal.pack(before) == seal.pack(identity):
            job.console.say(f"evaluate: reusing the completions in {task.table}", event="reused")
            return _completed(source.rows, task, job)
        differs = [key for key in identity if before.get(key) != identity[key]]
    changes = ", ".join(differs) or "version"
    job.console.say(f"evaluate: {task.table} is stale (other {changes}); sampling again", event="stale")
    return None


def _completed(rows: Rows, task: SuiteTask, job: Job) -> Rows:
    """Stored completions; problems without any were dropped during sampling, and are counted as dropped again."""
    assert task.table is not None
    answered: set[str] = set()
    reasons = _drop_reasons(task.table)
    names = [name for name in ("id", "suite") if name in task.columns]
    for batch in rows:
        answered.update(map(_name, batch.select(names).to_pylist()))
        yield batch
    for batch in task.problems:
        for row in to_rows(batch):
            name = _name(row)
            if name not in answered:
                # The file of reasons is missing beside a table that was moved without it.
                job.drops.row(row["id"], reasons.get(name, PromptTooLong.reason), row)


def _name(problem: Mapping[str, Any]) -> str:
    """What tells a problem of a task from the others: its id, in a table of several suites behind its suite."""
    id, suite = problem["id"], problem.get("suite")
    # The ids of a suite of magcli begin with its name already.
    return f"{suite}/{id}" if suite and not id.startswith(f"{suite}/") else str(id)


def _reasons_path(table: Path) -> Path:
    return table.with_name(f"{table.name}.left-out.json")


def _drop_reasons(table: Path) -> dict[str, str]:
    """Why problems have no completions in a stored table, by ``_name``."""
    path = _reasons_path(table)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _store_reasons(table: Path, reasons: Mapping[str, str]) -> None:
    if not reasons:
        durable.remove(_reasons_path(table))
        return
    with durable.atomic_file(_reasons_path(table)) as file:
        file.write((json.dumps(reasons, ensure_ascii=False, indent=1) + "\n").encode())


def _sampled(tasks: Sequence[SuiteTask], config: Config, job: Job) -> Iterator[tuple[SuiteTask, Rows]]:
    """Sample and grade tasks: one stream of problems for the model, split by task."""
    total = sum(task.num_problems for task in tasks)
    samples = min(task.plan.samples for task in tasks)
    # Problems at once: twice those that fill the slots, which are busy while other problems are graded.
    window = max(2, 2 * config.num_slots // samples + 2)
    with job.console.progress(total, "problems", job.stage) as bar:
        runner = _Runner(tasks, config, job, bar)
        ordered = in_order(runner.units(), runner.finish, window)
        results = drain(reporting(ordered, units.REPORT_EVERY, runner.report), runner.close)
        # The results are in the order of the units, so those of a task follow one another.
        for number, numbered in groupby(results, key=lambda pair: pair[0]):
            task = runner.tasks[number]
            of_task = (result for _, result in numbered)
            yield task, runner.rows(task, of_task)


class _Runner:
    """The model, the graders by reward function, and the journals of running tasks."""

    def __init__(self, tasks: Sequence[SuiteTask], config: Config, job: Job, bar: Progress) -> None:
        self.tasks = tasks
        self.job = job
        self.bar = bar
        bar.report("opening the engine")
        # Before the engine: it keeps what an interrupted run chose for it.
        self.journals = [_journal(task, job) for task in tasks]
        unfinished = [journal for journal in self.journals if journal is not None]
        self.graders: dict[str, Grader] = {}
        # Suites with the same reward share its workers.
        for function in {task.function for task in tasks}:
            self.graders[function] = graders.open_grader(config, function, config.environment)
        # Before the engine, whose start may take minutes.
        self._try_functions()
        self.engines: ClusterEngines | None = None
        self.generator = self._open_engine(config, unfinished)
        self._opened = ExitStack()
        environment: Environment | None = None
        if config.environment:
            environment = self._opened.enter_context(environments.open_environment(config, config.environment))
        model = templates.open_model(config)
        self.tasks = [_in_form(task, model, environment, self.generator.thoughts) for task in tasks]
        bar.begin()
        bar.report("")
        done = sum(len(journal.positions) for journal in unfinished)
        if done:
            text = f"{job.stage}: resuming, {done} of {bar.total} problems are finished"
            job.console.say(text, event="resumed", done=done)

    def _open_engine(self, config: Config, unfinished: Sequence[Journal]) -> Generator:
        """The engine of this process, or those of --cluster."""
        if not config.cluster:
            # vLLM compiles only for work that is worth it.
            expected = [(task.num_problems * task.sampling.samples, task.sampling.max_tokens) for task in self.tasks]
            return engines.open_engine(config, self.job, unfinished, expected)

        from magcli.stages.shared.cluster_engines import ClusterEngines  # with PyTorch, which graded tables do without

        self.engines = ClusterEngines(config, self.job, unfinished)
        return self.engines.generator()

    def report(self) -> None:
        """Show the progress, also while no problem is finished."""
        self.bar.report(self._note())

    def _note(self) -> str:
        return f"{self.generator.num_finished:,} completions finished"

    def _try_functions(self) -> None:
        """Try the suites' custom rewards on their first problems; closes the graders if one fails."""
        try:
            for task in self.tasks:
                filled = [batch for batch in task.problems if batch.num_rows]
                if task.function and filled:
                    first_row = to_rows(filled[0].slice(0, 1))[0]
                    check_reward(task.function)
                    try_reward(self.graders[task.function], task.function, first_row)
        except BaseException:
            for grader in self.graders.values():
                grader.shutdown()
            raise

    def units(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All problems, each with the number of its task and a key."""
        for number, task in enumerate(self.tasks):
            # A problem is a unit, so that a killed evaluation loses the running ones alone.
            for key, part in keyed(rechunk(iter(task.problems), 1)):
                yield f"{number}:{key}", part

    async def finish(self, name: str, part: pa.RecordBatch) -> tuple[int, Result]:
        """The graded samples of a problem, from the journal if it has them."""
        number, _, key = name.partition(":")
        task = self.tasks[int(number)]
        journal = self.journals[int(number)]
        if journal is not None and key in journal:
            self.bar.advance(reused=True)
            return int(number), with_rows(journal.get(key), part)
        result = await self._graded(task, part)
        if journal is not None:
            journal.put(key, result)
        self.bar.advance(note=self._note())
        return int(number), result

    async def _graded(self, task: SuiteTask, part: pa.RecordBatch) -> Result:
        row = to_rows(part)[0]
        grader = self.graders[task.function]
        grader.check(row)
        try:
            samples = await sample_problem(self.generator, row, task.plan)
        # The other problems of the suite are still worth their metrics.
        except PromptRefused as error:
            return result_of([row], [Drop(error.reason, error=str(error))], task.schema)
        rewards = await grade_samples(grader, row, samples, task.rule)
        problems = repeat_rows(part.select(task.columns), len(samples))
        # Without the conversations of an environment: a suite's table has the usual columns.
        sampled = completion_columns(samples).select(COMPLETION.names)
        completions = with_columns(problems, sampled)
        return Result(with_columns(completions, columns(rewards)))

    def rows(self, task: SuiteTask, results: Iterator[Result]) -> Rows:
        """The rows of a task, written to its table while they pass."""
        rows = self._rows(task, results)
        # Its history has what determines the completions, by which they are recognised later.
        return _tee(rows, task.table, replace(self.job, settings=task.identity)) if task.table else rows

    def _rows(self, task: SuiteTask, results: Iterator[Result]) -> Rows:
        reasons = {}
        for result in results:
            for dropped in result.dropped:
                self.job.drops.add(dropped)
                reasons[_name(dropped.row)] = dropped.reason
            yield result.rows
        if task.table is not None:
            _store_reasons(task.table, reasons)

    async def close(self) -> None:
        """Close the model, the graders and the journals, which stay on disk."""
        await self.generator.close()
        # The environment after the engine that asks it.
        self._opened.close()
        if self.engines is not None:
            self.engines.close()
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
    # Its schema is that of the table.
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
    if task.journal is None:
        return None
    task.journal.parent.mkdir(parents=True, exist_ok=True)
    if job.restart:
        durable.remove(task.journal)
    return Journal.open(task.journal, task.schema, {"stage": job.stage, "version": __version__, **task.identity})

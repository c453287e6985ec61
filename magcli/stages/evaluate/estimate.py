"""`magcli evaluate`: from problems or graded completions to metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.evaluate import completions, suite_tasks
from magcli.stages.evaluate.compare import COMPLETIONS, compare
from magcli.stages.evaluate.config import Config, baseline
from magcli.stages.shared import engines, grading, tables

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.evaluation.metrics import Estimate, Problem
    from magcli.run.job import Job
    from magcli.stages.evaluate.completions import AnswerEquality
    from magcli.stages.evaluate.suite_tasks import SuiteTask

    Evaluated = tuple[list[SuiteTask], dict[str, list[Problem]]]
    """The tasks, if any were run, and the problems by suite."""


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the system prompt, of suites and of the other run."""
    identity: dict[str, Any] = {}
    if config.model:
        identity |= engines.model_identity(config.model, config.system) | grading.grader_identity(config)
    if config.suite:
        tasks = suite_tasks.tasks_of_suites(config, None)
        identity["suites_sha256"] = {task.name: task.identity["problems_sha256"] for task in tasks}
    if config.before:
        identity["before"] = engines.model_identity(config.before, config.system)
    if config.against and completions.is_suite_folder(config.against):
        paths = sorted(config.against.glob("*.arrow"))
        return identity | {"against_sha256": {path.name: completions.digest(path) for path in paths}}
    return identity | tables.table_identity("against", config.against)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The stored completions, or the Markdown of a comparison."""
    from magcli.evaluation.suite import load

    if config.completions is None:
        return () if config.markdown is None else (config.markdown,)
    names = [suite.name for suite in load(config.suite)] if config.suite else [""]
    roots = [config.completions, *filter(None, [baseline(config).completions if config.before else None])]
    return tuple(path for root in roots for name in names if (path := suite_tasks.completions_table(root, name)))


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row per suite and metric; in a comparison also per model."""
    from magcli.evaluation import comparison

    return comparison.SCHEMA if config.compare else comparison.METRICS


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample and grade if there is a model, then estimate and report."""
    import pyarrow as pa

    if config.compare:
        yield compare(config, job)
        return
    given = list(rows) if config.model else rows
    _check_against(config, given if config.model else ())
    with completions.AnswerEquality(config) as equality:
        earlier, theirs = _baseline(config, given, job, equality) if config.before else ([], {})
        tasks, ours = _evaluated(config, given, job, equality)
        found = {suite: _estimated(suite, each, theirs.get(suite), config, equality) for suite, each in ours.items()}
    completions.report_skipped_ks(ours, config.ks, job)
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in job.drops.counts.most_common())
    if not found:
        reasons = f"; dropped: {dropped}" if dropped else ""
        raise DataError(f"evaluate: there is no graded completion to evaluate{reasons}")
    order = [task.name for task in tasks]
    names = sorted(found, key=lambda name: order.index(name) if name in order else 0)
    estimates = [each for name in names for each in found[name]]
    _report(estimates, job)
    if dropped:
        job.console.say(f"dropped: {dropped}", event="dropped", dropped=dict(job.drops.counts))
    for task in (task for task in tasks if task.note):
        job.console.say(f"{task.name}: {task.note}", event="note", suite=task.name, note=task.note)
    job.facts[COMPLETIONS] = completions.digests({task.name: task.table for task in tasks if task.table})
    yield pa.RecordBatch.from_pylist([_row(suite, each) for suite, each in estimates], schema(config, pa.schema([])))
    suite_tasks.clear_journals([*tasks, *earlier])


def _check_against(config: Config, given: Iterable[pa.RecordBatch]) -> None:
    """Check that the --against run can be compared before anything is sampled.

    Raises:
        DataError: its table, or that of a suite, is missing or lacks columns.
    """
    from magcli.evaluation.suite import load

    if config.against is None:
        return
    wanted = {suite.name for suite in load(config.suite)} or _suites_in(given)
    for suite in sorted(wanted) if completions.is_suite_folder(config.against) else [""]:
        completions.open_completions(config.against, suite)


def _suites_in(problems: Iterable[pa.RecordBatch]) -> set[str]:
    """The names of the suites of problems; empty for those without one."""
    names = [batch.column("suite").to_pylist() if "suite" in batch.schema.names else [""] for batch in problems]
    return {suite or "" for each in names for suite in each}


def _evaluated(config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: AnswerEquality) -> Evaluated:
    """Run the command's tasks, or read the graded completions of its table."""
    if config.suite:
        tasks = suite_tasks.tasks_of_suites(config, job.output)
    else:
        tasks = [suite_tasks.task_of_table(config, list(rows), job.output)] if config.model else []
    parts = (graded for _, graded in suite_tasks.run_tasks(tasks, config, job)) if tasks else iter([iter(rows)])
    found = (each for part in parts for each in completions.by_suite(part, job).items())
    return tasks, {suite: equality.merge(problems, config.ks) for suite, problems in found}


def _baseline(config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: AnswerEquality) -> Evaluated:
    """Evaluate the --before model; rows that it drops are not counted twice."""
    from magcli.run.job import Drops

    output = f"{job.output}.before" if job.output not in (None, "-") else None
    return _evaluated(baseline(config), rows, replace(job, drops=Drops(keep=False), output=output), equality)


def _estimated(
    suite: str, problems: list[Problem], before: list[Problem] | None, config: Config, equality: AnswerEquality
) -> list[tuple[str, Estimate]]:
    """The metrics of one suite, and the differences to another run or to the --before model."""
    from magcli.evaluation import metrics

    found = metrics.estimate(problems, config.ks, config.seed)
    if config.against:
        before = equality.merge(completions.read_problems(config.against, suite), config.ks)
    differences = metrics.paired(problems, before or (), config.ks, config.seed)
    if not differences and (config.against or config.before):
        other = config.against or config.before
        raise DataError(f"evaluate: {other} has no problem in common with the input; ids must be equal")
    return [(suite, each) for each in (*found, *differences)]


def _row(suite: str, estimate: Estimate) -> dict[str, Any]:
    """A row of the table; the bounds of a single problem are null."""
    return {"suite": suite} | {k: None if value != value else value for k, value in estimate._asdict().items()}


def _report(estimates: Sequence[tuple[str, Estimate]], job: Job) -> None:
    from magcli.evaluation.metrics import scale

    width = max(len(f"{suite} {each.metric}".strip()) for suite, each in estimates)
    for suite, each in estimates:
        sign = "+" if "difference" in each.metric else ""
        value, low, high = (scale(each.metric) * number for number in (each.value, each.low, each.high))
        bounds = f"[{low:{sign}.1f}, {high:{sign}.1f}]" if low == low else "(a single problem has no interval)"
        text = f"{f'{suite} {each.metric}'.strip():<{width}}  {value:{sign}.1f}  {bounds}"
        job.console.say(
            f"{text}  {each.num_problems} problems, {each.num_samples} samples", event="metric", **_row(suite, each)
        )

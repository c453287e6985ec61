"""`magcli evaluate`: from problems or graded completions to metrics, and from several tables to their comparison.

Graded completions become problems with one spelling of equal answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.console import counted
from magcli.data import durable
from magcli.data.json_columns import finite
from magcli.errors import DataError
from magcli.evaluation import metrics
from magcli.evaluation.metrics import ignoring_format, min_samples, scale
from magcli.evaluation.suite import load
from magcli.run.job import Drops
from magcli.stages.evaluate import suite_tasks
from magcli.stages.evaluate.config import Config, baseline, completions_table, reads
from magcli.stages.shared import engines, environments, graders, tables, templates
from magcli.stages.shared import preview as previews
from magcli.stages.shared.evaluations import (
    COMPLETIONS,
    AnswerEquality,
    by_suite,
    digest,
    digests,
    is_suite_folder,
    open_completions,
    read_problems,
    sides_of,
    warn_of_restated,
)

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.evaluation.metrics import Estimate, Problem
    from magcli.run.job import Job
    from magcli.stages.evaluate.suite_tasks import SuiteTask

    Evaluated = tuple[list[SuiteTask], dict[str, list[Problem]]]
    """The tasks, if any were run, and the problems by suite."""


ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries an environment on the first problem."""
    return environments.environment_trial(config, config.environment)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the system prompt, of suites and of the other run."""
    identity: dict[str, Any] = {}
    if config.model:
        identity |= engines.model_identity(templates.open_model(config), config.system)
        identity |= graders.grader_identity(config, environment=config.environment)
    if config.suite:
        tasks = suite_tasks.tasks_of_suites(config, None)
        identity["suites_sha256"] = {task.name: task.identity["problems_sha256"] for task in tasks}
    if config.before:
        before = templates.open_model(config, config.before)
        identity["before"] = engines.model_identity(before, config.system)
        if not before.is_local:
            # Without a digest the name has to do.
            identity["before"] = {"model": config.before} | identity["before"]
    if config.against and is_suite_folder(config.against):
        paths = sorted(config.against.glob("*.arrow"))
        identity["against_sha256"] = {path.name: digest(path) for path in paths}
        return identity
    return identity | tables.table_identity("against", config.against)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """One row per suite and metric; in a comparison also per model."""
    return metrics.COMPARISON if config.compare else metrics.METRICS


def learned(config: Config) -> pa.Schema:
    """The columns of dropped problems of suites, which are no input."""
    names = ("id", "prompt", "answer", "suite") if config.suite else ()
    return pa.schema([(name, pa.string()) for name in names])


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable rows, for --dry-run: problems, or without --model completions."""
    if not config.model:
        return sum(batch.num_rows for batch in rows)
    return previews.graded_problems(config, rows, job)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample and grade if there is a model, then estimate and report."""
    if config.compare:
        yield _compared(config, job)
        return
    batches = list(rows) if config.model else rows  # --before reads the problems a second time
    _check_against(config, batches if config.model else ())
    if config.before:
        _check_models(config)
    with AnswerEquality(config) as equality:
        earlier, theirs = _baseline(config, batches, job, equality) if config.before else ([], {})
        tasks, ours = _evaluated(config, batches, job, equality)
        estimates_of: dict[str, list[Estimate]] = {}
        for suite, problems in ours.items():
            # Within the block: merging answers starts workers.
            estimates_of[suite] = _estimated(suite, problems, theirs.get(suite), config, job, equality)

    report_skipped_ks(ours, config.ks, job)
    for task in tasks:
        is_greedy = task.plan.sampling.temperature == 0
        if is_greedy and task.plan.samples > 1:
            _report_equal_samples(task.name, task.plan.samples, job)
    dropped = counted(job.drops.counts)
    if not estimates_of:
        reasons = f"; dropped: {dropped}" if dropped else ""
        raise DataError(f"evaluate: there is no graded completion to evaluate{reasons}")

    # In the order of the tasks; suites of a table, which are no tasks, as they come.
    position = {task.name: number for number, task in enumerate(tasks)}
    left_out = _left_out(tasks, ours)
    estimates = []
    for suite in sorted(estimates_of, key=lambda name: position.get(name, 0)):
        for estimate in estimates_of[suite]:
            estimates.append((suite, estimate._replace(num_left_out=left_out.get(suite))))

    _report(estimates, job)
    if dropped:
        job.console.result(f"dropped: {dropped}", event="dropped", dropped=dict(job.drops.counts))
    for task in tasks:
        if task.note:
            job.console.say(f"{task.name}: {task.note}", event="note", suite=task.name, note=task.note)
    job.facts[COMPLETIONS] = digests({task.name: task.table for task in tasks if task.table})
    metrics_rows = [_row(suite, estimate) for suite, estimate in estimates]
    yield pa.RecordBatch.from_pylist(metrics_rows, job.output_schema)
    suite_tasks.clear_journals([*tasks, *earlier])  # only once the metrics are written


def _left_out(tasks: Sequence[SuiteTask], evaluated: Mapping[str, Sequence[Problem]]) -> dict[str, int]:
    """The number of problems of each suite that were asked but have no sample with a verdict."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for task in tasks:
        for batch in task.problems:
            ids = batch.column("id").to_pylist()
            for suite, id in zip(_suites(batch), ids, strict=True):
                asked[suite].add(id)
    left_out = {}
    for suite, ids_of_suite in asked.items():
        num_evaluated = len(evaluated.get(suite, ()))
        left_out[suite] = len(ids_of_suite) - num_evaluated
    return left_out


def _report_equal_samples(suite: str, samples: int, job: Job) -> None:
    where = f"{suite}: " if suite else ""
    job.console.say(
        f"evaluate: {where}greedy decoding (temperature 0) makes the {samples} samples of a problem equal, so "
        "pass@k and maj@k equal avg@n; use --samples 1, or a temperature above 0",
        event="equal-samples",
        suite=suite,
    )


def _check_against(config: Config, problems: Iterable[pa.RecordBatch]) -> None:
    """Check that the --against run can be compared before anything is sampled.

    Raises:
        DataError: its table, or that of a suite, is missing or lacks columns.
    """
    if config.against is None:
        return
    # A table of problems may have a column of suites.
    wanted = {suite.name for suite in load(config.suite)} or _suites_in(problems)
    names = sorted(wanted) if is_suite_folder(config.against) else [""]
    for suite in names:
        open_completions(config.against, suite)


def _check_models(config: Config) -> None:
    """Look for both models before one of them samples; stored completions may be all that is needed of a model.

    Raises:
        EnvironmentFault: one of them is missing.
    """
    for side in (config, baseline(config)):
        names = [suite.name for suite in load(side.suite)] or [""]
        stored = [completions_table(side.completions, name) for name in names]
        if not all(table is not None and table.exists() for table in stored):
            engines.require_model(templates.open_model(side))


def _suites_in(problems: Iterable[pa.RecordBatch]) -> set[str]:
    """The names of the suites of problems; empty for those without one."""
    return set(chain.from_iterable(map(_suites, problems)))


def _suites(batch: pa.RecordBatch) -> list[str]:
    """The suite of each problem; empty for one without."""
    if "suite" not in batch.schema.names:
        return [""] * batch.num_rows
    return [suite or "" for suite in batch.column("suite").to_pylist()]


def _evaluated(config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: AnswerEquality) -> Evaluated:
    """Run the command's tasks, or read the graded completions of its table."""
    tasks: list[SuiteTask] = []
    if config.suite:
        tasks = suite_tasks.tasks_of_suites(config, job.output)
    elif config.model:
        tasks = [suite_tasks.task_of_table(config, list(rows), job.output)]
    parts: Iterable[Rows] = [iter(rows)]
    if tasks:
        parts = (graded for _, graded in suite_tasks.run_tasks(tasks, config, job))
    evaluated: dict[str, list[Problem]] = {}
    for part in parts:
        for suite, problems in by_suite(part, job).items():
            # Merged after the verdicts are chosen: only wrong answers are compared.
            evaluated[suite] = equality.merge(_judged(problems, config), config.ks)
    return tasks, evaluated


def _judged(problems: list[Problem], config: Config) -> list[Problem]:
    """The problems with the verdicts that count: those in the format, or with --anywhere all."""
    return ignoring_format(problems) if config.anywhere else problems


def _baseline(config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: AnswerEquality) -> Evaluated:
    """Evaluate the --before model; rows that it drops are not counted twice."""
    # Journals are named by the output, and the two models need two.
    output = f"{job.output}.before" if job.output not in (None, "-") else None
    apart = replace(job, drops=Drops(keep=False), output=output)
    return _evaluated(baseline(config), rows, apart, equality)


def _estimated(
    suite: str,
    problems: list[Problem],
    before: list[Problem] | None,
    config: Config,
    job: Job,
    equality: AnswerEquality,
) -> list[Estimate]:
    """The metrics of one suite, those of the --before model, and the differences to it or to another run."""
    estimates = metrics.estimate(problems, config.ks, config.seed)
    if config.against:
        judged = _judged(read_problems(config.against, suite), config)
        before = equality.merge(judged, config.ks)
        warn_of_restated(problems, before, f"the input and {config.against}", job.console, stage="evaluate")
    differences = metrics.paired(problems, before or (), config.ks, config.seed)
    other = config.against or config.before
    if other and not differences:
        raise DataError(f"evaluate: {other} has no problem in common with the input; ids must be equal")
    if config.before and before:
        estimates += metrics.of_other_model(metrics.estimate(before, config.ks, config.seed))
    return estimates + differences


def _row(suite: str, estimate: Estimate) -> dict[str, Any]:
    """A row of the table; the bounds of a single problem are null."""
    return {"suite": suite, **finite(estimate._asdict())}


def _report(estimates: Sequence[tuple[str, Estimate]], job: Job) -> None:
    """Print a line for each estimate, in columns."""
    names = [f"{suite} {estimate.metric}".strip() for suite, estimate in estimates]
    width = max(map(len, names))
    for name, (suite, estimate) in zip(names, estimates, strict=True):
        text = f"{name:<{width}}  {_value_text(estimate)}  {_counts_text(estimate)}"
        job.console.result(text, event="metric", **_row(suite, estimate))


def _value_text(estimate: Estimate) -> str:
    """A value with its interval, of a difference with signs; an interval of a single problem is not a number."""
    # Format spec: show the sign of positive numbers too.
    sign = "+" if "difference" in estimate.metric else ""
    factor = scale(estimate.metric)
    value = f"{factor * estimate.value:{sign}.1f}"
    if isnan(estimate.low):
        return f"{value}  (a single problem has no interval)"
    return f"{value}  [{factor * estimate.low:{sign}.1f}, {factor * estimate.high:{sign}.1f}]"


def _counts_text(estimate: Estimate) -> str:
    """Of how many problems and samples an estimate is."""
    counts = f"{estimate.num_problems} problems, {estimate.num_samples} samples"
    if estimate.num_left_out:
        counts += f"; {estimate.num_left_out} problems left out"
    return counts


def _compared(config: Config, job: Job) -> pa.RecordBatch:
    """Compare the tables of the command, and print the comparison as Markdown."""
    with AnswerEquality(config) as equality:
        sides = sides_of(job.sources, config.ks, config.seed, equality, job.console, stage="evaluate")
    for side in sides:
        # A suite without a name leaves a space.
        by_name = {f"{side.name} {suite}".rstrip(): problems for suite, problems in side.problems.items()}
        report_skipped_ks(by_name, config.ks, job)
    rows = metrics.compare(sides, config.ks, config.seed)
    text = metrics.comparison_markdown(rows)
    if config.markdown:
        with durable.atomic_file(config.markdown) as file:
            file.write(text.encode())
    job.console.result(text.rstrip(), event="comparison", rows=rows)
    return pa.RecordBatch.from_pylist(rows, metrics.COMPARISON)


def report_skipped_ks(problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], job: Job) -> None:
    """Report the values of k for which some problem has too few samples."""
    for suite, suite_problems in problems.items():
        fewest = min_samples(suite_problems)
        skipped = [k for k in ks if k > fewest]
        if skipped:
            prefix = f"{suite}: " if suite else ""
            listed = ", ".join(map(str, skipped))
            text = f"{prefix}--ks {listed} skipped: the fewest samples of a problem are {fewest}"
            job.console.say(text, event="ks-skipped", suite=suite, ks=skipped, min_samples=fewest)

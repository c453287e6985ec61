"""`magcli evaluate`: from problems or graded completions to metrics, and from several tables to their comparison.

Graded completions become problems with one spelling of equal answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.evaluate import suite_tasks
from magcli.stages.evaluate.config import Config, baseline
from magcli.stages.shared import engines, tables, templates
from magcli.stages.shared import preview as previews

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from magcli.console import Console
    from magcli.data.source import Rows, Source
    from magcli.evaluation.metrics import Estimate, Key, Problem, Side
    from magcli.run.job import Job
    from magcli.stages.evaluate.suite_tasks import SuiteTask
    from magcli.stages.shared.options import GraderOptions
    from magcli.verify.grader import Grader

    Evaluated = tuple[list[SuiteTask], dict[str, list[Problem]]]
    """The tasks, if any were run, and the problems by suite."""


COMPLETIONS = "completions"
"""Key of the tables of completions in the run file of a table of metrics."""

COLUMNS = (
    "id", "suite", "kind", "prompt", "correct", "correct_anywhere", "extracted", "num_tokens", "finish", "reason",
    "languages", "reward_language",
    "reward_format",
)  # fmt: skip
"""The columns of graded completions that metrics need."""


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the system prompt, of suites and of the other run."""
    identity: dict[str, Any] = {}
    if config.model:
        identity |= engines.model_identity(templates.open_model(config.model, config), config.system)
        identity |= engines.grader_identity(config)
    if config.suite:
        tasks = suite_tasks.tasks_of_suites(config, None)
        identity["suites_sha256"] = {task.name: task.identity["problems_sha256"] for task in tasks}
    if config.before:
        before = templates.open_model(config.before, config)
        name = {} if before.is_local else {"model": config.before}
        identity["before"] = name | engines.model_identity(before, config.system)
    if config.against and is_suite_folder(config.against):
        paths = sorted(config.against.glob("*.arrow"))
        return identity | {"against_sha256": {path.name: digest(path) for path in paths}}
    return identity | tables.table_identity("against", config.against)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The stored completions, or the Markdown of a comparison."""
    from magcli.evaluation.suite import load

    if config.completions is None:
        return () if config.markdown is None else (config.markdown,)
    names = [suite.name for suite in load(config.suite)] if config.suite else [""]
    roots = [config.completions, *filter(None, [baseline(config).completions if config.before else None])]
    return tuple(path for root in roots for name in names if (path := suite_tasks.completions_table(root, name)))


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """One row per suite and metric; in a comparison also per model."""
    from magcli.evaluation import metrics

    return metrics.COMPARISON if config.compare else metrics.METRICS


def learned(config: Config) -> pa.Schema:
    """The columns of dropped problems of suites, which are no input."""
    import pyarrow as pa

    names = ("id", "prompt", "answer", "suite") if config.suite else ()
    return pa.schema([(name, pa.string()) for name in names])


def preview(config: Config, rows: Rows, job: Job) -> int:
    """The number of usable rows, for --dry-run: problems, or without --model completions."""
    if not config.model:
        return sum(batch.num_rows for batch in rows)
    return previews.graded_problems(config.model, config, config, config.system, rows, job)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Sample and grade if there is a model, then estimate and report."""
    import pyarrow as pa

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
        estimates_of = {
            suite: _estimated(suite, problems, theirs.get(suite), config, equality) for suite, problems in ours.items()
        }
    left_out = _left_out(tasks, ours)
    report_skipped_ks(ours, config.ks, job)
    for task in tasks:
        if task.plan.sampling.temperature == 0 and task.plan.samples > 1:
            _report_equal_samples(task.name, task.plan.samples, job)
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in job.drops.counts.most_common())
    if not estimates_of:
        reasons = f"; dropped: {dropped}" if dropped else ""
        raise DataError(f"evaluate: there is no graded completion to evaluate{reasons}")
    order = [task.name for task in tasks]
    names = sorted(estimates_of, key=lambda name: order.index(name) if name in order else 0)
    estimates = [
        (suite, estimate._replace(num_left_out=left_out.get(suite)))
        for name in names
        for suite, estimate in estimates_of[name]
    ]
    _report(estimates, job)
    if dropped:
        job.console.result(f"dropped: {dropped}", event="dropped", dropped=dict(job.drops.counts))
    for task in tasks:
        if task.note:
            job.console.say(f"{task.name}: {task.note}", event="note", suite=task.name, note=task.note)
    job.facts[COMPLETIONS] = digests({task.name: task.table for task in tasks if task.table})
    metrics_rows = [_row(suite, estimate) for suite, estimate in estimates]
    yield pa.RecordBatch.from_pylist(metrics_rows, schema(config, pa.schema([])))
    suite_tasks.clear_journals([*tasks, *earlier])  # only once the metrics are written


def _left_out(tasks: Sequence[SuiteTask], evaluated: Mapping[str, Sequence[Problem]]) -> dict[str, int]:
    """The number of problems of each suite that were asked but have no sample with a verdict."""
    asked: dict[str, set[str]] = {}
    for task in tasks:
        for batch in task.problems:
            ids = batch.column("id").to_pylist()
            suites = batch.column("suite").to_pylist() if "suite" in batch.schema.names else [""] * len(ids)
            for suite, id in zip(suites, ids, strict=True):
                asked.setdefault(suite or "", set()).add(id)
    return {suite: len(ids) - len(evaluated.get(suite, ())) for suite, ids in asked.items()}


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
    from magcli.evaluation.suite import load

    if config.against is None:
        return
    wanted = {suite.name for suite in load(config.suite)} or _suites_in(problems)
    names = sorted(wanted) if is_suite_folder(config.against) else [""]
    for suite in names:
        open_completions(config.against, suite)


def _check_models(config: Config) -> None:
    """Look for both models before one of them samples; stored completions may be all that is needed of a model.

    Raises:
        EnvironmentFault: one of them is missing.
    """
    from magcli.evaluation.suite import load

    for side in (config, baseline(config)):
        names = [suite.name for suite in load(side.suite)] or [""]
        stored = [suite_tasks.completions_table(side.completions, name) for name in names]
        if not all(table is not None and table.exists() for table in stored):
            engines.require_model(templates.open_model(side.model, side))


def _suites_in(problems: Iterable[pa.RecordBatch]) -> set[str]:
    """The names of the suites of problems; empty for those without one."""
    names: set[str] = set()
    for batch in problems:
        suites = batch.column("suite").to_pylist() if "suite" in batch.schema.names else [""]
        names.update(suite or "" for suite in suites)
    return names


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
            evaluated[suite] = equality.merge(_judged(problems, config), config.ks)
    return tasks, evaluated


def _judged(problems: list[Problem], config: Config) -> list[Problem]:
    """The problems with the verdicts that count: those in the format, or with --anywhere all."""
    from magcli.evaluation.metrics import ignoring_format

    return ignoring_format(problems) if config.anywhere else problems


def _baseline(config: Config, rows: Iterable[pa.RecordBatch], job: Job, equality: AnswerEquality) -> Evaluated:
    """Evaluate the --before model; rows that it drops are not counted twice."""
    from magcli.run.job import Drops

    output = f"{job.output}.before" if job.output not in (None, "-") else None
    return _evaluated(baseline(config), rows, replace(job, drops=Drops(keep=False), output=output), equality)


def _estimated(
    suite: str, problems: list[Problem], before: list[Problem] | None, config: Config, equality: AnswerEquality
) -> list[tuple[str, Estimate]]:
    """The metrics of one suite, those of the --before model, and the differences to it or to another run."""
    from magcli.evaluation import metrics

    own = metrics.estimate(problems, config.ks, config.seed)
    if config.against:
        before = equality.merge(_judged(read_problems(config.against, suite), config), config.ks)
    differences = metrics.paired(problems, before or (), config.ks, config.seed)
    if not differences and (config.against or config.before):
        other = config.against or config.before
        raise DataError(f"evaluate: {other} has no problem in common with the input; ids must be equal")
    earlier = metrics.estimate(before, config.ks, config.seed) if config.before and before else []
    return [(suite, estimate) for estimate in (*own, *metrics.of_other_model(earlier), *differences)]


def _row(suite: str, estimate: Estimate) -> dict[str, Any]:
    """A row of the table; the bounds of a single problem are null."""
    row: dict[str, Any] = {"suite": suite}
    for name, value in estimate._asdict().items():
        row[name] = None if value != value else value  # only NaN differs from itself
    return row


def _report(estimates: Sequence[tuple[str, Estimate]], job: Job) -> None:
    from magcli.evaluation.metrics import scale

    width = max(len(f"{suite} {estimate.metric}".strip()) for suite, estimate in estimates)
    for suite, estimate in estimates:
        sign = "+" if "difference" in estimate.metric else ""
        value, low, high = (scale(estimate.metric) * number for number in (estimate.value, estimate.low, estimate.high))
        bounds = f"[{low:{sign}.1f}, {high:{sign}.1f}]" if low == low else "(a single problem has no interval)"
        text = f"{f'{suite} {estimate.metric}'.strip():<{width}}  {value:{sign}.1f}  {bounds}"
        counts = f"{estimate.num_problems} problems, {estimate.num_samples} samples"
        if estimate.num_left_out:
            counts += f"; {estimate.num_left_out} problems left out"
        job.console.result(f"{text}  {counts}", event="metric", **_row(suite, estimate))


def _compared(config: Config, job: Job) -> pa.RecordBatch:
    """Compare the tables of the command, and print the comparison as Markdown."""
    import pyarrow as pa

    from magcli.data import durable
    from magcli.evaluation import metrics

    with AnswerEquality(config) as equality:
        sides = _sides(job.sources, config.ks, config.seed, equality, job.console)
    for side in sides:
        problems = {f"{side.name} {suite}".rstrip(): suite_problems for suite, suite_problems in side.problems.items()}
        report_skipped_ks(problems, config.ks, job)
    rows = metrics.compare(sides, config.ks, config.seed)
    text = metrics.comparison_markdown(rows)
    if config.markdown:
        with durable.atomic_file(config.markdown) as file:
            file.write(text.encode())
    job.console.result(text.rstrip(), event="comparison", rows=rows)
    return pa.RecordBatch.from_pylist(rows, metrics.COMPARISON)


def _sides(
    sources: Sequence[Source], ks: Sequence[int], seed: int, equality: AnswerEquality, console: Console
) -> list[Side]:
    """The models of the tables: those named in a comparison, else one per table, named by how the paths differ.

    Raises:
        DataError: a table has neither metrics nor graded completions.
    """
    from magcli.evaluation.metrics import Side, distinct, known_ks, labels

    sides: list[Side] = []
    names = labels([source.name for source in sources])
    by_model = [_by_model(source, label) for source, label in zip(sources, names, strict=True)]
    stored = [estimates for models in by_model for estimates in models.values()]
    ks = [*ks, *known_ks(metric for estimates in stored for _, metric in estimates)]
    for source, label, models in zip(sources, names, by_model, strict=True):
        if "model" in source.schema.names and models:
            sides += [Side(model, estimates, {}) for model, estimates in models.items()]
        else:
            is_metrics = "metric" in source.schema.names
            problems = _stored_problems(Path(source.name), console) if is_metrics else _graded(source)
            merged = {suite: equality.merge(of_suite, ks) for suite, of_suite in problems.items()}
            sides.append(Side(label, models.get(label) or _estimates(merged, ks, seed), merged))
    side_names = distinct(side.name for side in sides)
    return [side._replace(name=name) for side, name in zip(sides, side_names, strict=True)]


def _by_model(source: Source, label: str) -> dict[str, dict[Key, Estimate]]:
    """The metrics in a table by model, called ``label`` if the table names none."""
    from magcli.data.values import to_rows

    by_model: dict[str, dict[Key, Estimate]] = {}
    if "metric" not in source.schema.names:
        return by_model
    for batch in source.rows:
        for row in to_rows(batch):
            estimates = by_model.setdefault(row.get("model") or label, {})
            estimates[row.get("suite") or "", row["metric"]] = _as_estimate(row)
    return by_model


def _graded(source: Source) -> dict[str, list[Problem]]:
    from magcli.data.schema import require

    require(source.schema, ("id", "correct"), stage="evaluate", where=source.name)
    return by_suite(source.rows)


def _as_estimate(row: Mapping[str, Any]) -> Estimate:
    from magcli.evaluation.metrics import Estimate

    low, high = (float("nan") if row[end] is None else row[end] for end in ("low", "high"))
    return Estimate(row["metric"], row["value"], low, high, row["num_problems"], row["num_samples"])


def _estimates(
    problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], seed: int
) -> dict[tuple[str, str], Estimate]:
    from magcli.evaluation import metrics

    estimates = {}
    for suite, suite_problems in problems.items():
        for estimate in metrics.estimate(suite_problems, ks, seed):
            estimates[suite, estimate.metric] = estimate
    return estimates


def _stored_problems(metrics: Path, console: Console) -> dict[str, list[Problem]]:
    """The completions from which a table of metrics was computed, if they still exist unchanged."""
    problems = {}
    for suite, stored in _stored_tables(metrics).items():
        path = Path(stored["path"])
        if path.exists() and _has_digest(path, stored["sha256"]):
            problems[suite] = read_problems(path, suite)
        elif path.exists():
            text = f"evaluate: {path} has changed since {metrics} was computed; its differences are not computed"
            console.warn(text, path=str(path))
    return problems


def _has_digest(path: Path, sha256: str) -> bool:
    try:
        return digest(path) == sha256
    except DataError:
        return False


def _stored_tables(metrics: Path) -> dict[str, dict[str, str]]:
    """The tables of completions in the run note, with their digests; empty if it is damaged or missing."""
    from magcli.data.manifest import note_path

    try:
        note = json.loads(note_path(metrics).read_text(encoding="utf-8"))[COMPLETIONS]
        return {
            suite: stored
            for suite, stored in note.items()
            if isinstance(stored, dict) and {"path", "sha256"} <= stored.keys()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def by_suite(rows: Rows, job: Job | None = None) -> dict[str, list[Problem]]:
    """Graded completions by suite and problem; completions without a verdict are dropped.

    Raises:
        DataError: two problems have the same id.
    """
    from magcli.data.values import to_rows
    from magcli.evaluation import metrics
    from magcli.verify.types import UNCOUNTED

    completions: dict[str, list[dict[str, Any]]] = {}
    for batch in rows:
        columns = batch.select([name for name in COLUMNS if name in batch.schema.names])
        for number, row in enumerate(columns.to_pylist()):
            if row.get("reason") not in UNCOUNTED:
                completions.setdefault(row.get("suite") or "", []).append(row)
            elif job is not None:
                whole_row = to_rows(batch.slice(number, 1))[0] if job.drops.keep else row
                job.drops.row(row["id"], row["reason"], whole_row)
    if job is not None:
        _report_timeouts(completions, job)
    return {suite: metrics.gather(rows_of_suite) for suite, rows_of_suite in completions.items()}


def _report_timeouts(completions: Mapping[str, Sequence[Mapping[str, Any]]], job: Job) -> None:
    """Report how many verdicts timed out, perhaps only because the machine was busy."""
    for suite, rows in completions.items():
        if late := sum(row.get("reason") == "timeout" for row in rows):
            text = f"{late} of {len(rows)} verdicts took longer than --verify-deadline and count as wrong"
            job.console.say(f"{suite}: {text}" if suite else text, event="verdict-timeouts", suite=suite, count=late)


def is_suite_folder(path: Path) -> bool:
    """Whether a path is a folder with one table per suite, not a table itself."""
    return path.is_dir() and not (path / "state.json").exists()


def open_completions(path: Path, suite: str = "") -> Source:
    """A table of graded completions, or a suite's table in a folder.

    Raises:
        DataError: there is no such table, or it lacks the columns of graded completions.
    """
    from magcli.data import table
    from magcli.data.schema import require

    if is_suite_folder(path) and not suite:
        raise DataError(f"evaluate: {path} is a folder, not a table; name the table in it")
    name = str(path / f"{suite}.arrow" if is_suite_folder(path) else path)
    source = table.read(name)
    require(source.schema, ("id", "correct"), stage="evaluate", where=name)
    return source


def read_problems(path: Path, suite: str = "") -> list[Problem]:
    """The problems of a suite in graded completions."""
    return by_suite(open_completions(path, suite).rows).get(suite, [])


def digest(path: Path) -> str:
    """The digest of a table in a file or a folder, as histories record it."""
    from magcli.data import table

    return table.read(str(path)).sha256


def digests(tables: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Paths and digests of tables of completions by suite, for the run file of the metrics."""
    return {suite: {"path": str(path.resolve()), "sha256": digest(path)} for suite, path in tables.items()}


class AnswerEquality:
    """The verifier's equality of answers, in worker processes that start at the first comparison."""

    def __init__(self, config: GraderOptions) -> None:
        self._config = config
        self._grader: Grader | None = None

    def __enter__(self) -> AnswerEquality:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if self._grader is not None:
            self._grader.shutdown()

    def merge(self, problems: Sequence[Problem], ks: Iterable[int]) -> list[Problem]:
        """Problems with one spelling of equal answers, if a metric counts votes; programs are unchanged."""
        from magcli.evaluation import metrics

        if not any(k > 1 for k in ks):
            return list(problems)
        return [
            metrics.merge_answers(problem, self._equal) if problem.kind == "math" else problem for problem in problems
        ]

    def _equal(self, one: str, other: str) -> bool:
        if self._grader is None:
            self._grader = engines.open_grader(self._config)
        return self._grader.equal(one, other)


def report_skipped_ks(problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], job: Job) -> None:
    """Report the values of k for which some problem has too few samples."""
    from magcli.evaluation.metrics import min_samples

    for suite, suite_problems in problems.items():
        fewest = min_samples(suite_problems)
        if large := [k for k in ks if k > fewest]:
            prefix = f"{suite}: " if suite else ""
            text = f"{prefix}--ks {', '.join(map(str, large))} skipped: the fewest samples of a problem are {fewest}"
            job.console.say(text, event="ks-skipped", suite=suite, ks=large, min_samples=fewest)

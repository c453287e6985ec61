"""Evaluations that are stored: graded completions by suite and problem, tables of metrics, and the models of both.

Graded completions become problems with one spelling of equal answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.data import table
from magcli.data.manifest import note_path
from magcli.data.schema import require
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.evaluation import metrics
from magcli.evaluation.metrics import Estimate, Side, distinct, known_ks, labels
from magcli.run.validation import as_text
from magcli.stages.shared import graders
from magcli.verify.types import UNCOUNTED

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.console import Console
    from magcli.data.source import Rows, Source
    from magcli.evaluation.metrics import Key, Problem
    from magcli.run.job import Job
    from magcli.stages.shared.options import GraderOptions
    from magcli.verify.grader import Grader

COMPLETIONS = "completions"
"""Key of the tables of completions in the run file of a table of metrics."""

COLUMNS = (
    "id", "suite", "kind", "prompt", "correct", "correct_anywhere", "extracted", "num_tokens", "finish", "reason",
    "languages", "reward_language",
    "reward_format",
)  # fmt: skip
"""The columns of graded completions that metrics need."""


def sides_of(
    sources: Sequence[Source], ks: Sequence[int], seed: int, equality: AnswerEquality, console: Console, *, stage: str
) -> list[Side]:
    """The models of a stage's tables: those named in a comparison, else one per table, named by how the paths differ.

    Raises:
        DataError: a table has neither metrics nor graded completions.
    """
    names = labels([source.name for source in sources])
    # The metrics are read first: which k they have is needed for the completions of the others.
    by_model = [_by_model(source, label) for source, label in zip(sources, names, strict=True)]
    stored_metrics: list[str] = []
    for models in by_model:
        for estimates in models.values():
            stored_metrics += [metric for _, metric in estimates]
    # Completions are estimated for the k of stored metrics too, so that each side has the metrics of the others.
    ks = [*ks, *known_ks(stored_metrics)]
    sides: list[Side] = []
    for source, label, models in zip(sources, names, by_model, strict=True):
        # A comparison has several models, and no completions of its own.
        is_comparison = "model" in source.schema.names
        if is_comparison and models:
            sides += [Side(model, estimates, {}) for model, estimates in models.items()]
            continue
        is_metrics = "metric" in source.schema.names
        problems = stored_problems(Path(source.name), console) if is_metrics else _graded(source, stage)
        merged = {suite: equality.merge(of_suite, ks) for suite, of_suite in problems.items()}
        stored_estimates = models.get(label)
        estimates = stored_estimates or _estimates(merged, ks, seed)
        sides.append(Side(label, estimates, merged))
    # Models of two comparisons may have one name.
    side_names = distinct(side.name for side in sides)
    named = [side._replace(name=name) for side, name in zip(sides, side_names, strict=True)]
    for side in named[1:]:
        for suite, of_suite in side.problems.items():
            first = named[0].problems.get(suite, ())
            warn_of_restated(first, of_suite, f"{named[0].name} and {side.name}", console, stage=stage)
    return named


def num_restated(ours: Sequence[Problem], theirs: Sequence[Problem]) -> int:
    """The number of problems that both have by their ids, but with other prompts."""
    theirs_by_id = {problem.id: problem.statement for problem in theirs}
    pairs = [(our.statement, theirs_by_id[our.id]) for our in ours if our.id in theirs_by_id]
    # Unknown is not another one.
    return sum(bool(one and other) and one != other for one, other in pairs)


def warn_of_restated(
    ours: Sequence[Problem], theirs: Sequence[Problem], where: str, console: Console, *, stage: str
) -> None:
    """Warn of ids that may be of different problems, so that a difference by problem would mean nothing.

    It is no error, as two models may have been asked the same in other words.
    """
    if count := num_restated(ours, theirs):
        console.warn(
            f"{stage}: {count:,} problems have the same id but other prompts in {where}; if they are different "
            "problems, their differences mean nothing: give each problem an id of its own",
            problems=count,
        )


def _by_model(source: Source, label: str) -> dict[str, dict[Key, Estimate]]:
    """The metrics in a table by model, called ``label`` if the table names none."""
    by_model: dict[str, dict[Key, Estimate]] = {}
    if "metric" not in source.schema.names:
        return by_model
    for batch in source.rows:
        for row in to_rows(batch):
            estimates = by_model.setdefault(row.get("model") or label, {})
            estimates[row.get("suite") or "", row["metric"]] = _as_estimate(row)
    return by_model


def _graded(source: Source, stage: str) -> dict[str, list[Problem]]:
    require(source.schema, ("id", "correct"), stage=stage, where=source.name)
    return by_suite(source.rows)


def _as_estimate(row: Mapping[str, Any]) -> Estimate:
    # Tables have null in place of NaN, the bounds of a single problem.
    low, high = row["low"], row["high"]
    return Estimate(
        row["metric"],
        row["value"],
        float("nan") if low is None else low,
        float("nan") if high is None else high,
        row["num_problems"],
        row["num_samples"],
    )


def _estimates(
    problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], seed: int
) -> dict[tuple[str, str], Estimate]:
    estimates = {}
    for suite, suite_problems in problems.items():
        for estimate in metrics.estimate(suite_problems, ks, seed):
            estimates[suite, estimate.metric] = estimate
    return estimates


def stored_problems(metrics: Path, console: Console) -> dict[str, list[Problem]]:
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
    try:
        note = json.loads(note_path(metrics).read_text(encoding="utf-8"))[COMPLETIONS]
        return {
            suite: stored
            for suite, stored in note.items()
            if isinstance(stored, dict) and {"path", "sha256"} <= stored.keys()
        }
    # Whatever a note that another program wrote may look like.
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def by_suite(rows: Rows, job: Job | None = None) -> dict[str, list[Problem]]:
    """Graded completions by suite and problem; completions without a verdict are dropped.

    Raises:
        DataError: two problems have the same id, or a completion has none.
    """
    completions: dict[str, list[dict[str, Any]]] = {}
    for batch in rows:
        columns = _with_text_ids(batch.select([name for name in COLUMNS if name in batch.schema.names]))
        for number, row in enumerate(columns.to_pylist()):
            # A reason such as a crashed verifier is no verdict on the completion.
            if row.get("reason") not in UNCOUNTED:
                completions.setdefault(row.get("suite") or "", []).append(row)
                continue
            # Of another run, whose drops are not this one's.
            if job is None:
                continue
            dropped = row
            if job.drops.keep:  # --dropped has all columns
                (dropped,) = to_rows(batch.slice(number, 1))
            job.drops.row(row["id"], row["reason"], dropped)
    if job is not None:
        _report_timeouts(completions, job)
    return {suite: metrics.gather(rows_of_suite) for suite, rows_of_suite in completions.items()}


def _with_text_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with ids as text, as stages read them, so that 1 of one table is "1" of another."""
    position = batch.schema.get_field_index("id")
    return batch.set_column(position, "id", as_text(batch.column(position), batch.schema.field(position)))


def _report_timeouts(completions: Mapping[str, Sequence[Mapping[str, Any]]], job: Job) -> None:
    """Report how many verdicts timed out, perhaps only because the machine was busy."""
    for suite, rows in completions.items():
        late = sum(row.get("reason") == "timeout" for row in rows)
        if late:
            text = f"{late} of {len(rows)} verdicts took longer than --verify-deadline and count as wrong"
            job.console.say(f"{suite}: {text}" if suite else text, event="verdict-timeouts", suite=suite, count=late)


def is_suite_folder(path: Path) -> bool:
    """Whether a path is a folder with one table per suite, not a table itself."""
    # ``datasets`` writes this file into the folder of a table.
    return path.is_dir() and not (path / "state.json").exists()


def open_completions(path: Path, suite: str = "") -> Source:
    """A table of graded completions, or a suite's table in a folder.

    Raises:
        DataError: there is no such table, or it lacks the columns of graded completions.
    """
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

    def __exit__(self, *_: object) -> None:
        if self._grader is not None:
            self._grader.shutdown()

    def merge(self, problems: Sequence[Problem], ks: Iterable[int]) -> list[Problem]:
        """Problems with one spelling of equal answers, if a metric counts votes; programs are unchanged."""
        # maj@1 is avg@n, in which spellings do not matter.
        if not any(k > 1 for k in ks):
            return list(problems)
        return [
            metrics.merge_answers(problem, self._equal) if problem.kind == "math" else problem for problem in problems
        ]

    def _equal(self, one: str, other: str) -> bool:
        if self._grader is None:
            self._grader = graders.open_grader(self._config)
        return self._grader.equal(one, other)

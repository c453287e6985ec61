"""Graded completions as problems for metrics, with one spelling of equal answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.shared import grading

if TYPE_CHECKING:
    from types import TracebackType

    from magcli.data.source import Rows, Source
    from magcli.evaluation.metrics import Problem
    from magcli.run.job import Job
    from magcli.stages.shared.options import GraderOptions
    from magcli.verify.grader import Grader

COLUMNS = (
    "id", "suite", "kind", "prompt", "correct", "correct_anywhere", "extracted", "num_tokens", "finish", "reason",
    "languages", "reward_language",
    "reward_format",
)  # fmt: skip
"""The columns of graded completions that metrics need."""


def by_suite(rows: Rows, job: Job | None = None) -> dict[str, list[Problem]]:
    """Graded completions by suite and problem; completions without a verdict are dropped.

    Raises:
        DataError: two problems have the same id.
    """
    from magcli.evaluation import metrics
    from magcli.verify.types import UNCOUNTED

    found: dict[str, list[dict[str, Any]]] = {}
    for batch in rows:
        for row in batch.select([name for name in COLUMNS if name in batch.schema.names]).to_pylist():
            if row.get("reason") not in UNCOUNTED:
                found.setdefault(row.get("suite") or "", []).append(row)
            elif job is not None:
                job.drops.row(row["id"], row["reason"], row)
    if job is not None:
        _report_timeouts(found, job)
    return {suite: metrics.gather(each) for suite, each in found.items()}


def _report_timeouts(found: Mapping[str, Sequence[Mapping[str, Any]]], job: Job) -> None:
    """Report how many verdicts timed out, perhaps only because the machine was busy."""
    for suite, rows in found.items():
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

        votes = any(k > 1 for k in ks)
        return [
            metrics.merge_answers(each, self._equal) if votes and each.kind == "math" else each for each in problems
        ]

    def _equal(self, one: str, other: str) -> bool:
        if self._grader is None:
            self._grader = grading.open_grader(self._config)
        return self._grader.equal(one, other)


def report_skipped_ks(problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], job: Job) -> None:
    """Report the values of k for which some problem has too few samples."""
    from magcli.evaluation.metrics import min_samples

    for suite, each in problems.items():
        least = min_samples(each)
        if large := [k for k in ks if k > least]:
            prefix = f"{suite}: " if suite else ""
            text = f"{prefix}--ks {', '.join(map(str, large))} skipped: the fewest samples of a problem are {least}"
            job.console.say(text, event="ks-skipped", suite=suite, ks=large, min_samples=least)

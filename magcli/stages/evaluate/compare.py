"""`magcli evaluate --compare`: several models side by side, from tables of metrics or of graded completions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.evaluate.completions import AnswerEquality, by_suite, digest, read_problems, report_skipped_ks

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.console import Console
    from magcli.data.source import Source
    from magcli.evaluation.comparison import Key, Side
    from magcli.evaluation.metrics import Estimate, Problem
    from magcli.run.job import Job
    from magcli.stages.evaluate.config import Config

COMPLETIONS = "completions"
"""Key of the tables of completions in the run file of a table of metrics."""


def compare(config: Config, job: Job) -> pa.RecordBatch:
    """Compare the tables of the command, and print the comparison as Markdown."""
    import pyarrow as pa

    from magcli.data import durable
    from magcli.evaluation import comparison

    with AnswerEquality(config) as equality:
        found = _sides(job.sources, config.ks, config.seed, equality, job.console)
    for side in found:
        problems = {f"{side.name} {suite}".rstrip(): each for suite, each in side.problems.items()}
        report_skipped_ks(problems, config.ks, job)
    rows = comparison.rows(found, config.ks, config.seed)
    text = comparison.markdown(rows)
    if config.markdown:
        with durable.atomic_file(config.markdown) as file:
            file.write(text.encode())
    job.console.say(text.rstrip(), event="comparison", rows=rows)
    return pa.RecordBatch.from_pylist(rows, comparison.SCHEMA)


def _sides(
    sources: Sequence[Source], ks: Sequence[int], seed: int, equality: AnswerEquality, console: Console
) -> list[Side]:
    """The models of the tables: those named in a comparison, else one per table, named by how the paths differ.

    Raises:
        DataError: a table has neither metrics nor graded completions.
    """
    from magcli.evaluation.comparison import Side, distinct, labels
    from magcli.evaluation.metrics import known_ks

    found: list[Side] = []
    names = labels([source.name for source in sources])
    tables = [_by_model(source, label) for source, label in zip(sources, names, strict=True)]
    ks = [*ks, *known_ks(metric for models in tables for each in models.values() for _, metric in each)]
    for source, label, estimates in zip(sources, names, tables, strict=True):
        if "model" in source.schema.names and estimates:
            found += [Side(model, each, {}) for model, each in estimates.items()]
        else:
            is_metrics = "metric" in source.schema.names
            problems = _stored_problems(Path(source.name), console) if is_metrics else _graded(source)
            merged = {suite: equality.merge(each, ks) for suite, each in problems.items()}
            found.append(Side(label, estimates.get(label) or _estimated(merged, ks, seed), merged))
    return [side._replace(name=name) for side, name in zip(found, distinct(side.name for side in found), strict=True)]


def _by_model(source: Source, label: str) -> dict[str, dict[Key, Estimate]]:
    """The metrics in a table by model, called ``label`` if the table names none."""
    found: dict[str, dict[Key, Estimate]] = {}
    if "metric" in source.schema.names:
        for row in (row for batch in source.rows for row in batch.to_pylist()):
            found.setdefault(row.get("model") or label, {})[row.get("suite") or "", row["metric"]] = _estimate(row)
    return found


def _graded(source: Source) -> dict[str, list[Problem]]:
    from magcli.data.schema import require

    require(source.schema, ("id", "correct"), stage="evaluate", where=source.name)
    return by_suite(source.rows)


def _estimate(row: Mapping[str, Any]) -> Estimate:
    from magcli.evaluation.metrics import Estimate

    low, high = (float("nan") if row[end] is None else row[end] for end in ("low", "high"))
    return Estimate(row["metric"], row["value"], low, high, row["num_problems"], row["num_samples"])


def _estimated(
    problems: Mapping[str, Sequence[Problem]], ks: Sequence[int], seed: int
) -> dict[tuple[str, str], Estimate]:
    from magcli.evaluation import metrics

    return {(suite, each.metric): each for suite, of in problems.items() for each in metrics.estimate(of, ks, seed)}


def _stored_problems(metrics: Path, console: Console) -> dict[str, list[Problem]]:
    """The completions from which a table of metrics was computed, if they still exist unchanged."""
    found = {}
    for suite, stored in _stored_tables(metrics).items():
        path = Path(stored["path"])
        if path.exists() and _has_digest(path, stored["sha256"]):
            found[suite] = read_problems(path, suite)
        elif path.exists():
            text = f"evaluate: {path} has changed since {metrics} was computed; its differences are not computed"
            console.warn(text, path=str(path))
    return found


def _has_digest(path: Path, sha256: str) -> bool:
    try:
        return digest(path) == sha256
    except DataError:
        return False


def _stored_tables(metrics: Path) -> dict[str, dict[str, str]]:
    """The tables of completions in the run file, with their digests; empty if it is damaged or missing."""
    try:
        note = json.loads(metrics.with_name(f"{metrics.name}.run.json").read_text(encoding="utf-8"))[COMPLETIONS]
        return {suite: each for suite, each in note.items() if isinstance(each, dict) and {"path", "sha256"} <= {*each}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}

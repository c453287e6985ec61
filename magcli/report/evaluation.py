"""Metrics of `magcli evaluate` with their intervals, models side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from magcli.evaluation.metrics import DIFFERENCE, labels, scale
from magcli.report.comparison import HEADLINE
from magcli.report.discovery import Table, rows_of


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one model with its 95 % interval; fractions are in percent."""

    suite: str
    metric: str
    model: str
    value: float
    low: float | None
    high: float | None
    problems: int
    samples: int

    def __str__(self) -> str:
        sign = "+" if self.metric.endswith(DIFFERENCE) else ""
        if self.low is None or self.high is None:
            return f"{self.value:{sign}.1f}"
        return f"{self.value:{sign}.1f} [{self.low:{sign}.1f}, {self.high:{sign}.1f}]"


@dataclass(frozen=True, slots=True)
class Bar:
    """A score drawn on the common scale of its suite; positions are in percent of the width."""

    score: Score
    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Suite:
    """The scores of one suite: one row per metric, one column per model; bars from 0 to ``top`` percent."""

    name: str
    models: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Score | None]]]
    bars: Sequence[Bar]
    top: float
    size: str


def suites(tables: Sequence[Table]) -> list[Suite]:
    """The scores of all metric tables by suite, models in the order of their tables."""
    table_labels = labels([str(table.path) for table in tables])
    names = problem_names(tables)
    by_table = []
    for label, table in zip(table_labels, tables, strict=True):
        by_table.append((label, _of_table(table, label, names.get(table.path, ""))))
    by_suite: dict[str, list[Score]] = {}
    for score in _disambiguated(by_table):
        by_suite.setdefault(score.suite, []).append(score)
    return [_suite(name, scores) for name, scores in by_suite.items()]


def problem_names(tables: Sequence[Table]) -> dict[Path, str]:
    """What the problems of each evaluation are called if they are no suite; stored completions have no name.

    Problems are the same by their digests. They are called as their files were first, and by the digests too if others
    are called so.
    """
    contents: dict[Path, tuple[str, ...]] = {}
    names: dict[tuple[str, ...], str] = {}
    for table in tables:
        link = table.made_by
        if link is None or not link.config.get("model"):
            continue
        # A pipe that was not read to its end has no digest.
        contents[table.path] = tuple(source.sha256 or source.name for source in link.inputs)
        names.setdefault(contents[table.path], ", ".join(source.name for source in link.inputs))
    num_called = Counter(names.values())
    for content, name in names.items():
        if num_called[name] > 1:
            names[content] = f"{name} ({', '.join(digest[:8] for digest in content)})"
    return {path: names[content] for path, content in contents.items()}


def _of_table(table: Table, label: str, problems: str) -> list[Score]:
    scores: list[Score] = []
    for row in rows_of(table):
        # The rows of a table that is no suite do not name it.
        row["suite"] = row.get("suite") or problems
        if row["value"] is not None:
            scores.append(score_of(row, label))
        if row.get("difference") is not None:
            scores.append(score_of(_difference(row), label))
    return scores


def _disambiguated(by_table: Sequence[tuple[str, Sequence[Score]]]) -> list[Score]:
    """All scores; if several tables name the same suite and model, the table's name is added to the model's."""
    num_tables: Counter[tuple[str, str]] = Counter()
    for _, scores in by_table:
        num_tables.update({(score.suite, score.model) for score in scores})
    distinct = []
    for label, scores in by_table:
        for score in scores:
            is_unique = num_tables[score.suite, score.model] == 1
            distinct.append(score if is_unique else replace(score, model=f"{score.model} ({label})"))
    return distinct


def score_of(row: Mapping[str, Any], label: str) -> Score:
    """A row of a metric table; ``label`` names the model if the row does not."""
    metric = str(row["metric"])
    unit = scale(metric)
    low, high = row["low"], row["high"]
    return Score(
        suite=row.get("suite") or "",
        metric=metric,
        model=str(row.get("model") or label),
        value=unit * row["value"],
        low=None if low is None else unit * low,
        high=None if high is None else unit * high,
        problems=row.get("num_problems") or 0,
        samples=row.get("num_samples") or 0,
    )


def _difference(row: Mapping[str, Any]) -> dict[str, Any]:
    """The difference column of a comparison as a separate metric."""
    values = {key: row[f"difference{end}"] for key, end in (("value", ""), ("low", "_low"), ("high", "_high"))}
    return {**row, **values, "metric": row["metric"] + DIFFERENCE, "num_problems": row.get("num_paired")}


def _suite(name: str, scores: Sequence[Score]) -> Suite:
    # Models and metrics in the order of their first scores.
    models = list(dict.fromkeys(score.model for score in scores))
    metrics = list(dict.fromkeys(score.metric for score in scores))
    cells = {(score.metric, score.model): score for score in scores}
    rows = [(metric, [cells.get((metric, model)) for model in models]) for metric in metrics]
    # Bars are of accuracy, averaged over samples and problems.
    headline = [cells[HEADLINE, model] for model in models if (HEADLINE, model) in cells]
    highest = max((_upper_end(score) for score in headline), default=0.0)
    # Low scores get a round scale of their own, on which their differences are visible.
    top = 100.0
    for smaller in (50.0, 20.0, 10.0, 5.0, 2.0, 1.0):
        if highest <= smaller:
            top = smaller
    bars = [_bar(score, top) for score in headline]
    sizes = [f"{score.problems:,} problems, {score.samples:,} samples" for score in headline or scores]
    distinct_sizes = dict.fromkeys(sizes)
    return Suite(name, models, rows, bars, top, "; ".join(distinct_sizes))


def _upper_end(score: Score) -> float:
    return score.value if score.high is None else score.high


def _bar(score: Score, top: float) -> Bar:
    low = score.value if score.low is None else score.low
    return Bar(
        score,
        at=100 * score.value / top,
        low=100 * low / top,
        high=100 * _upper_end(score) / top,
    )

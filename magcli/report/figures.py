"""What the models reached: metrics of `magcli evaluate` with their intervals, models side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magcli.evaluation.labels import labels
from magcli.evaluation.metrics import DIFFERENCE, scale
from magcli.report.found import Table, rows_of

MAIN = "avg@n"
"""The metric by which models are drawn beside each other: the share of right samples, mean over problems."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one model with its 95 % interval, in percent where it is a share."""

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
    """A figure drawn on a scale that its suite's bars share: where value and interval lie, in percent of its width."""

    figure: Figure
    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Suite:
    """The figures of one suite: a row a metric, a column a model; the main metric as bars from 0 to ``top`` percent."""

    name: str
    models: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Figure | None]]]
    bars: Sequence[Bar]
    top: float
    size: str


def suites(tables: Sequence[Table]) -> list[Suite]:
    """The figures of all tables of metrics by suite, models in the order of their tables."""
    named = zip(labels([str(each.path) for each in tables]), tables, strict=True)
    figures = _told_apart([(label, _of_table(each, label)) for label, each in named])
    names = dict.fromkeys(figure.suite for figure in figures)
    return [_suite(name, [figure for figure in figures if figure.suite == name]) for name in names]


def _of_table(table: Table, label: str) -> list[Figure]:
    figures: list[Figure] = []
    for row in rows_of(table):
        row["suite"] = row.get("suite") or _problems(table)
        figures += [of_row(row, label)] if row["value"] is not None else []
        figures += [of_row(_difference(row), label)] if row.get("difference") is not None else []
    return figures


def _told_apart(by_table: Sequence[tuple[str, Sequence[Figure]]]) -> list[Figure]:
    """All figures; a model that several tables name for one suite has the table's name beside its own."""
    tables = Counter(key for _, figures in by_table for key in {(each.suite, each.model) for each in figures})
    return [
        each if tables[each.suite, each.model] == 1 else replace(each, model=f"{each.model} ({label})")
        for label, figures in by_table
        for each in figures
    ]


def _problems(table: Table) -> str:
    """The table that a model was asked, where it was no suite; stored completions do not tell it."""
    link = table.made_by
    return ", ".join(given.name for given in link.inputs) if link and link.config.get("model") else ""


def of_row(row: Mapping[str, Any], label: str) -> Figure:
    """A row of a table of metrics; ``label`` is the name of its model where the row tells none."""
    metric = str(row["metric"])
    value, low, high = (None if row[key] is None else scale(metric) * row[key] for key in ("value", "low", "high"))
    assert value is not None
    problems, samples = row.get("num_problems") or 0, row.get("num_samples") or 0
    return Figure(row.get("suite") or "", metric, str(row.get("model") or label), value, low, high, problems, samples)


def _difference(row: Mapping[str, Any]) -> dict[str, Any]:
    """The difference in a row of a comparison as a metric of its own."""
    told = {key: row[f"difference{end}"] for key, end in (("value", ""), ("low", "_low"), ("high", "_high"))}
    return {**row, **told, "metric": row["metric"] + DIFFERENCE, "num_problems": row.get("num_paired")}


def _suite(name: str, figures: Sequence[Figure]) -> Suite:
    models = list(dict.fromkeys(figure.model for figure in figures))
    metrics = dict.fromkeys(figure.metric for figure in figures)
    cells = {(figure.metric, figure.model): figure for figure in figures}
    rows = [(metric, [cells.get((metric, model)) for model in models]) for metric in metrics]
    main = [figure for model in models if (figure := cells.get((MAIN, model)))]
    top = _top([figure.value if figure.high is None else figure.high for figure in main])
    return Suite(name, models, rows, [_bar(figure, top) for figure in main], top, _size(main or figures))


def _top(values: Sequence[float]) -> float:
    """Where the scale of the bars ends: a round number that no interval passes."""
    highest = max(values, default=0.0)
    return next((top for top in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0) if highest <= top), 100.0)


def _bar(figure: Figure, top: float) -> Bar:
    low, high = (figure.value if end is None else end for end in (figure.low, figure.high))
    at, low, high = (100 * value / top for value in (figure.value, low, high))
    return Bar(figure, at, low, high)


def _size(figures: Sequence[Figure]) -> str:
    """How much was evaluated, of models that may differ in it."""
    sizes = dict.fromkeys(f"{each.problems:,} problems, {each.samples:,} samples" for each in figures)
    return "; ".join(sizes)

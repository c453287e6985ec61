"""Several models side by side: metrics of each with their intervals, and differences problem by problem.

A difference is of a model and the first one, on the problems that both answered, so it needs the completions of both;
where only metrics are at hand it is left empty, since two intervals that overlap may still be of different models.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from magcli.evaluation import metrics
from magcli.evaluation.metrics import Estimate, Problem

_FIGURE = [pa.field(name, pa.float64()) for name in ("value", "low", "high")]
_COUNTS = [pa.field(name, pa.int64()) for name in ("num_problems", "num_samples")]
METRICS = pa.schema([pa.field("suite", pa.string()), pa.field("metric", pa.string()), *_FIGURE, *_COUNTS])
"""One row a metric of a suite; the suite is empty where the problems came from a table."""

_DIFFERENCE = [pa.field(name, pa.float64()) for name in ("difference", "difference_low", "difference_high")]
SCHEMA = pa.schema([*list(METRICS)[:2], pa.field("model", pa.string()), *_FIGURE, *_COUNTS, *_DIFFERENCE,
                    pa.field("num_paired", pa.int64())])  # fmt: skip
"""One row a metric of a suite and a model. Differences are to the first model, in the unit of the metric."""

Key = tuple[str, str]
"""A suite and a metric."""


class Side(NamedTuple):
    """One model: its name, its metrics, and by suite its problems, as far as their completions are at hand."""

    name: str
    estimates: Mapping[Key, Estimate]
    problems: Mapping[str, Sequence[Problem]]


def rows(sides: Sequence[Side], ks: Sequence[int], seed: int = 0) -> list[dict[str, Any]]:
    """The comparison, one row a suite, metric and model, in the order of their first appearance.

    Differences are of ``ks``, and of every k that some model has a metric of.
    """
    keys = dict.fromkeys(key for side in sides for key in side.estimates)
    ks = [*ks, *metrics.known_ks(metric for _, metric in keys)]
    differences = [_differences(side, sides[0], ks, seed) for side in sides]
    return [
        _row(key, side, found.get(key))
        for key in keys
        for side, found in zip(sides, differences, strict=True)
        if key in side.estimates
    ]


def _differences(side: Side, first: Side, ks: Sequence[int], seed: int) -> dict[Key, Estimate]:
    """What a model has more than the first one, by suite and metric."""
    if side is first:
        return {}
    return {
        (suite, each.metric.removesuffix(metrics.DIFFERENCE)): each
        for suite, problems in side.problems.items()
        for each in metrics.paired(problems, first.problems.get(suite, ()), ks, seed)
    }


def _row(key: Key, side: Side, difference: Estimate | None) -> dict[str, Any]:
    columns = {"suite": key[0], "model": side.name, **side.estimates[key]._asdict()}
    if difference is not None:
        columns |= {"difference": difference.value, "num_paired": difference.num_problems}
        columns |= {"difference_low": difference.low, "difference_high": difference.high}
    return {name: None if value != value else value for name, value in columns.items()}


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as a Markdown table: a line a suite and metric, a column a model and, from the second on, its
    difference. Shares are in percent; an asterisk marks a difference whose interval leaves 0 out.
    """
    models = list(dict.fromkeys(row["model"] for row in found))
    cells = {(row["suite"], row["metric"], row["model"]): row for row in found}
    paired = [model for model in models if any(row["model"] == model and _has_difference(row) for row in found)]
    head = ["suite", "metric", *models, *(f"{model} - {models[0]}" for model in paired)]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for suite, metric in dict.fromkeys((row["suite"], row["metric"]) for row in found):
        values = [_figure(cells.get((suite, metric, model)), "", "") for model in models]
        more = [_figure(cells.get((suite, metric, model)), "difference", "+") for model in paired]
        lines.append([suite or "-", metric, *values, *more])
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


def _has_difference(row: Mapping[str, Any]) -> bool:
    return row.get("difference") is not None


def _figure(row: Mapping[str, Any] | None, name: str, sign: str) -> str:
    """A value with its interval, or a difference with its; empty where there is none."""
    keys = (name, f"{name}_low", f"{name}_high") if name else ("value", "low", "high")
    if row is None or row.get(keys[0]) is None:
        return ""
    scale, (value, low, high) = metrics.scale(row["metric"]), (row.get(key) for key in keys)
    assert value is not None
    if low is None or high is None:
        return f"{scale * value:{sign}.1f}"
    beyond = "*" if name and (low > 0 or high < 0) else ""
    return f"{scale * value:{sign}.1f}{beyond} [{scale * low:{sign}.1f}, {scale * high:{sign}.1f}]"

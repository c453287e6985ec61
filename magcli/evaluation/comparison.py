"""Compare models: metrics of each with intervals, paired differences by problem, and labels for their tables.

A difference is that of a model and the first one on the problems that both answered, so it needs the completions of
both; it is null if only metrics are available. Intervals of single models do not replace it: they may overlap although
the paired difference is significant.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from magcli.evaluation import metrics
from magcli.evaluation.metrics import Estimate, Problem

_FIGURE = [pa.field(name, pa.float64()) for name in ("value", "low", "high")]
_COUNTS = [pa.field(name, pa.int64()) for name in ("num_problems", "num_samples")]
METRICS = pa.schema([pa.field("suite", pa.string()), pa.field("metric", pa.string()), *_FIGURE, *_COUNTS])
"""One row per suite and metric; the suite is empty if the problems came from a table."""

_DIFFERENCE = [pa.field(name, pa.float64()) for name in ("difference", "difference_low", "difference_high")]
SCHEMA = pa.schema([*list(METRICS)[:2], pa.field("model", pa.string()), *_FIGURE, *_COUNTS, *_DIFFERENCE,
                    pa.field("num_paired", pa.int64())])  # fmt: skip
"""One row per suite, metric and model. Differences are to the first model, in the unit of the metric."""

Key = tuple[str, str]
"""A suite and a metric."""


class Side(NamedTuple):
    """One model: its name, its metrics, and its problems by suite, if their completions are available."""

    name: str
    estimates: Mapping[Key, Estimate]
    problems: Mapping[str, Sequence[Problem]]


def rows(sides: Sequence[Side], ks: Sequence[int], seed: int = 0) -> list[dict[str, Any]]:
    """The comparison, one row per suite, metric and model, in the order of their first appearance.

    Differences are computed for ``ks`` and every other k for which some model has a metric.
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
    """The differences of a model and the first one, by suite and metric."""
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
    """The comparison as a Markdown table: one line per suite and metric, one column per model and difference.

    Shares are in percent; an asterisk marks a difference whose interval excludes 0.
    """
    models = list(dict.fromkeys(row["model"] for row in found))
    cells = {(row["suite"], row["metric"], row["model"]): row for row in found}
    with_difference = {row["model"] for row in found if row.get("difference") is not None}
    paired = [model for model in models if model in with_difference]
    head = ["suite", "metric", *models, *(f"{model} - {models[0]}" for model in paired)]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for suite, metric in dict.fromkeys((row["suite"], row["metric"]) for row in found):
        values = [_cell(cells.get((suite, metric, model)), "", "") for model in models]
        differences = [_cell(cells.get((suite, metric, model)), "difference", "+") for model in paired]
        lines.append([suite or "-", metric, *values, *differences])
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


def _cell(row: Mapping[str, Any] | None, name: str, sign: str) -> str:
    """A value or a difference with its interval; empty if there is none."""
    keys = (name, f"{name}_low", f"{name}_high") if name else ("value", "low", "high")
    if row is None or row.get(keys[0]) is None:
        return ""
    scale, (value, low, high) = metrics.scale(row["metric"]), (row.get(key) for key in keys)
    assert value is not None
    if low is None or high is None:
        return f"{scale * value:{sign}.1f}"
    significant = "*" if name and (low > 0 or high < 0) else ""
    return f"{scale * value:{sign}.1f}{significant} [{scale * low:{sign}.1f}, {scale * high:{sign}.1f}]"


def labels(names: Sequence[str]) -> list[str]:
    """Distinct short labels of paths: each without the folders shared by all, and without its suffix.

    If only the suffix differs it is included; equal paths are numbered.
    """
    paths = [Path(name) if Path(name).name not in ("", "..") else Path(name).resolve() for name in names]
    parts = [path.with_suffix("").parts if path.name else path.parts for path in paths]
    shared = 0
    while parts and all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    short = ["/".join(part[shared:]) for part in parts]
    return distinct(
        label + Path(name).suffix if short.count(label) > 1 else label for label, name in zip(short, names, strict=True)
    )


def distinct(names: Iterable[str]) -> list[str]:
    """The names made distinct: a repeated one gets the next free number."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        found.append(name if name not in found else next(each for each in numbered if each not in found))
    return found

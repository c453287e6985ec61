"""The work of `magcli compare`, once its options are checked."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from magcli.console import visible
from magcli.data import table
from magcli.errors import DataError
from magcli.evaluation import metrics
from magcli.evaluation.metrics import labels
from magcli.run.rundir import RunDir, read_run
from magcli.run.settings import CHOSEN, DIGEST
from magcli.stages.compare import Config, _is_run
from magcli.stages.shared import options
from magcli.stages.shared.evaluations import AnswerEquality, sides_of

if TYPE_CHECKING:
    from magcli.data.source import Rows, Source
    from magcli.run.job import Job
    from magcli.run.rundir import Line, Trained


ENDS = ("reward", "correct", "entropy", "length_mean", "loss", "held_out_loss")
"""The metrics of steps of which the end is compared."""

END_SHARE = 10
"""The mean is over the last 1 / END_SHARE of the steps."""

HEADLINE = "avg@n"
"""The metric by which the last line says what is better."""


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Print the comparison."""
    names = labels(config.paths)
    if _is_run(config.paths[0]):
        _compare_runs([Path(path) for path in config.paths], names, job)
    else:
        _compare_tables(config, names, job)
    return iter(())


def _compare_runs(folders: Sequence[Path], names: Sequence[str], job: Job) -> None:
    """Print the options that differ, and the ends of the curves."""
    runs = [read_run(folder) for folder in folders]
    lines = [RunDir(folder).metrics() for folder in folders]
    differ = differing([_options(run) for run in runs])
    ends = [end_of(of_run) for of_run in lines]
    shown = [name for name in ("steps", *ENDS) if any(name in end for end in ends)]
    values = {name: [_number(end.get(name)) for end in ends] for name in shown}
    if any("accuracy" in end for end in ends):
        values["accuracy, %"] = [_accuracy(end) for end in ends]
    text = _table("Options that differ", names, {name: list(map(_short, row)) for name, row in differ.items()})
    text += _table(f"At the end: means over the last 1/{END_SHARE} of the steps", names, values)
    job.console.print(text + _paired_by(folders), event="comparison", options=differ, ends=ends, names=list(names))


def _options(run: Trained) -> dict[str, Any]:
    """The options of a run, what ``auto`` resolved to, and its inputs; without the run's own folder."""
    chosen = run.options.get(CHOSEN, {})
    tables = {"inputs": [f"{table.name} {table.sha256[:8]}".strip() for table in run.inputs]}
    return {**run.options, **chosen, **tables, "command": run.stage, CHOSEN: None}


def differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings that are not equal in all, by name, with their values.

    A digest is left out where the option that it belongs to differs too.
    """
    names = dict.fromkeys(name for options_of_run in settings for name in options_of_run)
    values = {name: [options_of_run.get(name) for options_of_run in settings] for name in names}
    differ = {name: row for name, row in values.items() if any(value != row[0] for value in row)}
    return {name: row for name, row in differ.items() if name.removesuffix(DIGEST) not in {*differ} - {name}}


def end_of(lines: Sequence[Line]) -> dict[str, Any]:
    """The number of steps, the mean of each metric over the last of them, and the last accuracy with its interval."""
    steps = [line for line in lines if line["step"]]
    last = steps[-max(1, len(steps) // END_SHARE) :]
    end: dict[str, Any] = {"steps": len(steps)}
    for name in ENDS:
        measured = [line[name] for line in last if line.get(name) is not None]
        if not measured and (earlier := [line[name] for line in steps if line.get(name) is not None]):
            measured = earlier[-1:]  # what is measured at intervals only
        if measured:
            end[name] = sum(measured) / len(measured)
    evaluated = [line for line in lines if line.get("accuracy") is not None]
    return end | {name: evaluated[-1].get(name) for name in _ACCURACY} if evaluated else end


_ACCURACY = ("accuracy", "accuracy_low", "accuracy_high")


def _accuracy(end: Mapping[str, Any]) -> str:
    value, low, high = (end.get(name) for name in _ACCURACY)
    if value is None:
        return "-"
    return f"{100 * value:.1f}" + ("" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]")


def _paired_by(folders: Sequence[Path]) -> str:
    """How the models of runs are compared problem by problem."""
    first, second = (folder / "model" for folder in folders[:2])
    return f"Paired by problem: magcli evaluate HELD-OUT --model {second} --before {first}"


def _compare_tables(config: Config, names: Sequence[str], job: Job) -> None:
    """Print the options that differ, and all metrics with their paired differences to the first table."""
    sources = [table.read(path) for path in config.paths]
    with AnswerEquality(options.GraderOptions()) as equality:
        sides = sides_of(sources, config.ks, config.seed, equality, job.console)
    if len(sides) < 2:
        raise DataError(f"compare: {', '.join(config.paths)} have no two models with metrics")
    rows = metrics.compare(sides, config.ks, config.seed)
    differ = differing([_settings(source) for source in sources])
    text = _table("Options that differ", names, {name: list(map(_short, row)) for name, row in differ.items()})
    verdicts = [
        verdict(row, sides[0].name) for row in rows if row["metric"] == HEADLINE and row["model"] != sides[0].name
    ]
    text += metrics.comparison_markdown(rows) + "\n" + "\n".join(verdicts)
    job.console.print(text, event="comparison", options=differ, rows=rows, names=list(names))


def _settings(source: Source) -> dict[str, Any]:
    """The options of the stage that made a table; none without a history."""
    link = source.chain[-1] if source.chain else None
    return {} if link is None else {**link.config, "command": link.stage, "inputs": [each.name for each in link.inputs]}


def verdict(row: Mapping[str, Any], first: str) -> str:
    """What a row of a comparison says about its model and the first one, in one line."""
    where = f"{row['suite']}: " if row["suite"] else ""
    pair = f"{where}{row['model']} against {first}"
    if row.get("difference") is None:
        why = "they share no problem, or the completions of one are not there (evaluate --completions keeps them)"
        return f"{pair}: no difference by problem: {why}"
    difference, low, high = (row[f"difference{end}"] for end in ("", "_low", "_high"))
    if low is None or high is None:
        return f"{pair}: {100 * difference:+.1f} points on a single problem"
    better = "better" if low > 0 else "worse" if high < 0 else "neither better nor worse with certainty"
    interval = f"{100 * difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{pair}: {interval} on {row['num_paired']:,} problems, {better}"


def _table(title: str, names: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A table with a column for each run or model; the title alone says that there are no rows."""
    if not rows:
        return f"{title}: none\n\n"
    table = Table("", *map(visible, names))
    for name, values in rows.items():
        table.add_row(name, *map(visible, values))
    text = io.StringIO()
    Console(file=text, width=Console().width, highlight=False, markup=False, emoji=False).print(table)
    return f"{title}\n{text.getvalue()}\n"


def _short(value: Any) -> str:
    """The value of an option, of a digest or a list its beginning."""
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return "-" if value in (None, "", [], {}) else text if len(text) <= 60 else f"{text[:57]}..."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

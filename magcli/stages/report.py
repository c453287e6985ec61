"""What became of the rows and what the models reached, in one table for people.

Reads tables that magcli wrote: of each it tells rows in, rows out and drops by reason; of tables of metrics, the
figures. Prints to stdout.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.evaluation.labels import labels

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.manifest import Link
    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = ""
OUTPUT = ""
DEFAULT_OUTPUT = None
EXAMPLE = "magcli report --funnel kept.arrow --metrics evaluation.arrow"
OF_A_RUN = ("reward", "correct", "entropy", "loss")
"""What is told of a run's last line of metrics."""
EVALUATED = (("accuracy", 1), ("held_out_loss", -1))
"""What models are chosen by, in this order, and whether more (1) or less (-1) is better."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli report`."""

    funnel: tuple[str, ...] = opt((), "Tables in the order of the pipeline: rows kept and dropped by reason.")
    metrics: tuple[str, ...] = opt((), "Tables that `magcli evaluate` wrote, compared side by side.")
    only: tuple[str, ...] = opt(("avg@n", "avg@n anywhere"), "Metrics to show.")
    runs: tuple[str, ...] = opt((), "Folders of training runs: steps, seconds and where they ended.")
    files: tuple[str, ...] = opt((), "Files and folders to point at in the end.")


def reads(config: Config) -> tuple[str, ...]:
    """Tables are named by options."""
    return ()


def check(config: Config) -> None:
    """Something must be asked for."""
    from magcli.run.job import usage

    asked = config.funnel or config.metrics or config.runs or config.files
    usage(bool(asked), "report: give --funnel, --metrics, --runs or --files")


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """Nothing is written."""
    import pyarrow as pa

    return pa.schema([])


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Print the tables that were asked for."""
    from rich.console import Console

    out = Console(highlight=False)
    if config.funnel:
        out.print(_funnel(config.funnel))
    if config.metrics:
        out.print(_metrics(config.metrics, config.only))
    if config.runs:
        out.print(_runs(config.runs))
    for name in config.files:
        out.print(f"  {name}" if Path(name).exists() else f"  {name} (missing)")
    return iter(())


def _funnel(names: tuple[str, ...]) -> Any:
    from rich.table import Table

    table = Table("table", "stage", "rows in", "rows out", "dropped by reason", title="Rows", title_justify="left")
    for column in table.columns[2:4]:
        column.justify = "right"
    for name in names:
        link = _last_link(name)
        dropped = ", ".join(f"{why} {count:,}" for why, count in sorted(link.dropped.items(), key=lambda p: -p[1]))
        total = sum(link.dropped.values())
        told = f"{total:,}: {dropped}" if dropped else "-"
        table.add_row(Path(name).name, link.stage, f"{link.rows_in:,}", f"{link.rows_out:,}", told)
    return table


def _last_link(name: str) -> Link:
    from magcli.data import table
    from magcli.errors import DataError

    source = table.read(name)
    for _ in source.rows:
        pass
    if not source.chain:
        raise DataError(f"report: {name} has no history; it was not written by magcli")
    return source.chain[-1]


def _metrics(names: tuple[str, ...], only: tuple[str, ...]) -> Any:
    from rich.table import Table

    table = Table("of", *only, "problems", "samples", title="Accuracy, % [95% interval]", title_justify="left")
    for name, label in zip(names, labels(names), strict=True):
        for suite, found in _read_metrics(name).items():
            first = next(iter(found.values()))
            figures = [_figure(found.get(metric)) for metric in only]
            table.add_row(f"{label} {suite}".strip(), *figures, str(first["num_problems"]), str(first["num_samples"]))
    return table


def _read_metrics(name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of a table of metrics by suite and metric."""
    from magcli.data import table
    from magcli.data.schema import require

    source = table.read(name)
    require(source.schema, ("metric", "value", "low", "high"), stage="report", where=name)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in (row for batch in source.rows for row in batch.to_pylist()):
        found.setdefault(row.get("suite") or "", {})[row["metric"]] = row
    return found


def _figure(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{100 * row['value']:.1f} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"


def _runs(names: tuple[str, ...]) -> Any:
    from rich.table import Table

    from magcli.errors import DataError
    from magcli.run.rundir import RunDir

    table = Table("run", "steps", "seconds", "at the end", "best", title="Training", title_justify="left")
    for name, label in zip(names, labels(names), strict=True):
        lines = RunDir(Path(name)).metrics()
        if not lines:
            raise DataError(f"report: {name} is no folder of a run: it has no metrics")
        seconds = sum(line["seconds"] for line in lines)
        last = {key: lines[-1][key] for key in OF_A_RUN if lines[-1].get(key) is not None}
        told = ", ".join(f"{key} {value:.3f}" for key, value in last.items())
        table.add_row(label, str(lines[-1]["step"]), f"{seconds:.0f}", told, _best(lines))
    return table


def _best(lines: list[dict[str, Any]]) -> str:
    """The evaluation by which a run chose its model: the first of the best, and its step."""
    for name, sign in EVALUATED:
        if found := [line for line in lines if line.get(name) is not None]:
            best = max(found, key=lambda line: sign * line[name])
            return f"{name.replace('_', ' ')} {best[name]:.3f} at step {best['step']}"
    return "-"

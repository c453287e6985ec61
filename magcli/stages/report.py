"""What happened to the rows and what the models reached: one page for a whole pipeline, or tables in the terminal.

PATHS are tables that magcli wrote, folders of runs, folders of landscapes, or folders that contain these, such as the
output of a recipe. With -o report.html they become one page that needs no network: the funnel of the data with
reasons, curves of every run, samples with the parts of their reward, evaluations with intervals, figures of
landscapes, and where every file comes from. Without -o the main figures are printed to stdout.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.console import put, visible
from magcli.errors import DataError, usage
from magcli.evaluation.labels import labels

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.manifest import Link
    from magcli.data.source import Rows
    from magcli.report.figures import Figure
    from magcli.report.found import Found
    from magcli.run.job import Job

SUBJECT = "paths"
INPUTS = ""
OUTPUT = ""
DEFAULT_OUTPUT = None
EXAMPLE = "magcli report runs kept.arrow evaluation.arrow -o report.html"
OF_A_RUN = ("reward", "correct", "entropy", "loss")
"""What is told of a run's last line of metrics."""
EVALUATED = (("accuracy", 1), ("held_out_loss", -1))
"""What models are chosen by, in this order, and whether more (1) or less (-1) is better."""
ONLY = ("avg@n", "avg@n anywhere")
"""The metrics that are shown unless others are asked for."""
PAGE = "The page"
TEXT = "Tables in the terminal, without -o"


@dataclass(frozen=True)
class Config:
    """Options of `magcli report`."""

    paths: tuple[str, ...] = opt((), "Tables, runs, landscapes, and folders that hold them.")
    out: Path | None = opt(None, "The page to write: a file that ends in .html.", panel=PAGE, short="-o")
    samples_at: tuple[str, ...] = opt(
        ("0%", "25%", "50%", "100%"), "Updates of RL whose samples are shown: parts of the way, or numbers.", panel=PAGE
    )
    samples: int = opt(
        3, "Number of problems to show for each, with the best and the worst completion; 0 for none.", panel=PAGE
    )
    title: str = opt("", "Title of the page (default: the names of the paths).", panel=PAGE)
    funnel: tuple[str, ...] = opt(
        (), "Tables in the order of the pipeline: rows kept and dropped by reason.", panel=TEXT
    )
    metrics: tuple[str, ...] = opt((), "Tables that `magcli evaluate` wrote, compared side by side.", panel=TEXT)
    only: tuple[str, ...] = opt(ONLY, "Metrics to show.", panel=TEXT)
    runs: tuple[str, ...] = opt((), "Folders of training runs: steps, seconds and where they ended.", panel=TEXT)
    files: tuple[str, ...] = opt((), "Files and folders to point at in the end.", panel=TEXT)


def reads(config: Config) -> tuple[str, ...]:
    """What is read is named by PATHS and options."""
    return ()


def check(config: Config) -> None:
    """Something must be asked for, in a way that can be done."""
    named, out = bool(_sources(config)), config.out
    usage(named or bool(config.files), "report: name what to report on: magcli report PATH... -o report.html")
    usage(out is None or out.suffix in (".html", ".htm"), f"report: -o {out}: the name of a page ends in .html")
    usage(out is None or not out.is_dir(), f"report: -o {out} is a folder; name a file")
    usage(out is None or named, "report: --files are told in the terminal; a page needs PATHS")
    usage(config.samples >= 0, f"report.samples: {config.samples} is negative")
    for each in config.samples_at:
        usage(_is_place(each), f"report.samples_at: '{each}' is neither the number of an update nor 0% to 100%")


def _is_place(text: str) -> bool:
    share = text.removesuffix("%")
    return share.isdecimal() and (share == text or int(share) <= 100)


def _sources(config: Config) -> list[Path]:
    """Everything that is named to be read."""
    return [Path(name) for name in (*config.paths, *config.funnel, *config.metrics, *config.runs)]


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """Nothing is written to a table."""
    import pyarrow as pa

    return pa.schema([])


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Write the page, or print the tables that were asked for."""
    if config.out is None:
        _print(config, job)
    else:
        _write(config, config.out, job)
    return iter(())


def _write(config: Config, out: Path, job: Job) -> None:
    from magcli.report import found, page

    things = found.find(_sources(config))
    title = config.title or f"Report on {', '.join(labels([str(path.resolve()) for path in _sources(config)]))}"
    told = page.contents(things, title, _defaults, samples_at=config.samples_at, groups=config.samples)
    _warn(things, job)
    size = page.write(out, told)
    job.console.say(f"report: {out} ({size / 1e6:.1f} MB)", event="page", path=str(out), bytes=size)


def _warn(things: Found, job: Job) -> None:
    """Say what could not be read."""
    for problem in things.unread:
        job.console.warn(f"report: {problem}", path=problem)


def _defaults(stage: str) -> Mapping[str, Any]:
    """The defaults of a stage's options; none for a stage that this version has not."""
    import importlib

    from magcli.config import as_json

    try:
        module = importlib.import_module(f"magcli.stages.{stage.replace('-', '_')}")
    except ModuleNotFoundError:
        return {}
    return as_json(module.Config())


def _print(config: Config, job: Job) -> None:
    from rich.console import Console

    screen, told = Console(), io.StringIO()
    out = Console(
        file=told, force_terminal=screen.is_terminal, width=screen.width, highlight=False, markup=False, emoji=False
    )
    funnel, metrics, runs = _named(config, job)
    if funnel:
        out.print(_funnel(funnel))
    if metrics:
        out.print(_metrics(metrics, config.only))
    if runs:
        out.print(_runs(runs))
    for name in config.files:
        out.print(f"  {name}" if Path(name).exists() else f"  {name} (missing)")
    put(told.getvalue(), styled=True)


def _named(config: Config, job: Job) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Tables of the funnel, tables of metrics, and runs: those that options name after those found under the paths."""
    if not config.paths:
        return config.funnel, config.metrics, config.runs
    from magcli.report.found import find
    from magcli.report.funnel import OTHER_ROWS

    things = find([Path(path) for path in config.paths])
    _warn(things, job)
    chosen = [each for each in things.tables if each.made_by and each.made_by.stage not in OTHER_ROWS]
    funnel = [str(each.path) for each in chosen if not each.of_dropped_rows]
    metrics = [str(each.path) for each in things.tables if each.of_metrics]
    return [*funnel, *config.funnel], [*metrics, *config.metrics], [*map(str, things.runs), *config.runs]


def _funnel(names: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table("table", "stage", "rows in", "rows out", "dropped by reason", title="Rows", title_justify="left")
    for column in table.columns[2:4]:
        column.justify = "right"
    for name in names:
        link = _last_link(name)
        dropped = ", ".join(f"{why} {count:,}" for why, count in sorted(link.dropped.items(), key=lambda p: -p[1]))
        total = sum(link.dropped.values())
        told = f"{total:,}: {dropped}" if dropped else "-"
        row = (Path(name).name, link.stage, f"{link.rows_in:,}", f"{link.rows_out:,}", told)
        table.add_row(*map(visible, row))
    return table


def _last_link(name: str) -> Link:
    from magcli.data import table

    source = table.read(name)
    for _ in source.rows:
        pass
    if not source.chain:
        raise DataError(f"report: {name} has no history; it was not written by magcli")
    return source.chain[-1]


def _metrics(names: Sequence[str], only: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table("of", *only, "problems", "samples", title="Accuracy, % [95% interval]", title_justify="left")
    tables = [_read_metrics(name) for name in names]
    _refuse_unknown(only, {metric for each in tables for found in each.values() for metric in found})
    for each, label in zip(tables, labels(names), strict=True):
        for (suite, model), found in each.items():
            first = next(iter(found.values()))
            figures = [str(found.get(metric) or "-") for metric in only]
            of = visible(f"{model or label} {suite}".strip())
            table.add_row(of, *figures, str(first.problems), str(first.samples))
    return table


def _refuse_unknown(only: Sequence[str], known: set[str]) -> None:
    """Every metric that is asked for must be in some table; those asked for by default need not."""
    from magcli.config import did_you_mean

    for name in only:
        usage(
            name in known or name in ONLY, f"report.only: no table has the metric '{name}'{did_you_mean(name, known)}"
        )


def _read_metrics(name: str) -> dict[tuple[str, str], dict[str, Figure]]:
    """The rows of a table of metrics by suite and model, which only comparisons name, and metric."""
    from magcli.data import table
    from magcli.data.schema import require
    from magcli.report.figures import of_row

    source = table.read(name)
    require(source.schema, ("metric", "value", "low", "high"), stage="report", where=name)
    found: dict[tuple[str, str], dict[str, Figure]] = {}
    for row in (row for batch in source.rows for row in batch.to_pylist() if row["value"] is not None):
        each = of_row(row, "")
        found.setdefault((each.suite, each.model), {})[each.metric] = each
    return found


def _runs(names: Sequence[str]) -> Any:
    from rich.table import Table

    from magcli.run import lineage
    from magcli.run.rundir import RunDir

    table = Table("run", "steps", "seconds", "at the end", "best", title="Training", title_justify="left")
    for name, label in zip(names, labels(names), strict=True):
        lineage.read(Path(name))  # refuses what is no run, and one whose records are damaged
        lines = RunDir(Path(name)).metrics()
        seconds = sum(line.get("seconds") or 0.0 for line in lines)
        last, steps = (lines[-1], lines[-1]["step"]) if lines else ({}, 0)
        told = ", ".join(f"{key} {last[key]:.3f}" for key in OF_A_RUN if last.get(key) is not None)
        table.add_row(visible(label), str(steps), f"{seconds:.0f}", told or "-", _best(lines))
    return table


def _best(lines: list[dict[str, Any]]) -> str:
    """The evaluation by which a run chose its model: the first of the best, and its step."""
    for name, sign in EVALUATED:
        if found := [line for line in lines if line.get(name) is not None]:
            best = max(found, key=lambda line: sign * line[name])
            return f"{name.replace('_', ' ')} {best[name]:.3f} at step {best['step']}"
    return "-"

"""A whole pipeline on one HTML page, or its main figures in the terminal.

PATHS are tables that magcli wrote, folders of runs, folders of landscapes, or folders that contain these, such as the
output of a recipe. With -o report.html they become one page that needs no network: the funnel of the data with
reasons, curves of every run, samples with the parts of their reward, evaluations with intervals, figures of
landscapes, and the origin of every file. Without -o the main figures are printed to stdout.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import did_you_mean, opt
from magcli.console import put, visible
from magcli.errors import DataError, usage
from magcli.evaluation.labels import labels

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.report.discovery import Artifacts
    from magcli.report.evaluation import Score
    from magcli.run.job import Job

INPUTS = ""
OUTPUT = ""
EXAMPLE = "magcli report runs kept.arrow evaluation.arrow -o report.html"
RUN_METRICS = ("reward", "correct", "entropy", "loss")
"""The metrics of a run's last step that are shown."""
SELECTION_METRICS = (("accuracy", 1), ("held_out_loss", -1))
"""The metrics by which runs select their model, in this order, and whether more (1) or less (-1) is better."""
DEFAULT_METRICS = ("avg@n", "avg@n anywhere")
"""The metrics that are shown by default."""
PAGE = "The page"
TEXT = "Tables in the terminal, without -o"


@dataclass(frozen=True)
class Config:
    """Options of `magcli report`."""

    paths: tuple[str, ...] = opt((), "Tables, runs, landscapes, and folders that hold them.", positional=True)
    out: Path | None = opt(None, "The page to write: a file that ends in .html.", panel=PAGE, short="-o")
    samples_at: tuple[str, ...] = opt(
        ("0%", "25%", "50%", "100%"),
        "RL updates whose samples are shown: numbers, or percentages of the run.",
        panel=PAGE,
    )
    samples: int = opt(
        3, "Number of problems shown per update, with the best and the worst completion; 0 shows none.", panel=PAGE
    )
    title: str = opt("", "Title of the page (default: the names of the paths).", panel=PAGE)
    funnel: tuple[str, ...] = opt(
        (), "Tables in the order of the pipeline: rows kept and dropped by reason.", panel=TEXT
    )
    metrics: tuple[str, ...] = opt((), "Tables that `magcli evaluate` wrote, compared side by side.", panel=TEXT)
    only: tuple[str, ...] = opt(DEFAULT_METRICS, "Metrics to show.", panel=TEXT)
    runs: tuple[str, ...] = opt((), "Folders of training runs: steps, seconds and where they ended.", panel=TEXT)
    files: tuple[str, ...] = opt((), "Files and folders to list at the end.", panel=TEXT)


def check(config: Config) -> None:
    """Refuse a command without paths, and outputs that are not a page."""
    named, out = bool(_sources(config)), config.out
    usage(named or bool(config.files), "report: name what to report on: magcli report PATH... -o report.html")
    usage(out is None or out.suffix in (".html", ".htm"), f"report: -o {out}: a page must end in .html")
    usage(out is None or not out.is_dir(), f"report: -o {out} is a folder; name a file")
    usage(out is None or named, "report: --files are listed in the terminal only; a page needs PATHS")
    usage(config.samples >= 0, f"report.samples: {config.samples} is negative")
    for each in config.samples_at:
        usage(_is_update(each), f"report.samples_at: '{each}' is neither an update nor a percentage from 0% to 100%")


def _is_update(text: str) -> bool:
    share = text.removesuffix("%")
    return share.isdecimal() and (share == text or int(share) <= 100)


def _sources(config: Config) -> list[Path]:
    return [Path(name) for name in (*config.paths, *config.funnel, *config.metrics, *config.runs)]


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Write the page, or print the tables."""
    if config.out is None:
        _print(config, job)
    else:
        _write(config, config.out, job)
    return iter(())


def _write(config: Config, out: Path, job: Job) -> None:
    from magcli.report import discovery, page

    artifacts = discovery.discover(_sources(config))
    title = config.title or f"Report on {', '.join(labels([str(path.resolve()) for path in _sources(config)]))}"
    contents = page.contents(artifacts, title, _defaults, samples_at=config.samples_at, groups=config.samples)
    _warn(artifacts, job)
    size = page.write(out, contents)
    job.console.say(f"report: {out} ({size / 1e6:.1f} MB)", event="page", path=str(out), bytes=size)


def _warn(artifacts: Artifacts, job: Job) -> None:
    for problem in artifacts.unread:
        job.console.warn(f"report: {problem}", path=problem)


def _defaults(stage: str) -> Mapping[str, Any]:
    """The defaults of a stage's options; empty for a stage that this version does not have."""
    import importlib

    from magcli.config import as_json

    try:
        module = importlib.import_module(f"magcli.stages.{stage.replace('-', '_')}")
    except ModuleNotFoundError:
        return {}
    return as_json(module.Config())


def _print(config: Config, job: Job) -> None:
    from rich.console import Console

    screen, text = Console(), io.StringIO()
    out = Console(
        file=text, force_terminal=screen.is_terminal, width=screen.width, highlight=False, markup=False, emoji=False
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
    put(text.getvalue(), styled=True)


def _named(config: Config, job: Job) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Tables of the funnel, tables of metrics, and runs: those found under the paths, then those of the options."""
    if not config.paths:
        return config.funnel, config.metrics, config.runs
    from magcli.report.discovery import discover
    from magcli.report.funnel import NOT_FILTERS

    artifacts = discover([Path(path) for path in config.paths])
    _warn(artifacts, job)
    filters = [each for each in artifacts.tables if each.made_by and each.made_by.stage not in NOT_FILTERS]
    funnel = [str(each.path) for each in filters if not each.of_dropped_rows]
    metrics = [str(each.path) for each in artifacts.tables if each.of_metrics]
    return [*funnel, *config.funnel], [*metrics, *config.metrics], [*map(str, artifacts.runs), *config.runs]


def _funnel(names: Sequence[str]) -> Any:
    from rich.table import Table

    from magcli.report.discovery import open_table

    table = Table("table", "stage", "rows in", "rows out", "dropped by reason", title="Rows", title_justify="left")
    for column in table.columns[2:4]:
        column.justify = "right"
    for name in names:
        link = open_table(Path(name)).made_by
        if link is None:
            raise DataError(f"report: {name} has no history; it was not written by magcli")
        dropped = ", ".join(f"{why} {count:,}" for why, count in sorted(link.dropped.items(), key=lambda p: -p[1]))
        total = sum(link.dropped.values())
        reasons = f"{total:,}: {dropped}" if dropped else "-"
        row = (Path(name).name, link.stage, f"{link.rows_in:,}", f"{link.rows_out:,}", reasons)
        table.add_row(*map(visible, row))
    return table


def _metrics(names: Sequence[str], only: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table("model", *only, "problems", "samples", title="Accuracy, % [95% interval]", title_justify="left")
    tables = [_read_metrics(name) for name in names]
    known = {metric for each in tables for found in each.values() for metric in found}
    for name in only:
        text = f"report.only: no table has the metric '{name}'{did_you_mean(name, known)}"
        usage(name in known or name in DEFAULT_METRICS, text)
    for each, label in zip(tables, labels(names), strict=True):
        for (suite, model), found in each.items():
            first = next(iter(found.values()))
            figures = [str(found.get(metric) or "-") for metric in only]
            title = visible(f"{model or label} {suite}".strip())
            table.add_row(title, *figures, str(first.problems), str(first.samples))
    return table


def _read_metrics(name: str) -> dict[tuple[str, str], dict[str, Score]]:
    """The rows of a table of metrics by suite and model (which only comparisons name) and metric."""
    from magcli.data import table
    from magcli.data.schema import require
    from magcli.report.evaluation import score_of

    source = table.read(name)
    require(source.schema, ("metric", "value", "low", "high"), stage="report", where=name)
    found: dict[tuple[str, str], dict[str, Score]] = {}
    for row in (row for batch in source.rows for row in batch.to_pylist() if row["value"] is not None):
        each = score_of(row, "")
        found.setdefault((each.suite, each.model), {})[each.metric] = each
    return found


def _runs(names: Sequence[str]) -> Any:
    from rich.table import Table

    from magcli.run import lineage
    from magcli.run.rundir import RunDir

    table = Table("run", "steps", "seconds", "at the end", "best", title="Training", title_justify="left")
    for name, label in zip(names, labels(names), strict=True):
        lineage.read(Path(name))  # raises for a folder that is not a run, or is damaged
        lines = RunDir(Path(name)).metrics()
        seconds = sum(line.get("seconds") or 0.0 for line in lines)
        last, steps = (lines[-1], lines[-1]["step"]) if lines else ({}, 0)
        metrics = ", ".join(f"{key} {last[key]:.3f}" for key in RUN_METRICS if last.get(key) is not None)
        table.add_row(visible(label), str(steps), f"{seconds:.0f}", metrics or "-", _best(lines))
    return table


def _best(lines: list[dict[str, Any]]) -> str:
    """The best value of the metric by which a run selected its model, and its first step."""
    for name, sign in SELECTION_METRICS:
        if found := [line for line in lines if line.get(name) is not None]:
            best = max(found, key=lambda line: sign * line[name])
            return f"{name.replace('_', ' ')} {best[name]:.3f} at step {best['step']}"
    return "-"

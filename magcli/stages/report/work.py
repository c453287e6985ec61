"""The work of `magcli report`, once its options are checked."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as RichTable

from magcli.config import as_json, did_you_mean
from magcli.console import counted, put, visible
from magcli.errors import DataError, usage
from magcli.evaluation.metrics import labels
from magcli.report import page
from magcli.report.discovery import Artifacts, discover, rows_of
from magcli.report.evaluation import problem_names, score_of
from magcli.report.formatting import short_path
from magcli.report.history import NOT_FILTERS
from magcli.report.page import RolloutsPage
from magcli.report.rollouts.page import write as write_rollouts
from magcli.report.rollouts.source import of_run, of_table
from magcli.run.rundir import RunDir, read_run
from magcli.stages.report import DEFAULT_METRICS, Config
from magcli.stages.report.watch import watch
from magcli.stages.shared.evaluations import stored_problems

if TYPE_CHECKING:
    from magcli.console import Console as MessageConsole
    from magcli.data.manifest import Link
    from magcli.data.source import Rows
    from magcli.evaluation.metrics import Problem
    from magcli.report.discovery import Table
    from magcli.report.evaluation import Score
    from magcli.report.page import Contents
    from magcli.run.job import Job

RUN_METRICS = ("reward", "correct", "entropy", "loss", "accuracy")
"""The metrics of a run's last step that are shown."""

SELECTION_METRICS = (("accuracy", 1), ("held_out_loss", -1))
"""The metrics by which runs select their model, in this order, and whether more (1) or less (-1) is better."""


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Write the page, or print the tables; warn of files that could not be read."""
    paths = [Path(path) for path in config.paths]
    if config.watch:
        _watch(config, job)
        if config.out is None:
            return iter(())
    # With --watch again: the run has gone on since.
    artifacts = discover(paths) if paths else Artifacts()
    if config.out is None:
        _print(config, artifacts)
    else:
        _write(config, config.out, artifacts, job)
    for problem in artifacts.unread:
        job.console.warn(f"report: {problem}", path=problem)
    return iter(())


def _watch(config: Config, job: Job) -> None:
    """Serve the page of the run until it has ended."""
    folder = Path(config.paths[0])
    watch(folder, _title(config), lambda: _contents(config, discover([folder]), job), job.console)


def _title(config: Config) -> str:
    paths = [str(Path(path).resolve()) for path in config.paths]
    return config.title or f"Report on {', '.join(labels(paths))}"


def _contents(config: Config, artifacts: Artifacts, job: Job) -> Contents:
    problems = _problems_of_runs(artifacts, job.console)
    return page.contents(
        artifacts,
        _title(config),
        _defaults,
        samples_at=config.samples_at,
        groups=config.samples,
        problems=problems,
    )


def _write(config: Config, out: Path, artifacts: Artifacts, job: Job) -> None:
    contents = _contents(config, artifacts, job)
    rollouts = _write_rollouts(out, artifacts, contents, job)
    size = page.write(out, replace(contents, rollouts=rollouts))
    for comparison in contents.comparisons:
        for ranking in comparison.rankings:
            where = f"{ranking.suite}: " if ranking.suite else ""
            for text in ranking.verdicts:
                job.console.result(f"report: {where}{text}", event="ranking", suite=ranking.suite)
    job.console.result(f"report: {out} ({size / 1e6:.1f} MB)", event="page", path=str(out), bytes=size)


def _write_rollouts(out: Path, artifacts: Artifacts, contents: Contents, job: Job) -> list[RolloutsPage]:
    """Write a page of rollouts beside the report for each run, and for each table of completions that was named."""
    run_names = {run.trained.folder: run.name for run in contents.runs if run.trained.stage == "rl"}
    # Only named ones: a folder may hold many tables of completions.
    tables = {}
    for table in artifacts.tables:
        if table.of_completions and table.path in artifacts.named:
            tables[table.path] = table
    pages: list[RolloutsPage] = []

    def write_page(path: Path) -> None:
        name = run_names.get(path) or path.stem
        title = f"Rollouts of {name}"
        source = of_run(path, title) if path in run_names else of_table(path, title, tables[path].chain)
        if source is None:
            return
        number = f"-{len(pages) + 1}" if pages else ""  # the first page has none
        file = out.with_name(f"{out.stem}-rollouts{number}.html")
        written = write_rollouts(file, source)
        pages.append(RolloutsPage(name, file.name, written.rows))
        megabytes = written.size / 1e6
        text = f"report: {file} ({written.rows:,} rollouts, {megabytes:.1f} MB)"
        job.console.result(text, event="page", path=str(file), bytes=written.size)

    artifacts.read_all([*run_names, *tables], write_page)
    return pages


def _problems_of_runs(artifacts: Artifacts, console: MessageConsole) -> dict[Path, dict[str, list[Problem]]]:
    """The graded problems of the runs' models, by run and by suite or held-out table; of evaluations that kept them."""
    by_run: dict[Path, dict[str, list[Problem]]] = {}
    names = problem_names([table for table in artifacts.tables if table.of_metrics])
    for table in artifacts.tables:
        link = table.made_by
        if link is None or not table.of_metrics:
            continue
        run = _run_of(str(link.config.get("model")), artifacts.runs)
        if run is None:
            continue
        for suite, problems in stored_problems(table.path, console).items():
            by_run.setdefault(run, {})[suite or names[table.path]] = problems
    return by_run


def _run_of(model: str, runs: Sequence[Path]) -> Path | None:
    """The run whose model was evaluated: by its folder, or by the end of its name where the folders were moved."""
    # Histories have the path as it was given.
    location = Path(model).resolve()
    at_location = [run for run in runs if (run / "model").resolve() == location]
    by_name = [run for run in runs if short_path(f"{run.resolve()}/model") == short_path(model)]
    candidates = at_location or by_name
    # Two runs of one name: better none than the wrong one.
    return candidates[0] if len(candidates) == 1 else None


def _defaults(stage: str) -> Mapping[str, Any]:
    """The defaults of a stage's options; empty for a stage that this version does not have."""
    try:
        module = importlib.import_module(f"magcli.stages.{stage.replace('-', '_')}")
    except ModuleNotFoundError:
        return {}
    # The page tells by them which options were set.
    return as_json(module.Config())


def _print(config: Config, artifacts: Artifacts) -> None:
    # Its width and colours hold for the text, which is printed at once.
    screen = Console()
    text = io.StringIO()
    out = Console(
        file=text, force_terminal=screen.is_terminal, width=screen.width, highlight=False, markup=False, emoji=False
    )
    filters = []
    for table in artifacts.tables:
        link = table.made_by
        if link and not table.of_dropped_rows and link.stage not in NOT_FILTERS:
            filters.append((table.path.name, link))
    if filters:
        out.print(_funnel(filters))
    metrics = [table for table in artifacts.tables if table.of_metrics]
    if metrics:
        out.print(_metrics(metrics, config.only))
    if artifacts.runs:
        out.print(_runs(artifacts.runs))
    for name in config.files:
        out.print(f"  {name}" if Path(name).exists() else f"  {name} (missing)")
    # A landscape, for example, has no figures for the terminal.
    if not text.getvalue().strip():
        where = ", ".join(config.paths)
        raise DataError(f"report: {where}: its figures are only on the page; give -o report.html")
    put(text.getvalue(), styled=True)


def _funnel(filters: Sequence[tuple[str, Link]]) -> Any:
    table = RichTable("table", "stage", "rows in", "rows out", "dropped by reason", title="Rows", title_justify="left")
    for column in table.columns[2:4]:
        column.justify = "right"
    for name, link in filters:
        dropped = "-"
        if link.dropped:
            total = sum(link.dropped.values())
            dropped = f"{total:,}: {counted(link.dropped)}"
        cells = (name, link.stage, f"{link.rows_in:,}", f"{link.rows_out:,}", dropped)
        table.add_row(*map(visible, cells))
    return table


def _metrics(tables: Sequence[Table], only: Sequence[str]) -> Any:
    scores = [_read_scores(table) for table in tables]
    names: set[str] = set()
    for by_model in scores:
        # The values are dictionaries by metric, so this adds the names of metrics.
        names.update(*by_model.values())
    for name in only:
        is_known = name in names or name in DEFAULT_METRICS
        usage(is_known, f"report.only: no table has the metric '{name}'{did_you_mean(name, names)}")
    shown = RichTable("model", *only, "problems", "samples", title="Accuracy, % [95% interval]", title_justify="left")
    table_labels = labels([str(table.path) for table in tables])
    for by_model, label in zip(scores, table_labels, strict=True):
        for (suite, model), by_metric in by_model.items():
            figures = [str(by_metric.get(metric) or "-") for metric in only]
            title = visible(f"{model or label} {suite}".strip())
            first = next(iter(by_metric.values()))  # all metrics are of the same problems
            shown.add_row(title, *figures, str(first.problems), str(first.samples))
    return shown


def _read_scores(table: Table) -> dict[tuple[str, str], dict[str, Score]]:
    """The rows of a table of metrics by suite and model (which only comparisons name) and metric."""
    by_model: dict[tuple[str, str], dict[str, Score]] = {}
    for row in rows_of(table):
        if row["value"] is not None:
            score = score_of(row, "")
            by_model.setdefault((score.suite, score.model), {})[score.metric] = score
    return by_model


def _runs(folders: Sequence[Path]) -> Any:
    table = RichTable("run", "steps", "seconds", "at the end", "best", title="Training", title_justify="left")
    run_labels = labels([str(folder) for folder in folders])
    for folder, label in zip(folders, run_labels, strict=True):
        read_run(folder)  # raises if it is damaged
        lines = RunDir(folder).metrics()
        seconds = sum(line.get("seconds") or 0.0 for line in lines)
        last = lines[-1] if lines else {}
        steps = last.get("step", 0)
        measured = [key for key in RUN_METRICS if last.get(key) is not None]
        at_end = ", ".join(f"{key} {last[key]:.3f}" for key in measured)
        if last.get("off_policy"):
            at_end = f"replay, off-policy: {at_end}"
        table.add_row(visible(label), str(steps), f"{seconds:.0f}", at_end or "-", _best(lines))
    return table


def _best(lines: list[dict[str, Any]]) -> str:
    """The best value of the metric by which a run of `magcli sft` selects its model, and its step.

    As in `magcli sft`: of equal values the one with the lowest held-out loss, and of those the last.
    """
    for name, sign in SELECTION_METRICS:
        evaluated = [line for line in lines if line.get(name) is not None]
        if evaluated:
            # Steps grow, so of equal lines the last one wins.
            best = max(evaluated, key=lambda line: (sign * line[name], -_held_out_loss(line), line["step"]))
            return f"{name.replace('_', ' ')} {best[name]:.3f} at step {best['step']}"
    return "-"


def _held_out_loss(line: dict[str, Any]) -> float:
    loss = line.get("held_out_loss")
    return float("inf") if loss is None else float(loss)

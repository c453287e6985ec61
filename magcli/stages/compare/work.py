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
from magcli.report.comparison import (
    END_SHARE,
    ENDS,
    HEADLINE,
    accuracy,
    differing,
    end_of,
    figure,
    options_of,
    short,
    verdict,
)
from magcli.run.rundir import RunDir, read_run
from magcli.stages.compare import Config, _is_run
from magcli.stages.shared import options
from magcli.stages.shared.evaluations import AnswerEquality, sides_of

if TYPE_CHECKING:
    from magcli.data.source import Rows, Source
    from magcli.run.job import Job


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
    differ = differing([options_of(read_run(folder)) for folder in folders])
    # Curves are noisy, so their ends are means over the last steps.
    ends = [end_of(RunDir(folder).metrics()) for folder in folders]
    values = {}
    for name in ("steps", *ENDS):
        if any(name in end for end in ends):
            values[name] = [figure(end.get(name)) for end in ends]
    if any("accuracy" in end for end in ends):
        values["accuracy, %"] = [accuracy(end) for end in ends]

    text = _differences(names, differ)
    text += _table(f"At the end: means over the last 1/{END_SHARE} of the steps", names, values)
    text += _paired_by(folders)
    job.console.print(text, event="comparison", options=differ, ends=ends, names=list(names))


def _paired_by(folders: Sequence[Path]) -> str:
    """How the models of runs are compared problem by problem."""
    first, second = (folder / "model" for folder in folders[:2])
    return f"Paired by problem: magcli evaluate HELD-OUT --model {second} --before {first}"


def _compare_tables(config: Config, names: Sequence[str], job: Job) -> None:
    """Print the options that differ, and all metrics with their paired differences to the first table."""
    sources = [table.read(path) for path in config.paths]
    with AnswerEquality(options.GraderOptions()) as equality:
        sides = sides_of(sources, config.ks, config.seed, equality, job.console, stage="compare")
    if len(sides) < 2:
        raise DataError(f"compare: {', '.join(config.paths)} have no two models with metrics")
    first = sides[0].name
    rows = metrics.compare(sides, config.ks, config.seed)
    verdicts = []
    for row in rows:
        # The first table is what the others are compared with.
        if row["metric"] == HEADLINE and row["model"] != first:
            verdicts.append(verdict(row, first))

    differ = differing([_settings(source) for source in sources])
    text = _differences(names, differ)
    text += metrics.comparison_markdown(rows)
    text += "\n" + "\n".join(verdicts)
    job.console.print(text, event="comparison", options=differ, rows=rows, names=list(names))


def _settings(source: Source) -> dict[str, Any]:
    """The options of the stage that made a table; none without a history."""
    if not source.chain:
        return {}
    # The last link is the stage that made the table.
    link = source.chain[-1]
    inputs = [table.name for table in link.inputs]
    return {**link.config, "command": link.stage, "inputs": inputs}


def _differences(names: Sequence[str], differ: Mapping[str, Sequence[Any]]) -> str:
    """The table of options that differ."""
    rows = {option: [short(value) for value in values] for option, values in differ.items()}
    return _table("Options that differ", names, rows)


def _table(title: str, names: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A table with a column for each run or model; the title alone says that there are no rows."""
    if not rows:
        return f"{title}: none\n\n"
    table = Table()
    for name in ("", *names):
        table.add_column(visible(name), overflow="fold")
    for name, values in rows.items():
        table.add_row(name, *map(visible, values))
    text = io.StringIO()
    # As wide as the terminal, on which the text is printed later.
    Console(file=text, width=Console().width, highlight=False, markup=False, emoji=False).print(table)
    return f"{title}\n{text.getvalue()}\n"

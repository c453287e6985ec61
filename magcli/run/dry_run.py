"""``--dry-run``: open what a command would read, and say which rows it would drop. Nothing is written."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from magcli.console import Console
from magcli.data import table
from magcli.errors import DataError
from magcli.run import harness, trial, validation
from magcli.run.harness import Tables
from magcli.run.job import Drops, Job
from magcli.run.stage import Stage


def try_command(stage: Stage, config: Any, tables: Tables, console: Console) -> None:
    """Read a command's tables, or the shard and the first rows that it asks for, and preview the stage.

    Stdin and tables that are not there, which earlier commands of a pipeline may still make, are not read; without
    tables only the stage's forecast is made.

    Raises:
        MagError: what the command itself would end with before its first result.
    """
    names, absent = _found(tables.inputs)
    if (absent or not tables.inputs) and stage.forecast is not None:
        stage.forecast(config, console)
    if not tables.inputs:
        return
    if absent:
        text = ", ".join("stdin" if name == "-" else name for name in absent)
        console.say(f"{stage.name}: dry run: no row was checked: {text} cannot be read yet", event="not-checked")
    else:
        _preview(stage, config, replace(tables, inputs=names), console)


def _found(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tables that are there, and the names for which there is none."""
    found: list[str] = []
    absent: list[str] = []
    for name in inputs:
        try:
            found += table.expand([name])
        except DataError:  # a pattern may match what earlier commands make
            absent.append(name)
    absent += [name for name in found if name == "-" or not os.path.exists(name)]
    return found, absent


def _preview(stage: Stage, config: Any, tables: Tables, console: Console) -> None:
    """Read all rows of the tables as the stage would, and say how many are usable."""
    job = Job(stage.name, console, Drops(keep=False))
    job.inputs = harness.open_inputs(stage, config, tables, job.drops.unread)
    job.total = job.inputs.total
    rows = validation.usable_rows(stage, config, job, tables.inputs)
    rows = trial.try_first_row(stage, config, rows)
    usable = stage.preview(config, rows, job)

    dropped = job.drops.counts
    text = f"{stage.name}: dry run: {job.rows_in:,} rows, {usable:,} usable"
    if dropped:
        text += f", would drop {dropped.total():,} ({job.drops.summary()})"
    console.say(text, event="dry-run", rows_in=job.rows_in, usable=usable, dropped=dict(dropped))

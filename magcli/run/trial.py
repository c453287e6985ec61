"""Try the user's functions on the first row of a stage's input before any work, also with ``--dry-run``."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from magcli.console import Console
from magcli.data import table
from magcli.data.source import Rows
from magcli.data.values import to_rows
from magcli.errors import MagError
from magcli.run import validation
from magcli.run.job import Drops, Job
from magcli.run.stage import Stage


def try_first_row(stage: Stage, config: Any, rows: Rows) -> Rows:
    """Let a stage try the user's functions on the first row; returns all rows.

    Raises:
        UsageError: a function fails.
    """
    attempt = stage.trial(config)
    if attempt is None:
        return rows
    read = []
    for batch in rows:
        read.append(batch)
        if batch.num_rows:
            attempt(to_rows(batch.slice(0, 1))[0])
            break
    return chain(read, rows)


def try_inputs(stage: Stage, config: Any, inputs: Sequence[str]) -> None:
    """``try_first_row`` of the first input, for ``--dry-run``; stdin and a table that cannot be read are left out.

    Raises:
        UsageError: a function fails.
    """
    if stage.trial(config) is None or not inputs or "-" in inputs:
        return
    job = Job(stage.name, Console(quiet=True), Drops(keep=False))
    try:
        source = table.read(inputs[0], table.ignore)
        columns = stage.reads(config) or ()
        _, rows = validation.validate_rows(columns, source.schema, source.rows, job, inputs[0], stage.ALIASES)
        first = next((batch for batch in rows if batch.num_rows), None)
    except MagError:
        return
    if first is not None:
        try_first_row(stage, config, iter([first]))

"""Try the user's functions on the first row of a stage's input before any work, also with ``--dry-run``."""

from itertools import chain
from typing import Any

from magcli.data.source import Rows
from magcli.data.values import to_rows
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
    # What was read for the trial is still part of the input.
    return chain(read, rows)

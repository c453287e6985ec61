"""Some completions of each update of a run, for trackers."""

from pathlib import Path

import numpy as np

from magcli.errors import DataError
from magcli.rl.store import read_columns
from magcli.run.rundir import RunDir
from magcli.run.trackers.types import Sample

NUM_SAMPLES = 8
"""How many completions of an update trackers get."""
MAX_TEXT = 4_000
"""Longer prompts and completions are cut to this many characters."""


def samples_of(run: Path, step: int) -> list[Sample]:
    """Completions evenly spaced over an update's table; none without a table that can be read."""
    path = RunDir(run).rollouts_of(step)
    if not path.is_file():
        return []
    try:
        rows = read_columns(path, Sample._fields)
    except DataError:
        return []
    # Evenly spaced: neighbouring rows are of one group.
    count = min(NUM_SAMPLES, rows.num_rows)
    indices = np.linspace(0, rows.num_rows - 1, count).round().astype(int)
    samples = []
    for row in rows.take(indices).to_pylist():
        samples.append(Sample(_cut(row["prompt"]), _cut(row["completion"]), row["reward"], row["reason"] or ""))
    return samples


def _cut(text: str | None) -> str:
    text = text or ""
    left_out = len(text) - MAX_TEXT
    return text if left_out <= 0 else f"{text[:MAX_TEXT]} [... {left_out:,} more characters]"

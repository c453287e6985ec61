"""Split a table in two: rows to train on, and held-out rows to evaluate on.

The training rows are the output, the others go to --held-out. A row's side depends only on its value in one column, by
default the prompt without regard to case and spaces, and on --seed: repeated problems are on the same side, and a table
that grows keeps its split. Remove near-duplicates first (magcli clean-math).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from magcli.config import opt
from magcli.errors import usage

INPUTS = "The tables to split, one after the other; - is stdin."
EXAMPLE = "magcli split examples/problems.jsonl --share 0.2 --held-out held-out.jsonl -o train.jsonl"


@dataclass(frozen=True)
class Config:
    """Options of `magcli split`."""

    held_out: Path | None = opt(
        None, "Table of the held-out rows; its suffix is its format.", affects_rows=False, output_table=True
    )
    share: float = opt(0.1, "Approximate share of the rows that are held out.", gt=0, lt=1)
    by: str = opt("prompt", "Column that decides a row's side; rows with the same value are on the same side.")
    seed: int = opt(0, "Seed of the split.")


def check(config: Config) -> None:
    """Refuse options that are out of range."""
    usage(config.held_out is not None, "split: --held-out is missing: the table of the held-out rows")


def reads(config: Config) -> Sequence[str]:
    """The column that decides."""
    return (config.by,)

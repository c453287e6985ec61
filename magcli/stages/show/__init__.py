"""Print rows, statistics or the history of a table.

Prints the first rows to stdout, one line per column. Instead, --stats prints counts, --layout where prompts, answers,
tests and completions are read from and why, --manifest the table's history as JSON, and --digest one hash of the rows,
which does not depend on the file format.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.config import opt
from magcli.errors import usage

INPUTS = "The table to show; - is stdin."
OUTPUT = ""
EXAMPLE = "magcli show examples/problems.jsonl --limit 2"


@dataclass(frozen=True)
class Config:
    """Options of `magcli show`."""

    limit: int = opt(5, "Number of rows to show; 0 shows all.", short="-n", ge=0)
    where: str = opt("", "Only matching rows, such as 'reward < 0.5 and prompt contains \"prime\"'.")
    columns: tuple[str, ...] = opt((), "Columns to show, or to use for --stats and --digest (default: all).")
    width: int = opt(600, "Maximum number of characters per cell; 0 shows all.")
    stats: bool = opt(False, "Counts, ranges and most frequent values of each column instead of rows.")
    layout: bool = opt(False, "What layout is recognised by which columns, and where what lies, instead of rows.")
    manifest: bool = opt(False, "The history of the table as JSON instead of rows.")
    digest: bool = opt(False, "A SHA-256 digest of all rows, instead of rows.")


def check(config: Config) -> None:
    """Refuse negative numbers, and more than one thing to print."""
    instead = [flag for flag in ("stats", "layout", "manifest", "digest") if getattr(config, flag)]
    usage(len(instead) < 2, f"show: --{' and --'.join(instead)} exclude each other")
    usage(config.width >= 0, f"show.width: {config.width} is negative; 0 shows all")

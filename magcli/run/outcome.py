"""What the row counts of a finished command mean: keeping none, or losing some, is a failure.

The tables are written in either case. The same command says so again, as the history of its output has the counts.
"""

from collections.abc import Mapping

from magcli.console import Console
from magcli.data.manifest import Link
from magcli.data.source import LOST
from magcli.errors import DataError

MOST = 0.9
"""If a larger share of the rows is dropped for one reason, a warning says so."""
CHOSEN = ("not-matching", "not-sampled", "held-out", "over-limit")
"""Reasons of rows that the command was told to leave out."""


def check(link: Link, name: str, console: Console, *, allow_empty: bool) -> None:
    """Check the counts of a finished table; ``name`` is that of its file.

    Raises:
        DataError: it has no row and ``allow_empty`` is false, or rows were lost.
    """
    check_lost(link.stage, link.dropped)
    if link.rows_out == 0 and not allow_empty:
        why = "the input has none"
        if link.rows_in:
            why = f"{link.rows_in:,} rows in, dropped {_reasons(link.dropped)}"
        written = "the output" if name == "-" else name
        raise DataError(f"{link.stage}: {written} has no rows: {why}; --allow-empty makes that a success")
    # Only of a success: the errors above name the reasons.
    _warn_of_most(link, console)


def check_lost(stage: str, dropped: Mapping[str, int]) -> None:
    """Check that no row was lost.

    Raises:
        DataError: some could not be read, because of their encoding or size.
    """
    lost = {reason: count for reason, count in dropped.items() if reason in LOST}
    if lost:
        advice = "; ".join(dict.fromkeys(LOST[reason] for reason in lost))  # once, if reasons share it
        raise DataError(f"{stage}: rows are lost: {_reasons(lost)}; {advice}")


def _warn_of_most(link: Link, console: Console) -> None:
    if not link.rows_out:
        return
    for reason, count in link.dropped.items():
        # A filter drops rows for many reasons; nearly all for one may be a mistake.
        if count > MOST * link.rows_in and reason not in CHOSEN:
            share = f"{count / link.rows_in:.0%}"
            text = f"{link.stage}: {share} of the rows were dropped for one reason: {reason}"
            console.warn(text, event="mostly-dropped", reason=reason, count=count, rows_in=link.rows_in)


def _reasons(dropped: Mapping[str, int]) -> str:
    largest_first = sorted(dropped.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in largest_first)

"""What a mix of traces is made of, for people: rows and lengths by source, and how lengths are spread."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BAR = 40
"""Signs of the longest bar of a histogram."""


@dataclass
class Share:
    """What one source brings to the mix. ``different`` of its ``rows`` are no copies; ``weight`` is their sum."""

    rows: int = 0
    different: int = 0
    length: int = 0
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Placed:
    """One row of the mix: its source, which copy it is, its length and its weight."""

    source: str
    copy: int
    length: int
    weight: float


def shares(placed: Iterable[Placed]) -> dict[str, Share]:
    """What each source brings, by name."""
    found: dict[str, Share] = {}
    for each in placed:
        share = found.setdefault(each.source, Share())
        share.rows += 1
        share.different += each.copy == 0
        share.length += each.length
        share.weight += each.weight
    return dict(sorted(found.items()))


def mix_table(found: dict[str, Share], unit: str) -> list[str]:
    """The mix as lines of a table, with a last line for the whole; lengths are in ``unit``."""
    whole = Share(
        sum(each.rows for each in found.values()),
        sum(each.different for each in found.values()),
        sum(each.length for each in found.values()),
        sum(each.weight for each in found.values()),
    )
    head = ("source", "rows", "of rows", "different", "weight", unit, f"of {unit}")
    rows = [head, *(_cells(name, each, whole) for name, each in [*found.items(), ("all", whole)])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return [_line(row, widths) for row in rows]


def _cells(name: str, share: Share, whole: Share) -> tuple[str, ...]:
    return (
        name,
        f"{share.rows:,}",
        f"{share.rows / max(whole.rows, 1):.1%}",
        f"{share.different:,}",
        f"{share.weight:,.1f}",
        f"{share.length:,}",
        f"{share.length / max(whole.length, 1):.1%}",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join((cells[0].ljust(len(first)), *others))


def histogram(lengths: Iterable[int]) -> dict[int, int]:
    """How many lengths are at most each power of two and above the one before it; empty bins between are 0."""
    bins = Counter(max(length - 1, 0).bit_length() for length in lengths)
    return {1 << power: bins[power] for power in range(min(bins), max(bins) + 1)} if bins else {}


def histogram_lines(bins: dict[int, int], unit: str) -> list[str]:
    """The histogram with a bar a bin."""
    most, width = max(bins.values(), default=0), max((len(f"{edge:,}") for edge in bins), default=0)
    return [
        f"to {edge:>{width},} {unit} {count:>9,} {'#' * round(BAR * count / most)}".rstrip()
        for edge, count in bins.items()
    ]

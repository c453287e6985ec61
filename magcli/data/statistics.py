"""Counts, ranges and frequent values of columns, in bounded memory."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.readable import is_short_float, readable_numbers

MAX_LISTED = 12
"""Maximum number of different texts that are listed with their counts."""
MAX_COUNTED = 100_000
"""Maximum number of different texts that are counted."""


@dataclass
class ColumnStatistics:
    """What is counted of a column while its batches pass.

    ``low`` and ``high`` are those of numbers; ``total`` is the sum of numbers, of true values, or of lengths of lists.
    ``texts`` has the counts of different texts, none once there are more than ``MAX_COUNTED``.
    """

    kind: pa.DataType
    rows: int = 0
    nulls: int = 0
    low: float | None = None
    high: float | None = None
    total: float = 0.0
    texts: Counter[str] = field(default_factory=Counter)
    is_full: bool = False

    def add(self, column: pa.Array) -> None:
        """Count the values of a batch."""
        self.rows += len(column)
        self.nulls += column.null_count
        # A sum over nulls alone is null.
        if pa.types.is_list(self.kind):
            self.total += pc.sum(pc.list_value_length(column)).as_py() or 0
        elif pa.types.is_string(self.kind):
            self._add_texts(column)
        elif pa.types.is_boolean(self.kind):
            self.total += pc.sum(column).as_py() or 0
        elif _is_number(self.kind):
            self._add_numbers(readable_numbers(column) if is_short_float(column.type) else column)

    def _add_numbers(self, column: pa.Array) -> None:
        low, high = pc.min_max(column).as_py().values()
        if low is None:  # all are null
            return
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        # Integers beyond 2^53 are rounded, which the digits of a mean do not show.
        self.total += pc.sum(column.cast(pa.float64(), safe=False)).as_py()

    def _add_texts(self, column: pa.Array) -> None:
        if self.is_full:
            return
        for entry in pc.value_counts(column.drop_null()):
            self.texts[entry["values"].as_py()] += entry["counts"].as_py()
        if len(self.texts) > MAX_COUNTED:
            self.texts.clear()
            self.is_full = True

    @property
    def mean(self) -> float | None:
        """The mean number, share of true values, or mean length of lists; None without any."""
        filled = self.rows - self.nulls
        return self.total / filled if filled else None

    def text(self) -> str:
        """One line for people."""
        has_values = self.rows > self.nulls
        values = self._values() if has_values else str(self.kind)
        return f"{values}, {self.nulls} null" if self.nulls else values

    def _values(self) -> str:
        """What the values are, in a few words; there is at least one."""
        if pa.types.is_boolean(self.kind):
            return f"{100 * (self.mean or 0):.1f}% true"
        if _is_number(self.kind):
            return f"{self.low:g} to {self.high:g}, mean {self.mean:.4g}"
        if pa.types.is_list(self.kind):
            return f"{self.kind}, mean length {self.mean:.1f}"
        if not pa.types.is_string(self.kind):
            return str(self.kind)
        if self.is_full:
            return f"more than {MAX_COUNTED:,} different texts"
        if len(self.texts) > MAX_LISTED:
            return f"{len(self.texts):,} different texts"
        counted = [f"{text[:30]} {count:,}" for text, count in self._ranked()]
        return ", ".join(counted)

    def _ranked(self) -> list[tuple[str, int]]:
        """The different texts, the most frequent first."""
        return sorted(self.texts.items(), key=lambda entry: (-entry[1], entry[0]))

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        summary: dict[str, Any] = {"type": str(self.kind), "rows": self.rows, "null": self.nulls}
        if _is_number(self.kind):
            summary |= {"min": self.low, "max": self.high, "mean": self.mean}
        elif pa.types.is_boolean(self.kind):
            summary |= {"true": int(self.total)}
        elif pa.types.is_list(self.kind):
            summary |= {"mean_length": self.mean}
        elif pa.types.is_string(self.kind):
            summary |= {"different": None if self.is_full else len(self.texts)}
            if 0 < len(self.texts) <= MAX_LISTED:
                summary |= {"values": dict(self._ranked())}
        return summary


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

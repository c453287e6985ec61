"""When a reader reports the lines that it cannot read: at once, or in their order among the rows."""

from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from magcli.data.source import BadRow, Rows

MOST_WAITING = 1 << 16
"""Lines that wait for rows before them; further ones are reported at once, so that memory stays bounded."""


@dataclass(frozen=True)
class InOrder:
    """A ``BadRow`` that is told of a line when the rows before it were taken: who stops early hears of none behind.

    Readers split their batches at such lines, which takes time where there are many.
    """

    report: BadRow

    def __call__(self, location: str, reason: str, excerpt: str) -> None:
        self.report(location, reason, excerpt)


class Unread:
    """The unreadable lines of one table, reported to a ``BadRow``; ``taken`` is the number of rows taken so far."""

    def __init__(self, bad: BadRow) -> None:
        self.taken = 0
        self._bad = bad
        self._in_order = isinstance(bad, InOrder)
        # Each with the number of rows before it.
        self._waiting: deque[tuple[int, tuple[str, str, str]]] = deque()

    def add(self, before: int, location: str, reason: str, excerpt: str) -> None:
        """A line with ``before`` rows in front of it; as of ``BadRow``."""
        line = location, reason, excerpt
        must_wait = self._in_order and before > self.taken
        if must_wait and len(self._waiting) < MOST_WAITING:
            self._waiting.append((before, line))
        else:
            self._bad(*line)

    def among(self, batch: pa.RecordBatch) -> Rows:
        """The next rows, in parts that end where a line waits, which is reported when its part was taken."""
        while batch.num_rows:
            before_next = self._waiting[0][0] - self.taken if self._waiting else batch.num_rows
            part = batch.slice(0, before_next)
            batch = batch.slice(part.num_rows)
            yield part
            self.taken += part.num_rows
            while self._waiting and self._waiting[0][0] <= self.taken:
                _, line = self._waiting.popleft()
                self._bad(*line)

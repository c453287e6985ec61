"""What became of every group: reserved -> generated -> admitted -> trained, or dropped with a reason.

One line an event, appended in order. A checkpoint remembers how long the ledger was; going on from it cuts off what
came later, so every reservation ends exactly once.
"""

import json
import os
from pathlib import Path
from typing import Any, Literal

from magcli.data import durable

Event = Literal["reserved", "generated", "admitted", "trained", "dropped"]
ENDS: tuple[Event, ...] = ("trained", "dropped")


class Ledger:
    """The events of a run's groups, on disk; ``outstanding`` are the groups reserved and not yet ended."""

    def __init__(self, path: Path, *, length: int = 0) -> None:
        """Open a ledger and keep its first ``length`` bytes."""
        self.file = open(path, "ab+", buffering=0)  # noqa: SIM115
        self.file.truncate(length)
        self.file.seek(0)
        self.outstanding: set[int] = set()
        for line in self.file:
            event = json.loads(line)
            self._follow(event["group"], event["event"])

    def note(self, group: int, event: Event, **facts: Any) -> None:
        """Record an event of a group."""
        self.file.write((json.dumps({"group": group, "event": event, **facts}) + "\n").encode())
        self._follow(group, event)

    def _follow(self, group: int, event: Event) -> None:
        if event in ENDS:
            self.outstanding.discard(group)
        else:
            self.outstanding.add(group)

    def sync(self) -> int:
        """Make the ledger survive a power cut; returns its length in bytes."""
        durable.sync(self.file)
        return self.file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

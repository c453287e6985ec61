"""A job in the process of an engine, whose messages the driver says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magcli.console import Console, Waiting
from magcli.run.job import Drops, Job, Whole


class _KeptMessages(Console):
    """Keeps the messages of opening an engine for the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def say(self, text: str, **event: Any) -> None:
        """Keep a message."""
        self.messages.append((text, event))

    def waiting(self) -> Waiting:
        """Nothing: it would be over when the driver says it."""
        return Console(quiet=True).waiting()


def job_in_engine(stage: str, chosen: Mapping[str, str]) -> tuple[Job, list[tuple[str, dict[str, Any]]]]:
    """A job for opening an engine in its process, and the list of what it says, which is kept for the driver."""
    console = _KeptMessages()
    return Job(stage, console, Drops(keep=False), whole=Whole({}, dict(chosen))), console.messages

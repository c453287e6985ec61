"""Everything that people see, on stderr: progress with rate and ETA, plain lines in a log, ``--json`` events."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
LOG_EVERY = 15.0
"""Seconds between progress lines when stderr is not a terminal."""


class Console:
    """Where a stage reports to people. stdout is left to data.

    With ``as_json`` each report is one JSON object a line; with ``quiet`` only errors appear.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json

    @property
    def terminal(self) -> bool:
        """Whether a person watches: stderr is a terminal and neither ``--quiet`` nor ``--json`` was asked for."""
        return sys.stderr.isatty() and not self.quiet and not self.as_json

    def say(self, text: str, **event: Any) -> None:
        """One line for people, or one event for programs."""
        if self.as_json:
            self._write(json.dumps({"event": event.pop("event", "note"), "message": text, **event}, default=str))
        elif not self.quiet:
            self._write(text)

    def warn(self, text: str, **event: Any) -> None:
        """A line that matters even though the stage goes on."""
        self.say(f"warning: {text}" if not self.as_json else text, **({"event": "warning"} | event))

    def error(self, text: str, *, code: int) -> None:
        """The one line that a failing command ends with; shown even with ``--quiet``."""
        if self.as_json:
            self._write(json.dumps({"event": "error", "message": text, "exit_code": code}))
        else:
            self._write(f"error: {text}")

    def progress(self, total: int | None, unit: str, label: str) -> "Progress":
        """A progress report: ``with console.progress(...) as bar: bar.advance()``."""
        return Progress(self, total, unit, label)

    def track(self, items: Iterable[T], *, total: int | None, unit: str, label: str) -> Iterator[T]:
        """Yield the items and report progress as they go by."""
        with self.progress(total, unit, label) as bar:
            for item in items:
                yield item
                bar.advance()

    def _write(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Progress:
    """Counts units of work; shows a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, total: int | None, unit: str, label: str) -> None:
        self.console, self.total, self.unit, self.label = console, total, unit, label
        self.done = 0
        self.note = ""
        self._skipped = 0
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self.console.terminal:
            self._open_bar()
        return self

    def _open_bar(self) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bar = RichProgress(*columns, console=RichConsole(stderr=True), transient=False)
        self._task = self._bar.add_task(self.label, total=self.total, rate="", note="")
        self._bar.start()

    def advance(self, count: int = 1, *, note: str | None = None, reused: bool = False) -> None:
        """Count finished units; ``reused`` ones were finished by an earlier run and do not count in the rate."""
        self.done += count
        self._skipped += count if reused else 0
        self.note = note if note is not None else self.note
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, rate=self._rate_text(), note=self.note)
        elif time.monotonic() - self._last >= LOG_EVERY:
            self._last = time.monotonic()
            self.console.say(self._line(), event="progress", done=self.done, total=self.total, rate=self._rate())

    def _rate(self) -> float:
        return (self.done - self._skipped) / max(time.monotonic() - self._start, 1e-9)

    def _rate_text(self) -> str:
        return f"{self._rate():,.1f} {self.unit}/s"

    def _line(self) -> str:
        of = f"/{self.total:,}" if self.total else ""
        eta = ""
        if self.total and self._rate() > 0:
            eta = f", {(self.total - self.done) / self._rate():,.0f} s left"
        return " ".join(f"{self.label}: {self.done:,}{of} {self.unit}, {self._rate_text()}{eta} {self.note}".split())

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

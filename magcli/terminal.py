"""What is drawn on a terminal, with Rich: a bar, a panel above it, and what is being waited for."""

from collections.abc import Callable, Sequence
from typing import Any, TextIO

from rich import spinner
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PANEL_RATE = 2.0
"""Redraws per second of a panel above a progress bar."""


Panel = Callable[[int, int], Sequence["RenderableType"]]


def _rich_console(terminal: TextIO) -> Console:
    """Rich's console on a terminal, which leaves the cursor visible."""
    console = Console(file=terminal)
    # Rich hides the cursor while it draws; a killed process could not show it again.
    console.show_cursor = lambda show=True: False  # type: ignore[method-assign]
    return console


class Spinner:
    """A line that says what is being waited for."""

    def __init__(self, terminal: TextIO) -> None:
        console = _rich_console(terminal)
        self._spinner = spinner.Spinner("line" if console.options.ascii_only else "dots")
        self._live = Live(self._spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

    def start(self) -> None:
        """Begin to draw."""
        self._live.start()

    def show(self, text: str) -> None:
        """Replace the text."""
        self._spinner.update(text=text)

    def stop(self) -> None:
        """Remove the line."""
        self._live.stop()


class Bar:
    """A progress bar with a note, and a panel above it, which takes the note's place where there is room."""

    def __init__(self, terminal: TextIO, label: str, total: int | None, panel: Panel | None) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._console = _rich_console(terminal)
        self._bar = Progress(*columns, console=self._console)
        self._task = self._bar.add_task(label, total=total, rate="", note="")
        self._live = self._bar.live
        self._panel = panel
        self._note = ""
        if panel is not None and not self._console.options.ascii_only:
            # In place of the bar's own display, as a terminal can have one only.
            self._live = Live(console=self._console, refresh_per_second=PANEL_RATE, get_renderable=self._with_panel)

    def start(self) -> None:
        """Begin to draw."""
        self._live.start(refresh=True)

    def update(self, note: str, **fields: Any) -> None:
        """Replace the note, and ``completed`` and ``rate`` if they are given."""
        self._note = note
        self._bar.update(self._task, note=note, **fields)

    def stop(self) -> None:
        """Draw it for the last time."""
        self._live.stop()

    def _with_panel(self) -> RenderableType:
        assert self._panel is not None
        size = self._console.size
        lines = self._panel(size.width, size.height)
        # A panel shows the same figures as the note; without room for it the note returns.
        self._bar.update(self._task, note="" if lines else self._note)
        return Group(*lines, self._bar.get_renderable())

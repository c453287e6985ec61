"""Output for people: progress, messages and ``--json`` events on stderr; text on stdout by ``put``."""

import json
import math
import os
import select
import sys
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from magcli.errors import EnvironmentFault, usage

if TYPE_CHECKING:
    from magcli.terminal import Bar, Panel, Spinner

LOG_EVERY = 10.0
"""Seconds between progress lines when stderr is not a terminal, also while no unit of work is finished."""

SLOW_RATE = 0.5
"""Units a second below which progress says how long each unit takes."""


def visible(text: str) -> str:
    """Untrusted text with every control character made visible, so that a terminal does not interpret it.

    Control characters become Unicode's control pictures; those without one, and invisible marks such as those of the
    writing direction, become their code point. Newlines and tabs stay.
    """
    return "".join(map(_visible, text))


def duration(seconds: float) -> str:
    """Seconds in the two largest units that fit."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def counted(counts: Mapping[str, int]) -> str:
    """Each name with its count, the most frequent first."""
    return ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common())


@cache
def _visible(letter: str) -> str:
    kind = unicodedata.category(letter)
    # Controls, invisible marks, lone surrogates, and characters for private use or of no meaning.
    if letter in "\n\t" or kind not in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return letter
    if ord(letter) < 0x20:
        # Unicode's pictures of the control characters 0 to 31, in their order.
        return chr(0x2400 + ord(letter))
    # The zero-width joiner stays: it makes one emoji of several.
    return letter if letter == "\u200d" else f"[U+{ord(letter):04X}]"


def put(text: str, *, styled: bool = False) -> None:
    """Write text to stdout: unchanged, but ``visible`` on a terminal.

    ``styled`` text is unchanged on a terminal too, as its escape sequences are magcli's.

    Raises:
        UsageError: stdout is closed.
        EnvironmentFault: it cannot be written to, as on a full disk.
    """
    usage(sys.stdout is not None, "stdout is closed, but the output goes there")
    try:
        # Only a terminal interprets control characters; a file or a pipe gets the text as it is.
        sys.stdout.write(visible(text) if sys.stdout.isatty() and not styled else text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise EnvironmentFault(f"stdout: {error.strerror}") from None


def discard_stdout() -> None:
    """Discard what stdout has not accepted, so that the interpreter does not try again when it exits."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json(event: dict[str, Any]) -> str:
    """An event as JSON, in which NaN and infinity are null."""
    try:
        return json.dumps(event, default=str, allow_nan=False)
    except ValueError:
        # ``parse_constant`` is called for NaN and both infinities.
        return json.dumps(json.loads(json.dumps(event, default=str), parse_constant=lambda _: None))


class Console:
    """Messages of a stage for people, on stderr; stdout is for data.

    With ``as_json`` each report is one JSON object a line; with ``quiet`` only errors appear. ``results_on_stdout``:
    with ``as_json``, results go to stdout, where no table is.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False, results_on_stdout: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json
        self.results_on_stdout = results_on_stdout
        self.bar: Progress | None = None
        """The progress bar on the terminal, if there is one."""
        self._stream: TextIO | None = None

    @property
    def stderr(self) -> TextIO | None:
        """Where messages go: ``sys.stderr``, which may be closed, or the stream of ``writing_to``."""
        return self._stream or sys.stderr

    @property
    def terminal(self) -> bool:
        """Whether stderr is a terminal, without ``--quiet`` and ``--json``."""
        return self.stderr is not None and self.stderr.isatty() and not self.quiet and not self.as_json

    @contextmanager
    def writing_to(self, stream: TextIO | None) -> Iterator[None]:
        """Write messages to another stream in the block, in which stderr leads into a file; None changes nothing."""
        before = self._stream
        self._stream = stream or before
        try:
            yield
        finally:
            self._stream = before

    def say(self, text: str, **event: Any) -> None:
        """One line for people, or one event for programs."""
        if self.as_json:
            self._write(_json({"event": event.pop("event", "note"), "message": text, **event}))
        elif not self.quiet:
            self._write(text)

    def result(self, text: str, **event: Any) -> None:
        """A result of the stage, as ``say`` says it; with ``as_json`` on stdout if no table is there."""
        if self.as_json and self.results_on_stdout:
            message = {"message": text} if text else {}
            put(_json({"event": event.pop("event", "result"), **message, **event}) + "\n")
        else:
            self.say(text, **event)

    def print(self, text: str, **event: Any) -> None:
        """A result that is text on stdout, or with ``as_json`` an event."""
        if self.as_json:
            self.result("", **event)
        else:
            put(text + "\n")

    def warn(self, text: str, **event: Any) -> None:
        """A warning; the stage continues."""
        # An event that the caller names replaces "warning".
        self.say(f"warning: {text}" if not self.as_json else text, **({"event": "warning"} | event))

    def error(self, text: str, *, code: int) -> None:
        """The last line of a failing command; shown even with ``--quiet``."""
        self._write(self._failure(text, code))

    def last_error(self, text: str, *, code: int) -> None:
        """``error`` while other threads may hold ``sys.stderr``; skipped if stderr is not writable at the moment."""
        above = "\n" if self.terminal else ""  # a progress bar may be on the line
        with suppress(OSError, ValueError):
            if self.stderr is not None and select.select([], [self.stderr], [], 0)[1]:
                # Past ``sys.stderr``, on whose lock this thread could wait for ever.
                os.write(self.stderr.fileno(), f"{above}{self._failure(text, code)}\n".encode())

    def _failure(self, text: str, code: int) -> str:
        text = " ".join(text.split())
        return json.dumps({"event": "error", "message": text, "exit_code": code}) if self.as_json else f"error: {text}"

    @contextmanager
    def waiting_for(self, text: str) -> Iterator[None]:
        """Say at intervals that work without units goes on, such as loading a model; nothing if it is quick."""
        started = time.monotonic()
        with _ticking(lambda: self.say(f"{text}, {time.monotonic() - started:.0f} s", event="waiting")):
            yield

    def progress(self, total: int | None, unit: str, label: str, panel: "Panel | None" = None) -> "Progress":
        """A progress report: ``with console.progress(...) as bar: bar.advance()``.

        Elsewhere than on a terminal a line appears every ``LOG_EVERY`` seconds, also while no unit is finished.

        On a Unicode terminal ``panel`` is drawn above the bar: it is called with the terminal's size in columns and
        lines, and returns the lines to draw, none if there is no room. With a panel the bar has no note, and the stage
        says itself that its work goes on.
        """
        return Progress(self, total, unit, label, panel)

    def waiting(self) -> "Waiting":
        """What is being waited for: ``with console.waiting() as wait: wait.show("starting, 3 s")``."""
        return Waiting(self)

    def _write(self, line: str) -> None:
        """Write a line; it is lost if stderr is closed or on a full disk."""
        if self.stderr is None:
            return
        with suppress(OSError):
            self.stderr.write((visible(line) if self.stderr.isatty() else line) + "\n")
            self.stderr.flush()


def copied_stderr() -> TextIO:
    """Stderr under another descriptor, which still leads to the terminal while descriptor 2 leads into a file."""
    return os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace")


class Waiting:
    """Says what is being waited for: a spinner, or the note of a bar; without a terminal a line every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spinner: Spinner | None = None
        # So that the first line appears at once.
        self._last = -LOG_EVERY

    def __enter__(self) -> "Waiting":
        return self

    def show(self, text: str) -> None:
        """Say it; from any thread, as often as it changes."""
        if self._console.bar is not None:
            self._console.bar.report(text)
        elif self._console.terminal:
            self._spin(text)
        elif time.monotonic() - self._last >= LOG_EVERY:
            self._last = time.monotonic()
            self._console.say(text, event="waiting")

    def _spin(self, text: str) -> None:
        if self._spinner is None:
            from magcli.terminal import Spinner

            assert self._console.stderr is not None
            self._spinner = Spinner(self._console.stderr)
            self._spinner.start()
        self._spinner.show(text)

    def __exit__(self, *_: object) -> None:
        if self._spinner is not None:
            self._spinner.stop()
        if self._console.bar is not None:
            self._console.bar.report("")


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call a function every ``LOG_EVERY`` seconds from another thread within the block."""
    ended = threading.Event()

    def run() -> None:
        # False after ``LOG_EVERY`` seconds, true at once when the block ends.
        while not ended.wait(LOG_EVERY):
            tick()

    thread = threading.Thread(target=run, name="magcli-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Progress:
    """Counts units of work; a bar on a terminal, periodic lines elsewhere."""

    def __init__(
        self, console: Console, total: int | None, unit: str, label: str, panel: "Panel | None" = None
    ) -> None:
        self.console = console
        self.total = total
        self.unit = unit
        self.label = label
        self.panel = panel
        self.done = 0
        self.note = ""
        self._skipped = 0
        self._start = self._last = self._finished = time.monotonic()
        self._terminal: TextIO | None = None
        self._bar: Bar | None = None
        self._ticking = ExitStack()

    def __enter__(self) -> "Progress":
        if self.console.terminal:
            try:
                self._open_bar()
            except BaseException:
                # Python does not call it for a block that was never entered.
                self.__exit__()
                raise
        elif self.panel is None:
            self._ticking.enter_context(_ticking(self._say))
        return self

    def _open_bar(self) -> None:
        from magcli.terminal import Bar

        self._terminal = copied_stderr()
        self._bar = Bar(self._terminal, self.label, self.total, self.panel)
        self._bar.start()
        self.console.bar = self

    def advance(self, count: int = 1, *, note: str | None = None, reused: bool = False) -> None:
        """Count finished units; ``reused`` ones were finished by an earlier run and do not count in the rate."""
        self.done += count
        self._skipped += count if reused else 0
        self._finished = time.monotonic()
        self.note = note if note is not None else self.note
        if self._bar is not None:
            self._bar.update(self.note, completed=self.done, rate=self._rate_text())
        # With a panel no thread writes lines, so they come with finished units.
        elif self.panel is not None and time.monotonic() - self._last >= LOG_EVERY:
            self._last = time.monotonic()
            self._say()

    def report(self, note: str) -> None:
        """Show what goes on while no unit is finished: a note beside the bar, or in the next line."""
        self.note = note
        if self._bar is not None:
            self._bar.update(note)

    def begin(self) -> None:
        """Measure the rate from now on, without what came before the first unit, such as loading a model."""
        self._start = self._finished = time.monotonic()

    def _say(self) -> None:
        self.console.say(
            self._line(), event="progress", done=self.done, total=self.total, rate=self._rate(), note=self.note
        )

    def _seconds_each(self) -> float:
        """Seconds a unit takes: the mean of the finished ones, more once the unfinished one has taken longer."""
        measured = self.done - self._skipped
        if not measured:
            return math.inf
        mean = (self._finished - self._start) / measured
        # As if the unit in progress ended now: a lower bound of what it takes.
        elapsed = time.monotonic() - self._start
        return max(mean, elapsed / (measured + 1), 1e-9)

    def _rate(self) -> float:
        return 1 / self._seconds_each()

    def _rate_text(self) -> str:
        rate = self._rate()
        if 0 < rate < SLOW_RATE:
            return f"{duration(1 / rate)} each"
        return f"{rate:,.1f} {self.unit}/s"

    def _left_text(self) -> str:
        seconds_each = self._seconds_each()
        if not self.total or not math.isfinite(seconds_each):
            return ""
        # What the unit in progress has taken already.
        in_unfinished = min(time.monotonic() - self._finished, seconds_each)
        left = (self.total - self.done) * seconds_each - in_unfinished
        return f", {duration(max(left, 0.0))} left"

    def _line(self) -> str:
        of = f"/{self.total:,}" if self.total else ""
        text = f"{self.label}: {self.done:,}{of} {self.unit}, {self._rate_text()}{self._left_text()} {self.note}"
        return " ".join(text.split())

    def __exit__(self, *_: object) -> None:
        self._ticking.close()
        if self._bar is not None:
            self._bar.stop()
        if self._terminal is not None:
            self._terminal.close()
            self.console.bar = None

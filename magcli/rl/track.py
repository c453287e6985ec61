"""A run's lines of metrics, brought to trackers (`--track`).

The lines on disk are the truth. A tracker is asked which update it holds last and gets those after it, on a thread of
its own: a run that is killed loses none there and writes none twice, a slow network holds nothing up, and a run that
was not tracked can be so afterwards. A tracker that fails is told of once and left alone; the run goes on.
"""

import contextlib
import io
import json
import math
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from magcli.console import Console
from magcli.data import durable
from magcli.errors import DataError, EnvironmentFault
from magcli.rl.trackers import TRACKERS, Name, Run, Tracker

Line = Mapping[str, Any]
Follow = Callable[[Sequence[Line]], None]
"""Brings all of a run's lines so far to its trackers, as far as they lack them, and waits for none."""

PLACES = {
    "reward": "reward/mean",
    "correct": "reward/correct_share",
    "correct_anywhere": "reward/correct_anywhere_share",
    "cut_share": "length/cut_share",
    "mixed_versions": "staleness/mixed_versions",
    "groups_dropped": "dropped",
    "reasons": "reasons",
    "stage": "run/stage",
    "generated_tokens": "tokens/generated",
    "trained_tokens": "tokens/trained",
    "seconds": "speed/seconds",
    "train_tokens_per_s": "speed/train_tokens_per_s",
    "generate_tokens_per_s": "speed/generate_tokens_per_s",
    "trainer_idle": "speed/trainer_idle",
    "generator_idle": "speed/generator_idle",
}
"""What trackers call a metric whose name does not begin with its family; others of none are under ``train``."""

FAMILIES = ("reward", "length", "groups", "staleness", "clip", "ratio", "mismatch", "problems")
LAST_PATIENCE = 60.0
"""Seconds that a tracker has to take what is left of a run that is finished."""
PATIENCE = 5.0
"""Seconds likewise where a run ends otherwise; the same command brings the tracker up to date."""


def values(line: Line) -> dict[str, float]:
    """An update's line of metrics under the names of trackers, such as ``reward/mean`` or ``train/grad_norm``.

    Counts by reason come apart (``dropped/all-wrong``), with the sum of dropped groups as ``groups/dropped``. What is
    no finite number is left out.
    """
    found: dict[str, Any] = {"groups/dropped": sum(line["groups_dropped"].values())}
    for key, value in line.items():
        if isinstance(value, Mapping):
            found |= {f"{place(key)}/{part}": count for part, count in value.items()}
        elif key != "step":
            found[place(key)] = value
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def place(key: str) -> str:
    """What trackers call a metric."""
    family, _, rest = key.partition("_")
    return PLACES.get(key) or (f"{family}/{rest}" if family in FAMILIES and rest else f"train/{key}")


class Feed:
    """Brings lines to one tracker as they come, on a thread of its own."""

    def __init__(self, name: Name, tracker: Tracker, console: Console) -> None:
        self._name, self._tracker, self._console = name, tracker, console
        self._lines: Sequence[Line] = ()
        self._ending = self._failed = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"track-{name}", daemon=True)
        self._thread.start()

    def follow(self, lines: Sequence[Line]) -> None:
        """Bring the run's lines, the first being that of update 1; those that are appended later at the next call."""
        self._lines = lines
        self._news.set()

    def close(self, *, finished: bool) -> None:
        """Let the tracker take what is left, for a while."""
        self._ending = True
        self._news.set()
        self._thread.join(LAST_PATIENCE if finished else PATIENCE)
        if self._thread.is_alive():
            self._give_up(TimeoutError("it does not answer in time"))
        elif not self._failed:
            try:
                with _stdout_aside():
                    self._tracker.close(finished=finished)
            except Exception as error:
                self._give_up(error)

    def _work(self) -> None:
        sent, ending = self._tracker.last, False
        try:
            while not ending:
                self._news.wait()
                self._news.clear()
                ending = self._ending
                while sent < len(self._lines):
                    self._tracker.log(sent + 1, values(self._lines[sent]))
                    sent += 1
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            told = f"rl: {self._name} gets nothing more: {one_line(error)}; the same command brings it up to date"
            self._console.warn(told, tracker=self._name)


@contextlib.contextmanager
def tracked(
    names: Sequence[Name], folder: Path, config: Mapping[str, Any], console: Console, *, begun: bool
) -> Iterator[Follow]:
    """A run's trackers while the block lasts; ``begun`` says whether the run has updates already.

    Raises:
        EnvironmentFault: a tracker cannot be opened, and the run has not begun; else that is a warning.
        DataError: the name by which trackers know the run is damaged.
    """
    opened: list[Feed] = []
    finished = False

    def follow(lines: Sequence[Line]) -> None:
        for feed in opened:
            feed.follow(lines)

    try:
        run = Run(identity(folder), folder, config) if names else None
        for name in dict.fromkeys(names):
            if run is not None and (feed := _open(name, run, console, begun=begun)):
                opened.append(feed)
        yield follow
        finished = True
    finally:
        for feed in opened:
            feed.close(finished=finished)


def _open(name: Name, run: Run, console: Console, *, begun: bool) -> Feed | None:
    try:
        with _stdout_aside():
            tracker = TRACKERS[name](run)
    except Exception as error:
        told = f"rl: {name} cannot be opened: {one_line(error)}"
        if not begun:
            raise EnvironmentFault(f"{told}; make it work or leave out --track {name}") from error
        console.warn(f"{told}; the same command brings it up to date", tracker=name)
        return None
    console.say(f"rl: {name} has this run as {run.id}: {tracker.where}", event="tracker", tracker=name, run=run.id)
    return Feed(name, tracker, console)


def _stdout_aside() -> contextlib.AbstractContextManager[Any]:
    """Keep what trackers say on stdout off it, which is for rows; to be held on the main thread alone."""
    return contextlib.redirect_stdout(io.StringIO())


def identity(folder: Path) -> str:
    """What trackers call the run of a folder: the folder's name and a random end, kept in the folder.

    Raises:
        DataError: what is kept there is damaged.
    """
    note = folder / "tracked.json"
    if note.exists():
        try:
            return str(json.loads(note.read_text(encoding="utf-8"))["run"])
        except (ValueError, KeyError, TypeError):
            told = "remove it, and trackers get this run anew under another name"
            raise DataError(f"rl: {note} is damaged; {told}") from None
    found = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', folder.resolve().name)}-{secrets.token_hex(4)}"
    with durable.whole_file(note) as file:
        file.write((json.dumps({"run": found}) + "\n").encode())
    return found


def one_line(error: Exception) -> str:
    """An error of somebody else's as part of a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]

"""Experiment trackers (`--track`): TensorBoard, Weights & Biases and Trackio.

The metrics on disk are authoritative. A tracker reports the last update that it has and receives the later ones on a
separate thread: a killed run resumes as the same run with each update logged once, a slow network delays nothing, and a
run that was never tracked can be uploaded later. A tracker that fails causes one warning; the run continues. With each
update go some of its completions: a table, or text in TensorBoard.

Credentials and storage are configured as usual for each tracker (`wandb login`, `WANDB_MODE`, `WANDB_DIR`, `hf auth
login`, `TRACKIO_SPACE_ID`, ...). TensorBoard's event files and W&B's local files are in the run's folder.
"""

import contextlib
import io
import json
import math
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from magcli.console import Console
from magcli.data import durable
from magcli.errors import DataError, EnvironmentFault
from magcli.run.rundir import Line
from magcli.run.trackers.types import FINISH_TIMEOUT, Run, Sample, Tracker

Name = Literal["tensorboard", "wandb", "trackio"]
LogLines = Callable[[Sequence[Line]], None]
"""Called with the metrics of all updates so far: starts the upload of those that trackers lack, and returns."""

ABORT_TIMEOUT = 5.0
"""Seconds that an interrupted run waits for its tracker; the same command uploads the rest later."""

METRIC_NAMES = {
    "reward": "reward/mean",
    "correct": "reward/correct_share",
    "correct_anywhere": "reward/correct_anywhere_share",
    "cut_share": "length/cut_share",
    "mixed_versions": "staleness/mixed_versions",
    "groups_dropped": "dropped",
    "reasons": "reasons",
    "stage": "run/stage",
    "accuracy": "evaluation/accuracy",
    "accuracy_low": "evaluation/accuracy_low",
    "accuracy_high": "evaluation/accuracy_high",
    "answer_tokens": "evaluation/answer_tokens",
    "held_out_loss": "evaluation/held_out_loss",
    "weights_version": "run/weights_version",
    "generated_tokens": "tokens/generated",
    "trained_tokens": "tokens/trained",
    "seconds": "speed/seconds",
    "train_tokens_per_s": "speed/train_tokens_per_s",
    "generate_tokens_per_s": "speed/generate_tokens_per_s",
    "generate_seconds": "speed/generate_seconds",
}
"""Tracker names of metrics that do not begin with one of ``FAMILIES``; all others are under ``train``."""

IDLE = ("generator_idle", "trainer_idle")
"""Beginnings of metrics of idle time, which are under ``speed``."""

FAMILIES = ("reward", "length", "groups", "staleness", "clip", "ratio", "mismatch", "problems")


def metric_values(line: Line) -> dict[str, float]:
    """An update's metrics under their names in trackers, such as ``reward/mean`` or ``train/grad_norm``.

    Counts by reason become one metric each (``dropped/all-wrong``); ``groups/dropped`` is their sum. Values that are
    not finite numbers are left out.
    """
    metrics: dict[str, Any] = {}
    if "groups_dropped" in line:
        metrics["groups/dropped"] = sum(line["groups_dropped"].values())
    for key, value in line.items():
        name = metric_name(key)
        if isinstance(value, Mapping):
            for reason, count in value.items():
                metrics[f"{name}/{reason}"] = count
        elif key != "step":
            metrics[name] = value
    finite = {}
    for name, value in metrics.items():
        if isinstance(value, int | float) and math.isfinite(value):
            finite[name] = float(value)
    return finite


def metric_name(key: str) -> str:
    """The name of a metric in trackers."""
    if key.startswith(IDLE):
        return f"speed/{key}"
    if key in METRIC_NAMES:
        return METRIC_NAMES[key]
    # From ``length_mean`` to ``length/mean``.
    family, _, rest = key.partition("_")
    return f"{family}/{rest}" if family in FAMILIES and rest else f"train/{key}"


# ---- trackers ----


SamplesOf = Callable[[int], Sequence[Sample]]
"""Some completions of an update, by its number."""


def no_samples(step: int) -> Sequence[Sample]:
    """Those of a run that has none."""
    return ()


@dataclass(frozen=True, slots=True)
class Source:
    """What is tracked: the stage that runs, the run's folder and options, and where its completions are."""

    stage: str
    folder: Path
    config: Mapping[str, Any]
    samples_of: SamplesOf = no_samples


def open_tracker(name: Name, run: Run) -> Tracker:
    """A run in a tracker, whose package is imported with its module here."""
    tracker: Tracker = import_module(f"magcli.run.trackers.{name}").OpenRun(run)
    return tracker


def require(stage: str, name: Name) -> None:
    """Check that a tracker's package is installed.

    Raises:
        EnvironmentFault: it is not; the message names the extra.
    """
    if find_spec(name) is None:
        raise EnvironmentFault(f"{stage}: --track {name} needs its package: pip install 'magcli[{name}]'")


# ---- upload ----


class Uploader:
    """Logs metrics to one tracker on a separate thread."""

    def __init__(self, name: Name, tracker: Tracker, source: Source, console: Console) -> None:
        self._name = name
        self._source = source
        self._tracker = tracker
        self._console = console
        self._lines: Sequence[Line] = ()
        self._closing = self._failed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"track-{name}", daemon=True)
        self._thread.start()

    def upload(self, lines: Sequence[Line]) -> None:
        """Log the lines that the tracker lacks; ``lines`` begins with those of the calls before.

        The last one may have got more metrics since: the update after which a run ended by itself, its evaluation.
        """
        self._lines = lines
        self._wake.set()

    def close(self, *, completed: bool) -> None:
        """Wait some time until the tracker has the rest."""
        # Before the event, so that the thread which it wakes sees it.
        self._closing = True
        self._wake.set()
        self._thread.join(FINISH_TIMEOUT if completed else ABORT_TIMEOUT)
        # A thread that waits for the network cannot be stopped; as a daemon it does not keep the process alive.
        if self._thread.is_alive():
            self._fail(TimeoutError("no answer in time"))
        elif not self._failed:
            try:
                with _stdout_discarded():
                    self._tracker.finish(completed=completed)
            except Exception as error:
                self._fail(error)

    def _work(self) -> None:
        sent = 0
        known: Mapping[str, float] = {}  # of the last line, what was sent
        closing = False
        try:
            while not closing:
                self._wake.wait()
                self._wake.clear()
                # Read before the lines: those of an upload before ``close`` are all there then.
                closing = self._closing
                lines = self._lines
                if sent == len(lines) and sent:
                    known = self._amend(lines[-1], known)
                while sent < len(lines):
                    line = lines[sent]
                    known = metric_values(line)
                    # Of a resumed run the tracker has the first updates already.
                    if line["step"] > self._tracker.last_step:
                        samples = self._source.samples_of(line["step"])
                        self._tracker.log(line["step"], known, samples)
                    sent += 1
        except Exception as error:
            self._fail(error)

    def _amend(self, line: Line, known: Mapping[str, float]) -> Mapping[str, float]:
        """Add to a line that was sent what it has got since; returns all of it."""
        values = metric_values(line)
        added = {name: value for name, value in values.items() if name not in known}
        if added:
            self._tracker.amend(line["step"], added)
        return values

    def _fail(self, error: Exception) -> None:
        # Only the first failure is told; others may follow from it.
        if not self._failed:
            self._failed = True
            message = f"{self._source.stage}: {self._name} failed and gets no more updates: {_one_line(error)}"
            self._console.warn(f"{message}; run the same command again to upload the rest", tracker=self._name)


TRACKED = "tracked.json"
"""The file of a run's folder with its id in trackers."""


class StoredId(NamedTuple):
    """A run's id, and the folder that it was made for."""

    run: str
    folder: str


@contextlib.contextmanager
def open_trackers(names: Sequence[Name], source: Source, console: Console, *, resumed: bool) -> Iterator[LogLines]:
    """A run's trackers for the duration of the block; ``resumed``: the run has updates already.

    Raises:
        EnvironmentFault: a tracker of a new run cannot be opened; for a resumed one this is a warning.
        DataError: the file with the run's id is damaged.
    """
    uploaders: list[Uploader] = []
    completed = False

    def upload(lines: Sequence[Line]) -> None:
        for uploader in uploaders:
            uploader.upload(lines)

    try:
        # A tracker that was opened is closed below if a later one cannot be.
        for name in dict.fromkeys(names):
            if uploader := _open(name, source, console, resumed=resumed):
                uploaders.append(uploader)
        yield upload
        completed = True
    finally:
        for uploader in uploaders:
            uploader.close(completed=completed)


def _open(name: Name, source: Source, console: Console, *, resumed: bool) -> Uploader | None:
    stage = source.stage
    run = Run(run_id(source.folder), source.folder, source.config)
    try:
        with _stdout_discarded():
            tracker = open_tracker(name, run)
    except Exception as error:
        message = f"{stage}: cannot open {name}: {_one_line(error)}"
        # A new run should fail at its start; one that has begun goes on without the tracker.
        if not resumed:
            raise EnvironmentFault(f"{message}; fix it or omit --track {name}") from error
        console.warn(f"{message}; run the same command again to upload the metrics", tracker=name)
        return None
    console.say(f"{stage}: {name} run {run.id}: {tracker.location}", event="tracker", tracker=name, run=run.id)
    return Uploader(name, tracker, source, console)


def _stdout_discarded() -> contextlib.AbstractContextManager[Any]:
    """Discard what trackers print to stdout, which is for rows; only for the main thread."""
    return contextlib.redirect_stdout(io.StringIO())


def run_id(folder: Path) -> str:
    """A run's id in trackers: the folder's name and a random suffix, stored in the folder.

    A moved folder keeps its id. A copy, whose original is still at its place, gets one of its own.

    Raises:
        DataError: the file with the id is damaged.
    """
    here = folder.resolve()
    stored = _stored_id(here)
    if stored and (stored.folder == str(here) or not _is_copy(stored)):
        name = stored.run
    else:
        # Ids of W&B may have no slashes, colons and the like.
        name = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', here.name)}-{secrets.token_hex(4)}"
    now = StoredId(name, str(here))
    if now != stored:
        with durable.atomic_file(here / TRACKED) as file:
            file.write((json.dumps(now._asdict()) + "\n").encode())
    return name


def _stored_id(folder: Path) -> StoredId | None:
    """What a run's folder says of its id; None if it was never tracked."""
    path = folder / TRACKED
    if not path.exists():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return StoredId(str(stored["run"]), str(stored.get("folder", folder)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(f"{path} is damaged; remove it to start a new run in the trackers") from None


def _is_copy(stored: StoredId) -> bool:
    """Whether the folder that an id was made for is still there, with this id."""
    try:
        original = _stored_id(Path(stored.folder))
    except (DataError, OSError):
        return False
    return original is not None and original.run == stored.run


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]

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
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any, Literal, NamedTuple, Protocol

from magcli.console import Console
from magcli.data import durable
from magcli.errors import DataError, EnvironmentFault
from magcli.run.rundir import Line

Name = Literal["tensorboard", "wandb", "trackio"]
LogLines = Callable[[Sequence[Line]], None]
"""Called with the metrics of all updates so far: starts the upload of those that trackers lack, and returns."""

PROJECT = "magcli"
"""Default project of runs."""
FINISH_TIMEOUT = 60.0
"""Seconds that a tracker has to receive the rest of a finished run."""
ABORT_TIMEOUT = 5.0
"""The same if the run was interrupted; the same command uploads the rest later."""

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
        if isinstance(value, Mapping):
            metrics |= {f"{metric_name(key)}/{part}": count for part, count in value.items()}
        elif key != "step":
            metrics[metric_name(key)] = value
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def metric_name(key: str) -> str:
    """The name of a metric in trackers."""
    if key.startswith(IDLE):
        return f"speed/{key}"
    family, _, rest = key.partition("_")
    return METRIC_NAMES.get(key) or (f"{family}/{rest}" if family in FAMILIES and rest else f"train/{key}")


# ---- trackers ----


class Sample(NamedTuple):
    """A completion of an update, with its verdict."""

    prompt: str
    completion: str
    reward: float
    reason: str


SAMPLES = "samples"
"""The name of an update's completions in trackers."""
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


@dataclass(frozen=True, slots=True)
class Run:
    """The run in a tracker; ``id`` is unique in a project and stays the same when the run resumes."""

    id: str
    folder: Path
    config: Mapping[str, Any]


class Tracker(Protocol):
    """One run in a tracker.

    ``last_step`` is the last update that the tracker had when it was opened (-1: none), ``location`` is where to view
    the run. ``log`` may buffer; ``finish`` blocks until everything is written.
    """

    last_step: int
    location: str

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None: ...
    def finish(self, *, completed: bool) -> None: ...


class TensorBoard:
    """Event files in the run's folder. An update is one event, so a kill leaves all of it or nothing."""

    def __init__(self, run: Run) -> None:
        from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
        from torch.utils.tensorboard.writer import FileWriter, SummaryWriter

        folder = run.folder / "tensorboard"
        folder.mkdir(exist_ok=True)
        events = EventAccumulator(str(folder), size_guidance={SCALARS: 1}).Reload()
        self.last_step = max((events.Scalars(name)[-1].step for name in events.Tags()[SCALARS]), default=-1)
        self.location = str(folder)
        if "config/text_summary" not in events.Tags()[TENSORS]:
            with SummaryWriter(self.location) as writer:
                writer.add_text("config", f"```\n{json.dumps(run.config, indent=1)}\n```", 0)
        self._writer = FileWriter(self.location)

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Write one event and flush it."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from torch.utils.tensorboard.summary import text

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        if samples:
            shown = "\n\n".join(map(as_markdown, samples))
            summary.MergeFrom(text(SAMPLES, shown))  # type: ignore[no-untyped-call]
        self._writer.add_summary(summary, step)
        self._writer.flush()

    def finish(self, *, completed: bool) -> None:
        """Close the file."""
        self._writer.close()


class WandB:
    """Weights & Biases. The server knows the last step; offline W&B cannot resume, so all steps are logged again.

    `wandb sync` keeps the last of several offline folders of a run, so that one must be complete.
    """

    def __init__(self, run: Run) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=os.environ.get("WANDB_DIR", run.folder),
            id=run.id,
            name=run.id,
            config=dict(run.config),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, finish_timeout=FINISH_TIMEOUT),
        )
        self._folder = Path(self._run.settings.sync_dir)
        self.last_step = -1 if self._run.offline else self._run.step - 1
        self.location = str(self._folder.parent) if self._run.offline else str(self._run.url)

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Send an update to W&B's process."""
        import wandb

        rows = [list(sample) for sample in samples]
        table = {SAMPLES: wandb.Table(columns=list(Sample._fields), data=rows)} if rows else {}
        self._run.log({**values, **table}, step=step, commit=True)

    def finish(self, *, completed: bool) -> None:
        """Upload the rest; offline, remove the older folders that this one replaces."""
        self._run.finish(exit_code=0 if completed else 1)
        for older in self._folder.parent.glob(f"offline-run-*-{self._run.id}") if self._run.offline else ():
            if older != self._folder:
                shutil.rmtree(older)


class Trackio:
    """Trackio on this machine, in a Space of the Hub or on a server."""

    def __init__(self, run: Run) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        no_monitors = {"auto_log_gpu": False, "auto_log_cpu": False}
        self._run = trackio.init(project, run.id, config=dict(run.config), resume="allow", embed=False, **no_monitors)
        self.last_step = self._run._next_step - 1
        self.location = f"trackio show --project {project}"

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Send an update to Trackio's thread."""
        import trackio

        rows = [list(sample) for sample in samples]
        table = {SAMPLES: trackio.Table(columns=list(Sample._fields), data=rows)} if rows else {}
        self._run.log({**values, **table}, step=step)

    def finish(self, *, completed: bool) -> None:
        """Write the rest."""
        import trackio

        trackio.finish()


TRACKERS: Mapping[Name, Callable[[Run], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "trackio": Trackio}


def as_markdown(sample: Sample) -> str:
    """A completion as Markdown in which nothing of its text is markup."""
    prompt, completion = (indent(text, "    ", lambda line: True) for text in (sample.prompt, sample.completion))
    verdict = f"**Reward {sample.reward:.4g}: {sample.reason}**"
    return f"{verdict}\n\nPrompt\n\n{prompt}\n\nCompletion\n\n{completion}"


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
        """Log the lines that the tracker lacks; ``lines`` begins with those of the calls before."""
        self._lines = lines
        self._wake.set()

    def close(self, *, completed: bool) -> None:
        """Wait some time until the tracker has the rest."""
        self._closing = True
        self._wake.set()
        self._thread.join(FINISH_TIMEOUT if completed else ABORT_TIMEOUT)
        if self._thread.is_alive():
            self._fail(TimeoutError("no answer in time"))
        elif not self._failed:
            try:
                with _stdout_discarded():
                    self._tracker.finish(completed=completed)
            except Exception as error:
                self._fail(error)

    def _work(self) -> None:
        sent, closing = 0, False
        try:
            while not closing:
                self._wake.wait()
                self._wake.clear()
                closing = self._closing
                while sent < len(self._lines):
                    line = self._lines[sent]
                    if line["step"] > self._tracker.last_step:
                        samples = self._source.samples_of(line["step"])
                        self._tracker.log(line["step"], metric_values(line), samples)
                    sent += 1
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
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
            tracker = TRACKERS[name](run)
    except Exception as error:
        message = f"{stage}: cannot open {name}: {_one_line(error)}"
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

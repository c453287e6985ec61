"""The folder of one training run: its configuration, metrics and checkpoints, owned by one process at a time.

RUN/run.json        command, version, configuration, digests of the inputs, what `auto` resolved to
RUN/inputs.json     names, digests and rows of the inputs, and their histories
RUN/metrics.jsonl   one line a step; of step 0 only an evaluation before training
RUN/checkpoints/    step-000123, complete or absent
RUN/trajectory/     float32 weights for the landscape
RUN/model/          the result, in Hugging Face layout
RUN/shorter/        the result before the run was prolonged, until the new one is written

and, of `magcli rl`,

RUN/ledger.jsonl    the events of each group
RUN/groups/         finished groups that are not trained on yet
RUN/rollouts/       step-000123.arrow, the samples of an update

The files of JSON have checksums (see ``data.checksum``), the tables are sealed.

A run that started from another run's model leads to the runs before it: ``lineage``.
"""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from magcli import __version__
from magcli.console import Console
from magcli.data import checksum, durable, manifest
from magcli.errors import DataError, UsageError
from magcli.run.settings import CHOSEN, changes, fingerprint, unequal, with_reason

INPUTS = "inputs.json"
NOT_OPTIONS = ("command", "version", "inputs")
"""Entries of ``run.json`` that are not options."""
Line = Mapping[str, Any]
"""The metrics of one step, a line of ``metrics.jsonl``."""
HELD_OUT = ("accuracy", "accuracy_low", "accuracy_high", "answer_tokens")
"""The metrics of a step whose weights were evaluated on held-out problems: the accuracy with its 95% interval, and the
mean length of a completion in tokens. A line of step 0 has only these, of the weights before training."""


class RunDir:
    """A run's folder. Open it with ``RunDir.open``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        self.note_path = path / "run.json"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.trajectory = path / "trajectory"
        self.model = path / "model"
        self.shorter = path / "shorter"
        self.ledger = path / "ledger.jsonl"
        self.groups = path / "groups"
        self.rollouts = path / "rollouts"

    def rollouts_of(self, step: int) -> Path:
        """The table of an update's samples."""
        return self.rollouts / f"step-{step:06d}.arrow"

    def stored_weights(self) -> list[Path]:
        """The folders of weights stored for the landscape, in the order of training."""
        return sorted(self.trajectory.glob("step-*"))

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: Path, stage: str, settings: Mapping[str, Any], *, restart: bool, lengths: Sequence[str] = ()
    ) -> Iterator["RunDir"]:
        """Start a run, or resume one with the same configuration, wherever the files are that it names.

        ``lengths`` are the options that say how long a run is: with larger values it is prolonged.

        Raises:
            UsageError: the folder holds something else, or a run with other settings (the message says which), or
                another process uses it.
        """
        with durable.locked(path):
            folder = cls(path)
            if restart and folder.note_path.exists():
                shutil.rmtree(path)
            # As it will be read again: tuples as lists, paths as text.
            identity = json.loads(json.dumps({"command": stage, "version": __version__, **settings}, default=str))
            _claim(folder, identity, lengths)
            yield folder

    def note(self, name: str, value: str) -> None:
        """Record what an option left to ``auto`` resolved to; a resumed run keeps it."""
        if self.notes.get(name) != value:
            self.notes[name] = value
            # With what the run was started with, which only ``open`` changes.
            identity = checksum.read_object(self.note_path)
            _write_note(self.note_path, identity | {CHOSEN: self.notes})

    def store_inputs(self, inputs: Sequence[manifest.Input], history: manifest.Chain) -> None:
        """Store the run's inputs and their history, for reports and model cards."""
        record = {"inputs": [asdict(table) for table in inputs], "history": manifest.to_json(history)}
        with durable.atomic_file(self.path / INPUTS) as file:
            file.write(checksum.encode_object(record))

    @property
    def finished(self) -> bool:
        """Whether the run's model exists; it is written last."""
        return (self.model / "config.json").exists()

    @property
    def goes_on(self) -> bool:
        """Whether a process that is alive trains this run."""
        places = {Path(os.path.abspath(self.path)), self.path.resolve()}  # the run may have been named by a link
        return not self.finished and any(map(durable.is_locked, places))

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append one line of metrics; numbers that are not finite become null."""
        path = self.metrics_path
        with durable.disk_errors(path), open(path, "ab+", opener=durable.opener) as file:
            line, _ = checksum.encode_line(_finite(metrics), checksum.last_crc(file))
            file.write(line)
            durable.sync(file)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics so far, without an incomplete last one.

        Raises:
            DataError: another line is damaged.
        """
        damaged = "the records of this run are damaged; copy the folder again"
        return checksum.read_lines(self.metrics_path, damaged).objects

    def amend(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Add metrics to the line of a step, which is logged already."""
        lines = self.metrics()
        for line in lines:
            if line["step"] == step:
                line |= _finite(metrics)
        self._rewrite(lines)

    def _rewrite(self, lines: Sequence[Line]) -> None:
        with durable.atomic_file(self.metrics_path) as file:
            file.write(checksum.encode_lines(lines))

    def rewind(self, step: int) -> None:
        """Delete the metrics and stored weights of steps after a checkpoint, which are recomputed with equal values."""
        # All lines, as the checksum of each covers those before it.
        self._rewrite([line for line in self.metrics() if line["step"] <= step])
        for folder in self.stored_weights():
            if int(folder.name.removeprefix("step-")) > step:
                shutil.rmtree(folder)


def _finite(value: Any) -> Any:
    """A metric as a JSON value."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _claim(folder: RunDir, identity: Mapping[str, Any], lengths: Sequence[str]) -> None:
    path, note = folder.path, folder.note_path
    if not note.exists():
        durable.remove_stale(note)  # of a process that was killed while it wrote the first one
        if path.exists() and any(path.iterdir()):
            raise UsageError(f"{path} is not empty and is not a run of magcli; choose another folder")
        path.mkdir(parents=True, exist_ok=True)
        _write_note(note, identity)
        return
    try:
        recorded = checksum.read_object(note)
    except ValueError:
        raise DataError(f"{note} is damaged; choose another folder or give --restart, which deletes the run") from None
    notes = recorded.pop(CHOSEN, {})
    changed = changes(recorded, identity)
    if changed:
        # A command that failed at its start, such as on a typo, may be corrected.
        if not _has_work(folder):
            _write_note(note, identity)
            return
        if not _is_longer(recorded, identity, lengths):
            raise UsageError(
                f"{path} holds a run with other settings: {with_reason(changed)}; choose another folder, or --restart, "
                f"which deletes it{_way_on(folder)}"
            )
        _prolong(folder)
    folder.notes |= notes
    if identity != recorded:  # longer, or a file is elsewhere now
        _write_note(note, {**identity, CHOSEN: notes} if notes else identity)


def _way_on(folder: RunDir) -> str:
    """How another run starts from the weights of this one, for the end of a message; empty if it has none yet.

    A checkpoint of one rank without adapters is a model's folder too.
    """
    if folder.finished:
        weights = folder.model
    else:
        checkpoints = [path.parent for path in sorted(folder.checkpoints.glob("step-*/config.json"))]
        whole = [path for path in checkpoints if (path / "model.safetensors").is_file()]
        if not whole:
            return ""
        weights = whole[-1]
    return f"; to go on from its weights with these settings: --model {weights} --run NEW"


def _is_longer(recorded: Mapping[str, Any], identity: Mapping[str, Any], lengths: Sequence[str]) -> bool:
    """Whether settings differ only by larger values of the options that say how long a run is."""
    changed = unequal(fingerprint(recorded), fingerprint(identity))
    if not set(changed) <= set(lengths):
        return False
    return all(_length(identity[key]) > _length(recorded[key]) for key in changed)


def _length(value: int) -> float:
    """A number of steps or epochs; 0 is no limit."""
    return value or math.inf


def _prolong(folder: RunDir) -> None:
    """Make a finished run unfinished; its model is kept as ``shorter`` until the new one is written.

    Raises:
        UsageError: its last checkpoint was deleted.
    """
    if not folder.finished:
        return
    if not any(folder.checkpoints.glob("step-*/checkpoint.json")):
        raise UsageError(
            f"{folder.path} is finished, and its last checkpoint was deleted, so it cannot be prolonged; start another "
            "run from its model"
        )
    shutil.rmtree(folder.shorter, ignore_errors=True)
    # The run is finished as long as this folder has its name.
    durable.rename(folder.model, folder.shorter)


def _write_note(note: Path, identity: Mapping[str, Any]) -> None:
    with durable.atomic_file(note) as file:
        file.write(checksum.encode_object(identity))


def _has_work(folder: RunDir) -> bool:
    """Whether a run has written any result; one that failed at its start, for example on a typo, has not."""
    # What a run writes before its first result.
    start_files = (folder.note_path, folder.path / INPUTS)
    results = (path for path in folder.path.rglob("*") if path.is_file() and path not in start_files)
    return any(path.stat().st_size for path in results)


@dataclass(frozen=True, slots=True)
class Trained:
    """One run: its stage, options and digests as in ``run.json``, its inputs, their histories, its last step.

    ``inputs`` have no names where the run stored digests only; ``history`` is empty then.
    """

    folder: Path
    stage: str
    version: str
    options: dict[str, Any]
    inputs: tuple[manifest.Input, ...]
    history: manifest.Chain
    steps: int

    @property
    def started_from(self) -> str:
        """The model that it started from, a folder or a hub id."""
        return str(self.options.get("model", ""))

    @property
    def thoughts(self) -> str:
        """The name of the form in which its model writes thoughts; empty if it is not recorded."""
        return str(self.options.get(CHOSEN, {}).get("thoughts", ""))


def lineage(folder: Path, digest: Callable[[Path, bool], str], console: Console) -> list[Trained]:
    """The runs that led to a run's model, oldest first, back to the first one that is missing or has changed.

    ``digest`` computes the digest of a model folder, with or without its weights. If it differs from the recorded one,
    the run was repeated since. A warning names the history that is left out.

    Raises:
        DataError: the folder is not a run of magcli, or its records are damaged.
    """
    runs = [read_run(folder)]
    while True:
        earlier = _run_of(runs[0].started_from)
        # A run may have been repeated from a model that came from it.
        if earlier is None or earlier in [run.folder for run in runs]:
            break
        # A run that was repeated since has another model than the one that this run started from.
        if _changed(runs[0], digest):
            _warn(runs[0], "has changed since", console)
            return runs
        runs.insert(0, read_run(earlier))
    if "model_sha256" in runs[0].options and _is_gone(runs[0].started_from):
        _warn(runs[0], "no longer exists", console)
    return runs


def _changed(run: Trained, digest: Callable[[Path, bool], str]) -> bool:
    """Whether the folder of the model that a run started from holds another one now."""
    recorded = run.options.get("model_sha256")
    if not recorded:
        return False
    has_weights = not run.options.get("from_scratch")
    return bool(digest(Path(run.started_from), has_weights) != recorded)


def _is_gone(model: str) -> bool:
    """Whether a model was a run's, by its name, and the run's folder is gone."""
    return Path(model).name == "model" and not Path(model).parent.exists()


def _warn(run: Trained, what: str, console: Console) -> None:
    text = f"{run.started_from}, which {run.folder} started from, {what}; the history of that model is left out"
    console.warn(text, path=run.started_from)


def _run_of(model: str) -> Path | None:
    """The run whose model a folder is, if any."""
    folder = Path(model).parent
    return folder if Path(model).name == "model" and (folder / "run.json").is_file() else None


def without_model(model: Path) -> str:
    """How a run makes a model's folder that is not there yet, for messages; empty if the name is not that of a run's.

    ``model`` may be the run's folder itself.
    """
    if (model / "run.json").is_file():
        if RunDir(model).finished:
            return f"this is the folder of a run; its model is {model / 'model'}"
        return _unfinished(model)
    if model.name != "model" or model.exists():
        return ""
    if (model.parent / "run.json").is_file():
        return _unfinished(model.parent)
    if model.parent == Path():
        return ""
    return f"no such folder; magcli sft or magcli rl with --run {model.parent} makes it"


def _unfinished(folder: Path) -> str:
    """How to finish a run that has no model yet."""
    try:
        stage = f"magcli {checksum.read_object(folder / 'run.json')['command']}"
    except (OSError, ValueError, KeyError):
        stage = "its command"
    return f"{folder} has no model yet: finish {stage} ... --run {folder}"


def read_run(folder: Path) -> Trained:
    """The record of a run in its folder.

    Raises:
        DataError: the folder is not a run of magcli, or its records are damaged.
    """
    if not (folder / "run.json").is_file():
        raise DataError(f"{folder} is not the folder of a run: it has no run.json")
    try:
        record = checksum.read_object(folder / "run.json")
        command, version = record["command"], record["version"]
        inputs, history = _inputs(folder, record["inputs"])
        options = {key: value for key, value in record.items() if key not in NOT_OPTIONS}
        lines = RunDir(folder).metrics()
        steps = lines[-1]["step"] if lines else 0
        return Trained(folder, command, version, options, inputs, history, steps)
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: the records of this run are damaged; copy the folder again") from None


def _inputs(folder: Path, digests: list[str]) -> tuple[tuple[manifest.Input, ...], manifest.Chain]:
    """The tables that a run was trained on, and their history; without a record of them, the digests alone."""
    if not (folder / INPUTS).is_file():
        return tuple(manifest.Input("", digest, 0) for digest in digests), ()
    record = checksum.read_object(folder / INPUTS)
    inputs = tuple(manifest.Input(**table) for table in record["inputs"])
    return inputs, manifest.from_json(record["history"])

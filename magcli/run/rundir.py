"""The folder of one training run: its configuration, metrics and checkpoints, owned by one process at a time.

RUN/run.json        command, version, configuration, digests of the inputs, what `auto` resolved to
RUN/inputs.json     names, digests and rows of the inputs, and their histories
RUN/metrics.jsonl   one line a step
RUN/checkpoints/    step-000123, complete or absent
RUN/trajectory/     float32 weights for the landscape
RUN/model/          the result, in Hugging Face layout

and, of `magcli rl`,

RUN/ledger.jsonl    the events of each group
RUN/groups/         finished groups that are not trained on yet
RUN/rollouts/       step-000123.arrow, the samples of an update
"""

import contextlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from magcli import __version__
from magcli.data import durable, manifest
from magcli.errors import DataError, UsageError
from magcli.run.stage import CHOSEN, differences

INPUTS = "inputs.json"
Line = Mapping[str, Any]
"""The metrics of one step, a line of ``metrics.jsonl``."""


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
    def open(cls, path: Path, stage: str, settings: Mapping[str, Any], *, restart: bool) -> Iterator["RunDir"]:
        """Start a run, or resume one with the same configuration.

        Raises:
            UsageError: the folder holds something else, or a run with other settings (the message says which), or
                another process uses it.
        """
        with durable.locked(path):
            folder = cls(path)
            if restart and folder.note_path.exists():
                shutil.rmtree(path)
            identity = json.loads(json.dumps({"command": stage, "version": __version__, **settings}, default=str))
            _claim(folder, identity)
            yield folder

    def note(self, name: str, value: str) -> None:
        """Record what an option left to ``auto`` resolved to; a resumed run keeps it."""
        if self.notes.get(name) != value:
            self.notes[name] = value
            identity = json.loads(self.note_path.read_text(encoding="utf-8"))
            _write_note(self.note_path, identity | {CHOSEN: self.notes})

    def store_inputs(self, inputs: Sequence[manifest.Input], history: manifest.Chain) -> None:
        """Store the run's inputs and their history, for reports and model cards."""
        record = {"inputs": [asdict(each) for each in inputs], "history": manifest.to_json(history)}
        with durable.atomic_file(self.path / INPUTS) as file:
            file.write((json.dumps(record, indent=1) + "\n").encode())

    @property
    def finished(self) -> bool:
        """Whether the run's model exists; it is written last."""
        return (self.model / "config.json").exists()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append one line of metrics; numbers that are not finite become null."""
        with durable.disk_errors(self.metrics_path), open(self.metrics_path, "ab") as file:
            file.write((json.dumps(_finite(metrics), allow_nan=False) + "\n").encode())
            durable.sync(file)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics so far, without an incomplete last one.

        Raises:
            DataError: another line is damaged.
        """
        if not self.metrics_path.exists():
            return []
        lines = self.metrics_path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            text = "the records of this run are damaged; copy the folder again"
            raise DataError(f"{self.metrics_path}: {text}") from None

    def rewind(self, step: int) -> None:
        """Delete the metrics and stored weights of steps after a checkpoint, which are recomputed with equal values."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        with durable.atomic_file(self.metrics_path) as file:
            file.write("".join(json.dumps(line) + "\n" for line in kept).encode())
        for folder in self.stored_weights():
            if int(folder.name.removeprefix("step-")) > step:
                shutil.rmtree(folder)


def _finite(value: Any) -> Any:
    """A metric as a JSON value."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _claim(folder: RunDir, identity: Mapping[str, Any]) -> None:
    path, note = folder.path, folder.note_path
    if not note.exists():
        durable.remove_stale(note)
        if path.exists() and any(path.iterdir()):
            raise UsageError(f"{path} is not empty and is not a run of magcli; choose another folder")
        path.mkdir(parents=True, exist_ok=True)
        _write_note(note, identity)
        return
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{note} is damaged; choose another folder or give --restart, which deletes the run") from None
    notes = found.pop(CHOSEN, {})
    changes = differences(found, identity)
    if changes and not _has_work(folder):
        _write_note(note, identity)
    elif changes:
        raise UsageError(
            f"{path} holds a run with other settings: {changes}; choose another folder, or --restart, which deletes it"
        )
    else:
        folder.notes |= notes


def _write_note(note: Path, identity: Mapping[str, Any]) -> None:
    with durable.atomic_file(note) as file:
        file.write((json.dumps(identity, indent=1) + "\n").encode())


def _has_work(folder: RunDir) -> bool:
    """Whether a run has written any result; one that failed at its start, for example on a typo, has not."""
    begun = (folder.note_path, folder.path / INPUTS)
    return any(path.is_file() and path not in begun and path.stat().st_size for path in folder.path.rglob("*"))

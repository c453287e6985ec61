"""The runs that made a model: the last one and, where it started from another run's model, those before it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magcli.console import Console
from magcli.data import manifest
from magcli.errors import DataError
from magcli.run.rundir import INPUTS, RunDir

NOT_OPTIONS = ("command", "version", "inputs")


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


def lineage(folder: Path, digest: Callable[[Path, bool], str], console: Console) -> list[Trained]:
    """The runs that led to a run's model, oldest first, back to the first one that is missing or has changed.

    ``digest`` computes the digest of a model folder, with or without its weights. If it differs from the recorded one,
    the run was repeated since. A warning names the history that is left out.

    Raises:
        DataError: the folder is not a run of magcli, or its records are damaged.
    """
    found = [read(folder)]
    while (earlier := _run_of(found[0].started_from)) and all(earlier != run.folder for run in found):
        if _changed(found[0], digest):
            _warn(found[0], "has changed since", console)
            return found
        found.insert(0, read(earlier))
    if "model_sha256" in found[0].options and _is_gone(found[0].started_from):
        _warn(found[0], "no longer exists", console)
    return found


def _changed(run: Trained, digest: Callable[[Path, bool], str]) -> bool:
    """Whether the folder of the model that a run started from holds another one now."""
    recorded = run.options.get("model_sha256")
    return bool(recorded) and digest(Path(run.started_from), not run.options.get("from_scratch")) != recorded


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


def read(folder: Path) -> Trained:
    """The record of a run in its folder.

    Raises:
        DataError: the folder is not a run of magcli, or its records are damaged.
    """
    if not (folder / "run.json").is_file():
        raise DataError(f"{folder} is not the folder of a run: it has no run.json")
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        inputs, history = _inputs(folder, record["inputs"])
        options = {key: value for key, value in record.items() if key not in NOT_OPTIONS}
        steps = next((line["step"] for line in reversed(RunDir(folder).metrics())), 0)
        return Trained(folder, record["command"], record["version"], options, inputs, history, steps)
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: the records of this run are damaged; copy the folder again") from None


def _inputs(folder: Path, digests: list[str]) -> tuple[tuple[manifest.Input, ...], manifest.Chain]:
    if not (folder / INPUTS).is_file():
        return tuple(manifest.Input("", digest, 0) for digest in digests), ()
    record = json.loads((folder / INPUTS).read_text(encoding="utf-8"))
    return tuple(manifest.Input(**each) for each in record["inputs"]), manifest.from_json(record["history"])

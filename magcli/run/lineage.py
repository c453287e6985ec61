"""The runs that made a model: the last one and, where it began from another run's model, those before it."""

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
    """One run: its stage, options and digests as ``run.json`` has them, its inputs, their histories, its last step.

    ``inputs`` have no name where the run kept digests only; ``history`` is empty then.
    """

    folder: Path
    stage: str
    version: str
    options: dict[str, Any]
    inputs: tuple[manifest.Input, ...]
    history: manifest.Chain
    steps: int

    @property
    def begun_from(self) -> str:
        """The model that it began from, a folder or a hub id."""
        return str(self.options.get("model", ""))


def lineage(folder: Path, digest: Callable[[Path, bool], str], console: Console) -> list[Trained]:
    """The runs that led to a run's model, oldest first, as far as they are there and still hold the models begun from.

    ``digest`` gives that of a model folder, with its weights or without; where it is another one than was noted, the
    run has been made anew since. What is left out is warned of.

    Raises:
        DataError: the folder is no run of magcli, or its records are damaged.
    """
    found = [read(folder)]
    while (earlier := _run_of(found[0].begun_from)) and all(earlier != run.folder for run in found):
        if _changed(found[0], digest):
            _warn(found[0], "has changed since", console)
            return found
        found.insert(0, read(earlier))
    if "model_sha256" in found[0].options and _is_gone(found[0].begun_from):
        _warn(found[0], "is not there any more", console)
    return found


def _changed(run: Trained, digest: Callable[[Path, bool], str]) -> bool:
    """Whether the folder of the model that a run began from holds another one by now."""
    told = run.options.get("model_sha256")
    return bool(told) and digest(Path(run.begun_from), not run.options.get("from_scratch")) != told


def _is_gone(model: str) -> bool:
    """Whether a model had the name of a run's, and its folder is gone."""
    return Path(model).name == "model" and not Path(model).parent.exists()


def _warn(run: Trained, what: str, console: Console) -> None:
    text = f"{run.begun_from}, which {run.folder} began from, {what}; how that model was made is left out"
    console.warn(text, path=run.begun_from)


def _run_of(model: str) -> Path | None:
    """The run whose model a folder is, if it is one's."""
    folder = Path(model).parent
    return folder if Path(model).name == "model" and (folder / "run.json").is_file() else None


def read(folder: Path) -> Trained:
    """What a run's folder tells of it.

    Raises:
        DataError: the folder is no run of magcli, or its records are damaged.
    """
    if not (folder / "run.json").is_file():
        raise DataError(f"{folder} is no folder of a run: it has no run.json")
    try:
        told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        inputs, history = _inputs(folder, told["inputs"])
        options = {key: value for key, value in told.items() if key not in NOT_OPTIONS}
        steps = next((line["step"] for line in reversed(RunDir(folder).metrics())), 0)
        return Trained(folder, told["command"], told["version"], options, inputs, history, steps)
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: the records of this run are damaged; copy the folder again") from None


def _inputs(folder: Path, digests: list[str]) -> tuple[tuple[manifest.Input, ...], manifest.Chain]:
    if not (folder / INPUTS).is_file():
        return tuple(manifest.Input("", digest, 0) for digest in digests), ()
    told = json.loads((folder / INPUTS).read_text(encoding="utf-8"))
    return tuple(manifest.Input(**each) for each in told["inputs"]), manifest.from_json(told["history"])

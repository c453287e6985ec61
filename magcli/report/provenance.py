"""Where every file comes from: command, options other than the defaults, version, inputs and digests, times."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magcli.data.manifest import Input
from magcli.report.found import Table
from magcli.report.training import Run
from magcli.report.wording import duration, foreign

Defaults = Callable[[str], Mapping[str, Any]]
"""The defaults of a stage's options, by the name of the stage; empty for a stage that is not known."""
LONGEST_VALUE = 400
"""Characters of an option's value that are shown."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One file or run: what made it and from what.

    ``told`` are its facts by name, without those that nobody noted; ``options`` those that are not as by default.
    """

    name: str
    stage: str
    rows: str
    finished: str
    told: Sequence[tuple[str, str]]
    options: Sequence[tuple[str, str]]
    inputs: Sequence[Input]


def of_table(table: Table, defaults: Defaults) -> Origin:
    """The origin of a table."""
    link, note = table.made_by, table.note
    facts = {
        "command": _command(note),
        "version": link.version if link else "",
        "took": duration(note["seconds"]) if isinstance(note.get("seconds"), int | float) else "",
        "digest": table.sha256,
    }
    return Origin(
        name=str(table.path),
        stage=link.stage if link else "not made by magcli",
        rows="" if table.rows is None else f"{table.rows:,}",
        finished=str(note.get("finished") or ""),
        told=[(name, fact) for name, fact in facts.items() if fact],
        options=_changed(link.config, defaults(link.stage)) if link else [],
        inputs=link.inputs if link else (),
    )


def of_run(run: Run, defaults: Defaults) -> Origin:
    """The origin of a training run; the note beside its table tells command and time."""
    trained = run.trained
    return Origin(
        name=str(trained.folder),
        stage=f"run of {trained.stage}",
        rows="",
        finished="",
        told=[("version", trained.version)],
        options=_changed(trained.options, defaults(trained.stage)),
        inputs=trained.inputs,
    )


def _command(note: Mapping[str, Any]) -> str:
    words = note.get("command")
    return foreign(f"magcli {shlex.join(map(str, words))}") if isinstance(words, list) else ""


def _changed(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Options that are not as they would be if nothing were given, and digests of what they name."""
    return [
        (name, foreign(_value(value), LONGEST_VALUE))
        for name, value in options.items()
        if (defaults[name] != value if name in defaults else _is_told(value))
    ]


def _is_told(value: Any) -> bool:
    return value not in (None, "", [], {})


def _value(value: Any) -> str:
    told = ", ".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)
    return told if _is_told(value) else "none"

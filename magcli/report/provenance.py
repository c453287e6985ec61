"""Where every file comes from: command, non-default options, version, inputs, digests, times."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magcli.data.manifest import Input
from magcli.report.discovery import Table
from magcli.report.formatting import duration, sanitize
from magcli.report.training import Run

Defaults = Callable[[str], Mapping[str, Any]]
"""Maps the name of a stage to the defaults of its options; empty for an unknown stage."""
MAX_VALUE = 400
"""Option values are truncated to this many characters."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One file or run: the stage that wrote it, known ``facts`` by name, non-default options, and inputs."""

    name: str
    stage: str
    rows: str
    finished: str
    facts: Sequence[tuple[str, str]]
    options: Sequence[tuple[str, str]]
    inputs: Sequence[Input]


def of_table(table: Table, defaults: Defaults) -> Origin:
    """The origin of a table."""
    link, note = table.made_by, table.note
    facts = {
        "command": _command(note),
        "version": link.version if link else "",
        "duration": duration(note["seconds"]) if isinstance(note.get("seconds"), int | float) else "",
        "sha256": table.sha256,
    }
    return Origin(
        name=str(table.path),
        stage=link.stage if link else "not made by magcli",
        rows="" if table.rows is None else f"{table.rows:,}",
        finished=str(note.get("finished") or ""),
        facts=[(name, fact) for name, fact in facts.items() if fact],
        options=_changed(link.config, defaults(link.stage)) if link else [],
        inputs=link.inputs if link else (),
    )


def of_run(run: Run, defaults: Defaults) -> Origin:
    """The origin of a training run; its table carries command and time."""
    trained = run.trained
    return Origin(
        name=str(trained.folder),
        stage=f"run of {trained.stage}",
        rows="",
        finished="",
        facts=[("version", trained.version)],
        options=_changed(trained.options, defaults(trained.stage)),
        inputs=trained.inputs,
    )


def _command(note: Mapping[str, Any]) -> str:
    words = note.get("command")
    return sanitize(f"magcli {shlex.join(map(str, words))}") if isinstance(words, list) else ""


def _changed(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Non-default options, and digests of the files they name."""
    return [
        (name, sanitize(_value(value), MAX_VALUE))
        for name, value in options.items()
        if (defaults[name] != value if name in defaults else _is_set(value))
    ]


def _is_set(value: Any) -> bool:
    return value not in (None, "", [], {})


def _value(value: Any) -> str:
    text = ", ".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)
    return text if _is_set(value) else "none"

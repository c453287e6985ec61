"""From the tables' histories: the funnel (rows in, kept, and dropped by reason, stage by stage), and where every file
comes from (command, non-default options, version, inputs, digests, times).
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from magcli.console import duration
from magcli.data import manifest
from magcli.data.manifest import Chain, Input, Link
from magcli.data.schema import DROPPED
from magcli.report.discovery import Table, rows_of
from magcli.report.formatting import largest_first, sanitize, short_path
from magcli.run.rundir import Trained
from magcli.run.settings import CHOSEN

NOT_FILTERS = ("rl", "sft", "evaluate", "landscape")
"""Stages whose output rows are of a different kind than their input rows."""
MAX_EXAMPLES = 2
"""Number of dropped rows shown per reason."""
MAX_SEARCHED = 20_000
"""Number of dropped rows searched for examples."""
MAX_ROW = 400
"""Dropped rows are truncated to this many characters."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows with the same outcome: name, number, share of all rows, and examples as (id, text)."""

    name: str
    rows: int
    share: float
    examples: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of the funnel: its table (if found), inputs, model, and rows.

    The first of ``parts`` are the output rows; dropped rows follow, most frequent reason first.
    """

    table: str
    stage: str
    read: str
    model: str
    rows_in: int
    rows_out: int
    parts: Sequence[Part]

    @property
    def dropped(self) -> int:
        """Number of dropped rows."""
        return sum(part.rows for part in self.parts[1:])


def steps(tables: Sequence[Table], further: Iterable[Chain] = ()) -> list[Step]:
    """Every filtering stage once, in dependency order. ``further`` are additional histories, such as those of runs."""
    chains = [*(table.chain for table in tables), *further]
    # A stage with a table of dropped rows has two tables, and one link.
    links = [link for link in manifest.merge(chains) if link.stage not in NOT_FILTERS]
    return [_step(link, [table for table in tables if table.made_by == link]) for link in links]


def _step(link: Link, tables: Sequence[Table]) -> Step:
    file_names: list[str] = []
    examples: dict[str, list[tuple[str, str]]] = {}
    for table in tables:
        if table.of_dropped_rows:
            examples.update(_examples(table))
        elif table.path.name not in file_names:
            file_names.append(table.path.name)
    num_outcomes = link.rows_out + sum(link.dropped.values())
    # Shares are of what is more: a stage may make several rows of one.
    total = max(link.rows_in, num_outcomes, 1)
    makes_rows = num_outcomes > link.rows_in  # several of one
    written = "out" if makes_rows else "kept"
    parts = [Part(written, link.rows_out, link.rows_out / total)]
    for reason, count in largest_first(link.dropped).items():
        parts.append(Part(reason, int(count), count / total, examples.get(reason, ())))
    return Step(
        table=", ".join(file_names),
        stage=link.stage,
        read=_names(link.inputs),
        model=short_path(str(link.config.get("model") or "")),
        rows_in=link.rows_in,
        rows_out=link.rows_out,
        parts=parts,
    )


def _names(inputs: Sequence[Input], limit: int = 4) -> str:
    names = ", ".join(source.name for source in inputs[:limit])
    return names if len(inputs) <= limit else f"{names} and {len(inputs) - limit} more"


def _examples(dropped: Table) -> Mapping[str, list[tuple[str, str]]]:
    """The first dropped rows of each reason."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for row in islice(rows_of(dropped), MAX_SEARCHED):
        examples = by_reason.setdefault(str(row["drop_reason"]), [])
        if len(examples) < MAX_EXAMPLES:
            # The row is what somebody else wrote: control characters become visible, and it is cut.
            row_id = sanitize(str(row.get("id") or ""), MAX_ROW)
            examples.append((row_id, sanitize(_row_text(row), MAX_ROW)))
    return by_reason


def _row_text(row: Mapping[str, Any]) -> str:
    """The values of a dropped row, after the detail of its reason if there is any."""
    values = {name: value for name, value in row.items() if value is not None and name not in DROPPED.names}
    detail = f"{row['drop_detail']}: " if row.get("drop_detail") else ""
    return detail + json.dumps(values, ensure_ascii=False, default=str)


Defaults = Callable[[str], Mapping[str, Any]]
"""Maps the name of a stage to the defaults of its options; empty for an unknown stage."""
MAX_VALUE = 400
"""Option values are truncated to this many characters."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One file or run: the stage that wrote it, ``facts`` by name, non-default options, and inputs."""

    name: str
    stage: str
    rows: str
    finished: str
    facts: Sequence[tuple[str, str]]
    options: Sequence[tuple[str, str]]
    inputs: Sequence[Input]


def of_table(table: Table, defaults: Defaults) -> Origin:
    """The origin of a table."""
    link = table.made_by or Link("not made by magcli", "", {})
    note = table.note
    facts = {
        "command": _command(note),
        "version": link.version,
        "duration": duration(note["seconds"]) if isinstance(note.get("seconds"), int | float) else "",
        "sha256": table.sha256,
    }
    return Origin(
        name=str(table.path),
        stage=link.stage,
        rows="" if table.rows is None else f"{table.rows:,}",
        finished=str(note.get("finished") or ""),
        facts=[(name, fact) for name, fact in facts.items() if fact],
        options=_changed(link.config, defaults(link.stage)),
        inputs=link.inputs,
    )


def of_run(trained: Trained, defaults: Defaults) -> Origin:
    """The origin of a training run; its table carries command and time."""
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
    # A note is a file beside the table, which somebody may have edited.
    words = note.get("command")
    if not isinstance(words, list):
        return ""
    return sanitize(f"magcli {shlex.join(map(str, words))}")


def _changed(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Non-default options, digests of the files they name, and what options left to ``auto`` resolved to."""
    given = {name: value for name, value in options.items() if name != CHOSEN}
    changed = []
    for name, value in {**given, **options.get(CHOSEN, {})}.items():
        # An option that this version does not know, or a digest, counts if it has a value.
        differs = defaults[name] != value if name in defaults else _is_set(value)
        if differs:
            changed.append((name, sanitize(_value(value), MAX_VALUE)))
    return changed


def _is_set(value: Any) -> bool:
    return value not in (None, "", [], {})


def _value(value: Any) -> str:
    text = ", ".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)
    return text if _is_set(value) else "none"

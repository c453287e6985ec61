"""One run of one stage: opens its tables, checks them at the door, writes the output whole, tells what was
dropped.
"""

import contextlib
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli import __version__
from magcli.console import Console
from magcli.data import durable, manifest, seal, table
from magcli.data.schema import DROPPED
from magcli.data.source import Rows, Source
from magcli.data.union import common_schema, widened
from magcli.errors import DataError, UsageError
from magcli.run.journal import Dropped, Journal

CELL_LIMIT = 1 << 24
"""A text longer than this many bytes makes its row ``too-large``."""


@dataclass
class Drops:
    """Rows left out, counted by reason and kept for ``--dropped``."""

    keep: bool
    counts: Counter[str] = field(default_factory=Counter)
    rows: list[Dropped] = field(default_factory=list)

    def add(self, dropped: Dropped) -> None:
        """Count a row, and keep it when it was asked for."""
        self.counts[dropped.reason] += 1
        if self.keep:
            self.rows.append(dropped)

    def row(self, id: str, reason: str, row: Mapping[str, Any]) -> None:
        """Count a row given as values; a large one is kept shortened."""
        self.add(Dropped(id, reason, as_text(row) if self.keep else ""))

    def batch(self, batch: pa.RecordBatch, reason: str, before: int) -> None:
        """Count all rows of a batch; ``before`` rows of the table came before it."""
        if not self.keep and batch.num_rows:
            self.counts[reason] += batch.num_rows
        for number, row in enumerate(batch.to_pylist() if self.keep else (), before + 1):
            self.row(str(row.get("id") or f"row {number}"), reason, row)


def as_text(row: Mapping[str, Any], limit: int = 4000) -> str:
    """A row as JSON for people, no longer than ``limit`` characters."""
    text = json.dumps({k: v[:limit] if isinstance(v, str) else v for k, v in row.items()}, default=str)
    return text if len(text) <= limit else text[:limit] + "..."


@dataclass
class Job:
    """What a stage has besides its configuration and rows.

    ``total`` is the number of input rows when it is known. ``journal`` holds what an interrupted run had finished; it
    is None when the output is a pipe or the stage does not resume by row.
    """

    stage: str
    console: Console
    drops: Drops
    total: int | None = None
    journal: Journal | None = None
    schema: pa.Schema | None = None
    """The schema of the input."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Times, rates and machine: written beside the output, never into it."""
    sources: Sequence[Source] = ()
    restart: bool = False

    def history(self) -> manifest.Chain:
        """How the inputs were made; whole only after their last row was read."""
        return manifest.merge([source.chain for source in self.sources])


@dataclass(frozen=True)
class Tables:
    """The tables that a command names: inputs, output, and where dropped rows go."""

    inputs: Sequence[str] = ()
    output: str | None = None
    dropped: str | None = None
    restart: bool = False


@dataclass(frozen=True)
class Stage:
    """What the harness must know of a stage.

    ``resumes``: it works in units that a journal keeps. ``beside``: what a configuration leaves besides its table.
    """

    name: str
    run: Callable[[Any, Rows, Job], Rows]
    schema: Callable[[Any, pa.Schema], pa.Schema]
    admit: Callable[[pa.Schema, Rows, Job, str], tuple[pa.Schema, Rows]]
    resumes: bool = False
    beside: Callable[[Any], Sequence[Path]] = lambda _: ()


def execute(stage: Stage, config: Any, settings: Mapping[str, Any], tables: Tables, console: Console) -> None:
    """Run a stage on its tables.

    ``settings`` is the configuration as it goes into the manifest.

    Raises:
        MagError: whatever is wrong, before the first row is made where that is possible.
    """
    drops = Drops(keep=tables.dropped is not None)
    job = Job(stage.name, console, drops, restart=tables.restart)
    places = [place for place in (tables.output, tables.dropped) if place is not None]
    usage(
        len(set(map(os.path.abspath, places))) == len(places),
        f"{tables.output} cannot take both the rows and those dropped",
    )
    with contextlib.ExitStack() as held:
        for place in places:
            table.check_target(place)
            if place != "-":
                held.enter_context(durable.owned(Path(place)))
        sources = [table.read(name, _bad(drops)) for name in tables.inputs]
        whole = all(path.exists() for path in stage.beside(config))
        if whole and not tables.restart and up_to_date(tables, stage.name, settings, sources):
            durable.remove(_journal_path(tables))
            console.say(f"{stage.name}: {tables.output} is up to date", event="up-to-date")
            return
        _run(stage, config, settings, tables, job, sources, held)


def _run(
    stage: Stage,
    config: Any,
    settings: Mapping[str, Any],
    tables: Tables,
    job: Job,
    sources: list[Source],
    held: contextlib.ExitStack,
) -> None:
    started = time.monotonic()
    counted = Counted(sources)
    job.sources = sources
    job.total = counted.total
    job.schema, rows = stage.admit(counted.schema, counted.rows(), job, ", ".join(tables.inputs))
    out_schema = stage.schema(config, job.schema)
    if stage.resumes and tables.output not in (None, "-"):
        job.journal = held.enter_context(_journal(out_schema, stage.name, settings, tables))
    produced = stage.run(config, rows, job)

    def chain(rows_out: int) -> manifest.Chain:
        inputs = [manifest.Input(Path(s.name).name, s.sha256, s.total or 0) for s in sources]
        link = manifest.Link(
            stage.name,
            __version__,
            settings,
            inputs,
            counted.count + _unread(job),
            rows_out,
            dict(sorted(job.drops.counts.items())),
        )
        return (*job.history(), link)

    def tell(rows_out: int) -> manifest.Chain:
        """The history, when all rows are made; what was dropped is written before the output appears."""
        told = chain(rows_out)
        if tables.dropped:
            _write_dropped(job.drops, tables.dropped, told)
        return told

    rows_out = _write(produced, out_schema, tables.output, stage.name, settings, tell)
    if job.journal is not None:
        job.journal.remove()
    _report(job, counted.count + _unread(job), rows_out, started, tables)


UNREAD = ("broken-json", "not-an-object", "broken-text", "line-too-large", "ragged-line")
"""Reasons that the readers themselves drop a line for."""


def _unread(job: Job) -> int:
    """Rows that never became a batch: their lines could not be read."""
    return sum(job.drops.counts[reason] for reason in UNREAD)


def _bad(drops: Drops) -> Callable[[str, str, str], None]:
    def bad(place: str, reason: str, excerpt: str) -> None:
        drops.add(Dropped(place, reason, excerpt))

    return bad


class Counted:
    """Several inputs as one stream, its rows counted. Their schemas must agree on the columns they share."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources, self.count = sources, 0
        self.schema = common_schema([source.schema for source in sources], [source.name for source in sources])
        totals = [source.total for source in sources]
        self.total = sum(t for t in totals if t is not None) if None not in totals else None

    def rows(self) -> Rows:
        """All rows, in the order of the inputs, every column of any of them present."""
        for source in self.sources:
            for batch in source.rows:
                self.count += batch.num_rows
                yield batch if batch.schema.equals(self.schema) else widened(batch, self.schema)


def _journal_path(tables: Tables) -> Path:
    output = Path(str(tables.output))
    return output.with_name(f".{output.name}.journal")


@contextlib.contextmanager
def _journal(schema: pa.Schema, stage: str, settings: Mapping[str, Any], tables: Tables) -> Iterator[Journal]:
    path = _journal_path(tables)
    if tables.restart:
        durable.remove(path)
    journal = Journal.open(path, schema, {"stage": stage, "version": __version__, **settings})
    try:
        yield journal
    finally:
        if not journal.file.closed:
            journal.close()


def up_to_date(tables: Tables, stage: str, settings: Mapping[str, Any], sources: Sequence[Source]) -> bool:
    """Whether the outputs were made by this very command from these very inputs, and are whole."""
    places = [place for place in (tables.output, tables.dropped) if place is not None]
    if not places or "-" in places or not all(Path(place).exists() for place in places):
        return False
    if any(not source.sha256 for source in sources):
        return False
    try:
        chain, *_ = [table.read(place).chain for place in places]
    except DataError:
        return False
    digests = [source.sha256 for source in sources]
    if not chain:
        return False
    last = chain[-1]
    same_config = json.loads(seal.pack(last.config)) == json.loads(seal.pack(settings))
    return (
        last.stage == stage
        and last.version == __version__
        and same_config
        and [i.sha256 for i in last.inputs] == digests
        and bool(digests)
    )


def _write(
    rows: Rows,
    schema: pa.Schema,
    output: str | None,
    stage: str,
    settings: Mapping[str, Any],
    chain: Callable[[int], manifest.Chain],
) -> int:
    if output is None:
        count: int = sum(batch.num_rows for batch in rows)
        chain(count)
        return count
    count = 0
    head = seal.pack({"config": settings, "stage": stage, "version": __version__})
    with contextlib.closing(rows), table.write(output, schema, head) as sink:  # type: ignore[type-var]
        for batch in table.rechunk(rows) if output != "-" else rows:
            count += batch.num_rows
            sink.write(_fitting(batch, schema, stage))
        sink.finish(chain(count))
    return count


def _fitting(batch: pa.RecordBatch, schema: pa.Schema, stage: str) -> pa.RecordBatch:
    if batch.schema.names != schema.names:
        raise DataError(f"{stage} made columns {batch.schema.names} where {schema.names} were promised")
    return pa.RecordBatch.from_arrays(
        [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)], schema=schema
    )


def _write_dropped(drops: Drops, output: str, chain: manifest.Chain) -> None:
    columns = [list(column) for column in zip(*drops.rows, strict=True)] or [[], [], []]
    batch = pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=DROPPED)
    with table.write(output, DROPPED, seal.pack({"stage": chain[-1].stage})) as sink:
        for part in table.rechunk(iter([batch])):
            sink.write(part)
        sink.finish(chain)


def _report(job: Job, rows_in: int, rows_out: int, started: float, tables: Tables) -> None:
    """One line for people, and a side file with what would make equal outputs differ."""
    seconds = time.monotonic() - started
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in job.drops.counts.most_common())
    dropped = f", dropped {sum(job.drops.counts.values()):,} ({reasons})" if reasons else ""
    where = f" -> {tables.output}" if tables.output else ""
    text = f"{job.stage}: {rows_in:,} rows in, {rows_out:,} out{dropped} in {seconds:.1f} s{where}"
    counts = {"rows_in": rows_in, "rows_out": rows_out, "dropped": dict(job.drops.counts), "seconds": round(seconds, 3)}
    if tables.output:
        job.console.say(text, event="done", stage=job.stage, output=tables.output, **counts)
    if tables.output and tables.output != "-":
        note = {
            "stage": job.stage,
            "command": sys.argv[1:],
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "host": platform.node(),
            **counts,
            **job.facts,
        }
        path = Path(tables.output)
        with durable.whole_file(path.with_name(f"{path.name}.run.json")) as file:
            file.write((json.dumps(note, indent=1, default=str) + "\n").encode())


def usage(condition: bool, message: str) -> None:
    """Fail at the door unless a condition on the options holds.

    Raises:
        UsageError: with the message.
    """
    if not condition:
        raise UsageError(message)

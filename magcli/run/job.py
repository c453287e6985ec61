"""What a stage gets besides its configuration and rows: the console, dropped rows, its journal, its history."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli import __version__
from magcli.console import Console
from magcli.data import manifest
from magcli.data.schema import common_schema, conform
from magcli.data.selection import first
from magcli.data.source import NOT_UTF8, Rows, Source, total_rows
from magcli.data.values import to_rows
from magcli.errors import usage
from magcli.run.dropped import DroppedTable
from magcli.run.journal import Journal
from magcli.run.settings import CHOSEN
from magcli.run.shard import Shard, bounds, slice_rows
from magcli.run.types import Dropped, Named, Notes

CELL_LIMIT = 1 << 24
"""A text longer than this many bytes makes its row ``too-large``."""

UNREAD = ("broken-json", "not-an-object", "broken-text", NOT_UTF8, "line-too-large", "ragged-line")
"""Reasons for which readers drop a line."""


@dataclass
class Drops:
    """Dropped rows, counted by reason and written to ``table``, the one of ``--dropped``.

    ``keep``: there is or will be such a table. ``first_errors`` has, by reason, what was wrong with the first row whose
    error says it. A thread that reads the input may drop rows while the stage does.
    """

    keep: bool
    counts: Counter[str] = field(default_factory=Counter)
    first_errors: dict[str, str] = field(default_factory=dict)
    table: DroppedTable | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def row(self, id: str, reason: str, row: Mapping[str, Any], /, **detail: Any) -> None:
        """Count a row given as values, and what else is known about it; what is wrong with it is ``error``."""
        with self._lock:
            self.counts[reason] += 1
        error = str(detail.get("error") or "")
        if error:
            self.first_errors.setdefault(reason, error)
        if self.table is not None:
            self.table.add(id, reason, row, detail)

    def add(self, dropped: Dropped) -> None:
        """Count a dropped row of a unit of work."""
        self.row(dropped.id, dropped.reason, dropped.row, **dropped.detail)

    def unread(self, location: str, reason: str, excerpt: str) -> None:
        """Count a line that a reader could not read: a ``BadRow``."""
        self.row(location, reason, {}, detail=f"{location}: {excerpt}")

    def summary(self) -> str:
        """The number of rows of each reason, with the first error if there is one: for messages."""
        parts = []
        for reason, count in self.counts.most_common():
            part = f"{reason} {count:,}"
            if reason in self.first_errors:
                part += f": the first: {self.first_errors[reason]}"
            parts.append(part)
        return ", ".join(parts)

    def batch(self, batch: pa.RecordBatch, reason: str) -> None:
        """Count all rows of a batch."""
        # Rows become Python objects only where a table wants them.
        if self.keep:
            for row in to_rows(batch):
                self.row(str(row.get("id") or ""), reason, row)
        elif batch.num_rows:
            with self._lock:
                self.counts[reason] += batch.num_rows


@dataclass(frozen=True)
class Whole:
    """The run that a shard is part of, where one command runs all shards on a cluster.

    ``settings`` are its settings, and ``chosen`` is what options left to ``auto`` resolved to for all shards.
    ``open_engine`` opens a client of the engines that shards share, a ``Generator``; None if each shard asks a server
    by itself or the stage samples nothing. ``at_once`` is the number of shards that may run at the same time.
    """

    settings: Mapping[str, Any]
    chosen: Mapping[str, str]
    open_engine: Callable[[], Any] | None = None
    at_once: int = 1


@dataclass
class Job:
    """One run of one stage.

    ``settings`` is the configuration as the history records it. ``total`` is the number of input rows if known.
    ``journal`` holds what an interrupted run finished; None if the output is a pipe or the stage does not resume by
    row. ``schema`` has the columns of the input after validation, ``output_schema`` those of the output. ``facts`` are
    times and rates, written to a side file, never into the output. ``joined`` is the history of a table that is joined
    from shards, in place of this run's own. ``chosen`` is what options left to ``auto`` resolved to; the history
    records it. ``tally`` has what a stage reports at its end and what does not follow from its rows. ``whole`` is the
    run that a shard is part of.
    """

    stage: str
    console: Console
    drops: Drops
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: "CountedInputs | None" = None
    total: int | None = None
    journal: Journal | None = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    output_schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    facts: dict[str, Any] = field(default_factory=dict)
    joined: manifest.Chain | None = None
    restart: bool = False
    output: str | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    whole: Whole | None = None

    @property
    def sources(self) -> Sequence[Source]:
        """The input tables."""
        return self.inputs.sources if self.inputs else ()

    @property
    def rows_in(self) -> int:
        """Rows read so far, unreadable lines included."""
        # Lines that no reader could make a row of.
        unread = sum(self.drops.counts[reason] for reason in UNREAD)
        return (self.inputs.count if self.inputs else 0) + unread

    def choose(
        self,
        asked: Mapping[str, str],
        decide: Callable[[str], tuple[str, str]],
        unfinished: Sequence[Notes] | None = None,
    ) -> dict[str, str]:
        """Resolve ``auto``: the value of unfinished work, or of the run that a shard is part of, else ``decide``'s.

        One message names all values that were decided.

        Args:
            asked: each option's value, or ``auto``.
            decide: returns an option's value and the reason.
            unfinished: the work to resume, by default the journal; it records the values.
        """
        resumed = self._unfinished(unfinished)
        values = dict(asked)
        decisions = []
        for option in asked:
            if asked[option] != "auto":
                continue
            value = self._resolved(option, resumed)
            if value is None:
                value, reason = decide(option)
                decisions.append(f"{option} {value} ({reason})")
            values[option] = value
        if decisions:
            self.console.say(f"{self.stage}: {', '.join(decisions)}", event="chosen", values=values)
        self.record(values, unfinished)
        return values

    def _resolved(self, option: str, resumed: Sequence[Notes]) -> str | None:
        """What unfinished work, or the run that a shard is part of, has resolved an option to."""
        recorded: list[Mapping[str, str]] = [work.notes for work in resumed]
        if self.whole is not None:
            recorded.append(self.whole.chosen)
        for values in recorded:
            if option in values:
                return values[option]
        return None

    def record(self, values: Mapping[str, str], unfinished: Sequence[Notes] | None = None) -> None:
        """Record what options left to ``auto`` resolved to; ``unfinished`` as in ``choose``."""
        for work in self._unfinished(unfinished):
            for option, value in values.items():
                work.note(option, value)
        self.chosen |= values

    def _unfinished(self, unfinished: Sequence[Notes] | None) -> Sequence[Notes]:
        """The given unfinished work, by default the journal."""
        if unfinished is None and self.journal is not None:
            return [self.journal]
        return unfinished or ()

    def past(self) -> manifest.Chain:
        """How the inputs were made; complete only after their last row was read."""
        return manifest.merge([source.chain for source in self.sources])

    def history(self, rows_out: int) -> manifest.Chain:
        """The history of this run's output of ``rows_out`` rows, from the first stage to this one."""
        if self.joined is not None:
            return self.joined
        inputs = []
        for source in self.sources:
            inputs.append(manifest.Input(Path(source.name).name, source.sha256, source.total or 0))
        # The order in which reasons occur depends on what was faster.
        dropped = dict(sorted(self.drops.counts.items()))
        settings = dict(self.settings)
        if self.chosen:
            settings[CHOSEN] = dict(self.chosen)
        link = manifest.Link(self.stage, __version__, settings, inputs, self.rows_in, rows_out, dropped)
        return (*self.past(), link)


class CountedInputs:
    """Several inputs as one stream whose rows are counted, with the columns of all.

    ``schemas`` are those of the tables as they are, ``named`` the columns that are read under another name.
    """

    def __init__(self, sources: Sequence[Source], schemas: Sequence[pa.Schema], named: Sequence[Named]) -> None:
        self.sources = sources
        self.count = 0
        self.schemas = schemas
        self.named = named
        self.schema = common_schema([source.schema for source in sources])
        self.total = total_rows(sources)
        self.bounds: tuple[int, int] | None = None
        self.limit: int | None = None

    def select_first(self, limit: int) -> None:
        """Read only the first rows of all tables together."""
        self.limit = limit
        self.total = None if self.total is None else min(self.total, limit)

    def select_shard(self, shard: Shard) -> None:
        """Read only the rows of one shard.

        Raises:
            UsageError: an input is a pipe or a hub id, whose number of rows or digest is unknown.
        """
        streams = [source.name for source in self.sources if source.total is None or not source.sha256]
        usage(not streams, f"--shard needs files, whose rows are counted in advance; not a file: {', '.join(streams)}")
        assert self.total is not None
        self.bounds = bounds(shard, self.total)
        self.total = self.bounds[1] - self.bounds[0]

    def rows(self) -> Rows:
        """All rows, or those of the shard, in the order of the inputs, with the columns of all of them."""
        rows = self._rows()
        if self.bounds:
            rows = slice_rows(rows, *self.bounds)
        for batch in rows:
            self.count += batch.num_rows
            yield batch

    def _rows(self) -> Rows:
        if self.limit is None:
            return self._all_rows()
        # A pipe has its history, and its digest, behind the last row.
        is_pipe = any(source.total is None for source in self.sources)
        return first(self._all_rows(), self.limit, to_end=is_pipe)

    def _all_rows(self) -> Rows:
        # The rows of a single table have the columns of all as they are.
        is_alone = len(self.sources) == 1
        for source in self.sources:
            for batch in source.rows:
                yield batch if is_alone else conform(batch, self.schema)

"""A stage on a cluster: its shards as tasks, engines that they share, and their tables joined into one.

The driver is the command that a user gives. It starts the engines, then a task a shard. A task runs the stage as
``--shard I/N`` does, into a folder next to the output; what a lost process had journaled is not computed again.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.cluster.open import address_for, open_cluster
from magcli.cluster.service import ServiceClient
from magcli.cluster.shards import map_shards
from magcli.cluster.types import WAITING_SECONDS, Resources, Surroundings
from magcli.console import Console, Progress
from magcli.data import durable, table
from magcli.errors import DataError, EnvironmentFault, UsageError, usage
from magcli.generate.remote.service import service_generator
from magcli.run import harness, shard, units, validation
from magcli.run.harness import Tables
from magcli.run.job import UNREAD, Drops, Job, Whole
from magcli.run.settings import CHOSEN
from magcli.run.shard import Shard
from magcli.run.units import AsyncRunner
from magcli.stages.shared.cluster_engines import SharedEngines, open_server, samples_locally
from magcli.stages.shared.options import EngineOptions

if TYPE_CHECKING:
    from magcli.cluster.errors import MemberLost
    from magcli.cluster.runtime import Cluster
    from magcli.cluster.shards import Attempt, Say
    from magcli.data.source import Rows
    from magcli.run.stage import Stage

SHARDS_A_PLACE = 4
"""Shards for each task that can run at once, so that a slow one does not hold up the end."""

PLAN = "plan.json"
"""The file in the shards' folder with their number, which a resumed run keeps."""

SAY_SECONDS = 0.5
"""Seconds between two progress messages of a shard."""

LOCK_SECONDS = 60.0
"""How long a shard waits for the lock of an earlier attempt, as Ray may take a slow node for dead."""

QUIET_EVENTS = ("renamed", "replaces", "up-to-date", "resumed")
"""Events of shards that the driver reports by itself or that mean nothing for the whole."""


@dataclass(frozen=True)
class ShardRun:
    """What the tasks run: a stage on its tables, ``out_of`` shards, as parts of the whole run."""

    stage: Stage
    config: Any
    tables: Tables
    out_of: int
    whole: Whole
    engines: Any
    run_id: str

    @property
    def folder(self) -> Path:
        """Where the shards' tables are."""
        return harness.shards_folder(str(self.tables.output))

    def tables_of(self, number: int) -> Tables:
        """The tables of a shard; the kinds of files are those of the joined tables."""
        suffix = Path(str(self.tables.output)).suffix
        dropped = self.tables.dropped
        return replace(
            self.tables,
            output=str(self.folder / f"kept-{number}{suffix}"),
            dropped=None if dropped is None else str(self.folder / f"dropped-{number}.arrow"),
            shard=Shard(number, self.out_of),
            # An attempt goes on from what earlier ones finished; --overwrite is about the joined table.
            restart=False,
            overwrite=False,
        )


def execute(stage: Stage, config: Any, tables: Tables, console: Console) -> None:
    """Run a stage in shards on the cluster of its options, as ``harness.execute`` does in this process.

    Raises:
        UsageError: its rows cannot be split, its tables are not files, or it writes more than its table.
    """
    _check(stage, config, tables)
    harness.execute(stage, config, tables, console, rows_of_shards=partial(rows_of_shards, stage, config, tables))


def _check(stage: Stage, config: Any, tables: Tables) -> None:
    flag = f"{stage.name}: --cluster {config.cluster}"
    usage(tables.shard is None, f"{flag} makes the shards itself; omit --shard")
    usage("-" not in tables.inputs, f"{flag} needs the input as files that all nodes can read, not stdin")
    text = f"{flag} needs a file as --output, on storage that all nodes share; its shards are kept next to it"
    usage(tables.output not in (None, "-"), text)
    sides = ", ".join(map(str, stage.side_outputs(config)))
    usage(not sides, f"{flag} cannot write {sides}; omit the option, or use --shard by hand")
    # Without this function a stage decides on each row by itself.
    reason = stage.unshardable_reason(config) if stage.unshardable_reason else ""
    usage(not reason, f"{stage.name}: --cluster splits the rows, but {reason}")


def rows_of_shards(stage: Stage, config: Any, tables: Tables, job: Job) -> Rows:
    """The rows of the output, after all shards have run on the cluster; sets the job's history and counts.

    Raises:
        UsageError: an input is a pipe or a hub id.
        EnvironmentFault: the cluster cannot be used, or too many processes were lost.
        MagError: what a shard raised.
    """
    assert job.inputs is not None
    # Shards are ranges of row numbers, so the input must have the same rows each time it is read.
    streams = [source.name for source in job.sources if source.total is None or not source.sha256]
    usage(not streams, f"{stage.name}: --cluster needs files, whose rows are counted in advance, not {streams}")
    folder = harness.shards_folder(str(tables.output))
    if job.restart:
        # The number of shards is chosen anew.
        durable.remove(folder / PLAN)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = _choose(stage, config, tables, job)
    cpus = max(len(os.sched_getaffinity(0)), _cpus_of_task(config))
    with open_cluster(address_for(config.cluster), cpus=cpus) as cluster:
        run = _planned(stage, config, tables, job, cluster, chosen)
        with AsyncRunner() as loop, job.console.progress(job.total, "rows", job.stage) as bar:
            loop.run(_on_cluster(cluster, run, job, bar))
    # After the end of the cluster: the shards are files that this process reads.
    yield from _joined(run, job)


def _choose(stage: Stage, config: Any, tables: Tables, job: Job) -> dict[str, str]:
    """What options left to ``auto`` resolve to for all shards by the rows; and what an interrupted run had chosen."""
    # A resumed run keeps what it chose, so that all of its rows are made alike.
    notes = dict(job.journal.notes) if job.journal is not None else {}
    if stage.choose is None:
        return notes
    # The first rows are read apart, quietly: the shards read them again, and report what they drop.
    peek = replace(job, drops=Drops(keep=False), console=Console(quiet=True), chosen={})
    peek.inputs = harness.open_inputs(stage, config, tables, peek.drops.unread)
    rows = validation.usable_rows(stage, config, peek, tables.inputs)
    peek.console = job.console
    stage.choose(config, rows, peek)
    return {**notes, **peek.chosen}


def _planned(
    stage: Stage, config: Any, tables: Tables, job: Job, cluster: Cluster, chosen: Mapping[str, str]
) -> ShardRun:
    """The run in as many shards as fit the cluster, or as an interrupted one had."""
    assert job.inputs is not None
    # A task's CPUs are on one node, so each node's remainder stays idle.
    at_once = max(1, sum(int(node.cpus // _cpus_of_task(config)) for node in cluster.nodes()))
    path = harness.shards_folder(str(tables.output)) / PLAN
    out_of = _number_of_shards(path, _shards_for(config, job.inputs.total or 0, at_once))
    whole = Whole(job.settings, chosen, at_once=min(at_once, out_of))
    return ShardRun(stage, config, tables, out_of, whole, None, uuid.uuid4().hex[:12])


def _cpus_of_task(config: Any) -> int:
    """The CPUs of a shard: one for each of its workers."""
    return max(1, getattr(config, "workers", 1))


def _shards_for(config: Any, rows: int, at_once: int) -> int:
    """How many shards a run has of which so many run at once.

    A shard of a stage that samples has rows enough to fill an engine's slots: at its end they are partly empty.
    """
    # Without engines a row is a piece of work by itself.
    least_rows = config.num_slots if samples_locally(config) else 1
    most = max(at_once, rows // least_rows)
    return max(1, min(rows, SHARDS_A_PLACE * at_once, most))


def _number_of_shards(path: Path, wanted: int) -> int:
    """The number in the plan, which is written if there is none."""
    if path.exists():
        number: int = json.loads(path.read_text())["shards"]
        return number
    # Row numbers of finished shards depend on it, so a killed process must not leave half of it.
    with durable.atomic_file(path) as file:
        file.write(json.dumps({"shards": wanted}).encode())
    return wanted


async def _on_cluster(cluster: Cluster, run: ShardRun, job: Job, bar: Progress) -> None:
    """Start the engines if there are weights to sample from, run all shards, end the engines."""
    if not samples_locally(run.config):
        await _map(cluster, run, job, bar, None)
        return
    assert isinstance(run.config, EngineOptions)
    engines = SharedEngines(cluster, run.config, job, run.run_id, run.whole.chosen, open_server)
    try:
        opened = await engines.start()
        job.record(opened.chosen)
        whole = replace(run.whole, chosen={**run.whole.chosen, **opened.chosen})
        await _map(cluster, replace(run, whole=whole, engines=engines.addresses_and_opened), job, bar, engines)
    finally:
        engines.group.close()


async def _map(cluster: Cluster, run: ShardRun, job: Job, bar: Progress, engines: SharedEngines | None) -> None:
    """Run all shards; the engines are watched meanwhile, and end the run if they cannot be replaced."""
    listener = _Listener(run, job, bar, engines)
    resources = Resources(cpus=_cpus_of_task(run.config))

    def say_what_is_missing() -> None:
        if not cluster.places_for(resources):
            text = f"{job.stage}: waiting for a node with {resources} for the shards"
            job.console.say(text, event="waiting")

    mapping = asyncio.create_task(
        map_shards(
            cluster,
            partial(run_shard, run),
            range(1, run.out_of + 1),
            resources,
            surroundings=Surroundings.of_this_process(),
            said=listener.said,
            ended=listener.ended,
            lost=listener.lost,
        )
    )
    ticking = asyncio.create_task(units.every(units.REPORT_EVERY, listener.report))
    waiting = asyncio.create_task(units.every(WAITING_SECONDS, say_what_is_missing))
    watching = asyncio.create_task(engines.group.watch()) if engines else None
    watched = [waiting] if watching is None else [waiting, watching]
    # ``ticking`` only reports, so it is not waited for.
    tasks = [mapping, ticking, *watched]
    try:
        await asyncio.wait([mapping, *watched], return_when=asyncio.FIRST_COMPLETED)
        for task in watched:
            if task.done():
                await task  # raises: it ends only if Ray is lost, or an engine that cannot be replaced
        await mapping
    finally:
        for task in tasks:
            task.cancel()
        # Wait for the cancelled tasks to clean up; their errors would hide the first one.
        await asyncio.gather(*tasks, return_exceptions=True)


class _Listener:
    """Shows the progress of all shards as one bar of rows, and their messages, each once."""

    def __init__(self, run: ShardRun, job: Job, bar: Progress, engines: SharedEngines | None) -> None:
        self._run = run
        self._job = job
        self._bar = bar
        self._engines = engines
        self._rows: Counter[int] = Counter()
        self._reused: Counter[int] = Counter()
        self._said: set[str] = set()

    def said(self, number: int, said: Mapping[str, Any]) -> bool:
        """Show progress or a message; returns whether the shard has new rows."""
        if "text" in said:
            if said["text"] not in self._said:
                self._said.add(said["text"])
                self._job.console.say(said["text"], **said["event"])
            return False
        # A shard that is tried again counts from zero: the bar never goes back.
        more = max(said["rows"] - self._rows[number], 0)
        more_reused = max(said["reused"] - self._reused[number], 0)
        self._reused[number] += more_reused
        # Only rows that are new to the bar may count as reused.
        reused = min(more_reused, more)
        self._advance(number, reused, reused=True)
        self._advance(number, more - reused)
        return bool(more)

    def ended(self, number: int) -> None:
        """Count the rest of a shard's rows: those that were dropped unread, or finished by an earlier run."""
        first, end = shard.bounds(Shard(number, self._run.out_of), self._job.total or 0)
        # A shard that said nothing was complete before this run.
        self._advance(number, end - first - self._rows[number], reused=not self._rows[number])

    def lost(self, attempt: Attempt, error: MemberLost) -> None:
        """Warn that a process was lost and its shard is tried again."""
        text = f"{self._job.stage}: {error}; the shard goes on elsewhere from what it had finished"
        self._job.console.warn(text, event="shard-lost", shard=attempt.shard)
        if self._engines:
            # Else the engines would go on sampling for a process that is gone.
            self._engines.group.forget(_client(self._run, attempt))

    def report(self) -> None:
        """Show that work continues while no row is finished."""
        self._bar.report(self._note())

    def _advance(self, number: int, rows: int, *, reused: bool = False) -> None:
        if rows > 0:
            self._rows[number] += rows
            self._bar.advance(rows, note=self._note(), reused=reused)

    def _note(self) -> str:
        return f"{self._engines.group.num_finished:,} completions finished" if self._engines else ""


def _client(run: ShardRun, attempt: Attempt) -> str:
    return f"{run.run_id}-{attempt}"


def run_shard(run: ShardRun, attempt: Attempt, say: Say) -> None:
    """Run a shard in the process of a task.

    Raises:
        EnvironmentFault: this node does not have the folder of the shards.
        MagError: what the stage raises.
    """
    # The driver wrote the plan, so a node that does not see it has other storage under this path.
    if not (run.folder / PLAN).exists():
        raise EnvironmentFault(
            f"{socket.gethostname()} has no folder {run.folder}; --output must be on storage that all nodes share"
        )
    whole = run.whole
    if run.engines is not None:
        addresses, opened = run.engines
        client = partial(ServiceClient, addresses, _client(run, attempt))
        # The driver has recorded what the first engine chose; all shards use that.
        chosen = replace(opened, chosen=whole.chosen)
        whole = replace(whole, open_engine=lambda: service_generator(client(), chosen))
    console = ShardConsole(say)
    _wait_for_lock(Path(str(run.tables_of(attempt.shard).output)))
    harness.execute(run.stage, run.config, run.tables_of(attempt.shard), console, whole=whole)


def _wait_for_lock(output: Path) -> None:
    """Wait for the end of an earlier attempt's process, which may still run although the cluster takes it for lost."""
    end = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < end:
        try:
            # Only tried: ``harness.execute`` takes the lock itself.
            with durable.locked(output):
                return
        except UsageError:
            time.sleep(SAY_SECONDS)


class ShardConsole(Console):
    """Sends the messages of a shard to the driver, except results: the driver reports those of all shards."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._send = say

    @property
    def terminal(self) -> bool:
        """Never: the terminal is the driver's."""
        return False

    def say(self, text: str, **event: Any) -> None:
        """Send a message."""
        if event.get("event") not in QUIET_EVENTS:
            self._send({"text": text, "event": event})

    def result(self, text: str, **event: Any) -> None:
        """Ignored: the driver reports the result of all shards."""

    def progress(self, total: int | None, unit: str, label: str, panel: Any = None) -> Progress:
        """A report of the shard's rows to the driver."""
        return ShardProgress(self, total, unit, label, self._send)


class ShardProgress(Progress):
    """Sends how many rows of a shard are finished, twice a second at most."""

    def __init__(self, console: Console, total: int | None, unit: str, label: str, say: Say) -> None:
        super().__init__(console, total, unit, label)
        self._send = say
        self._next = 0.0

    def __enter__(self) -> ShardProgress:
        return self

    def advance(self, count: int = 1, *, note: str | None = None, reused: bool = False) -> None:
        """Count finished rows."""
        self.done += count
        self._skipped += count if reused else 0
        if time.monotonic() >= self._next:
            # Each message is a call of an actor, so rows are not reported one by one.
            self._next = time.monotonic() + SAY_SECONDS
            self._send({"rows": self.done, "reused": self._skipped})

    def report(self, note: str) -> None:
        """Ignored: the driver shows that work continues."""

    def __exit__(self, *_: object) -> None:
        self._send({"rows": self.done, "reused": self._skipped})


def _joined(run: ShardRun, job: Job) -> Rows:
    """The rows of the finished shards in order; sets the history and the counts of the whole."""
    assert job.inputs is not None
    every_shard = [run.tables_of(number) for number in range(1, run.out_of + 1)]
    try:
        parts = shard.parts([table.read(str(shard_tables.output)) for shard_tables in every_shard])
    except DataError as error:
        # ``shard.parts`` is also the check of `magcli commit`, and names that stage.
        raise DataError(str(error).replace("commit:", f"{job.stage}: after the shards:", 1)) from None
    job.joined = shard.history(parts)
    whole = job.joined[-1]
    # From here on the driver's job stands for one run on the whole table.
    job.chosen |= whole.config.get(CHOSEN, {})
    job.drops.counts.update(whole.dropped)
    unread = sum(whole.dropped.get(reason, 0) for reason in UNREAD)
    job.inputs.count = whole.rows_in - unread  # ``rows_in`` of a job adds the unread ones
    for shard_tables in every_shard:
        job.tally.update(_tally(str(shard_tables.output)))
        if job.drops.table is not None:
            for batch in table.read(str(shard_tables.dropped)).rows:
                job.drops.table.append(batch)
    for part in parts:
        yield from part.source.rows


def _tally(output: str) -> dict[str, int]:
    """What a shard has counted for the stage's report."""
    path = harness.note_path(output)
    if not path.exists():
        return {}
    tally: dict[str, int] = json.loads(path.read_text(encoding="utf-8")).get(harness.TALLY, {})
    return tally

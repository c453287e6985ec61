"""One run of one stage on its tables: opens and validates them, writes the output atomically, reports dropped rows."""

import contextlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli import __version__
from magcli import config as configuration
from magcli.console import Console
from magcli.data import durable, manifest, seal, stream, table
from magcli.data.source import BadRow, Rows
from magcli.data.unread import InOrder
from magcli.errors import DataError, MagError, usage
from magcli.run import dropped, layout, outcome, trial, validation
from magcli.run.job import CountedInputs, Drops, Job, Whole
from magcli.run.journal import Journal
from magcli.run.settings import CHOSEN, changes, fingerprint
from magcli.run.shard import KEY, Shard
from magcli.run.stage import ROWS, Stage

RowsOfShards = Callable[[Job], Rows]
"""The rows of the output, computed in shards by other processes; sets what the job counts."""

TALLY = "tally"
"""The key of the job's tally in the note of a run."""

LIMIT = "limit"
"""The key of a link's configuration for the number of rows that the stage was allowed to read."""


@dataclass(frozen=True)
class Tables:
    """The tables that a command names: inputs, which shard of them, output, and the table of dropped rows.

    ``overwrite`` allows replacing files that magcli did not make; ``format`` is that of an output that is a stream.
    ``allow_empty``: a table without rows is a success.
    ``limit``: the maximum number of rows to read.
    """

    inputs: Sequence[str] = ()
    output: str | None = None
    dropped: str | None = None
    restart: bool = False
    shard: Shard | None = None
    overwrite: bool = False
    format: str = ""
    allow_empty: bool = False
    limit: int | None = None

    @property
    def file(self) -> str | None:
        """The output if it is a file or folder, which has a journal and a note beside it; None for a stream."""
        return None if self.output is None or stream.is_stream(self.output) else self.output

    @property
    def targets(self) -> list[str]:
        """The tables to write."""
        return [target for target in (self.output, self.dropped) if target is not None]


def execute(
    stage: Stage,
    config: Any,
    tables: Tables,
    console: Console,
    *,
    whole: Whole | None = None,
    rows_of_shards: RowsOfShards | None = None,
) -> None:
    """Run a stage on its tables.

    Args:
        stage, config: what to run.
        tables: its inputs and outputs.
        console: where it reports.
        whole: for a shard of a command on a cluster, that command's run.
        rows_of_shards: for a command that runs shards on a cluster, how it gets their rows.

    Raises:
        MagError: whatever is wrong, where possible before the first row is computed.
    """
    drops = Drops(keep=tables.dropped is not None)
    settings = dict(whole.settings) if whole else stage.fingerprint(config)
    if tables.shard:
        settings[KEY] = str(tables.shard)
    if tables.limit:
        # Of fewer rows other rows come out, so an unfinished run with another limit is another run.
        settings[LIMIT] = tables.limit
    job = Job(stage.name, console, drops, settings, restart=tables.restart, output=tables.output, whole=whole)
    targets = [*tables.targets, *stage.more_tables(config)]
    side_outputs = [str(path) for path in stage.side_outputs(config)]
    # Before anything is opened or locked, as a wrong path may name what would be overwritten.
    _check_paths(stage, config, tables, side_outputs)
    with contextlib.ExitStack() as stack:
        for target in targets:
            table.check_target(target, tables.format if target == tables.output else "")
        # Before the locks are taken: a lock file that exists now is of a killed process.
        interrupted = [target for target in targets if durable.lock_path(Path(target)).exists()]
        for target in targets:
            if not stream.is_stream(target):
                stack.enter_context(durable.locked(Path(target)))
        # On a cluster the shards count the lines that cannot be read.
        job.inputs = open_inputs(stage, config, tables, table.ignore if rows_of_shards else drops.unread)
        is_forced = tables.restart or configuration.is_set(config, "always_run")
        has_side_outputs = all(map(os.path.exists, side_outputs))
        if not is_forced and has_side_outputs and up_to_date(targets, job):
            _keep(stage, tables, job)
            for output in (*targets, *side_outputs):
                durable.renew(Path(output))
            return
        if not tables.overwrite:
            _check_overwrite(targets, job, interrupted)
        # Said at the start, so that a wrong command can be stopped before the table is replaced.
        existing = "" if tables.restart else _replaced(tables, job)
        if existing:
            text = f"{stage.name}: {existing}; it will be replaced at the end"
            console.say(text, event="replaces", output=tables.output)
        _run(stage, config, tables, job, stack, rows_of_shards)


def _check_paths(stage: Stage, config: Any, tables: Tables, side_outputs: Sequence[str]) -> None:
    """Refuse paths by which a command would overwrite what it reads or writes, or use the folder that it owns."""
    more_tables = stage.more_tables(config)
    targets = [*tables.targets, *more_tables]
    named = [str(path) for path in configuration.paths(config)]
    read = _read_paths(tables.inputs, [*more_tables, *side_outputs], named)
    _check_distinct([*targets, *side_outputs], read)
    owned = stage.owned_dir(config)
    if owned:
        others = [path for path in named if path != str(owned)]
        _check_outside(owned, [*tables.inputs, *targets, *others])


def _keep(stage: Stage, tables: Tables, job: Job) -> None:
    """Leave finished outputs as they are."""
    _remove_unfinished(tables)
    durable.remove_stale(note_path(str(tables.output)))
    job.console.say(f"{stage.name}: {tables.output} is up to date", event="up-to-date")
    if job.whole is None:
        made = _chain_of(str(tables.output))[-1:]
        _check_outcome(stage, tables, made, job.console)


def open_inputs(stage: Stage, config: Any, tables: Tables, unread: BadRow) -> CountedInputs:
    """The inputs, open, each in its layout; unreadable lines are counted once, with the first shard."""
    later = tables.shard is not None and tables.shard.number > 1
    bad = table.ignore if later else unread
    # Of the rows that are not wanted no line counts either. A stage may have a --limit of its own.
    if tables.limit or getattr(config, LIMIT, None):
        bad = InOrder(bad)
    head = stage.head(config)
    sources = [table.read(name, bad, head) for name in tables.inputs]
    inputs = layout.joined(stage, config, sources)
    if tables.limit:
        inputs.select_first(tables.limit)
    if tables.shard:
        inputs.select_shard(tables.shard)
    return inputs


def _read_paths(inputs: Sequence[str], written: Sequence[str], named: Iterable[str]) -> list[str]:
    """The paths that a command reads: its inputs, and those that its options name, except what it writes."""
    # Counted, because an option that names an output is not read, and another one may read the same path.
    options = Counter(map(os.path.realpath, named)) - Counter(map(os.path.realpath, written))
    files = [name for name in inputs if name != "-"]
    return [*files, *options]


def _check_distinct(written: Sequence[str], read: Sequence[str]) -> None:
    """Refuse to write over a path that the same command reads, or to write a path twice."""
    used = set(map(os.path.realpath, read))
    for path in written:
        location = os.path.realpath(path)
        usage(location not in used, f"{path} is read or written by this command already; name another")
        used.add(location)


def _check_outside(owned: Path, paths: Sequence[str]) -> None:
    """Refuse to read or write inside the folder that the stage owns, which ``--restart`` deletes."""
    root = os.path.realpath(owned)
    for path in paths:
        inside = path != "-" and Path(os.path.realpath(path)).is_relative_to(root)
        usage(not inside, f"{path} is inside {owned}, which this command owns; name another path")


def _run(
    stage: Stage,
    config: Any,
    tables: Tables,
    job: Job,
    stack: contextlib.ExitStack,
    rows_of_shards: RowsOfShards | None,
) -> None:
    started = time.monotonic()
    assert job.inputs is not None
    job.total = job.inputs.total
    _say_renamed(job)
    rows = validation.usable_rows(stage, config, job, tables.inputs)
    if rows_of_shards is None:
        rows = trial.try_first_row(stage, config, rows)
    job.output_schema = stage.schema(config, job.schema)
    learned = stage.learned(config)
    dropped_schema = dropped.schema_of(job.schema, learned)
    with _dropped_table(job, tables.dropped, dropped_schema, learned.names):
        if stage.RESUMES and tables.file is not None:
            job.journal = stack.enter_context(_journal(job, tables))
        made = rows_of_shards(job) if rows_of_shards else stage.run(config, rows, job)
        if job.whole is None:  # of a shard, the command that joins the shards reports
            made = stage.report(config, made, job)
        rows_out = _write(made, tables, job)
    if job.journal is not None:
        job.journal.remove()
    # After the output has appeared: a kill before that leaves all that the same command resumes from.
    _remove_unfinished(tables)
    _report(job, rows_out, started, tables)
    if job.whole is None:
        _check_outcome(stage, tables, job.history(rows_out)[-1:], job.console)


def _check_outcome(stage: Stage, tables: Tables, made: manifest.Chain, console: Console) -> None:
    """Refuse a table without rows as a success; of a shard, the command that joins the shards decides."""
    keeps_rows = stage.OUTPUT == ROWS and tables.output is not None
    for link in made:
        if keeps_rows:
            allow_empty = tables.allow_empty or tables.shard is not None
            outcome.check(link, str(tables.output), console, allow_empty=allow_empty)
        else:
            outcome.check_lost(link.stage, link.dropped)


@contextlib.contextmanager
def _dropped_table(job: Job, name: str | None, schema: pa.Schema, learned: Sequence[str]) -> Iterator[None]:
    """The table of dropped rows; if the command fails, it has the rows dropped so far.

    Its history shows that magcli wrote it; without an output the command is not up to date.
    """
    if name is None:
        yield
        return
    with dropped.DroppedTable(name, schema, job.stage, learned) as job.drops.table:
        try:
            yield
        except MagError:
            # The command made no rows, but what it dropped may say why it failed.
            if job.drops.table.is_open and job.drops.table.num_rows:
                job.drops.table.finish(job.history(0))
            raise


def _say_renamed(job: Job) -> None:
    """Say which columns of which table are read under another tool's name."""
    assert job.inputs is not None
    for source, named in zip(job.sources, job.inputs.named, strict=True):
        if not named.columns:
            continue
        renames = {path: name for name, path in named.columns.items()}
        text = ", ".join(f"{path} as {name}" for name, path in named.columns.items())
        if len(job.sources) > 1:
            text += f" of {source.name}"
        if named.layout:
            text += f" (layout {named.layout})"
        job.console.say(f"{job.stage}: reading {text}", event="renamed", columns=renames)


def _journal_path(tables: Tables) -> Path:
    output = Path(str(tables.output))
    return output.with_name(f".{output.name}.journal")


def shards_folder(output: str) -> Path:
    """The folder in which a command on a cluster keeps its shards until they are joined."""
    return Path(output).with_name(f".{Path(output).name}.shards")


def _remove_unfinished(tables: Tables) -> None:
    """Remove what an interrupted run has left for the next one."""
    if tables.file is not None:
        durable.remove(_journal_path(tables))
        shutil.rmtree(shards_folder(tables.file), ignore_errors=True)


def note_path(output: str) -> Path:
    """The note of the run that made a table."""
    return manifest.hidden_path(Path(output), manifest.NOTE)


@contextlib.contextmanager
def _journal(job: Job, tables: Tables) -> Iterator[Journal]:
    path = _journal_path(tables)
    if tables.restart:
        _remove_unfinished(tables)
    journal = Journal.open(path, job.output_schema, {"stage": job.stage, "version": __version__, **job.settings})
    try:
        yield journal
    finally:
        if not journal.file.closed:
            journal.close()


def _check_overwrite(targets: Sequence[str], job: Job, interrupted: Sequence[str]) -> None:
    """Refuse to replace a file that magcli did not make, or that was edited since.

    A process that is killed between writing a table and its manifest leaves a table without history: those of
    ``interrupted`` writes are magcli's own.
    """
    for target in targets:
        if stream.is_stream(target) or target in interrupted or not _holds_something(Path(target)):
            continue
        usage(
            bool(_chain_of(target)),
            f"{job.stage}: {target} exists, and magcli did not make it or it was edited since; name another output, or "
            "give --overwrite to replace it",
        )


def _holds_something(path: Path) -> bool:
    """Whether there is a file that is not empty, or a folder with files."""
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0


def _chain_of(target: str) -> manifest.Chain:
    """The history of an existing table; empty for one that magcli did not make."""
    try:
        return table.read(target).chain
    except DataError:
        return ()


def up_to_date(targets: Sequence[str], job: Job) -> bool:
    """Whether the outputs are complete, and were made by the same command from the same inputs."""
    if not targets or any(map(stream.is_stream, targets)):
        return False
    if not all(map(os.path.exists, targets)):
        return False
    digests = [source.sha256 for source in job.sources]
    if not digests or not all(digests):  # a pipe has its digest only at its end
        return False
    try:
        chains = [table.read(target).chain for target in targets]
    except DataError:
        return False
    return all(chain and _same(chain[-1], job, digests) for chain in chains)


def _replaced(tables: Tables, job: Job) -> str:
    """How the existing output, which this command replaces, was made; empty if there is none."""
    if tables.file is None or not Path(tables.file).exists():
        return ""
    chain = _chain_of(tables.file)
    if not chain:
        return f"{tables.output} exists, and magcli did not make it"
    made = chain[-1]
    if made.stage != job.stage:
        return f"{tables.output} exists, made by magcli {made.stage}"
    # Packed and parsed, because the settings in a history have gone through JSON.
    earlier = json.loads(seal.pack(made.config))
    now = json.loads(seal.pack(job.settings))
    changed = changes(earlier, now)
    # Without inputs nothing else can differ, so the output was made by this command.
    if not changed and made.version == __version__ and not job.sources:
        return ""
    return f"{tables.output} was made with {changed or 'other inputs or another version'}"


def _same(link: manifest.Link, job: Job, digests: Sequence[str]) -> bool:
    """Whether a table's last link has this stage, version, configuration and inputs."""
    if link.stage != job.stage or link.version != __version__:
        return False
    if [source.sha256 for source in link.inputs] != digests:
        return False
    # As text, because the settings in a history have gone through JSON.
    return seal.pack(fingerprint(link.config)) == seal.pack(fingerprint(job.settings))


def _write(rows: Rows, tables: Tables, job: Job) -> int:
    """Write all rows; the table of dropped rows is complete before the output appears."""
    if tables.output is None:
        count: int = sum(batch.num_rows for batch in rows)
        _finish_dropped(job, count)
        return count
    count = 0
    # The table begins with what is certain before its first row; counts and choices follow at its end.
    made = job.history(0)[-1]
    settings = {key: value for key, value in made.config.items() if key != CHOSEN}
    head = seal.pack({"config": settings, "stage": made.stage, "version": made.version})
    # The next command of a pipe gets rows as they come; a file has the same bytes however its rows came.
    batches = rows if stream.is_stream(tables.output) else table.rechunk(rows)
    schema = job.output_schema
    with contextlib.closing(rows), table.write(tables.output, schema, head, tables.format) as sink:  # type: ignore[type-var]
        for batch in batches:
            count += batch.num_rows
            sink.write(_cast(batch, schema, job.stage))
        _finish_dropped(job, count)
        sink.finish(job.history(count))
    return count


def _finish_dropped(job: Job, rows_out: int) -> None:
    if job.drops.table is not None:
        job.drops.table.finish(job.history(rows_out))


def _cast(batch: pa.RecordBatch, schema: pa.Schema, stage: str) -> pa.RecordBatch:
    if batch.schema.names != schema.names:
        raise DataError(f"{stage} made columns {batch.schema.names}, but declared {schema.names}")
    pairs = zip(batch.columns, schema.types, strict=True)
    columns = [column if column.type == kind else column.cast(kind) for column, kind in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _report(job: Job, rows_out: int, started: float, tables: Tables) -> None:
    """One line for people, and the note of the run."""
    seconds = time.monotonic() - started
    reasons = job.drops.summary()
    text = f"{job.stage}: {job.rows_in:,} rows in, {rows_out:,} out"
    if reasons:
        text += f", dropped {job.drops.counts.total():,} ({reasons})"
    text += f" in {seconds:.1f} s"
    if tables.output:
        text += f" -> {tables.output}"
    counts = {
        "rows_in": job.rows_in,
        "rows_out": rows_out,
        "dropped": dict(job.drops.counts),
        "seconds": round(seconds, 3),
    }
    if tables.output or reasons:
        job.console.result(text, event="done", stage=job.stage, output=tables.output, **counts)
    if tables.file:
        note = {
            "stage": job.stage,
            "command": sys.argv[1:],
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            **counts,
            **job.facts,
        }
        if job.tally:
            note[TALLY] = dict(job.tally)
        # That of an earlier version too, a visible file, which nothing would replace.
        manifest.remove_side_file(Path(tables.file), manifest.NOTE)
        with durable.atomic_file(note_path(tables.file)) as file:
            file.write((json.dumps(note, indent=1, default=str) + "\n").encode())

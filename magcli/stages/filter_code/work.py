"""The work of `magcli filter-code`, once its options are checked."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from magcli.console import counted
from magcli.curate.code.agreement import MatrixReplay, MatrixTable, Rules
from magcli.curate.code.execution import ExclusiveRetry, run_all
from magcli.curate.code.prepare import decide_prepared, kept_columns, prepare
from magcli.curate.code.problems import Unusable
from magcli.data import durable
from magcli.data.schema import AGREEMENT, CODE, CODE_MADE, has_test_marks
from magcli.data.values import to_rows
from magcli.run.each_row import Drop, Retry, each_row, result_of
from magcli.run.shard import KEY
from magcli.stages.filter_code import Config, reads
from magcli.stages.shared import graders, tables

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.code.agreement import Cell
    from magcli.curate.code.prepare import Prepared
    from magcli.data.source import Rows
    from magcli.run.each_row import Decision
    from magcli.run.job import Job

ALIASES = tables.CODE_ALIASES
layouts = tables.problem_layouts(reads, aliases=tables.CODE_ALIASES, natively=True)


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level, or the digest of the matrix."""
    if config.from_matrix:
        return tables.table_identity("from_matrix", config.from_matrix)
    return graders.sandbox_identity(config.sandbox)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, tests and solutions in one form in place of their source columns, and the new ones.

    Tests keep the marks that ``make-tests`` gives them.
    """
    code = CODE_MADE if has_test_marks(input_schema) else CODE
    return tables.code_schema(input_schema, code, AGREEMENT)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Run or replay each problem and decide."""
    return _replay(config, rows, job) if config.from_matrix else _run(config, rows, job)


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report tests and solutions at the end of the kept problems."""
    counts: Counter[str] = Counter()
    for batch in rows:
        if batch.num_rows:
            _count(counts, batch)
        yield batch
    _report(counts, job)


def _replay(config: Config, rows: Rows, job: Job) -> Rows:
    """Decide from the matrix."""
    assert config.from_matrix is not None
    replay = MatrixReplay(config.from_matrix)
    with job.console.progress(job.total, "problems", job.stage) as bar:
        for batch in rows:
            for row in to_rows(batch):
                prepared = _prepared(config, row)
                runs = [] if isinstance(prepared, Unusable) else replay.runs(row["id"], prepared.digest)
                decision = _decided(config, row, prepared, runs)
                result = result_of([row], [decision], job.output_schema)
                for dropped in result.dropped:
                    job.drops.add(dropped)
                yield result.rows
            bar.advance(batch.num_rows)


def _run(config: Config, rows: Rows, job: Job) -> Rows:
    """Run every problem in threads that drive sandboxes; finished problems are not run again."""
    box = graders.open_sandbox(config.sandbox)
    stopped = threading.Event()
    retry = ExclusiveRetry()
    # A thread a problem: it waits for the sandbox, which is a process of its own.
    threads = ThreadPoolExecutor(config.workers, "sandbox")
    problems: list[tuple[str, str]] = []

    async def runs_of(id: str, prepared: Prepared) -> list[Cell]:
        # Of an interrupted run; other programs or tests have another digest.
        stored = matrix.get(id, prepared.digest) if matrix else None
        if stored is not None:
            return stored
        loop = asyncio.get_running_loop()
        runs = await loop.run_in_executor(threads, run_all, prepared.plan, box, stopped.is_set, retry)
        if matrix:
            matrix.put(id, prepared.digest, runs)
        return runs

    async def decide(row: dict[str, Any]) -> Decision:
        prepared = _prepared(config, row)
        runs = [] if isinstance(prepared, Unusable) else await runs_of(row["id"], prepared)
        return _decided(config, row, prepared, runs)

    async def close() -> None:
        stopped.set()
        # Running programs are awaited in a thread, as the event loop must not block.
        await asyncio.to_thread(threads.shutdown, cancel_futures=True)

    def recorded() -> Rows:
        """The rows; their problems are recorded for the matrix."""
        for batch in rows:
            for row in to_rows(batch):
                prepared = _prepared(config, row)
                if not isinstance(prepared, Unusable):
                    problems.append((row["id"], prepared.digest))
            yield batch

    with _open_matrix(config, box.level, job) as matrix:
        source = recorded() if matrix else rows
        yield from each_row(job, source, decide, close=close, window=config.workers, unit="problems")
        if matrix:
            # In the order of the table, whatever finished first.
            matrix.finish(problems, job.history)


@contextmanager
def _open_matrix(config: Config, sandbox: str, job: Job) -> Iterator[MatrixTable | None]:
    """The matrix, with --matrix; locked against other processes."""
    if config.matrix is None:
        yield None
        return
    with durable.locked(config.matrix):
        table = MatrixTable(config.matrix, sandbox=sandbox, restart=job.restart, shard=job.settings.get(KEY))
        with closing(table):
            yield table


def _prepared(config: Config, row: dict[str, Any]) -> Prepared | Unusable:
    """The runs of a problem; a matrix has problems with too few tests too, as it may be replayed with other options."""
    return prepare(
        row,
        compare=config.compare,
        min_tests=1 if config.matrix or config.from_matrix else max(1, config.min_tests),
        max_tests=config.max_tests,
        max_solutions=config.max_solutions,
    )


def _decided(config: Config, row: dict[str, Any], prepared: Prepared | Unusable, runs: Sequence[Cell]) -> Decision:
    """The problem after its runs are compared, or why it is dropped."""
    if isinstance(prepared, Unusable):
        return Drop(prepared.reason, detail=prepared.detail)
    rules = Rules(
        config.agreement,
        config.votes,
        config.min_tests,
        config.disputed,
        config.drop_weak,
        config.unlabelled,
    )
    # Pure: a replay with other rules decides anew from the same runs.
    agreed = decide_prepared(prepared, runs, rules)
    if isinstance(agreed, Unusable) or agreed.reason:
        drop = Drop(agreed.reason, detail=agreed.detail)
        # The machine failed, not the problem, so a resumed run tries again.
        return Retry(drop) if agreed.reason == "not-run" else drop
    return {**row, **kept_columns(prepared, agreed)}


def _count(counts: Counter[str], batch: pa.RecordBatch) -> None:
    """Add up the counts of kept rows."""
    for row in batch.select(["tests", *AGREEMENT.names]).to_pylist():
        counts["problems"] += 1
        counts["tests"] += len(row.pop("tests"))
        for reason, number in row.pop("tests_dropped").items():
            counts[f"tests_{reason}"] += number
        # Texts: why C++ solutions were not run, and which trivial program passes.
        for column, prefix in (("cpp_unrun", "cpp"), ("trivial", "trivial")):
            reason = row.pop(column)
            if reason:
                counts[f"{prefix}_{reason}"] += 1
        for name, value in row.items():  # the columns left are counts and flags
            counts[name] += int(value)


def _report(counts: Counter[str], job: Job) -> None:
    """One line on the tests and wrong solutions of kept problems."""
    text = (
        f"filter-code: {counts['problems']:,} problems keep {counts['tests']:,} tests, "
        f"{counts['outputs_replaced']:,} with a new output, and lose {_total(counts, 'tests_')}; "
        f"{counts['wrong_passing']:,} of {counts['wrong_solutions']:,} wrong solutions pass; {counts['weak']:,} "
        f"problems are weak, and trivial programs pass in {_total(counts, 'trivial_')}"
    )
    without_call = _total(counts, "cpp_")
    if without_call != "0":
        text += f"; C++ solutions cannot be called in {without_call}"
    # They may be kept once the machine works.
    failed = job.drops.counts["not-run"]
    if failed:
        text += f"; {failed:,} were not judged, as this machine failed: --restart tries again"
    job.console.result(text, event="tests", **counts)


def _total(counts: Counter[str], prefix: str) -> str:
    """The sum of the counts with a prefix, and each of them in brackets."""
    matching = {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix) and n}
    if not matching:
        return "0"
    return f"{sum(matching.values()):,} ({counted(matching)})"

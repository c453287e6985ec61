"""Keep code problems whose solutions and tests agree; run every solution on every test.

Tests on which solutions disagree are dropped; where they agree but none gives the expected output, it is replaced.
Solutions without a verdict decide if none is labelled right; with --no-unlabelled they replace nothing.
Problems without solutions, without enough tests, or with failing reference solutions are dropped. Weak problems, whose
tests accept a solution known to be wrong or a program that computes nothing, are marked. A problem is dropped as
not-run if the sandbox or a checker failed, or if compiling a solution timed out twice, the second time with nothing
else running; a resumed run tries it again.

Column names of other tools are accepted. Tests: test_list, test, public_tests, private_tests, generated_tests.
Solutions: incorrect_solutions, submissions, code, canonical_solution, reference_python, python_file, cpp_file, samples.
Prompt: problem, question, statement, description, statement_md, statement_tex, statement_html, content, text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared import cluster, engines, options, tables

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.code.agreement import MatrixTable, Run
    from magcli.curate.code.prepare import Prepared
    from magcli.curate.code.problems import Unusable
    from magcli.data.source import Rows
    from magcli.run.each_row import Decision
    from magcli.run.job import Job

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
RESUMES = True
EXAMPLE = (
    "magcli filter-code examples/programs.jsonl --matrix matrix.arrow -o kept-code.arrow --dropped dropped-code.jsonl"
)
ALIASES = tables.CODE_ALIASES


@dataclass(frozen=True)
class Config(cluster.ClusterOptions):
    """Options of `magcli filter-code`."""

    agreement: float = opt(
        0.9, "Share of the working solutions that must agree on a test's most common result.", gt=0, le=1
    )
    votes: int = opt(2, "Minimum number of agreeing solutions to replace an expected output.", gt=0)
    unlabelled: bool = opt(
        True, "Whether solutions without a verdict may replace an expected output, if none is labelled right."
    )
    min_tests: int = opt(3, "Minimum number of tests of a problem, before and after filtering.", ge=0)
    disputed: float = opt(
        0.5,
        "Maximum share of a problem's tests that may be dropped or replaced; above it the problem is dropped.",
        ge=0,
        le=1,
    )
    drop_weak: bool = opt(False, "Drop problems whose tests accept a wrong or a trivial program.")
    compare: str = opt(
        "tokens",
        "How to compare outputs if a row has no column compare: tokens, tokens-case, floats, floats:1e-4, "
        "decimals:2, lines, unordered-lines, exact.",
    )
    matrix: Path | None = opt(
        None,
        "Table to write with all runs: solution, test, verdict, group of equal outputs, seconds.",
        affects_rows=False,
    )
    from_matrix: Path | None = opt(
        None, "Decide from a table that --matrix wrote, without running anything.", affects_rows=False
    )
    max_solutions: int = opt(0, "Maximum number of solutions to run per problem and verdict; 0 is no limit.", ge=0)
    max_tests: int = opt(0, "Maximum number of tests to run and keep per problem; 0 is no limit.", ge=0)
    workers: int = opt(1, "Number of problems processed concurrently.", affects_rows=False, gt=0)
    sandbox: options.Sandbox = options.sandbox()


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    from magcli.curate.code.problems import REQUIRED_COLUMNS

    return REQUIRED_COLUMNS


layouts = tables.problem_layouts(reads, aliases=tables.CODE_ALIASES, natively=True)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    from magcli.verify.code.outputs import comparison

    usage(
        not (config.matrix and config.from_matrix),
        "filter-code: --from-matrix runs nothing, so there is no --matrix to write; leave one out",
    )
    comparison(config.compare)


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level, or the digest of the matrix."""
    if config.from_matrix:
        return tables.table_identity("from_matrix", config.from_matrix)
    return engines.sandbox_identity(config.sandbox)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The matrix, with --matrix."""
    return (config.matrix,) if config.matrix else ()


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, tests and solutions in one form in place of their source columns, and the new ones.

    Tests keep the marks that ``make-tests`` gives them.
    """
    from magcli.data.schema import AGREEMENT, CODE, CODE_MADE, has_test_marks

    return tables.code_schema(input_schema, CODE_MADE if has_test_marks(input_schema) else CODE, AGREEMENT)


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
    from magcli.curate.code.agreement import MatrixReplay
    from magcli.curate.code.problems import Unusable
    from magcli.data.values import to_rows
    from magcli.run.each_row import result_of

    assert config.from_matrix is not None
    replay = MatrixReplay(config.from_matrix)
    with job.console.progress(job.total, "problems", job.stage) as bar:
        for batch in rows:
            for row in to_rows(batch):
                prepared = _prepared(config, row)
                runs = [] if isinstance(prepared, Unusable) else replay.runs(row["id"], prepared.digest)
                decision = _decided(config, row, prepared, runs)
                result = result_of([row], [decision], schema(config, batch.schema))
                for dropped in result.dropped:
                    job.drops.add(dropped)
                yield result.rows
            bar.advance(batch.num_rows)


def _run(config: Config, rows: Rows, job: Job) -> Rows:
    """Run every problem in threads that drive sandboxes; finished problems are not run again."""
    import asyncio
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from magcli.curate.code.execution import ExclusiveRetry, run_all
    from magcli.curate.code.problems import Unusable
    from magcli.data.values import to_rows
    from magcli.run.each_row import each_row

    box = engines.open_sandbox(config.sandbox)
    stopped = threading.Event()
    retry = ExclusiveRetry()
    threads = ThreadPoolExecutor(config.workers, "sandbox")
    problems: list[tuple[str, str]] = []

    async def runs_of(id: str, prepared: Prepared) -> list[Run]:
        runs = matrix.get(id, prepared.digest) if matrix else None
        if runs is None:
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
            prepared = ((row["id"], _prepared(config, row)) for row in to_rows(batch))
            problems.extend((id, problem.digest) for id, problem in prepared if not isinstance(problem, Unusable))
            yield batch

    with _open_matrix(config, box.level, job) as matrix:
        source = recorded() if matrix else rows
        assert job.schema is not None
        out = schema(config, job.schema)
        yield from each_row(job, source, decide, schema=out, close=close, window=config.workers, unit="problems")
        if matrix:
            matrix.finish(problems, job.history)


@contextmanager
def _open_matrix(config: Config, sandbox: str, job: Job) -> Iterator[MatrixTable | None]:
    """The matrix, with --matrix; locked against other processes."""
    from magcli.curate.code.agreement import MatrixTable
    from magcli.data import durable
    from magcli.run.shard import KEY

    if config.matrix is None:
        yield None
        return
    with durable.locked(config.matrix):
        table = MatrixTable(config.matrix, sandbox=sandbox, restart=job.restart, shard=job.settings.get(KEY))
        with closing(table):
            yield table


def _prepared(config: Config, row: dict[str, Any]) -> Prepared | Unusable:
    """The runs of a problem; a matrix has problems with too few tests too, as it may be replayed with other options."""
    from magcli.curate.code.prepare import prepare

    return prepare(
        row,
        compare=config.compare,
        min_tests=1 if config.matrix or config.from_matrix else max(1, config.min_tests),
        max_tests=config.max_tests,
        max_solutions=config.max_solutions,
    )


def _decided(config: Config, row: dict[str, Any], prepared: Prepared | Unusable, runs: Sequence[Run]) -> Decision:
    """The problem after its runs are compared, or why it is dropped."""
    from magcli.curate.code.agreement import Rules
    from magcli.curate.code.prepare import decide_prepared, kept_columns
    from magcli.curate.code.problems import Unusable
    from magcli.run.each_row import Drop, Retry

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
    agreed = decide_prepared(prepared, runs, rules)
    if isinstance(agreed, Unusable) or agreed.reason:
        drop = Drop(agreed.reason, detail=agreed.detail)
        return Retry(drop) if agreed.reason == "not-run" else drop
    return {**row, **kept_columns(prepared, agreed)}


def _count(counts: Counter[str], batch: pa.RecordBatch) -> None:
    """Add up the counts of kept rows."""
    from magcli.data.schema import AGREEMENT

    for row in batch.select(["tests", *AGREEMENT.names]).to_pylist():
        counts.update({"problems": 1, "tests": len(row.pop("tests"))})
        counts.update({f"tests_{reason}": count for reason, count in row.pop("tests_dropped").items()})
        if unrun := row.pop("cpp_unrun"):
            counts[f"cpp_{unrun}"] += 1
        if trivial := row.pop("trivial"):
            counts[f"trivial_{trivial}"] += 1
        counts.update({name: int(value) for name, value in row.items()})  # the columns left are counts and flags


def _report(counts: Counter[str], job: Job) -> None:
    """One line on the tests and wrong solutions of kept problems."""
    failed = job.drops.counts["not-run"]
    without_call = _total(counts, "cpp_")
    job.console.result(
        f"filter-code: {counts['problems']:,} problems keep {counts['tests']:,} tests, "
        f"{counts['outputs_replaced']:,} with a new output, and lose {_total(counts, 'tests_')}; "
        f"{counts['wrong_passing']:,} of {counts['wrong_solutions']:,} wrong solutions pass; {counts['weak']:,} "
        f"problems are weak, and trivial programs pass in {_total(counts, 'trivial_')}"
        + (f"; C++ solutions cannot be called in {without_call}" if without_call != "0" else "")
        + (f"; {failed:,} were not judged, as this machine failed: --restart tries again" if failed else ""),
        event="tests",
        **counts,
    )


def _total(counts: Counter[str], prefix: str) -> str:
    """The sum of the counts with a prefix, and each of them in brackets."""
    matching = {name.removeprefix(prefix): n for name, n in counts.most_common() if name.startswith(prefix) and n}
    if not matching:
        return "0"
    parts = ", ".join(f"{name} {count:,}" for name, count in matching.items())
    return f"{sum(matching.values()):,} ({parts})"

"""The work of `magcli make-tests`, once its options are checked."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from magcli.curate.code.execution import ExclusiveRetry
from magcli.curate.code.prepare import prepare, problem_columns
from magcli.curate.code.problems import Unusable
from magcli.curate.inputs.generators import GeneratorPrograms, ProgramInputs, extract_programs, input_form, messages
from magcli.curate.inputs.new_tests import (
    Rules,
    candidates,
    count_rows,
    has_enough_solutions,
    make,
    model_counts,
    outcome_columns,
    summary,
)
from magcli.data.schema import CODE_MADE, NEW_TESTS
from magcli.errors import PromptRefused, PromptTooLong
from magcli.generate.types import Sampling, sample_seed
from magcli.run.each_row import Decision, Drop, Retry, each_row
from magcli.stages.make_tests import Config, reads
from magcli.stages.shared import engines, graders, tables, templates

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.code.prepare import Prepared
    from magcli.curate.inputs.new_tests import NewTests
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.verify.sandbox import Sandbox

ALIASES = tables.CODE_ALIASES
layouts = tables.problem_layouts(reads, aliases=tables.CODE_ALIASES, natively=True)


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level, and the digest of the model."""
    identity = graders.sandbox_identity(config.sandbox)
    if config.model:
        identity |= engines.model_identity(templates.open_model(config), templates.NO_SYSTEM)
    return identity


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, tests (with their origin) and solutions in one form, and the new columns."""
    return tables.code_schema(input_schema, CODE_MADE, NEW_TESTS)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Make tests for each problem in threads that drive sandboxes."""
    box = graders.open_sandbox(config.sandbox)
    stopped = threading.Event()
    retry = ExclusiveRetry()
    threads = ThreadPoolExecutor(config.workers, "sandbox")
    generator = engines.open_engine(config, job) if config.model else None

    async def decide(row: dict[str, Any]) -> Decision:
        # Mutations need a test to start from; a model needs none.
        fewest = 0 if generator else 1
        prepared = prepare(row, compare=config.compare, min_tests=fewest, max_solutions=config.max_solutions)
        if isinstance(prepared, Unusable):
            return Drop(prepared.reason, detail=prepared.detail)
        if prepared.plan.scripts:
            return Drop("bad-tests", detail="its tests give verdicts, but no values from which new tests could be made")
        # None without a model, as against a model that wrote nothing.
        written = None
        if generator is not None:
            written = await _write_generators(config, row, prepared, generator)
        # In a thread, as it waits for programs in the sandbox.
        work = functools.partial(_make, config, row, prepared, written, box, stopped.is_set, retry)
        made, programs = await asyncio.get_running_loop().run_in_executor(threads, work)
        problem = {**row, **_columns(prepared, made, programs)}
        # The machine failed, not the problem, so a resumed run tries again.
        return Retry(problem) if made.reason == "not-run" else problem

    async def close() -> None:
        stopped.set()
        # Running programs are awaited in a thread, as the event loop must not block.
        await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        if generator:
            await generator.close()

    window = config.workers
    if config.model:  # the model writes for others while programs run
        window += math.ceil(config.num_slots / config.programs)
    yield from each_row(job, rows, decide, close=close, window=window, unit="problems")


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report tests and solutions at the end of the problems."""
    counts: Counter[str] = Counter()
    for batch in rows:
        count_rows(counts, batch.select(["tests", *NEW_TESTS.names]).to_pylist(), config.until)
        yield batch
    rates = model_counts(counts)
    if rates:
        job.facts["model"] = rates
    job.console.result(f"make-tests: {summary(counts)}", event="tests", **counts)


async def _write_generators(
    config: Config, row: dict[str, Any], prepared: Prepared, generator: Generator
) -> GeneratorPrograms:
    """The model's input-generating programs; none if the problem has enough tests or too few solutions."""
    plan = prepared.plan
    has_enough_tests = len(plan.tests) >= config.until
    has_wrong_solutions = any(solution.verdict == "wrong" for solution in plan.solutions.values())
    if has_enough_tests and not has_wrong_solutions:  # more tests are to fail wrong solutions
        return GeneratorPrograms([], {})
    if not has_enough_solutions(plan, config.votes):
        return GeneratorPrograms([], {})
    question = messages(row["prompt"], input_form(plan.tests, plan.entry_point))
    sampling = Sampling(config.max_tokens, config.temperature)
    # A seed a program, the same in a resumed run.
    seeds = [sample_seed(config.seed, row["id"], number) for number in range(config.programs)]
    try:
        answers = await generator.complete(question, sampling, seeds=seeds)
    except PromptRefused as error:
        reason = "too-long" if isinstance(error, PromptTooLong) else "refused"
        return GeneratorPrograms([], {reason: config.programs})
    return extract_programs(answers, generator.thoughts)


def _make(
    config: Config,
    row: dict[str, Any],
    prepared: Prepared,
    written: GeneratorPrograms | None,
    box: Sandbox,
    stopped: Callable[[], bool],
    retry: ExclusiveRetry,
) -> tuple[NewTests, Mapping[str, int] | None]:
    """The tests, and the outcomes of a model's programs. Blocks while the programs of a problem run."""
    form = input_form(prepared.plan.tests, prepared.plan.entry_point)
    printed = ProgramInputs(written or GeneratorPrograms([], {}), form, box)
    # Of mutations: the inputs of a problem do not depend on the other rows.
    seed = f"{config.seed}\0{row['id']}"
    tried = candidates(prepared.plan, row["prompt"], printed.inputs(), seed)
    limit = config.problem_seconds or math.inf
    rules = Rules(config.agreement, config.votes, config.tries, config.until, limit)
    made = make(prepared.plan, tried, rules, box, stopped, retry)
    outcomes = None if written is None else printed.outcomes
    return made, outcomes


def _columns(prepared: Prepared, made: NewTests, programs: Mapping[str, int] | None) -> dict[str, Any]:
    """The columns of a problem in one form, its tests and the new ones."""
    # Tests of an earlier run of this stage keep their origin.
    own = [{**test, "origin": test.get("origin") or "given"} for test in prepared.problem.tests]
    return {**problem_columns(prepared, [*own, *made.tests]), **outcome_columns(made, programs)}

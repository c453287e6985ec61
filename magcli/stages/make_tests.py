"""Generate tests for code problems by mutating the given ones and, with --model, by programs that a model writes.

The format of the inputs is inferred from the given tests and the ranges in the statement. The expected output is the
one on which the solutions that pass the given tests agree. A problem gets tests until it has --until of them. If a
wrong solution passes all of these, more inputs are tried, and those that it fails are kept too. The mark "catches" of a
test is the number of wrong solutions that it is the first to fail.

With --model a problem needs no tests of its own. Its inputs come from stdin, unless column entry_point names a
function.

Every problem whose solutions can be run is written, with its new tests after the given ones, or the reason in column
no_tests. Columns programs and program_inputs count the outcomes of the model's programs and of the inputs they print.

Column names of other tools are accepted. Tests: test_list, test, public_tests, private_tests, generated_tests.
Solutions: incorrect_solutions, submissions, code, canonical_solution, reference_python, python_file, cpp_file, samples.
Prompt: problem, question, statement, description, statement_md, statement_tex, statement_html, content, text.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.errors import PromptRefused, PromptTooLong
from magcli.layouts.names import TESTS
from magcli.stages.shared import cluster, engines, options, tables, templates

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.code.execution import ExclusiveRetry
    from magcli.curate.code.prepare import Prepared
    from magcli.curate.inputs.generators import GeneratorPrograms
    from magcli.curate.inputs.new_tests import NewTests
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.verify.sandbox import Sandbox

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
RESUMES = True
EXAMPLE = "magcli make-tests examples/weak_programs.jsonl --tries 30 -o more-tests.arrow --dropped no-tests.jsonl"
ALIASES = tables.CODE_ALIASES


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions, cluster.ClusterOptions):
    """Options of `magcli make-tests`."""

    until: int = opt(20, "Number of tests that a problem shall have, including those that it has already.", gt=0)
    tries: int = opt(200, "Maximum number of inputs to try per problem.", gt=0)
    agreement: float = opt(0.9, "Share of the correct solutions that must agree on a new test's output.", gt=0, le=1)
    votes: int = opt(2, "Minimum number of correct solutions that must agree on a new test's output.", gt=0)
    compare: str = opt(
        "tokens",
        "How to compare outputs if a row has no column compare: tokens, tokens-case, floats, floats:1e-4, "
        "decimals:2, lines, unordered-lines, exact.",
    )
    max_solutions: int = opt(0, "Maximum number of solutions to run per problem and verdict; 0 is no limit.", ge=0)
    problem_seconds: float = opt(
        600.0,
        "CPU time limit in seconds per problem, after which the tests found so far are kept; 0 is no limit.",
        ge=0,
    )
    workers: int = opt(1, "Number of problems processed concurrently.", affects_rows=False, gt=0)
    sandbox: options.Sandbox = options.sandbox()
    programs: int = opt(
        2, "Number of input-generating programs that the model writes per problem.", panel=options.SAMPLING, gt=0
    )
    temperature: float = options.temperature(0.7)


def reads(config: Config) -> tuple[str, ...]:
    """The required columns; a model needs no tests."""
    from magcli.curate.code.problems import REQUIRED_COLUMNS

    tests = "|".join(TESTS)
    return tuple(name for name in REQUIRED_COLUMNS if not (config.model and name == tests))


layouts = tables.problem_layouts(reads, aliases=tables.CODE_ALIASES, natively=True)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    from magcli.verify.code.outputs import comparison

    comparison(config.compare)
    if config.model:
        options.check_engine("make-tests", config)


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level, and the digest of the model."""
    identity = engines.sandbox_identity(config.sandbox)
    if config.model:
        identity |= engines.model_identity(templates.open_model(config.model, config), templates.NO_SYSTEM)
    return identity


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, tests (with their origin) and solutions in one form, and the new columns."""
    from magcli.data.schema import CODE_MADE, NEW_TESTS

    return tables.code_schema(input_schema, CODE_MADE, NEW_TESTS)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Make tests for each problem in threads that drive sandboxes."""
    import asyncio
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from magcli.curate.code.execution import ExclusiveRetry
    from magcli.curate.code.prepare import prepare
    from magcli.curate.code.problems import Unusable
    from magcli.run.each_row import Decision, Drop, Retry, each_row

    box = engines.open_sandbox(config.sandbox)
    stopped = threading.Event()
    retry = ExclusiveRetry()
    threads = ThreadPoolExecutor(config.workers, "sandbox")
    generator = engines.open_engine(config, job) if config.model else None

    async def decide(row: dict[str, Any]) -> Decision:
        fewest = 0 if generator else 1
        prepared = prepare(row, compare=config.compare, min_tests=fewest, max_solutions=config.max_solutions)
        if isinstance(prepared, Unusable):
            return Drop(prepared.reason, detail=prepared.detail)
        if prepared.plan.suites:
            return Drop(
                "bad-tests", detail="unit tests give verdicts, but no values from which new tests could be made"
            )
        written = await _write_generators(config, row, prepared, generator) if generator else None
        work = functools.partial(_make, config, row, prepared, written, box, stopped.is_set, retry)
        made, programs = await asyncio.get_running_loop().run_in_executor(threads, work)
        problem = {**row, **_columns(prepared, made, programs)}
        return Retry(problem) if made.reason == "not-run" else problem

    async def close() -> None:
        stopped.set()
        # Running programs are awaited in a thread, as the event loop must not block.
        await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        if generator:
            await generator.close()

    window = config.workers
    if config.model:
        window += -(-config.num_slots // config.programs)  # the model writes for others while programs run
    assert job.schema is not None
    out = schema(config, job.schema)
    yield from each_row(job, rows, decide, schema=out, close=close, window=window, unit="problems")


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report tests and solutions at the end of the problems."""
    from magcli.curate.inputs.new_tests import count_rows, model_counts, summary
    from magcli.data.schema import NEW_TESTS

    counts: Counter[str] = Counter()
    for batch in rows:
        count_rows(counts, batch.select(["tests", *NEW_TESTS.names]).to_pylist(), config.until)
        yield batch
    if rates := model_counts(counts):
        job.facts["model"] = rates
    job.console.result(f"make-tests: {summary(counts)}", event="tests", **counts)


async def _write_generators(
    config: Config, row: dict[str, Any], prepared: Prepared, generator: Generator
) -> GeneratorPrograms:
    """The model's input-generating programs; none if the problem has enough tests or too few solutions."""
    from magcli.curate.inputs.generators import GeneratorPrograms, extract_programs, input_form, messages
    from magcli.curate.inputs.new_tests import has_enough_solutions
    from magcli.generate.types import Sampling, sample_seed

    has_enough_tests = len(prepared.plan.tests) >= config.until
    if has_enough_tests and all(solution.verdict != "wrong" for solution in prepared.plan.solutions.values()):
        return GeneratorPrograms([], {})
    if not has_enough_solutions(prepared.plan, config.votes):
        return GeneratorPrograms([], {})
    question = messages(row["prompt"], input_form(prepared.plan.tests, prepared.plan.entry_point))
    seeds = [sample_seed(config.seed, row["id"], number) for number in range(config.programs)]
    try:
        answers = await generator.complete(question, Sampling(config.max_tokens, config.temperature), seeds=seeds)
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
    from magcli.curate.inputs.generators import GeneratorPrograms, ProgramInputs, input_form
    from magcli.curate.inputs.new_tests import Rules, candidates, make

    form = input_form(prepared.plan.tests, prepared.plan.entry_point)
    printed = ProgramInputs(written or GeneratorPrograms([], {}), form, box)
    tried = candidates(prepared.plan, row["prompt"], printed.inputs(), f"{config.seed}\0{row['id']}")
    rules = Rules(config.agreement, config.votes, config.tries, config.until, config.problem_seconds or math.inf)
    made = make(prepared.plan, tried, rules, box, stopped, retry)
    return made, None if written is None else printed.outcomes


def _columns(prepared: Prepared, made: NewTests, programs: Mapping[str, int] | None) -> dict[str, Any]:
    """The columns of a problem in one form, its tests and the new ones."""
    from magcli.curate.code.prepare import problem_columns
    from magcli.curate.inputs.new_tests import outcome_columns

    own = [{**test, "origin": test.get("origin") or "given"} for test in prepared.problem.tests]
    return {**problem_columns(prepared, [*own, *made.tests]), **outcome_columns(made, programs)}

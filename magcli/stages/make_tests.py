"""New tests for code problems, by mutation of the given ones and by programs that a model writes.

The format of the inputs is inferred from the given tests and the ranges in the statement. The expected output is the
one on which the solutions that pass the given tests agree. A new test is kept if a wrong solution that passed all tests
so far fails it, or if its input is of a new size.

Every problem that can be run is written, with its new tests at the end or the reason in column no_tests. Columns
programs and program_inputs count the outcomes of a model's programs and of the inputs that they print.

Names of other tools are accepted. Tests: test_list, test, public_tests, private_tests, generated_tests. Solutions:
incorrect_solutions, submissions, code, canonical_solution, reference_python, python_file, cpp_file, samples. Prompt:
problem, question, statement, description, statement_md, statement_tex, statement_html, content, text.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.errors import PromptRefused, PromptTooLong, usage
from magcli.stages.shared import engines, grading, options, tables

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.code.execution import ExclusiveRetry
    from magcli.curate.code.trials import Prepared
    from magcli.curate.inputs.generators import GeneratorPrograms
    from magcli.curate.inputs.new_tests import NewTests
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Result
    from magcli.verify.sandbox import Sandbox

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
RESUMES = True
EXAMPLE = "magcli make-tests examples/weak_programs.jsonl --tries 30 -o more-tests.arrow --dropped no-tests.jsonl"
ALIASES = tables.CODE_ALIASES


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions):
    """Options of `magcli make-tests`."""

    tries: int = opt(60, "Number of inputs to try per problem.")
    max_new: int = opt(20, "Maximum number of new tests per problem.")
    agreement: float = opt(0.9, "Share of the correct solutions that must agree on a new test's output.")
    votes: int = opt(2, "Minimum number of correct solutions that agree on a new test's output.")
    compare: str = opt("tokens", "Comparison of outputs if a row has none: tokens, floats:1e-6, lines, ...")
    max_solutions: int = opt(0, "Maximum number of solutions to run of each verdict; 0 is no limit.")
    problem_seconds: float = opt(
        600.0, "CPU time limit in seconds per problem, after which the tests found so far are kept; 0 is no limit."
    )
    workers: int = opt(1, "Number of problems processed concurrently.", affects_rows=False)
    sandbox: options.Sandbox = options.sandbox()
    programs: int = opt(
        2, "Number of input-generating programs that the model writes per problem.", panel=options.SAMPLING
    )
    temperature: float = options.temperature(0.7)


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    from magcli.curate.code.solutions import SOLUTION_COLUMNS, TEST_COLUMNS

    return ("id", "prompt", "|".join(TEST_COLUMNS), "|".join(SOLUTION_COLUMNS))


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    from magcli.verify.code.outputs import comparison

    usage(0 < config.agreement <= 1, f"make-tests.agreement: {config.agreement} is not in (0, 1]")
    options.check_positive("make-tests", config, ("tries", "max_new", "votes", "workers", "programs"))
    options.check_not_negative("make-tests", config, ("max_solutions", "problem_seconds"))
    options.check_generation("make-tests", config)
    comparison(config.compare)
    if config.model:
        options.check_engine("make-tests", config)


def settings(config: Config) -> dict[str, Any]:
    """The resolved isolation level, and the digest of the model."""
    return grading.sandbox_identity(config.sandbox) | (
        engines.model_identity(config.model, Path("none")) if config.model else {}
    )


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, tests (with their origin) and solutions in one form, and the new columns."""
    import pyarrow as pa

    from magcli.curate.code.solutions import SOLUTION_COLUMNS, TEST_COLUMNS
    from magcli.data.columns import extended
    from magcli.data.schema import CODE_MADE, NEW_TESTS

    left = [field for field in given if field.name not in (*TEST_COLUMNS, *SOLUTION_COLUMNS)]
    return extended(extended(pa.schema(left, given.metadata), CODE_MADE), NEW_TESTS)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Make tests for each problem in threads that drive sandboxes; reports tests and solutions at the end."""
    import asyncio
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from magcli.curate.code.execution import ExclusiveRetry
    from magcli.curate.code.solutions import Unusable
    from magcli.curate.code.trials import prepare
    from magcli.curate.inputs.new_tests import count_rows, model_counts, summary
    from magcli.data.schema import NEW_TESTS
    from magcli.run.units import resumable

    box, ended, retry = grading.open_sandbox(config.sandbox), threading.Event(), ExclusiveRetry()
    crew = ThreadPoolExecutor(config.workers, "sandbox")
    generator = engines.open_engine(config, job) if config.model else None

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        prepared = prepare(row, compare=config.compare, max_solutions=config.max_solutions)
        if isinstance(prepared, Unusable):
            return _unusable(config, row, prepared, part.schema)
        written = await _written(config, row, prepared, generator) if generator else None
        work = functools.partial(_made, config, row, prepared, written, box, ended.is_set, retry)
        made, fates = await asyncio.get_running_loop().run_in_executor(crew, work)
        return _result(config, row, prepared, made, fates, part.schema)

    async def close() -> None:
        ended.set()
        await asyncio.to_thread(crew.shutdown, cancel_futures=True)
        if generator:
            await generator.close()

    tally: Counter[str] = Counter()
    for batch in resumable(rows, job, compute, close, size=1, window=_window(config), unit="problems"):
        count_rows(tally, batch.select(["tests", *NEW_TESTS.names]).to_pylist())
        yield batch
    if rates := model_counts(tally):
        job.facts["model"] = rates
    job.console.say(f"make-tests: {summary(tally)}", event="tests", **tally)


def _window(config: Config) -> int:
    """Concurrent problems: those whose solutions run, and with a model as many more as fill its slots."""
    return config.workers + (-(-config.slots // config.programs) if config.model else 0)


async def _written(config: Config, row: dict[str, Any], prepared: Prepared, generator: Generator) -> GeneratorPrograms:
    """The model's input-generating programs; none where they could give no test."""
    from magcli.curate.inputs.generators import GeneratorPrograms, extract_programs, messages
    from magcli.curate.inputs.new_tests import has_enough_solutions
    from magcli.generate.types import Sampling, sample_seed

    if not has_enough_solutions(prepared.plan, config.votes):
        return GeneratorPrograms([], {})
    question = messages(row["prompt"], next(iter(prepared.plan.tests.values())))
    seeds = [sample_seed(config.seed, row["id"], number) for number in range(config.programs)]
    try:
        answers = await generator.complete(question, Sampling(config.max_tokens, config.temperature), seeds=seeds)
    except PromptRefused as error:
        return GeneratorPrograms([], {"too-long" if isinstance(error, PromptTooLong) else "refused": config.programs})
    return extract_programs(answers)


def _made(
    config: Config,
    row: dict[str, Any],
    prepared: Prepared,
    written: GeneratorPrograms | None,
    box: Sandbox,
    stopped: Callable[[], bool],
    retry: ExclusiveRetry,
) -> tuple[NewTests, Mapping[str, int] | None]:
    """The tests, and the outcomes of a model's programs. Blocks while the programs of a problem run."""
    from magcli.curate.inputs.generators import GeneratorPrograms, ProgramInputs
    from magcli.curate.inputs.new_tests import Rules, candidates, make

    printers = ProgramInputs(written or GeneratorPrograms([], {}), prepared.plan.tests, box)
    tried = candidates(prepared.plan, row["prompt"], printers.inputs(), f"{config.seed}\0{row['id']}")
    rules = Rules(config.agreement, config.votes, config.tries, config.max_new, config.problem_seconds or math.inf)
    made = make(prepared.plan, tried, rules, box, stopped, retry)
    return made, None if written is None else printers.fates


def _unusable(config: Config, row: dict[str, Any], found: Any, given: pa.Schema) -> Result:
    from magcli.run.job import drop_result

    return drop_result(row, found.reason, schema(config, given), detail=found.detail)


def _result(
    config: Config,
    row: dict[str, Any],
    prepared: Prepared,
    made: NewTests,
    fates: Mapping[str, int] | None,
    given: pa.Schema,
) -> Result:
    """The row with its columns in one form, its tests and the new ones."""
    import pyarrow as pa

    from magcli.curate.inputs.new_tests import outcome_columns, with_origin
    from magcli.run.journal import Result

    problem = prepared.problem
    columns = {
        "kind": "code",
        "tests": [*with_origin(problem.tests), *made.tests],
        "solutions": [solution._asdict() for solution in problem.solutions],
        "compare": problem.compare,
        "time_limit": problem.time_limit,
        "memory_limit": problem.memory_limit,
        "cpp_unrun": prepared.cpp_unrun,
    }
    batch = pa.RecordBatch.from_pylist([{**row, **columns, **outcome_columns(made, fates)}], schema(config, given))
    return Result(batch, again=made.reason == "not-run")

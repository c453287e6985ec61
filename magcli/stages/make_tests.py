"""New tests for code problems, by mutation of the given ones and by programs that a model writes.

The format of the inputs is inferred from the given tests and the ranges of the statement. The
expected output is the one on which the solutions that pass the given tests agree. A new test is kept if a wrong
solution that passed all tests so far fails it, or if it is of a new size.

Every problem that can be run is written, with its new tests at the end or the reason in column no_tests. Columns
programs and program_inputs count what became of a model's programs and of the inputs that they print.

Names of other tools are read too. Tests: test_list, test, public_tests, private_tests, generated_tests. Solutions:
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
from magcli.run import options
from magcli.stages.parts import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.code.trials import Prepared
    from magcli.curate.code.turns import Turns
    from magcli.curate.inputs.new_tests import Made
    from magcli.curate.inputs.programs import Written
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Result
    from magcli.verify.sandbox import Sandbox

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
OUTPUT = "the rows"
DEFAULT_OUTPUT = "-"
RESUMES = True
EXAMPLE = "magcli make-tests examples/weak_programs.jsonl --tries 30 -o more-tests.arrow --dropped no-tests.jsonl"
ALIASES = setup.CODE_ALIASES


@dataclass(frozen=True)
class Config:
    """Options of `magcli make-tests`."""

    tries: int = opt(60, "Number of inputs to try per problem.")
    max_new: int = opt(20, "Maximum number of new tests per problem.")
    agreement: float = opt(0.9, "Share of the correct solutions that must agree on a new test's output.")
    votes: int = opt(2, "Minimum number of correct solutions that agree on a new test's output.")
    compare: str = opt("tokens", "Comparison of outputs if a row has none: tokens, floats:1e-6, lines, ...")
    max_solutions: int = opt(0, "Maximum number of solutions to run of each verdict; 0 is no limit.")
    problem_seconds: float = opt(
        600.0, "CPU time limit in seconds per problem; tests found by then are kept. 0 is no limit."
    )
    workers: int = opt(1, "Number of problems processed concurrently.")
    sandbox: options.Sandbox = options.sandbox()
    model: str = options.model()
    programs: int = opt(
        2, "Number of input-generating programs that the model writes per problem.", panel=options.MODEL
    )
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature(0.7)
    seed: int = options.seed()
    engine: options.Engine = options.engine()
    dtype: options.DType = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    deadline: float = options.deadline()


RUNTIME = ("workers", "deadline")
"""Options that do not change the rows."""


def whole(config: Config) -> str:
    """Nothing: each problem gets its tests by itself."""
    return ""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    from magcli.curate.code.solutions import SOLUTION_COLUMNS, TEST_COLUMNS

    return ("id", "prompt", "|".join(TEST_COLUMNS), "|".join(SOLUTION_COLUMNS))


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.verify.code.outputs import comparison

    usage(0 < config.agreement <= 1, f"make-tests.agreement: {config.agreement} is not in (0, 1]")
    for name in ("tries", "max_new", "votes", "workers", "programs", "max_tokens"):
        usage(getattr(config, name) > 0, f"make-tests.{name}: {getattr(config, name)} is not positive")
    usage(config.max_solutions >= 0, f"make-tests.max_solutions: {config.max_solutions} is negative")
    usage(config.problem_seconds >= 0, f"make-tests.problem_seconds: {config.problem_seconds} is negative")
    usage(config.temperature >= 0, f"make-tests.temperature: {config.temperature} is negative")
    comparison(config.compare)
    if config.model:
        checks.engine("make-tests", config)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the isolation that ``auto`` finds, and the digests of the model."""
    return setup.sandbox_identity(config.sandbox) | (
        setup.model_identity(config.model, Path("none")) if config.model else {}
    )


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, tests (with their origin) and solutions in one form, and what is new."""
    import pyarrow as pa

    from magcli.curate.code.solutions import SOLUTION_COLUMNS, TEST_COLUMNS
    from magcli.data.columns import extended
    from magcli.data.schema import CODE_MADE, NEW_TESTS

    left = [field for field in given if field.name not in (*TEST_COLUMNS, *SOLUTION_COLUMNS)]
    return extended(extended(pa.schema(left, given.metadata), CODE_MADE), NEW_TESTS)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Make tests for each problem in threads that drive sandboxes; tells of tests and solutions at the end."""
    import asyncio
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from magcli.curate.code.solutions import Unusable
    from magcli.curate.code.trials import prepare
    from magcli.curate.code.turns import Turns
    from magcli.curate.inputs.summary import count, of_model, summary
    from magcli.data.schema import NEW_TESTS
    from magcli.run.units import resumable

    box, ended, turns = setup.open_sandbox(config.sandbox), threading.Event(), Turns()
    crew = ThreadPoolExecutor(config.workers, "sandbox")
    generator = setup.open_engine(config, job) if config.model else None

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        prepared = prepare(row, compare=config.compare, max_solutions=config.max_solutions)
        if isinstance(prepared, Unusable):
            return _unusable(config, row, prepared, part.schema)
        written = await _written(config, row, prepared, generator) if generator else None
        work = functools.partial(_made, config, row, prepared, written, box, ended.is_set, turns)
        made, fates = await asyncio.get_running_loop().run_in_executor(crew, work)
        return _result(config, row, prepared, made, fates, part.schema)

    async def close() -> None:
        ended.set()
        await asyncio.to_thread(crew.shutdown, cancel_futures=True)
        if generator:
            await generator.close()

    tally: Counter[str] = Counter()
    for batch in resumable(rows, job, compute, close, size=1, window=_window(config), unit="problems"):
        count(tally, batch.select(["tests", *NEW_TESTS.names]).to_pylist())
        yield batch
    if rates := of_model(tally):
        job.facts["model"] = rates
    job.console.say(f"make-tests: {summary(tally)}", event="tests", **tally)


def _window(config: Config) -> int:
    """Problems under way at once: those whose solutions run, and with a model as many more as fill its slots."""
    return config.workers + (-(-config.slots // config.programs) if config.model else 0)


async def _written(config: Config, row: dict[str, Any], prepared: Prepared, generator: Generator) -> Written:
    """What a model writes to make inputs; it is not asked where no test can be made of them."""
    from magcli.curate.inputs.asking import messages
    from magcli.curate.inputs.new_tests import worth_running
    from magcli.curate.inputs.programs import Written, written
    from magcli.generate.types import Sampling, sample_seed

    if not worth_running(prepared.trial, config.votes):
        return Written([], {})
    asked = messages(row["prompt"], next(iter(prepared.trial.tests.values())))
    seeds = [sample_seed(config.seed, row["id"], number) for number in range(config.programs)]
    try:
        answers = await generator.complete(asked, Sampling(config.max_tokens, config.temperature), seeds=seeds)
    except PromptRefused as error:
        return Written([], {"too-long" if isinstance(error, PromptTooLong) else "refused": config.programs})
    return written(answers)


def _made(
    config: Config,
    row: dict[str, Any],
    prepared: Prepared,
    written: Written | None,
    box: Sandbox,
    stopped: Callable[[], bool],
    turns: Turns,
) -> tuple[Made, Mapping[str, int] | None]:
    """The tests, and what became of the programs of a model. Blocks as long as the programs of a problem take."""
    from magcli.curate.inputs.candidates import candidates
    from magcli.curate.inputs.new_tests import Rules, make
    from magcli.curate.inputs.programs import Printers, Written

    printers = Printers(written or Written([], {}), prepared.trial.tests, box)
    tried = candidates(prepared.trial, row["prompt"], printers.inputs(), f"{config.seed}\0{row['id']}")
    rules = Rules(config.agreement, config.votes, config.tries, config.max_new, config.problem_seconds or math.inf)
    made = make(prepared.trial, tried, rules, box, stopped, turns)
    return made, None if written is None else printers.fates


def _unusable(config: Config, row: dict[str, Any], found: Any, given: pa.Schema) -> Result:
    from magcli.run.job import left_out

    return left_out(row, found.reason, schema(config, given), detail=found.detail)


def _result(
    config: Config,
    row: dict[str, Any],
    prepared: Prepared,
    made: Made,
    fates: Mapping[str, int] | None,
    given: pa.Schema,
) -> Result:
    """The row with all that was read of it in one form, its tests and the new ones."""
    import pyarrow as pa

    from magcli.curate.inputs.new_tests import told, with_origin
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
    batch = pa.RecordBatch.from_pylist([{**row, **columns, **told(made, fates)}], schema(config, given))
    return Result(batch, again=made.reason == "not-run")

"""New tests for code problems, made of the given ones by mutation and by programs that a model writes.

The format of the inputs is inferred from the given tests and the ranges of the statement. Outputs are those on which
the solutions agree that are right on the given tests. A new test is kept when a wrong solution fails it that passed all
tests so far, or when it is of a new size.

Every problem that can be run comes out, with its new tests at the end or the reason in column no_tests.

Names of other tools are read too. Tests: test_list, test, public_tests, private_tests, generated_tests. Solutions:
incorrect_solutions, submissions, code, canonical_solution, reference_python, python_file, cpp_file, samples. Prompt:
problem, question, statement, description, statement_md, statement_tex, statement_html, content, text.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.run import options
from magcli.stages import checks, setup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from magcli.curate.code.trials import Prepared
    from magcli.curate.inputs.new_tests import Made
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Result
    from magcli.verify.sandbox import Sandbox

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
OUTPUT = "file, folder or -."
DEFAULT_OUTPUT = "-"
RESUMES = True
EXAMPLE = "magcli make-tests examples/weak_programs.jsonl --tries 30 -o more-tests.arrow --dropped no-tests.jsonl"
ALIASES = setup.CODE_ALIASES


@dataclass(frozen=True)
class Config:
    """Options of `magcli make-tests`."""

    tries: int = opt(60, "Inputs tried for a problem.")
    max_new: int = opt(20, "New tests kept for a problem.")
    agreement: float = opt(0.9, "Share of the right solutions that must give a new test's output.")
    votes: int = opt(2, "Solutions that must give it, at least.")
    compare: str = opt("tokens", "How outputs are compared where a row does not say: tokens, floats:1e-6, lines, ...")
    max_solutions: int = opt(0, "Solutions of each verdict that are run, the first ones; 0 is all.")
    problem_seconds: float = opt(
        600.0, "CPU seconds for all runs of a problem's solutions; it keeps what was found until then. 0 is no bound."
    )
    workers: int = opt(1, "Problems worked on at once.")
    sandbox: Literal["full", "restricted", "auto", "dangerously-none"] = options.sandbox()
    model: str = options.model()
    programs: int = opt(2, "Programs that a model writes for a problem.", panel=options.MODEL)
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature(0.7)
    seed: int = options.seed()
    engine: Literal["auto", "torch", "vllm", "server"] = options.engine()
    dtype: Literal["auto", "bf16", "fp32"] = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    deadline: float = options.deadline()


PLACES = ("workers", "deadline")
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
    from magcli.run.job import usage
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
    """What else decides the rows: the isolation that ``auto`` finds, and the bits of the model."""
    from pathlib import Path

    isolation = {"sandbox": _sandbox(config).level} if config.sandbox == "auto" else {}
    return isolation | (setup.model_bits(config.model, Path("none")) if config.model else {})


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
    from magcli.run.units import resumable

    box, ended, crew = _sandbox(config), threading.Event(), ThreadPoolExecutor(config.workers, "sandbox")
    generator = setup.open_engine(config) if config.model else None

    async def compute(part: pa.RecordBatch) -> Result:
        row = part.to_pylist()[0]
        prepared = prepare(row, compare=config.compare, max_solutions=config.max_solutions)
        if isinstance(prepared, Unusable):
            return _unusable(config, row, prepared, part.schema)
        programs = await _programs(config, row, prepared, generator) if generator else []
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(crew, _made, config, row, prepared, programs, box, ended.is_set)
        return _result(config, row, prepared, made, part.schema)

    async def close() -> None:
        ended.set()
        await asyncio.to_thread(crew.shutdown, cancel_futures=True)
        if generator:
            await generator.close()

    tally: Counter[str] = Counter()
    for batch in resumable(rows, job, compute, close, size=1, window=_window(config), unit="problems"):
        _count(tally, batch)
        yield batch
    _report(tally, job)


def _window(config: Config) -> int:
    """Problems under way at once: those whose solutions run, and with a model as many more as fill its slots."""
    return config.workers + (-(-config.slots // config.programs) if config.model else 0)


def _sandbox(config: Config) -> Sandbox:
    from magcli.verify.sandbox import open_sandbox

    unsafe = config.sandbox == "dangerously-none"
    return open_sandbox("none" if config.sandbox == "dangerously-none" else config.sandbox, accept_unsandboxed=unsafe)


async def _programs(config: Config, row: dict[str, Any], prepared: Prepared, generator: Generator) -> list[str]:
    """What a model writes to make inputs; nothing where the problem is too long for it."""
    from magcli.curate.inputs.programs import messages, programs_of
    from magcli.errors import PromptTooLong
    from magcli.generate.seeds import seed_of
    from magcli.generate.types import Sampling

    asked = messages(row["prompt"], next(iter(prepared.trial.tests.values())))
    seeds = [seed_of(config.seed, row["id"], number) for number in range(config.programs)]
    try:
        answers = await generator.complete(asked, Sampling(config.max_tokens, config.temperature), seeds=seeds)
    except PromptTooLong:
        return []
    return programs_of([each.text for each in answers])


def _made(
    config: Config,
    row: dict[str, Any],
    prepared: Prepared,
    programs: Sequence[str],
    box: Sandbox,
    stopped: Callable[[], bool],
) -> Made:
    """Blocks as long as the programs of a problem take."""
    from magcli.curate.inputs.candidates import candidates
    from magcli.curate.inputs.new_tests import Rules, make

    tried = candidates(prepared.trial, row["prompt"], programs, box, f"{config.seed}\0{row['id']}")
    rules = Rules(config.agreement, config.votes, config.tries, config.max_new, config.problem_seconds or math.inf)
    return make(prepared.trial, tried, rules, box, stopped)


def _unusable(config: Config, row: dict[str, Any], found: Any, given: pa.Schema) -> Result:
    import pyarrow as pa

    from magcli.run.job import as_text
    from magcli.run.journal import Dropped, Result

    dropped = Dropped(row["id"], found.reason, as_text({"detail": found.detail, **row}))
    return Result(pa.RecordBatch.from_pylist([], schema(config, given)), [dropped])


def _result(config: Config, row: dict[str, Any], prepared: Prepared, made: Made, given: pa.Schema) -> Result:
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
    return Result(pa.RecordBatch.from_pylist([{**row, **columns, **told(made)}], schema(config, given)))


def _count(tally: Counter[str], batch: pa.RecordBatch) -> None:
    """Add up what the rows tell."""
    from magcli.data.schema import NEW_TESTS

    for row in batch.select(["tests", *NEW_TESTS.names]).to_pylist():
        tally.update({"problems": 1, "without": row["no_tests"] is not None})
        tally.update({f"thrown_{name}": count for name, count in row["tests_thrown"].items()})
        tally.update([f"origin_{test['origin']}" for test in row["tests"]])
        tally.update([f"none_{row['no_tests']}"] if row["no_tests"] else [])
        tally.update([f"cpp_{row['cpp_unrun']}"] if row["cpp_unrun"] else [])
        names = ("tests_tried", "tests_made", "wrong_solutions", "wrong_passing_before", "wrong_passing", "out_of_time")
        tally.update({name: row[name] for name in names})


def _report(tally: Counter[str], job: Job) -> None:
    """One line on tests, wrong solutions and problems without new tests."""
    parts = [
        f"{tally['problems']:,} problems; {tally['tests_tried']:,} inputs tried, {tally['tests_made']:,} "
        f"kept{_parts(tally, 'origin_', 'given')}, thrown away{_parts(tally, 'thrown_')}",
        _score(tally),
        f"no new tests for {tally['without']:,}{_parts(tally, 'none_')}",
    ]
    if tally["out_of_time"]:
        parts.append(f"{tally['out_of_time']:,} ran out of their time, so that on another machine tests may differ")
    if told := _parts(tally, "cpp_"):
        parts.append(f"C++ solutions cannot be called in some{told}")
    job.console.say(f"make-tests: {'; '.join(parts)}", event="tests", **tally)


def _score(tally: Counter[str]) -> str:
    """How many of the wrong solutions fail a given test, and how many more a new one."""
    wrong, before = tally["wrong_solutions"], tally["wrong_solutions"] - tally["wrong_passing_before"]
    more = tally["wrong_passing_before"] - tally["wrong_passing"]
    shares = [f"{count:,} ({count / max(1, wrong):.1%})" for count in (before, before + more)]
    return f"of {wrong:,} wrong solutions given tests fail {shares[0]}, given and new ones {shares[1]}: {more:,} more"


def _parts(tally: Counter[str], start: str, without: str = "") -> str:
    """The counts whose name begins so, in brackets."""
    found = {name.removeprefix(start): count for name, count in tally.most_common() if name.startswith(start) and count}
    told = ", ".join(f"{name} {count:,}" for name, count in found.items() if name != without)
    return f" ({told})" if told else ""

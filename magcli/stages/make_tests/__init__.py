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

from dataclasses import dataclass

from magcli.config import opt
from magcli.layouts.names import TESTS, WITH_SOLUTIONS
from magcli.stages.shared import options
from magcli.verify.code.comparison import comparison

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
RESUMES = True
EXAMPLE = "magcli make-tests examples/weak_programs.jsonl --tries 30 -o more-tests.arrow --dropped no-tests.jsonl"
IN_RECIPE = options.ENGINE_IN_RECIPE


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions, options.ClusterOptions):
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
    tests = "|".join(TESTS)
    return tuple(name for name in WITH_SOLUTIONS if not (config.model and name == tests))


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    comparison(config.compare)
    if config.model:
        options.check_engine("make-tests", config)

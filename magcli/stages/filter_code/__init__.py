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

from dataclasses import dataclass
from pathlib import Path

from magcli.config import opt
from magcli.errors import usage
from magcli.layouts.names import WITH_SOLUTIONS
from magcli.stages.shared import options
from magcli.verify.code.comparison import comparison

INPUTS = "Code problems: columns prompt, tests, solutions (language, code, verdict right|wrong|unknown); - is stdin."
RESUMES = True
EXAMPLE = (
    "magcli filter-code examples/programs.jsonl --matrix matrix.arrow -o kept-code.arrow --dropped dropped-code.jsonl"
)


@dataclass(frozen=True)
class Config(options.ClusterOptions):
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
    return WITH_SOLUTIONS


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    usage(
        not (config.matrix and config.from_matrix),
        "filter-code: --from-matrix runs nothing, so there is no --matrix to write; leave one out",
    )
    comparison(config.compare)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The matrix, with --matrix."""
    return (config.matrix,) if config.matrix else ()

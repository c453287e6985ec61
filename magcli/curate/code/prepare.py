"""Prepare code problems for execution, and turn decisions into output columns.

The kept tests are also checked against trivial programs, whose outputs are known without running them; tests that one
of them passes are weak:

============  ==========================================================================================
``nothing``   it prints nothing, or returns None
``input``     it prints its input, or returns an argument
``constant``  it prints the output of the first of several tests, or always returns the same value
``zero``      it prints 0 for each decimal, which passes if the tolerance is wider than the expected values
============  ==========================================================================================
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from magcli.curate.code.agreement import Cell, Decision, Rules, count_tests, decide
from magcli.curate.code.problems import CodeProblem, Label, Solution, Unusable, code_problem
from magcli.curate.cpp_ports.calls import CppCalls, cpp_calls
from magcli.curate.cpp_ports.cpp import Reason as SignatureReason
from magcli.curate.cpp_ports.cpp import UnsupportedSignature
from magcli.errors import DataError
from magcli.verify.code.cases import Call, Case, constant, parse_tests
from magcli.verify.code.judge import LANGUAGES, limits_of
from magcli.verify.code.outputs import Comparison, comparison, difference
from magcli.verify.code.runs import Checker
from magcli.verify.code.scripts import Script, parse_scripts
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.sandbox import Limits

CONSTANTS: tuple[Any, ...] = (True, False, 0, 1, -1, 0.0, "", (), [], {}, frozenset(), [[]], [0], [1])
"""Values that a trivial function may return, besides the one expected by the first test."""
MAX_ARGUMENTS = 9
# A number with a point or an exponent, alone between blanks.
_DECIMAL = re.compile(rb"(?<!\S)[+-]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][+-]?\d+)(?!\S)")
Trivial = Literal["nothing", "input", "constant", "zero"]


class RunPlan(NamedTuple):
    """What is run: tests and solutions by their index in the problem, and how outputs are judged.

    ``calls`` adapts C++ solutions to tests that call a Python function. ``entry_point`` is the function that a problem
    without tests asks for. ``scripts`` are the tests, instead of ``tests``, of a problem of which one is more than a
    call and its value, such as ``set(f(1)) == {1, 2}`` or a unit test: the judge runs them, which gives a verdict on a
    solution, but no values that could be compared.
    """

    tests: Mapping[int, Case]
    solutions: Mapping[int, Solution]
    limits: Limits
    rule: Comparison
    checker: Checker | None
    calls: CppCalls | None = None
    entry_point: str = ""
    scripts: Mapping[int, Script] = MappingProxyType({})

    @property
    def numbers(self) -> list[int]:
        """The indices of all tests."""
        return [*self.tests, *self.scripts]

    @property
    def has_calls(self) -> bool:
        """Whether the tests call a function."""
        if self.scripts:
            return True
        if not self.tests:
            return bool(self.entry_point)
        return any(isinstance(case, Call) for case in self.tests.values())


class SkippedTests(NamedTuple):
    """Numbers of tests that are unusable, duplicate an earlier one, or exceed the maximum."""

    bad: int = 0
    duplicate: int = 0
    unrun: int = 0


class Prepared(NamedTuple):
    """A problem ready to run; ``digest`` covers everything its runs depend on except the machine.

    ``cpp_unrun`` is the reason why C++ solutions cannot be called like the Python function of the tests.
    """

    problem: CodeProblem
    plan: RunPlan
    skipped: SkippedTests
    digest: str
    cpp_unrun: SignatureReason | None = None

    @property
    def labels(self) -> dict[int, Label]:
        """The labels of the solutions that are run."""
        return {number: solution.verdict for number, solution in self.plan.solutions.items()}


def prepare(
    row: Mapping[str, Any], *, compare: str = "tokens", min_tests: int = 1, max_tests: int = 0, max_solutions: int = 0
) -> Prepared | Unusable:
    """Prepare a row: the first ``max_tests`` tests and ``max_solutions`` solutions of each verdict; 0 means all."""
    problem = code_problem(row, compare)
    if isinstance(problem, Unusable):
        return problem
    entry_point = str(row.get("entry_point") or "")
    try:
        tests, scripts, skipped = _select_tests(problem, max_tests)
        calls, cpp_unrun = _cpp_calls(problem, tests, scripts, str(row.get("prompt") or ""))
        plan = _run_plan(problem, tests, calls, checker_of(row), max_solutions, entry_point, scripts)
    except DataError as error:
        return Unusable("bad-tests", str(error))
    if not any(solution.verdict != "wrong" for solution in plan.solutions.values()):
        cpp_note = f"; C++ solutions cannot be called: {cpp_unrun}" if cpp_unrun else ""
        return Unusable(
            "no-solutions", f"none of {len(problem.solutions)} solutions is runnable and not labelled wrong{cpp_note}"
        )
    if len(plan.numbers) < min_tests:
        unusable = f", {skipped.bad} more are unusable" if skipped.bad else ""
        return Unusable("few-tests", count_tests(len(plan.numbers)) + unusable)
    return Prepared(problem, plan, skipped, _digest(problem, plan), cpp_unrun)


def _select_tests(problem: CodeProblem, max_tests: int) -> tuple[dict[int, Case], dict[int, Script], SkippedTests]:
    """The first ``max_tests`` usable tests (0: all) by index, and the numbers of skipped ones.

    They are scripts if one of them can only be run as a script, else stdin or calls.

    Raises:
        DataError: none is usable, or tests with calls and tests with stdin are mixed.
    """
    cases: dict[int, Case] = {}
    scripts: dict[int, Script] = {}
    errors: list[DataError] = []
    distinct = _distinct_tests(problem.tests)
    for number, test in distinct.items():
        try:
            # A plain call or stdin comes back as such, and is no ``Script``.
            (script,) = parse_scripts([test], problem.functions)
        except DataError as error:
            errors.append(error)
            continue
        if isinstance(script, Script):
            scripts[number] = script
        with suppress(DataError):
            cases[number] = parse_tests([test], problem.functions)[0]
    usable = cases.keys() | scripts.keys()
    if errors and not usable:
        raise errors[0]
    if scripts and len(scripts) < len(usable):
        raise DataError("some tests call a function and others use stdin")
    chosen = sorted(usable)[: max_tests or None]
    skipped = SkippedTests(len(errors), len(problem.tests) - len(distinct), len(usable) - len(chosen))
    # Calls can be compared value by value, so scripts are the last resort.
    if len(cases) == len(usable):
        return {number: cases[number] for number in chosen}, {}, skipped
    return {}, {number: scripts[number] for number in chosen}, skipped


def _distinct_tests(tests: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The tests by index, without those whose input, call or assert is that of an earlier one."""
    first: dict[str, int] = {}
    for number, test in enumerate(tests):
        # Two tests that ask the same contradict each other or are one, so the first counts.
        asked = json.dumps([test.get(name) for name in ("input", "call", "assert")])
        first.setdefault(asked, number)
    return {number: tests[number] for number in first.values()}


def _cpp_calls(
    problem: CodeProblem, tests: Mapping[int, Case], scripts: Mapping[int, Script], prompt: str
) -> tuple[CppCalls | None, SignatureReason | None]:
    """How C++ solutions are called, or why they cannot be; neither for tests with stdin or without C++ solutions."""
    calls = [case for case in tests.values() if isinstance(case, Call)]
    if not (calls or scripts) or not any(solution.language == "cpp" for solution in problem.solutions):
        return None, None
    if scripts:
        return None, "value"
    programs = [solution.code for solution in problem.solutions if solution.language == "python"]
    try:
        return cpp_calls(calls, prompt, programs), None
    except UnsupportedSignature as error:
        return None, error.reason


def checker_of(row: Mapping[str, Any]) -> Checker | None:
    """The checker of a problem, if it has one.

    Raises:
        DataError: it is in an unsupported language.
    """
    if not row.get("checker"):
        return None
    language = str(row.get("checker_language") or "python")
    if language.lower() not in LANGUAGES:
        raise DataError(f"unsupported checker language {language!r}; use Python or C++20")
    return Checker(str(row["checker"]), LANGUAGES[language.lower()])


def _run_plan(
    problem: CodeProblem,
    tests: Mapping[int, Case],
    calls: CppCalls | None,
    checker: Checker | None,
    max_solutions: int,
    entry_point: str,
    scripts: Mapping[int, Script],
) -> RunPlan:
    """The plan for the first ``max_solutions`` distinct runnable solutions of each verdict (0: all)."""
    limits = limits_of({"time_limit": problem.time_limit, "memory_limit": problem.memory_limit})
    plan = RunPlan(tests, {}, limits, comparison(problem.compare), checker, calls, entry_point, scripts)
    # A checker reads streams of text.
    if plan.has_calls and checker:
        raise DataError("a checker cannot judge tests that call a function")
    # C++ needs the adapter that makes calls of stdin.
    languages = ("python",) if plan.has_calls and calls is None else ("python", "cpp")
    solutions: dict[int, Solution] = {}
    counts: Counter[str] = Counter()
    for number, solution in enumerate(problem.solutions):
        if solution.language not in languages or solution in solutions.values():
            continue
        if not max_solutions or counts[solution.verdict] < max_solutions:
            solutions[number] = solution
            counts[solution.verdict] += 1
    return plan._replace(solutions=solutions)


def _digest(problem: CodeProblem, plan: RunPlan) -> str:
    """A digest of what determines the runs. It is stored in matrices, so it must stay the same between versions."""
    # Under the names and in the order that stored matrices have.
    stated = {"own" if key == "functions" else key: value for key, value in problem._asdict().items()}
    stated["own"] = sorted(problem.functions)
    identity = [stated, plan.numbers, list(plan.solutions), repr(plan.limits), plan.checker, repr(plan.calls)]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]


def decide_prepared(prepared: Prepared, runs: Sequence[Cell], rules: Rules) -> Decision:
    """Decide on a problem; one that a trivial program passes is weak, too."""
    decision = decide(runs, prepared.labels, rules)
    if decision.reason or not rules.drop_weak:
        return decision
    passing = trivial_pass(prepared, decision)
    if passing is None:
        return decision
    return decision._replace(reason="weak", detail=f"a trivial program passes: {passing}")


def kept_tests(prepared: Prepared, decision: Decision) -> list[Mapping[str, Any]]:
    """The kept tests of a problem with their new outputs; an assert becomes its call."""
    tests: list[Mapping[str, Any]] = []
    for number, output in decision.kept.items():
        test = prepared.problem.tests[number]
        if output is not None:
            case = prepared.plan.tests[number]
            call = case.source if isinstance(case, Call) else None
            test = {**test, "output": output, "call": call, "assert": None}
        tests.append(test)
    return tests


def kept_columns(prepared: Prepared, decision: Decision) -> dict[str, Any]:
    """The output columns of a kept problem."""
    passing = trivial_pass(prepared, decision)
    dropped = {outcome: decision.dropped.get(outcome, 0) for outcome in ("disagree", "contested")}
    return {
        **problem_columns(prepared, kept_tests(prepared, decision)),
        "tests_dropped": prepared.skipped._asdict() | dropped,
        "outputs_replaced": decision.replaced,
        "wrong_solutions": decision.wrong,
        "wrong_passing": len(decision.passing),
        "weak": bool(decision.passing or passing),
        "trivial": passing,
    }


def problem_columns(prepared: Prepared, tests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of a problem in one form, with these tests."""
    problem = prepared.problem
    return {
        "kind": "code",
        "tests": tests,
        "solutions": [solution._asdict() for solution in problem.solutions],
        "compare": problem.compare,
        "time_limit": problem.time_limit,
        "memory_limit": problem.memory_limit,
        "cpp_unrun": prepared.cpp_unrun,
    }


# ---- trivial programs ----


def trivial_pass(prepared: Prepared, decision: Decision) -> Trivial | None:
    """The trivial program that passes all kept tests; None if none does, or a checker or scripts judge."""
    if prepared.plan.checker or prepared.plan.scripts:
        return None
    return trivial(parse_tests(kept_tests(prepared, decision), prepared.problem.functions), prepared.plan.rule)


def trivial(tests: Sequence[Case], rule: Comparison) -> Trivial | None:
    """The first trivial program that passes all tests; None if none does."""
    feeds = [test for test in tests if isinstance(test, StdinCase)]
    calls = [test for test in tests if isinstance(test, Call)]
    if feeds:
        return _trivial_program(feeds, rule)
    return _trivial_function(calls, rule) if calls else None


def _trivial_program(tests: Sequence[StdinCase], rule: Comparison) -> Trivial | None:
    # A single test has a constant output anyway, which says nothing about the test.
    first = tests[0].output if len(tests) > 1 else None
    # A tolerance that accepts 0 for 0.0 is not too wide.
    decimals = (match[0] for test in tests for match in _DECIMAL.finditer(test.output))
    has_numbers = any(float(decimal) for decimal in decimals)
    programs: dict[Trivial, Callable[[StdinCase], bytes | None]] = {
        "nothing": lambda _: b"",
        "input": lambda test: test.stdin,
        "constant": lambda _: first,
        "zero": lambda test: _DECIMAL.sub(b"0.0", test.output) if has_numbers else None,
    }

    def passes(test: StdinCase, output: bytes | None) -> bool:
        return output is not None and not difference(test.output, output, rule)

    for name, run in programs.items():
        if all(passes(test, run(test)) for test in tests):
            return name
    return None


def _trivial_function(tests: Sequence[Call], rule: Comparison) -> Trivial | None:
    if all(_passes(test, None, rule) for test in tests):
        return "nothing"
    for number in range(MAX_ARGUMENTS):
        if all(_passes_with_argument(test, number, rule) for test in tests):
            return "input"
    if len(tests) == 1:
        return None
    expected = tests[0].expected
    accepted: Any = expected.value
    # Any of the accepted values would pass the first test.
    if expected.kind == "one-of":
        accepted = next(iter(accepted), None)
    for value in (*CONSTANTS, accepted):
        if all(_passes(test, value, rule) for test in tests):
            return "constant"
    return None


def _passes_with_argument(test: Call, number: int, rule: Comparison) -> bool:
    """Whether a function that returns its argument at that position passes."""
    call = test.node
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    try:
        return _passes(test, constant(arguments[number]), rule)
    except (ValueError, IndexError):
        return False


def _passes(test: Call, value: Any, rule: Comparison) -> bool:
    """Whether a function that returns this value passes."""
    returned = bool(value) if test.is_condition else value
    try:
        return test.expected.matches(returned, rule)
    except RecursionError:
        return False

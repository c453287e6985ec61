"""Prepare code problems for execution, and turn decisions into output columns.

The tests that are kept are also checked against trivial programs, whose outputs are known without running them; tests
that one of them passes are weak:

============  ==========================================================================================
``nothing``   it prints nothing, or returns None
``input``     it prints its input, or returns an argument
``constant``  it prints the output of the first of several tests, or always returns the same value
``zero``      it prints 0 for each decimal, which passes if the tolerance is wider than the expected values
============  ==========================================================================================
"""

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from magcli.curate.code.agreement import Decision, Rules, Run, count_tests, decide
from magcli.curate.code.solutions import CodeProblem, Label, Solution, Unusable, code_problem
from magcli.curate.cpp_ports.calls import CppCalls, cpp_calls
from magcli.curate.cpp_ports.signatures import Reason as SignatureReason
from magcli.curate.cpp_ports.signatures import UnsupportedSignature
from magcli.errors import DataError
from magcli.verify.code.cases import Call, Case, Expected, StdinCase, parse_tests
from magcli.verify.code.expressions import constant
from magcli.verify.code.judge import LANGUAGES, limits_of
from magcli.verify.code.outputs import Comparison, NotPlain, comparison, difference
from magcli.verify.code.runs import Checker
from magcli.verify.sandbox import Limits

VALUES: tuple[Any, ...] = (True, False, 0, 1, -1, 0.0, "", (), [], {}, frozenset(), [[]], [0], [1])
"""Constants that a trivial function may return, besides the value expected by the first test."""
MAX_ARGUMENTS = 9
_DECIMAL = re.compile(rb"(?<!\S)[+-]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][+-]?\d+)(?!\S)")
Trivial = Literal["nothing", "input", "constant", "zero"]


class RunPlan(NamedTuple):
    """What is run: tests and solutions by their index in the problem, and how outputs are judged.

    ``calls`` adapts C++ solutions to tests that call a Python function.
    """

    tests: Mapping[int, Case]
    solutions: Mapping[int, Solution]
    limits: Limits
    rule: Comparison
    checker: Checker | None
    calls: CppCalls | None = None

    @property
    def called(self) -> bool:
        """Whether the tests call a function."""
        return any(isinstance(case, Call) for case in self.tests.values())


class SkippedTests(NamedTuple):
    """Numbers of tests that are unusable, duplicate an earlier one, or exceed the maximum."""

    bad: int = 0
    duplicate: int = 0
    unrun: int = 0


def _select_tests(problem: CodeProblem, most: int) -> tuple[dict[int, Case], SkippedTests]:
    """The first ``most`` runnable tests (0: all) by index, and the numbers of skipped ones.

    Raises:
        DataError: none is usable, or tests with calls and tests with stdin are mixed.
    """
    found: dict[int, Case] = {}
    seen: set[str] = set()
    bad: list[DataError] = []
    for place, test in enumerate(problem.tests):
        key = json.dumps([test.get(name) for name in ("input", "call", "assert")])
        if key in seen:
            continue
        seen.add(key)
        try:
            found[place] = parse_tests([test], problem.own)[0]
        except DataError as error:
            bad.append(error)
    if bad and not found:
        raise bad[0]
    if len({type(case) for case in found.values()}) > 1:
        raise DataError("some tests call a function and others use stdin")
    chosen = dict(list(found.items())[: most or None])
    return chosen, SkippedTests(len(bad), len(problem.tests) - len(seen), len(found) - len(chosen))


def _select_solutions(solutions: Sequence[Solution], *, cpp: bool, most: int) -> dict[int, Solution]:
    """The first ``most`` distinct runnable solutions of each verdict (0: all)."""
    known = ("python", "cpp") if cpp else ("python",)
    found: dict[int, Solution] = {}
    counts: Counter[str] = Counter()
    for place, each in enumerate(solutions):
        if each.language in known and each not in found.values() and (not most or counts[each.verdict] < most):
            found[place] = each
            counts[each.verdict] += 1
    return found


def checker_of(row: Mapping[str, Any]) -> Checker | None:
    """The checker of a problem, if it has one.

    Raises:
        DataError: it is in an unsupported language.
    """
    if not row.get("checker"):
        return None
    named = str(row.get("checker_language") or "python")
    if named.lower() not in LANGUAGES:
        raise DataError(f"unsupported checker language {named!r}; use Python or C++20")
    return Checker(str(row["checker"]), LANGUAGES[named.lower()])


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
        return {place: solution.verdict for place, solution in self.plan.solutions.items()}


def prepare(
    row: Mapping[str, Any], *, compare: str = "tokens", min_tests: int = 1, max_tests: int = 0, max_solutions: int = 0
) -> Prepared | Unusable:
    """Prepare a row: the first ``max_tests`` tests and ``max_solutions`` solutions of each verdict; 0 means all."""
    problem = code_problem(row, compare)
    if isinstance(problem, Unusable):
        return problem
    try:
        tests, skipped = _select_tests(problem, max_tests)
        calls = _cpp_calls(problem, tests, str(row.get("prompt") or ""))
        plan = _run_plan(problem, tests, calls, checker_of(row), max_solutions)
    except DataError as error:
        return Unusable("bad-tests", str(error))
    unrun = None if calls is None or isinstance(calls, CppCalls) else calls
    if not any(solution.verdict != "wrong" for solution in plan.solutions.values()):
        why = f"; C++ solutions cannot be called: {unrun}" if unrun else ""
        return Unusable(
            "no-solutions", f"none of {len(problem.solutions)} solutions is runnable and not labelled wrong{why}"
        )
    if len(plan.tests) < max(1, min_tests):
        unusable = f", {skipped.bad} more are unusable" if skipped.bad else ""
        return Unusable("few-tests", count_tests(len(plan.tests)) + unusable)
    return Prepared(problem, plan, skipped, _digest(problem, plan), unrun)


def _cpp_calls(problem: CodeProblem, tests: Mapping[int, Case], prompt: str) -> CppCalls | SignatureReason | None:
    """How C++ solutions are called, or why they cannot be; None for tests with stdin or without C++ solutions."""
    calls = [case for case in tests.values() if isinstance(case, Call)]
    if not calls or not any(each.language == "cpp" for each in problem.solutions):
        return None
    try:
        return cpp_calls(calls, prompt, [each.code for each in problem.solutions if each.language == "python"])
    except UnsupportedSignature as error:
        return error.reason


def _run_plan(
    problem: CodeProblem,
    tests: Mapping[int, Case],
    calls: CppCalls | SignatureReason | None,
    checker: Checker | None,
    max_solutions: int,
) -> RunPlan:
    known = calls if isinstance(calls, CppCalls) else None
    called = any(isinstance(case, Call) for case in tests.values())
    if called and checker:
        raise DataError("a checker cannot judge tests that call a function")
    solutions = _select_solutions(problem.solutions, cpp=not called or known is not None, most=max_solutions)
    limits = limits_of({"time_limit": problem.time_limit, "memory_limit": problem.memory_limit})
    return RunPlan(tests, solutions, limits, comparison(problem.compare), checker, known)


def _digest(problem: CodeProblem, plan: RunPlan) -> str:
    stated = problem._asdict() | {"own": sorted(problem.own)}
    what = [stated, list(plan.tests), list(plan.solutions), repr(plan.limits), plan.checker, repr(plan.calls)]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]


def kept_tests(prepared: Prepared, decision: Decision) -> list[Mapping[str, str | None]]:
    """The kept tests of a problem with their new outputs."""
    problem, found = prepared.problem, prepared.plan.tests
    return [_with(problem.tests[place], found[place], output) for place, output in decision.kept.items()]


def trivial_pass(prepared: Prepared, decision: Decision) -> Trivial | None:
    """The trivial program that passes all kept tests; None if none does or a checker judges."""
    if prepared.plan.checker:
        return None
    return trivial(parse_tests(kept_tests(prepared, decision), prepared.problem.own), prepared.plan.rule)


def decide_prepared(prepared: Prepared, runs: Sequence[Run], rules: Rules) -> Decision:
    """Decide on a problem; one that a trivial program passes is weak, too."""
    found = decide(runs, prepared.labels, rules)
    if rules.drop_weak and not found.reason and (passing := trivial_pass(prepared, found)):
        return found._replace(reason="weak", detail=f"a trivial program passes: {passing}")
    return found


def kept_columns(prepared: Prepared, decision: Decision) -> dict[str, Any]:
    """The output columns of a kept problem."""
    problem, passing = prepared.problem, trivial_pass(prepared, decision)
    dropped = {fate: decision.dropped.get(fate, 0) for fate in ("disagree", "contested")}
    return {
        "kind": "code",
        "tests": kept_tests(prepared, decision),
        "solutions": [solution._asdict() for solution in problem.solutions],
        "compare": problem.compare,
        "time_limit": problem.time_limit,
        "memory_limit": problem.memory_limit,
        "tests_dropped": prepared.skipped._asdict() | dropped,
        "outputs_replaced": decision.replaced,
        "wrong_solutions": decision.wrong,
        "wrong_passing": len(decision.passing),
        "weak": bool(decision.passing or passing),
        "trivial": passing,
        "cpp_unrun": prepared.cpp_unrun,
    }


def _with(test: Mapping[str, str | None], case: Case, output: str | None) -> Mapping[str, str | None]:
    """A test with its new output, if any; an assert becomes its call."""
    if output is None:
        return test
    call = case.source if isinstance(case, Call) else None
    return {**test, "output": output, "call": call, "assert": None}


def trivial(tests: Sequence[Case], rule: Comparison) -> Trivial | None:
    """The first trivial program that passes all tests; None if none does."""
    feeds = [test for test in tests if isinstance(test, StdinCase)]
    calls = [test for test in tests if isinstance(test, Call)]
    return _of_programs(feeds, rule) if feeds else _of_functions(calls, rule) if calls else None


def _of_programs(tests: Sequence[StdinCase], rule: Comparison) -> Trivial | None:
    first = tests[0].output if len(tests) > 1 else None
    outputs: dict[Trivial, Sequence[bytes | None]] = {
        "nothing": [b""] * len(tests),
        "input": [test.stdin for test in tests],
        "constant": [first] * len(tests),
        "zero": _zeros(tests),
    }
    for name, given in outputs.items():
        if all(
            output is not None and not difference(test.output, output, rule)
            for test, output in zip(tests, given, strict=True)
        ):
            return name
    return None


def _zeros(tests: Sequence[StdinCase]) -> Sequence[bytes | None]:
    """The outputs with every decimal replaced by 0; None if all are 0 already."""
    numbers = [float(found[0]) for test in tests for found in _DECIMAL.finditer(test.output)]
    return [_DECIMAL.sub(b"0.0", test.output) if any(numbers) else None for test in tests]


def _of_functions(tests: Sequence[Call], rule: Comparison) -> Trivial | None:
    if all(_passes(test, [None] * len(test.calls), rule) for test in tests):
        return "nothing"
    if any(all(_echoes(test, place, rule) for test in tests) for place in range(MAX_ARGUMENTS)):
        return "input"
    constants = [*VALUES, _first(tests[0].expected)] if len(tests) > 1 else []
    if any(all(_passes(test, [value] * len(test.calls), rule) for test in tests) for value in constants):
        return "constant"
    return None


def _first(expected: Expected) -> Any:
    """An accepted value."""
    return next(iter(expected.value), None) if expected.kind == "one-of" else expected.value  # type: ignore[arg-type]


def _echoes(test: Call, place: int, rule: Comparison) -> bool:
    """Whether a function that returns its argument at that position passes."""
    try:
        return _passes(test, [_argument(call, place) for call in test.calls], rule)
    except (ValueError, IndexError):
        return False


def _argument(call: str, place: int) -> Any:
    """The argument of the outermost call; ValueError or IndexError if there is no constant one."""
    match ast.parse(call, mode="eval").body:
        case ast.Call(ast.Name("list_values" | "tree_values"), [inner]):
            return _argument(ast.unparse(inner), place)
        case ast.Call(_, given, named):
            argument = [*given, *(word.value for word in named)][place]
            if isinstance(argument, ast.Call) and argument.args and ast.unparse(argument.func).endswith("_node"):
                argument = argument.args[0]
            return constant(argument)
    raise ValueError("not a call")


def _passes(test: Call, values: Sequence[Any], rule: Comparison) -> bool:
    """Whether a function that returns these values passes."""
    try:
        return test.expected.matches(test.evaluate(values[0] if len(values) == 1 else tuple(values)), rule)
    except (NotPlain, RecursionError):
        return False

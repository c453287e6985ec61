"""A code problem ready to run, and as its runs leave it."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from magcli.curate.code.agreement import Decision, Rules, Run, decide, few
from magcli.curate.code.solutions import CodeProblem, Label, Solution, Unusable, code_problem
from magcli.curate.code.trivial import Trivial, trivial
from magcli.curate.twins.cpp_calls import CppCalls, cpp_calls
from magcli.curate.twins.signatures import Reason as CallReason
from magcli.curate.twins.signatures import Unfit
from magcli.errors import DataError
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import Case, cases
from magcli.verify.code.checker import Checker
from magcli.verify.code.judging import LANGUAGES
from magcli.verify.code.outputs import Comparison, comparison
from magcli.verify.code.programs import limits_of
from magcli.verify.sandbox import Limits


class Trial(NamedTuple):
    """What is run: tests and solutions by their place in the problem, and how outputs are judged.

    ``calls`` is how C++ solutions are asked where the tests call a Python function.
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


class Left(NamedTuple):
    """How many tests are not run: they cannot be used, ask what one before asked, or are beyond the number wanted."""

    bad: int = 0
    duplicate: int = 0
    unrun: int = 0


def _usable_tests(problem: CodeProblem, most: int) -> tuple[dict[int, Case], Left]:
    """The tests that can be run, the first ``most`` of them (0 is all), by their place; and what is left out.

    Raises:
        DataError: none can be used, or some call a function and some give input.
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
            found[place] = cases([test], problem.own)[0]
        except DataError as error:
            bad.append(error)
    if bad and not found:
        raise bad[0]
    if len({type(case) for case in found.values()}) > 1:
        raise DataError("some tests call a function and some give it input")
    chosen = dict(list(found.items())[: most or None])
    return chosen, Left(len(bad), len(problem.tests) - len(seen), len(found) - len(chosen))


def _usable_solutions(solutions: Sequence[Solution], *, cpp: bool, most: int) -> dict[int, Solution]:
    """The solutions that can be run, the first ``most`` of each verdict (0 is all), equal ones once."""
    known = ("python", "cpp") if cpp else ("python",)
    found: dict[int, Solution] = {}
    counts: Counter[str] = Counter()
    for place, each in enumerate(solutions):
        if each.language in known and each not in found.values() and (not most or counts[each.verdict] < most):
            found[place] = each
            counts[each.verdict] += 1
    return found


def checker_of(row: Mapping[str, Any]) -> Checker | None:
    """The program that judges the outputs of a problem, where there is one.

    Raises:
        DataError: it is in a language that is not run.
    """
    if not row.get("checker"):
        return None
    named = str(row.get("checker_language") or "python")
    if named.lower() not in LANGUAGES:
        raise DataError(f"a checker in {named!r} cannot be run; it must be Python or C++20")
    return Checker(str(row["checker"]), LANGUAGES[named.lower()])


class Prepared(NamedTuple):
    """A problem ready to run; ``digest`` is of all that its runs depend on but the machine.

    ``cpp_unrun`` is why C++ solutions cannot be asked what the tests ask of a Python function.
    """

    problem: CodeProblem
    trial: Trial
    left: Left
    digest: str
    cpp_unrun: CallReason | None = None

    @property
    def labels(self) -> dict[int, Label]:
        """What the source says of the solutions that are run."""
        return {place: solution.verdict for place, solution in self.trial.solutions.items()}


def prepare(
    row: Mapping[str, Any], *, compare: str = "tokens", min_tests: int = 1, max_tests: int = 0, max_solutions: int = 0
) -> Prepared | Unusable:
    """What of a row is run. ``max_tests``, and ``max_solutions`` of each verdict, are the first ones; 0 is all."""
    problem = code_problem(row, compare)
    if isinstance(problem, Unusable):
        return problem
    try:
        tests, left = _usable_tests(problem, max_tests)
        calls = _cpp_calls(problem, tests, str(row.get("prompt") or ""))
        trial = _trial(problem, tests, calls, checker_of(row), max_solutions)
    except DataError as error:
        return Unusable("bad-tests", str(error))
    unrun = None if calls is None or isinstance(calls, CppCalls) else calls
    if not any(solution.verdict != "wrong" for solution in trial.solutions.values()):
        why = f"; C++ cannot be called: {unrun}" if unrun else ""
        return Unusable("no-solutions", f"none of {len(problem.solutions)} can be run and is not said to be wrong{why}")
    if len(trial.tests) < max(1, min_tests):
        unusable = f", {left.bad} more cannot be used" if left.bad else ""
        return Unusable("few-tests", few(len(trial.tests)) + unusable)
    return Prepared(problem, trial, left, _digest(problem, trial), unrun)


def _cpp_calls(problem: CodeProblem, tests: Mapping[int, Case], prompt: str) -> CppCalls | CallReason | None:
    """How C++ solutions are asked, or why they cannot be; None where tests give input or no solution is in C++."""
    calls = [case for case in tests.values() if isinstance(case, Call)]
    if not calls or not any(each.language == "cpp" for each in problem.solutions):
        return None
    try:
        return cpp_calls(calls, prompt, [each.code for each in problem.solutions if each.language == "python"])
    except Unfit as error:
        return error.reason


def _trial(
    problem: CodeProblem,
    tests: Mapping[int, Case],
    calls: CppCalls | CallReason | None,
    checker: Checker | None,
    max_solutions: int,
) -> Trial:
    known = calls if isinstance(calls, CppCalls) else None
    called = any(isinstance(case, Call) for case in tests.values())
    if called and checker:
        raise DataError("a checker judges outputs, but the tests call a function")
    solutions = _usable_solutions(problem.solutions, cpp=not called or known is not None, most=max_solutions)
    limits = limits_of({"time_limit": problem.time_limit, "memory_limit": problem.memory_limit})
    return Trial(tests, solutions, limits, comparison(problem.compare), checker, known)


def _digest(problem: CodeProblem, trial: Trial) -> str:
    stated = problem._asdict() | {"own": sorted(problem.own)}
    what = [stated, list(trial.tests), list(trial.solutions), repr(trial.limits), trial.checker, repr(trial.calls)]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]


def tests_kept(prepared: Prepared, decision: Decision) -> list[Mapping[str, str | None]]:
    """The tests of a problem that is kept, with their new outputs."""
    problem, found = prepared.problem, prepared.trial.tests
    return [_with(problem.tests[place], found[place], output) for place, output in decision.kept.items()]


def passed_by(prepared: Prepared, decision: Decision) -> Trivial | None:
    """The trivial program that passes all tests that are kept; None where none does, or where a checker judges."""
    if prepared.trial.checker:
        return None
    return trivial(cases(tests_kept(prepared, decision), prepared.problem.own), prepared.trial.rule)


def decided(prepared: Prepared, runs: Sequence[Run], rules: Rules) -> Decision:
    """What becomes of a problem, of a weak one too where a trivial program passes its tests."""
    found = decide(runs, prepared.labels, rules)
    if rules.drop_weak and not found.reason and (passing := passed_by(prepared, found)):
        return found._replace(reason="weak", detail=f"a trivial program passes: {passing}")
    return found


def kept(prepared: Prepared, decision: Decision) -> dict[str, Any]:
    """The columns of a problem that is kept."""
    problem, passing = prepared.problem, passed_by(prepared, decision)
    dropped = {fate: decision.dropped.get(fate, 0) for fate in ("disagree", "contested")}
    return {
        "kind": "code",
        "tests": tests_kept(prepared, decision),
        "solutions": [solution._asdict() for solution in problem.solutions],
        "compare": problem.compare,
        "time_limit": problem.time_limit,
        "memory_limit": problem.memory_limit,
        "tests_dropped": prepared.left._asdict() | dropped,
        "outputs_replaced": decision.replaced,
        "wrong_solutions": decision.wrong,
        "wrong_passing": len(decision.passing),
        "weak": bool(decision.passing or passing),
        "trivial": passing,
        "cpp_unrun": prepared.cpp_unrun,
    }


def _with(test: Mapping[str, str | None], case: Case, output: str | None) -> Mapping[str, str | None]:
    """A test with a new output, where there is one; an assert becomes its call."""
    if output is None:
        return test
    call = case.source if isinstance(case, Call) else None
    return {**test, "output": output, "call": call, "assert": None}

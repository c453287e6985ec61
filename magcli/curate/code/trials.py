"""A code problem ready to run, and as its runs leave it."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from magcli.curate.code.agreement import Decision, few
from magcli.curate.code.solutions import CodeProblem, Label, Solution, Unusable, code_problem
from magcli.errors import DataError
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import Case, cases
from magcli.verify.code.checker import Checker
from magcli.verify.code.judging import LANGUAGES
from magcli.verify.code.outputs import Comparison, comparison
from magcli.verify.code.programs import limits_of
from magcli.verify.sandbox import Limits


class Trial(NamedTuple):
    """What is run: tests and solutions by their place in the problem, and how outputs are judged."""

    tests: Mapping[int, Case]
    solutions: Mapping[int, Solution]
    limits: Limits
    rule: Comparison
    checker: Checker | None


class Left(NamedTuple):
    """How many tests are not run: they cannot be used, ask what one before asked, or are beyond the number wanted."""

    bad: int = 0
    duplicate: int = 0
    unrun: int = 0


def _usable_tests(tests: Sequence[Mapping[str, str | None]], most: int) -> tuple[dict[int, Case], Left]:
    """The tests that can be run, the first ``most`` of them (0 is all), by their place; and what is left out.

    Raises:
        DataError: some call a function and some give input.
    """
    found: dict[int, Case] = {}
    seen: set[str] = set()
    bad = 0
    for place, test in enumerate(tests):
        key = json.dumps([test.get(name) for name in ("input", "call", "assert")])
        if key in seen:
            continue
        seen.add(key)
        try:
            found[place] = cases([test])[0]
        except DataError:
            bad += 1
    if len({type(case) for case in found.values()}) > 1:
        raise DataError("some tests call a function and some give it input")
    chosen = dict(list(found.items())[: most or None])
    return chosen, Left(bad, len(tests) - len(seen), len(found) - len(chosen))


def _usable_solutions(solutions: Sequence[Solution], *, called: bool, most: int) -> dict[int, Solution]:
    """The solutions in a language that is judged, the first ``most`` of each verdict (0 is all), equal ones once."""
    known = ("python",) if called else ("python", "cpp")
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
    """A problem ready to run; ``digest`` is of all that its runs depend on but the machine."""

    problem: CodeProblem
    trial: Trial
    left: Left
    digest: str

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
        trial, left = _trial(problem, checker_of(row), max_tests, max_solutions)
    except DataError as error:
        return Unusable("bad-tests", str(error))
    if not any(solution.verdict != "wrong" for solution in trial.solutions.values()):
        return Unusable("no-solutions", f"none of {len(problem.solutions)} can be run and is not said to be wrong")
    if len(trial.tests) < max(1, min_tests):
        return Unusable("few-tests", few(len(trial.tests)))
    return Prepared(problem, trial, left, _digest(problem, trial))


def _trial(problem: CodeProblem, checker: Checker | None, max_tests: int, max_solutions: int) -> tuple[Trial, Left]:
    tests, left = _usable_tests(problem.tests, max_tests)
    called = any(isinstance(case, Call) for case in tests.values())
    solutions = _usable_solutions(problem.solutions, called=called, most=max_solutions)
    if called and checker:
        raise DataError("a checker judges outputs, but the tests call a function")
    limits = limits_of({"time_limit": problem.time_limit, "memory_limit": problem.memory_limit})
    return Trial(tests, solutions, limits, comparison(problem.compare), checker), left


def _digest(problem: CodeProblem, trial: Trial) -> str:
    what = [problem, list(trial.tests), list(trial.solutions), repr(trial.limits), trial.checker]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]


def kept(prepared: Prepared, decision: Decision) -> dict[str, Any]:
    """The columns of a problem that is kept."""
    problem, found = prepared.problem, prepared.trial.tests
    tests = [_with(problem.tests[place], found[place], output) for place, output in decision.kept.items()]
    dropped = {fate: decision.dropped.get(fate, 0) for fate in ("disagree", "contested")}
    return {
        "kind": "code",
        "tests": tests,
        "solutions": [solution._asdict() for solution in problem.solutions],
        "compare": problem.compare,
        "time_limit": problem.time_limit,
        "memory_limit": problem.memory_limit,
        "tests_dropped": prepared.left._asdict() | dropped,
        "outputs_replaced": decision.replaced,
        "wrong_solutions": decision.wrong,
        "wrong_passing": len(decision.passing),
        "weak": bool(decision.passing),
    }


def _with(test: Mapping[str, str | None], case: Case, output: str | None) -> Mapping[str, str | None]:
    """A test with a new output, where there is one; an assert becomes its call."""
    if output is None:
        return test
    call = case.source if isinstance(case, Call) else None
    return {"input": test["input"], "output": output, "call": call, "assert": None}

"""Tests made for a code problem: inputs tried on its solutions, their outputs agreed on, kept where they add coverage
(recipe, section 4).

The solutions that are asked are right on all given tests: those that the source calls right or, where it calls none
so, the unknown ones. The first of them gives the output and the others must agree. An input on which one dies or comes
near its limits is thrown away: mostly it is in no format that the problem allows. One is kept that a wrong solution
fails which passed all tests so far, or that is of a size that no test has.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, Literal, NamedTuple

from magcli.curate.code.matrix import Outcome, text_of, tried
from magcli.curate.code.started import NotRun, Started, started
from magcli.curate.code.trials import Trial
from magcli.curate.code.turns import Turns
from magcli.curate.twins.signatures import Unfit
from magcli.data.schema import INPUT_FATES, PROGRAM_FATES
from magcli.errors import DataError, EnvironmentFault
from magcli.verify.code.calls import Call, of_call
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.faults import Fault
from magcli.verify.sandbox import Sandbox

MARGIN = 0.5
"""Share of the time limit that a solution may take on a new test, so that other machines do not fail it."""

MAX_VOTERS = 8
MAX_OUTPUT = 1 << 20
"""Bytes of a new test's output."""

Origin = Literal["mutation", "generator"]
NoTests = Literal["solutions-fail", "few-solutions", "no-format", "nothing-new", "not-run", "out-of-time"]


class Candidate(NamedTuple):
    """An input, or a call, and where it comes from."""

    text: str
    origin: Origin


class Rules(NamedTuple):
    """When a test is kept: the share and the number of solutions that must agree, and how many are tried and kept.

    ``seconds`` of CPU time is what all runs of its solutions may take together.
    """

    agreement: float = 0.9
    votes: int = 2
    tries: int = 60
    most: int = 20
    seconds: float = math.inf


class OutOfTime(Exception):
    """The solutions of a problem have taken all the time that they may."""


class Made(NamedTuple):
    """The new tests, what became of the other inputs, and the wrong solutions that pass given and all tests.

    ``printed``: what became of the inputs that programs of a model print, ``kept`` or why they were thrown away.
    ``out_of_time``: they are those that were found until the problem's time was over.
    """

    tests: Sequence[Mapping[str, str | None]] = ()
    tried: int = 0
    thrown: Mapping[str, int] = {}
    reason: NoTests | None = None
    wrong: int = 0
    passing_before: int = 0
    passing: int = 0
    out_of_time: bool = False
    printed: Mapping[str, int] = {}


def size_class(text: str) -> int:
    """Inputs of one class differ in length by less than four times."""
    return len(text).bit_length() // 2


def make(
    trial: Trial, candidates: Iterable[Candidate], rules: Rules, box: Sandbox, stopped: Callable[[], bool], turns: Turns
) -> Made:
    """New tests of a problem. Blocks. ``not-run`` where the sandbox, a compiler or the checker failed it.

    Raises:
        EnvironmentFault: there is no compiler, or ``stopped`` says so.
    """

    def work() -> Made:
        with ExitStack() as stack:
            return _Bench(trial, rules, box, stopped, stack).made(candidates)

    if not worth_running(trial, rules.votes):
        return Made(reason="few-solutions")
    try:
        return turns.take(work)
    except (NotRun, DataError):
        return Made(reason="not-run")
    except OutOfTime:
        return Made(reason="out-of-time", out_of_time=True)


def worth_running(trial: Trial, votes: int) -> bool:
    """Whether the votes can be had, or there is a wrong solution to tell about."""
    verdicts = [each.verdict for each in trial.solutions.values()]
    return "wrong" in verdicts or len(verdicts) >= votes


class _Bench:
    """The programs of a problem that are still of use, ready to run."""

    def __init__(self, trial: Trial, rules: Rules, box: Sandbox, stopped: Callable[[], bool], stack: ExitStack) -> None:
        self._trial, self._rules, self._box, self._stopped = trial, rules, box, stopped
        self._own = frozenset(case.name for case in trial.tests.values() if isinstance(case, Call))
        self._spent = 0.0
        passing = {label: list(self._passing(label, stack)) for label in ("right", "unknown", "wrong")}
        labelled = any(each.verdict == "right" for each in trial.solutions.values())
        self._asked = passing["right"] if labelled else passing["unknown"]
        self._helpers = passing["unknown"] if labelled and len(self._asked) < rules.votes else []
        self._wrong = passing["wrong"]
        self._sizes = {size_class(_said(case)) for case in trial.tests.values()}

    def _passing(self, label: str, stack: ExitStack) -> Iterator[Started]:
        """The programs of that verdict that pass all given tests, a few of those that are not wrong."""
        found = 0
        for solution in [each for each in self._trial.solutions.values() if each.verdict == label]:
            if found == MAX_VOTERS and label != "wrong":
                return
            with ExitStack() as own:
                program = own.enter_context(started(self._trial, solution, self._box))
                if isinstance(program, Started) and all(
                    self._fault(program, case) is None for case in self._trial.tests.values()
                ):
                    stack.push(own.pop_all())
                    found += 1
                    yield program

    def _ran(self, trial: Trial, program: Started, case: Case) -> Outcome:
        """A program on a test, its time counted.

        Raises:
            OutOfTime: there was none left.
        """
        if self._stopped():
            raise EnvironmentFault("make-tests: it was stopped before this problem was done")
        if self._spent >= self._rules.seconds:
            raise OutOfTime
        outcome = tried(trial, program, case, self._box)
        self._spent += outcome[2] or 0.0
        return outcome

    def _fault(self, program: Started, case: Case) -> Fault | None:
        return self._ran(self._trial, program, case)[0]

    def made(self, candidates: Iterable[Candidate]) -> Made:
        """Try candidates until enough are tried or kept, or the time is over."""
        wrong = sum(each.verdict == "wrong" for each in self._trial.solutions.values())
        before = len(self._wrong)
        if not self._asked or len(self._asked) + len(self._helpers) < self._rules.votes:
            reason: NoTests = "few-solutions" if self._asked else "solutions-fail"
            return Made((), 0, {}, reason, wrong, before, before)
        tests: list[Mapping[str, str | None]] = []
        fates: list[tuple[Origin, str]] = []
        late = False
        try:
            for candidate in islice(candidates, self._rules.tries):
                found = self._tested(candidate)
                fates.append((candidate.origin, found if isinstance(found, str) else "kept"))
                tests += [] if isinstance(found, str) else [found]
                if len(tests) == self._rules.most:
                    break
        except OutOfTime:
            late = True
        thrown = Counter(fate for _, fate in fates if fate != "kept")
        printed = Counter(fate for origin, fate in fates if origin == "generator")
        none: NoTests | None = None if tests else "out-of-time" if late else "nothing-new" if fates else "no-format"
        return Made(tests, len(fates), thrown, none, wrong, before, len(self._wrong), late, printed)

    def _tested(self, candidate: Candidate) -> Mapping[str, str | None] | str:
        """A new test, or why it is none."""
        new_size = size_class(candidate.text) not in self._sizes
        if not self._wrong and not new_size:
            return "nothing-new"
        case, output = self._answered(candidate.text)
        if case is None:
            return "fault"
        left = [program for program in self._wrong if self._fault(program, case) is None]
        if len(left) == len(self._wrong) and not new_size:
            return "nothing-new"
        if not self._agreed(case):
            return "disagree"
        self._wrong = left
        self._sizes.add(size_class(candidate.text))
        names = ("call", "input") if self._trial.called else ("input", "call")
        return {names[0]: candidate.text, names[1]: None, "output": output, "assert": None, "origin": candidate.origin}

    def _answered(self, text: str) -> tuple[Case | None, str]:
        """A test with the output of the first solution; None where it gives none that a test can say."""
        try:
            case: Case = of_call(text, "None", self._own) if self._trial.called else Feed(text.encode(), b"")
            if self._trial.calls and isinstance(case, Call):
                self._trial.calls.stdin(case)
        except (DataError, Unfit):
            return None, ""
        unjudged = self._trial._replace(checker=None)
        _, output, seconds = self._ran(unjudged, self._asked[0], case)
        if output is None or len(output) > MAX_OUTPUT or (seconds or 0) > MARGIN * self._trial.limits.cpu:
            return None, ""
        said = text_of(output, case, self._trial.rule)
        if said is None:
            return None, ""
        return (of_call(text, said, self._own) if self._trial.called else Feed(text.encode(), output)), said

    def _agreed(self, case: Case) -> bool:
        """Whether enough of the others give the same in time; with a checker, whether it takes the output itself."""
        asked = self._asked if self._trial.checker else self._asked[1:]
        votes = 0 if self._trial.checker else 1
        for number, program in enumerate([*asked, *self._helpers]):
            fault, _, seconds = self._ran(self._trial, program, case)
            near = (seconds or 0) > MARGIN * self._trial.limits.cpu
            if near and number < len(asked):
                return False
            votes += fault is None
            most = votes + len(asked) - number - 1
            if number < len(asked) and most < self._rules.agreement * len(self._asked):
                return False
        return votes >= self._rules.votes


def _said(case: Case) -> str:
    return case.source if isinstance(case, Call) else case.stdin.decode(errors="replace")


def told(made: Made, programs: Mapping[str, int] | None) -> dict[str, Any]:
    """The columns that tell how it went. ``programs``: what became of those of a model; None where none was asked."""
    return {
        "tests_tried": made.tried,
        "tests_thrown": {name: made.thrown.get(name, 0) for name in INPUT_FATES[:-1]},
        "tests_made": len(made.tests),
        "no_tests": made.reason,
        "wrong_solutions": made.wrong,
        "wrong_passing_before": made.passing_before,
        "wrong_passing": made.passing,
        "weak": made.passing > 0,
        "out_of_time": made.out_of_time,
        "programs": None if programs is None else {name: programs.get(name, 0) for name in PROGRAM_FATES},
        "program_inputs": None if programs is None else {name: made.printed.get(name, 0) for name in INPUT_FATES},
    }


def with_origin(tests: Iterable[Mapping[str, str | None]]) -> list[Mapping[str, str | None]]:
    """The tests of a problem with their origin: what they say of it, or ``given``."""
    return [{**test, "origin": test.get("origin") or "given"} for test in tests]

"""Make new tests for a code problem: run inputs on its solutions and keep those on which the solutions agree (recipe,
section 4).

Inputs are mutations of the given ones, and those printed by programs of a model. The voters are the solutions that
pass all given tests: those labelled right or, if there are none, the unlabelled ones. The first of them gives the
output, and the others must agree. An input on which one crashes or comes near its limits is rejected, as it is probably
invalid. Tests are kept until the problem has enough. While a wrong solution passes them all, more inputs are tried, and
those that it fails are kept too. Each new test says how many wrong solutions it catches.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice, zip_longest
from typing import Any, Literal, NamedTuple

from magcli.curate.code.execution import (
    ExclusiveRetry,
    ExecutionFailed,
    Outcome,
    RunnableSolution,
    compiled,
    output_text,
    run_test,
)
from magcli.curate.code.prepare import RunPlan
from magcli.curate.cpp_ports.cpp import UnsupportedSignature
from magcli.curate.inputs import calls, mutate
from magcli.curate.inputs.format import infer
from magcli.curate.inputs.generators import entry_name, input_text
from magcli.curate.inputs.values import constraints, describe
from magcli.data.schema import INPUT_OUTCOMES, PROGRAM_OUTCOMES
from magcli.errors import DataError, EnvironmentFault
from magcli.verify.code.cases import Call, Case, parse_call
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.sandbox import Sandbox
from magcli.verify.types import Fault

MARGIN = 0.5
"""Maximum fraction of the time limit that a solution may take on a new test, as other machines may be slower."""
MAX_VOTERS = 8
MAX_OUTPUT = 1 << 20
"""Maximum size of the output of a new test in bytes."""
Origin = Literal["mutation", "generator"]
NoTests = Literal["enough", "solutions-fail", "few-solutions", "no-format", "nothing-new", "not-run", "out-of-time"]
COUNTS = ("tests_tried", "tests_made", "wrong_solutions", "wrong_passing_before", "wrong_passing", "out_of_time")


class Candidate(NamedTuple):
    """An input or a call, and its origin."""

    text: str
    origin: Origin


class Rules(NamedTuple):
    """When tests are kept: fraction and number of agreeing solutions, and maximum number of tried inputs.

    ``until`` is the number of tests that a problem should have in the end, including the given ones. ``seconds`` is the
    CPU time that all runs of a problem may take together.
    """

    agreement: float = 0.9
    votes: int = 2
    tries: int = 200
    until: int = 20
    seconds: float = math.inf


class OutOfTime(Exception):
    """The CPU time for the problem is used up."""


class NewTests(NamedTuple):
    """The new tests, outcomes of rejected inputs, and the numbers of wrong solutions that pass given and all tests.

    ``printed`` counts outcomes of inputs from programs of a model (``kept`` or why rejected). ``out_of_time``: the CPU
    time was used up before all inputs were tried.
    """

    tests: Sequence[Mapping[str, Any]] = ()
    tried: int = 0
    rejected: Mapping[str, int] = {}
    reason: NoTests | None = None
    wrong: int = 0
    passing_before: int = 0
    passing: int = 0
    out_of_time: bool = False
    printed: Mapping[str, int] = {}


def make(
    plan: RunPlan,
    candidates: Iterable[Candidate],
    rules: Rules,
    box: Sandbox,
    stopped: Callable[[], bool],
    retry: ExclusiveRetry,
) -> NewTests:
    """Make new tests for a problem. Blocks. The reason is ``not-run`` if the sandbox, a compiler or the checker failed.

    Raises:
        EnvironmentFault: there is no compiler, or ``stopped`` returned True.
    """

    def work() -> NewTests:
        with ExitStack() as stack:
            return _TestBench(plan, rules, box, stopped, stack).make(candidates)

    if not has_enough_solutions(plan, rules.votes):
        return NewTests(reason="few-solutions")
    try:
        return retry.run(work)
    except (ExecutionFailed, DataError):
        return NewTests(reason="not-run")
    except OutOfTime:
        return NewTests(reason="out-of-time", out_of_time=True)


def has_enough_solutions(plan: RunPlan, votes: int) -> bool:
    """Whether there may be enough votes, or a wrong solution to report on."""
    verdicts = [solution.verdict for solution in plan.solutions.values()]
    return "wrong" in verdicts or len(verdicts) >= votes


class _TestBench:
    """The compiled programs that try new tests: the voters, and the wrong solutions that pass all tests so far."""

    def __init__(
        self, plan: RunPlan, rules: Rules, box: Sandbox, stopped: Callable[[], bool], stack: ExitStack
    ) -> None:
        self._plan = plan
        self._rules = rules
        self._box = box
        self._stopped = stopped
        # A problem without tests says what it asks for as its entry point.
        called = {case.name for case in plan.tests.values() if isinstance(case, Call)}
        self._functions = frozenset(called or {entry_name(plan.entry_point)})
        # Seconds of CPU time.
        self._spent = 0.0
        right = list(self._passing("right", stack))
        unlabelled = list(self._passing("unknown", stack))
        wrong = list(self._passing("wrong", stack))
        has_labels = any(solution.verdict == "right" for solution in plan.solutions.values())
        self._voters = right if has_labels else unlabelled
        # Unlabelled solutions may confirm an output where too few are labelled right, but their dissent does not count.
        self._helpers = unlabelled if has_labels and len(right) < rules.votes else []
        self._wrong = wrong
        self._inputs = {input_text(case) for case in plan.tests.values()}
        # If no output is empty, an empty one means that the program stopped early.
        outputs = [case.output for case in plan.tests.values() if isinstance(case, StdinCase)]
        self._may_print_nothing = any(not output.strip() for output in outputs)

    def _passing(self, label: str, stack: ExitStack) -> Iterator[RunnableSolution]:
        """The programs with that label that pass all given tests, at most ``MAX_VOTERS`` unless wrong."""
        num_passing = 0
        labelled = [solution for solution in self._plan.solutions.values() if solution.verdict == label]
        for solution in labelled:
            if num_passing == MAX_VOTERS and label != "wrong":
                return
            with ExitStack() as inner:
                program = inner.enter_context(compiled(self._plan, solution, self._box))
                if not isinstance(program, RunnableSolution):
                    continue
                if all(self._fault(program, case) is None for case in self._plan.tests.values()):
                    # Keep the program beyond this block, until the caller's stack is closed.
                    stack.push(inner.pop_all())
                    num_passing += 1
                    yield program

    def _run(self, plan: RunPlan, program: RunnableSolution, case: Case) -> Outcome:
        """Run a program on a test, counting its CPU time.

        Raises:
            OutOfTime: no time is left.
        """
        if self._stopped():
            raise EnvironmentFault("make-tests: stopped before this problem was finished")
        if self._spent >= self._rules.seconds:
            raise OutOfTime
        outcome = run_test(plan, program, case, self._box)
        self._spent += outcome[2] or 0.0
        return outcome

    def _fault(self, program: RunnableSolution, case: Case) -> Fault | None:
        return self._run(self._plan, program, case)[0]

    def _is_slow(self, seconds: float | None) -> bool:
        return (seconds or 0) > MARGIN * self._plan.limits.cpu

    def make(self, candidates: Iterable[Candidate]) -> NewTests:
        """Try candidates until there are enough tests that no wrong solution passes, or tries or time run out."""
        wrong = sum(solution.verdict == "wrong" for solution in self._plan.solutions.values())
        before = len(self._wrong)
        if not self._voters or len(self._voters) + len(self._helpers) < self._rules.votes:
            reason: NoTests = "few-solutions" if self._voters else "solutions-fail"
            return NewTests(reason=reason, wrong=wrong, passing_before=before, passing=before)
        tests: list[Mapping[str, Any]] = []
        outcomes: list[tuple[Origin, str]] = []
        out_of_time = False
        try:
            for candidate in islice(candidates, self._rules.tries):
                has_enough = len(self._plan.tests) + len(tests) >= self._rules.until
                if has_enough and not self._wrong:
                    break
                test = self._try(candidate, has_enough)
                if isinstance(test, str):
                    outcomes.append((candidate.origin, test))
                else:
                    outcomes.append((candidate.origin, "kept"))
                    tests.append(test)
        except OutOfTime:
            out_of_time = True
        rejected = Counter(outcome for _, outcome in outcomes if outcome != "kept")
        # What became of the inputs that a model's programs printed.
        printed = Counter(outcome for origin, outcome in outcomes if origin == "generator")
        no_tests = None if tests else self._reason_for_none(out_of_time, bool(outcomes))
        after = len(self._wrong)
        return NewTests(tests, len(outcomes), rejected, no_tests, wrong, before, after, out_of_time, printed)

    def _reason_for_none(self, out_of_time: bool, any_tried: bool) -> NoTests:
        """Why there are no new tests."""
        if out_of_time:
            return "out-of-time"
        if any_tried:
            return "nothing-new"
        return "enough" if len(self._plan.tests) >= self._rules.until else "no-format"

    def _try(self, candidate: Candidate, must_catch: bool) -> Mapping[str, Any] | str:
        """A new test, or why the candidate is rejected; ``must_catch``: only one that a wrong solution fails."""
        if candidate.text in self._inputs:
            return "nothing-new"
        case, output = self._answer(candidate.text)
        if case is None:
            return "fault"
        still_passing = [program for program in self._wrong if self._fault(program, case) is None]
        caught = len(self._wrong) - len(still_passing)
        if must_catch and not caught:
            return "nothing-new"
        if not self._agreed(case):
            return "disagree"
        self._wrong = still_passing
        self._inputs.add(candidate.text)
        # All tests have the same columns, as they are rows of one table.
        column, other = ("call", "input") if self._plan.has_calls else ("input", "call")
        marks = {"origin": candidate.origin, "catches": caught}
        return {column: candidate.text, other: None, "output": output, "assert": None, **marks}

    def _answer(self, text: str) -> tuple[Case | None, str]:
        """A test with the output of the first voter; None without a usable output."""
        try:
            case: Case = self._case(text, "None", b"")
            if self._plan.calls and isinstance(case, Call):
                self._plan.calls.stdin(case)
        except (DataError, UnsupportedSignature):
            return None, ""
        # Without an expected output, the checker has nothing to judge.
        unjudged = self._plan._replace(checker=None)
        _, output, seconds = self._run(unjudged, self._voters[0], case)
        if output is None or len(output) > MAX_OUTPUT or self._is_slow(seconds):
            return None, ""
        if isinstance(case, StdinCase) and not output.strip() and not self._may_print_nothing:
            return None, ""
        expected = output_text(output, case, self._plan.rule)
        if expected is None:
            return None, ""
        return self._case(text, expected, output), expected

    def _case(self, text: str, expected: str, output: bytes) -> Case:
        if self._plan.has_calls:
            return parse_call(text, expected, self._functions)
        return StdinCase(text.encode(), output)

    def _agreed(self, case: Case) -> bool:
        """Whether enough of the others give the same output in time; a checker must also accept the output itself."""
        # The first voter gave the output, which counts as its vote unless a checker has to accept it.
        voters = self._voters if self._plan.checker else self._voters[1:]
        votes = 0 if self._plan.checker else 1
        for num_run, program in enumerate(voters, 1):
            fault, _, seconds = self._run(self._plan, program, case)
            if self._is_slow(seconds):
                return False
            votes += fault is None
            # Stop as soon as the remaining voters cannot reach the required fraction.
            max_votes = votes + len(voters) - num_run
            if max_votes < self._rules.agreement * len(self._voters):
                return False
        for program in self._helpers:
            votes += self._fault(program, case) is None
        return votes >= self._rules.votes


def outcome_columns(made: NewTests, programs: Mapping[str, int] | None) -> dict[str, Any]:
    """The outcome as columns. ``programs``: outcomes of the programs of a model; None without a model."""
    return {
        "tests_tried": made.tried,
        "tests_thrown": {name: made.rejected.get(name, 0) for name in INPUT_OUTCOMES[:-1]},
        "tests_made": len(made.tests),
        "no_tests": made.reason,
        "wrong_solutions": made.wrong,
        "wrong_passing_before": made.passing_before,
        "wrong_passing": made.passing,
        "weak": made.passing > 0,
        "out_of_time": made.out_of_time,
        "programs": None if programs is None else {name: programs.get(name, 0) for name in PROGRAM_OUTCOMES},
        "program_inputs": None if programs is None else {name: made.printed.get(name, 0) for name in INPUT_OUTCOMES},
    }


def candidates(plan: RunPlan, prompt: str, printed: Iterable[str], seed: str) -> Iterator[Candidate]:
    """Mutations and printed inputs alternating; deterministic for a seed, possibly infinite."""
    # In the order of each pair.
    origins: tuple[Origin, Origin] = ("mutation", "generator")
    for pair in zip_longest(mutations(plan, prompt, seed), printed):
        for text, origin in zip(pair, origins, strict=True):
            if text is not None:
                yield Candidate(text, origin)


def mutations(plan: RunPlan, prompt: str, seed: str) -> Iterator[str]:
    """Mutations of the given inputs or calls; none if no format is found."""
    cases = list(plan.tests.values())
    call_texts = [case.source for case in cases if isinstance(case, Call)]
    texts = [case.stdin.decode(errors="replace") for case in cases if isinstance(case, StdinCase)]
    stated = constraints(prompt)
    if call_texts:
        yield from calls.mutations(call_texts, stated, seed)
        return
    format = infer(texts)
    if format is not None:
        yield from mutate.mutations(describe(format, texts, stated), texts, seed)


def count_rows(counts: Counter[str], rows: Iterable[Mapping[str, Any]], until: int) -> None:
    """Add up the outcomes of rows (columns ``tests`` and ``magcli.data.schema.NEW_TESTS``), and those still short of
    ``until`` tests."""
    for row in rows:
        tests = row["tests"]
        counts["problems"] += 1
        counts["without"] += row["no_tests"] is not None
        counts["short"] += len(tests) < until
        counts.update([f"origin_{test['origin']}" for test in tests])
        if row["no_tests"]:
            counts[f"none_{row['no_tests']}"] += 1
        if row["cpp_unrun"]:
            counts[f"cpp_{row['cpp_unrun']}"] += 1
        # Columns of counts by outcome; null without a model.
        for column, prefix in (("tests_thrown", "thrown"), ("programs", "program"), ("program_inputs", "input")):
            outcomes = row[column] or {}
            counts.update({f"{prefix}_{name}": number for name, number in outcomes.items()})
        counts.update({name: row[name] for name in COUNTS})


def model_counts(counts: Counter[str]) -> dict[str, int]:
    """Outcomes of the programs of a model and of their inputs."""
    return {name: number for name, number in counts.items() if name.startswith(("program_", "input_")) and number}


def summary(counts: Counter[str]) -> str:
    """A one-line summary."""
    parts = [
        f"{counts['problems']:,} problems; {counts['tests_tried']:,} inputs tried, {counts['tests_made']:,} "
        f"kept{_parts(counts, 'origin_', 'given')}{_rejected(counts)}",
        _score(counts),
        f"no new tests for {counts['without']:,}{_parts(counts, 'none_')}",
        f"{counts['short']:,} have fewer tests than asked",
    ]
    if model_counts(counts):
        parts.append(_rates(counts))
    if counts["out_of_time"]:
        parts.append(f"{counts['out_of_time']:,} ran out of time, so their tests may differ on another machine")
    if reasons := _parts(counts, "cpp_"):
        parts.append(f"C++ solutions cannot be called in some{reasons}")
    return "; ".join(parts)


def _score(counts: Counter[str]) -> str:
    """How many wrong solutions fail a given test, and how many more a new one."""
    wrong = counts["wrong_solutions"]
    before = wrong - counts["wrong_passing_before"]
    more = counts["wrong_passing_before"] - counts["wrong_passing"]
    shares = [f"{number:,} ({number / max(1, wrong):.1%})" for number in (before, before + more)]
    return f"of {wrong:,} wrong solutions given tests fail {shares[0]}, given and new ones {shares[1]}: {more:,} more"


def _rates(counts: Counter[str]) -> str:
    """How many programs of a model produce inputs, and how many of these become tests."""
    requested = sum(number for name, number in counts.items() if name.startswith("program_"))
    tried = sum(number for name, number in counts.items() if name.startswith("input_"))
    used = counts["program_used"]
    used_share = used / max(1, requested)
    kept = counts["input_kept"]
    kept_share = kept / max(1, tried)
    return (
        f"of {requested:,} programs requested from the model {used:,} ({used_share:.1%}) gave "
        f"inputs{_parts(counts, 'program_', 'used')}; of {tried:,} of their inputs that were tried {kept:,} "
        f"({kept_share:.1%}) are new tests{_parts(counts, 'input_', 'kept')}"
    )


def _rejected(counts: Counter[str]) -> str:
    reasons = _parts(counts, "thrown_")
    return f", rejected{reasons}" if reasons else ""


def _parts(counts: Counter[str], prefix: str, without: str = "") -> str:
    """The counts with that prefix, in parentheses."""
    parts = []
    for key, count in counts.most_common():
        name = key.removeprefix(prefix)
        if key.startswith(prefix) and count and name != without:
            parts.append(f"{name} {count:,}")
    return f" ({', '.join(parts)})" if parts else ""

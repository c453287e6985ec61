"""Agreement of solutions: which tests of a code problem to keep, which expected outputs to replace, and whether to
keep the problem (recipe, section 4).

A test is kept if enough of the working solutions agree on its output. If they agree on another output and no solution
gives the expected one, the expected output is considered wrong and replaced. Pure functions over the matrix of runs:
results depend on neither the order of the solutions nor that of the runs.

The voters are the solutions labelled right or, if there are none, the unlabelled ones; never those labelled wrong. A
solution works if it produced output on at least one test; on a test without output it agrees with nobody. Unlabelled
solutions, such as samples of a model, never replace an output: their most common mistake is often their majority.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from magcli.curate.code.problems import Label

RIGHT = 0
"""The group of outputs that equal the expected one under the problem's comparison."""

TestOutcome = Literal["kept", "replaced", "disagree", "contested", "unconfirmed"]
"""``disagree``: no output has enough votes. ``contested``: enough agree on another output, but some solution gives the
expected one. ``unconfirmed``: no solution gives the expected output, and too few agree to replace it."""

DropReason = Literal["", "not-run", "solutions-fail", "few-tests", "disputed", "weak"]


class Run(NamedTuple):
    """A solution on a test. Equal outputs have the same ``group``: ``RIGHT`` for the expected one, None for no output.

    The verdict is one of ``magcli.verify.types``, or ``unrun`` if the test was skipped because the solution is slow.
    """

    solution: int
    test: int
    verdict: str
    group: int | None
    output: str | None = None
    seconds: float | None = None


class Rules(NamedTuple):
    """When tests and problems are kept.

    ``agreement``: fraction of the working solutions that must give the most common output. ``votes``: minimum number
    of votes to replace an expected output. ``min_tests``: minimum number of tests left. ``disputed``: maximum fraction
    of tests dropped or replaced; beyond it the problem itself is at fault, for example with several right answers.
    """

    agreement: float = 0.9
    votes: int = 2
    min_tests: int = 3
    disputed: float = 0.5
    drop_weak: bool = False


class Decision(NamedTuple):
    """The decision for a problem: ``reason`` is empty if it is kept.

    ``kept`` maps tests, in order, to a new expected output or None. ``dropped`` counts tests by outcome. ``wrong`` is
    the number of solutions labelled wrong that ran; ``passing`` are those that pass all kept tests.
    """

    reason: DropReason
    detail: str
    kept: Mapping[int, str | None]
    dropped: Mapping[TestOutcome, int]
    wrong: int = 0
    passing: Sequence[int] = ()

    @property
    def replaced(self) -> int:
        """Number of replaced outputs."""
        return sum(output is not None for output in self.kept.values())


def decide(runs: Sequence[Run], labels: Mapping[int, Label], rules: Rules) -> Decision:
    """Decide on a problem from its runs.

    Args:
        runs: Every solution on every test, or a single ``infra-error`` if the machine failed.
        labels: The labels of these solutions.
        rules: When tests and problems are kept.
    """
    if failed := next((run for run in runs if run.verdict == "infra-error"), None):
        return Decision("not-run", failed.output or "", {}, {})
    by_test: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.test):
        by_test.setdefault(run.test, []).append(run)
    voting = voters(runs, labels)
    votes = rules.votes if "right" in labels.values() else len(voting) + 1
    judged = {test: _judge_test(each, voting, rules.agreement, votes) for test, each in by_test.items()}
    outcomes = Counter(outcome for outcome, _ in judged.values())
    groups = {test: group for test, (outcome, group) in judged.items() if outcome in ("kept", "replaced")}
    outputs = {test: None if group == RIGHT else _output(by_test[test], group) for test, group in groups.items()}
    failing = {run.solution for run in runs if run.group != groups.get(run.test, run.group) and run.verdict != "unrun"}
    wrong = {run.solution for run in runs if labels[run.solution] == "wrong"}
    passing = sorted(wrong - failing)
    reason, detail = _drop_reason(outcomes, voting, voting - failing, len(groups), rules)
    if not reason and passing and rules.drop_weak:
        reason, detail = "weak", f"{len(passing)} of {len(wrong)} wrong solutions pass"
    dropped = {outcome: count for outcome, count in outcomes.items() if outcome not in ("kept", "replaced")}
    return Decision(reason, detail, outputs, dropped, len(wrong), passing)


def voters(runs: Iterable[Run], labels: Mapping[int, Label]) -> set[int]:
    """The working solutions that vote."""
    label: Label = "right" if "right" in labels.values() else "unknown"
    return {run.solution for run in runs if run.group is not None and labels[run.solution] == label}


def _judge_test(
    runs: Sequence[Run], voting: Collection[int], agreement: float, needed: int
) -> tuple[TestOutcome, int | None]:
    """The outcome of a test and the group that is right from now on; ``needed`` votes replace an output."""
    votes = Counter(run.group for run in runs if run.solution in voting and run.group is not None)
    most = max(votes.values(), default=0)
    first = [group for group, count in votes.items() if count == most]
    winner = RIGHT if RIGHT in first else first[0] if len(first) == 1 else None
    if winner is None or most < agreement * len(voting):
        return "disagree", None
    if winner == RIGHT:
        return "kept", RIGHT
    if RIGHT in votes:
        return "contested", None
    if most < needed or _output(runs, winner) is None:
        return "unconfirmed", None
    return "replaced", winner


def _output(runs: Iterable[Run], group: int | None) -> str | None:
    """The output that represents a group of wrong outputs."""
    return next((run.output for run in runs if run.group == group and run.output is not None), None)


def _drop_reason(
    outcomes: Mapping[TestOutcome, int], voting: Collection[int], passed: Collection[int], kept: int, rules: Rules
) -> tuple[DropReason, str]:
    total = sum(outcomes.values())
    against = total - outcomes.get("kept", 0)
    if total < rules.min_tests:
        return "few-tests", count_tests(total)
    if not voting:
        return "solutions-fail", "no solution produces any output"
    if against > rules.disputed * total:
        too_few = len(voting) < rules.votes
        return "solutions-fail" if too_few else "disputed", f"{against} of {total} tests"
    if unconfirmed := outcomes.get("unconfirmed"):
        return "solutions-fail", f"no solution gives the expected output on {unconfirmed} of {total} tests"
    if kept < rules.min_tests:
        return "few-tests", f"{kept} of {total} tests left"
    if not passed:
        return "solutions-fail", "no solution passes all tests left"
    return "", ""


def count_tests(tests: int) -> str:
    """``1 test`` or ``2 tests``."""
    return f"{tests} test{'' if tests == 1 else 's'}"

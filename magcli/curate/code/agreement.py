"""What the runs of its solutions say of a code problem: which tests to keep, which outputs to replace, whether to keep
the problem (recipe, section 4).

A test is kept on which enough of the working solutions agree. Where they agree on another output than the expected one
and no solution gives that, the expected output is taken as wrong and replaced. Pure functions over a matrix of runs:
they depend on neither the order of the solutions nor that of the runs.

The solutions that are asked are those which the source calls right, or where it calls none so, the unknown ones; never
the wrong. One works that gave an output on some test. On a test on which it gives none it agrees with nobody. Unknown
ones, such as a model's samples, replace no output: their most common mistake is often their most common result.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from magcli.curate.code.solutions import Label

RIGHT = 0
"""The group of outputs that the problem's own rule accepts."""

Fate = Literal["kept", "replaced", "disagree", "contested", "unconfirmed"]
"""``disagree``: too few give one result. ``contested``: enough agree against the expected output, which others give.
``unconfirmed``: nobody gives the expected output, and those who agree are too few to replace it."""

DropReason = Literal["", "not-run", "solutions-fail", "few-tests", "disputed", "weak"]


class Run(NamedTuple):
    """A solution on a test. ``group``: outputs that count as equal, ``RIGHT`` for the expected; None for no output.

    The verdict is one of ``magcli.verify.types``, or ``unrun`` for a slow solution that was spared the test.
    """

    solution: int
    test: int
    verdict: str
    group: int | None
    output: str | None = None
    seconds: float | None = None


class Rules(NamedTuple):
    """When a test and a problem are kept.

    ``agreement``: share of the working solutions that must give the most common result. ``votes``: how many at least
    to replace an expected output. ``min_tests`` must be left. ``disputed``: share of the tests that may be dropped or
    replaced; beyond it the problem rather than its tests is at fault, such as one with several right answers.
    """

    agreement: float = 0.9
    votes: int = 2
    min_tests: int = 3
    disputed: float = 0.5
    drop_weak: bool = False


class Decision(NamedTuple):
    """What becomes of a problem: ``reason`` is empty where it is kept, ``detail`` is for people.

    ``kept`` maps tests, in order, to a new expected output or None. ``dropped`` counts tests by fate. Of ``wrong``
    solutions labelled so and run, ``passing`` pass all tests kept.
    """

    reason: DropReason
    detail: str
    kept: Mapping[int, str | None]
    dropped: Mapping[Fate, int]
    wrong: int = 0
    passing: Sequence[int] = ()

    @property
    def replaced(self) -> int:
        """How many expected outputs are new."""
        return sum(output is not None for output in self.kept.values())


def decide(runs: Sequence[Run], labels: Mapping[int, Label], rules: Rules) -> Decision:
    """What the runs of a problem say of it.

    Args:
        runs: Every solution that was run, on every test; or one of ``infra-error``, where the machine failed.
        labels: What the source says of each of these solutions.
        rules: When a test and a problem are kept.
    """
    if failed := next((run for run in runs if run.verdict == "infra-error"), None):
        return Decision("not-run", failed.output or "", {}, {})
    asked = asked_for(runs, labels)
    tests = {test: _Groups(runs_of) for test, runs_of in _by_test(runs).items()}
    votes = rules.votes if "right" in labels.values() else len(asked) + 1
    found = {test: groups.fate(asked, rules.agreement, votes) for test, groups in tests.items()}
    fates = Counter(fate for fate, _ in found.values())
    kept = {test: group for test, (fate, group) in found.items() if fate in ("kept", "replaced")}
    outputs = {test: tests[test].outputs.get(group) if group != RIGHT else None for test, group in kept.items()}
    failing = {run.solution for run in runs if run.group != kept.get(run.test, run.group) and run.verdict != "unrun"}
    wrong = {run.solution for run in runs if labels[run.solution] == "wrong"}
    passing = sorted(wrong - failing)
    reason, detail = _reason(fates, asked, asked - failing, len(kept), rules)
    if not reason and passing and rules.drop_weak:
        reason, detail = "weak", f"{len(passing)} of {len(wrong)} wrong solutions pass"
    dropped = {fate: count for fate, count in fates.items() if fate not in ("kept", "replaced")}
    return Decision(reason, detail, outputs, dropped, len(wrong), passing)


def asked_for(runs: Iterable[Run], labels: Mapping[int, Label]) -> set[int]:
    """The working solutions that are asked."""
    label: Label = "right" if "right" in labels.values() else "unknown"
    return {run.solution for run in runs if run.group is not None and labels[run.solution] == label}


def _by_test(runs: Iterable[Run]) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.test, []).append(run)
    return dict(sorted(found.items()))


def _reason(
    fates: Mapping[Fate, int], asked: Collection[int], passed: Collection[int], kept: int, rules: Rules
) -> tuple[DropReason, str]:
    total = sum(fates.values())
    against = total - fates.get("kept", 0)
    if total < rules.min_tests:
        return "few-tests", few(total)
    if not asked:
        return "solutions-fail", "no solution gives any output"
    if against > rules.disputed * total:
        alone = len(asked) < rules.votes
        return "solutions-fail" if alone else "disputed", f"{against} of {total} tests"
    if fates.get("unconfirmed"):
        return "solutions-fail", f"no solution gives the expected output of {fates['unconfirmed']} of {total} tests"
    if kept < rules.min_tests:
        return "few-tests", f"{kept} of {total} are left"
    if not passed:
        return "solutions-fail", "no solution passes all tests that are left"
    return "", ""


def few(tests: int) -> str:
    """How a problem with so many tests is told of that has not enough."""
    return f"{tests} test{'' if tests == 1 else 's'}"


class _Groups:
    """The runs of all solutions on one test, by the group of their output."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._group = {run.solution: run.group for run in runs}
        self.outputs = {run.group: run.output for run in runs if run.output is not None}

    def fate(self, asked: Collection[int], agreement: float, needed: int) -> tuple[Fate, int | None]:
        """What becomes of the test, and the group that is right from then on; ``needed`` votes replace an output."""
        votes = Counter(group for solution in asked if (group := self._group.get(solution)) is not None)
        most = max(votes.values(), default=0)
        first = [group for group, count in votes.items() if count == most]
        winner = RIGHT if RIGHT in first else first[0] if len(first) == 1 else None
        if winner is None or most < agreement * len(asked):
            return "disagree", None
        if winner == RIGHT:
            return "kept", RIGHT
        if RIGHT in votes:
            return "contested", None
        if most < needed or winner not in self.outputs:
            return "unconfirmed", None
        return "replaced", winner

"""The matrix of a code problem: every solution on every test, in the sandbox, with outputs that count as equal in one
group (recipe, section 4).

Outputs are compared by the problem's own rule, not by their text. Where a checker judges, its verdicts are the groups:
two outputs that it rejects need not be equal, but neither can replace the expected one.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from magcli.curate.code.agreement import RIGHT, Run
from magcli.curate.code.solutions import Solution
from magcli.curate.code.started import NotRun, Started, started
from magcli.curate.code.trials import Trial
from magcli.curate.code.turns import Turns
from magcli.errors import DataError, EnvironmentFault
from magcli.verify.code import runs
from magcli.verify.code.calls import Expected, of_call
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.faults import Fault
from magcli.verify.code.judging import MAX_ATTEMPTS
from magcli.verify.code.outputs import Comparison, difference
from magcli.verify.code.plain import NotPlain, read
from magcli.verify.sandbox import Sandbox

MAX_KEPT, MAX_HELD = 1 << 20, 256 << 20
"""Bytes of a wrong output, and of all of a problem, that are kept to compare them with others; what goes beyond is
equal only to the same bytes, and replaces nothing."""

PATIENCE = 2
"""Tests on which a solution may run out of time; one that is not said to be right is then ``unrun`` on those left."""

REJECTED = RIGHT + 1
"""The group of what a checker rejects."""


def run_all(trial: Trial, box: Sandbox, stopped: Callable[[], bool], turns: Turns) -> list[Run]:
    """Every solution on every test. Blocks; about as long as the programs take.

    Where the sandbox or the checker fails, or a compiler has not enough time twice, one run with the verdict
    ``infra-error`` stands for all, its output what failed.

    Raises:
        EnvironmentFault: there is no compiler, or ``stopped`` says so.
    """
    try:
        return turns.take(lambda: _run_all(trial, box, stopped))
    except (NotRun, DataError) as error:
        return [Run(min(trial.solutions), min(trial.tests), "infra-error", None, str(error))]


def _run_all(trial: Trial, box: Sandbox, stopped: Callable[[], bool]) -> list[Run]:
    found: list[Run] = []
    wrong: dict[int, dict[int, bytes]] = {place: {} for place in trial.tests}
    held = 0
    for number, solution in trial.solutions.items():
        for place, outcome in _of_solution(trial, solution, box, stopped):
            if outcome is None:
                found.append(Run(number, place, "unrun", None))
                continue
            fault, output, seconds = outcome
            verdict = fault.reason if fault else "accepted"
            found.append(Run(number, place, verdict, None if output is None else RIGHT, None, seconds))
            if fault and output is not None:
                wrong[place][number] = output if len(output) <= min(MAX_KEPT, MAX_HELD - held) else _name(output)
                held += len(wrong[place][number])
    groups = {place: _grouped(trial, place, outputs) for place, outputs in wrong.items()}
    return [_placed(run, groups[run.test]) for run in found]


Outcome = tuple[Fault | None, bytes | None, float | None]
"""Of a run: what is wrong, the output where there is one, and seconds of CPU time."""


def _of_solution(
    trial: Trial, solution: Solution, box: Sandbox, stopped: Callable[[], bool]
) -> Iterator[tuple[int, Outcome | None]]:
    """On each test what is wrong, the output where there is one, and seconds; None where it is not run."""
    late = 0
    with started(trial, solution, box) as program:
        for place, case in trial.tests.items():
            if stopped():
                raise EnvironmentFault("filter-code: it was stopped before this problem was done")
            if isinstance(program, Fault):
                yield place, (_its_own(program), None, None)
            elif late == PATIENCE and solution.verdict != "right":
                yield place, None
            else:
                outcome = tried(trial, program, case, box)
                late += bool(outcome[0] and outcome[0].reason == "time-limit")
                yield place, outcome


def tried(trial: Trial, program: Started, case: Case, box: Sandbox) -> Outcome:
    """A program on one test: what is wrong, its output where there is one, and its seconds of CPU time.

    Raises:
        NotRun: the sandbox or the checker failed, several times.
    """
    for _ in range(MAX_ATTEMPTS):
        output, seconds = program.run(case, trial.limits)
        if isinstance(output, Fault):
            fault: Fault | None = output
        else:
            fault = runs.judged(output, case, trial.rule, trial.checker, box)
        if fault is None or fault.reason != "infra-error":
            break
    if isinstance(output, Fault):
        return _its_own(output), None, seconds
    return fault and _its_own(fault), output, seconds


def _its_own(fault: Fault) -> Fault:
    """The fault, where it is the program's.

    Raises:
        NotRun: it is not.
    """
    if fault.reason == "infra-error":
        raise NotRun(fault.detail)
    return fault


def _name(output: bytes) -> bytes:
    """What stands for an output that is not kept; no UTF-8, so no text of a test."""
    return b"\xff" + hashlib.sha256(output).digest()


def _placed(run: Run, groups: Mapping[int, tuple[int, str | None]]) -> Run:
    if run.solution not in groups:
        return run
    group, output = groups[run.solution]
    return run._replace(group=group, output=output)


def _grouped(trial: Trial, place: int, outputs: Mapping[int, bytes]) -> dict[int, tuple[int, str | None]]:
    """Solutions with a wrong output: the group, and for one solution of each group the output that stands for it."""
    if trial.checker:
        return dict.fromkeys(outputs, (REJECTED, None))
    case = trial.tests[place]
    found: dict[int, tuple[int, str | None]] = {}
    for number, group in enumerate(_components(sorted(set(outputs.values())), case, trial.rule), RIGHT + 1):
        members = [solution for solution, output in outputs.items() if output in group]
        text = text_of(_most_common([outputs[solution] for solution in members]), case, trial.rule)
        found |= {solution: (number, text if solution == members[0] else None) for solution in members}
    return found


def _most_common(outputs: Sequence[bytes]) -> bytes:
    """The most frequent one, of equally frequent ones the first in order, whichever solutions gave them."""
    counts = Counter(outputs)
    return min(counts, key=lambda output: (-counts[output], output))


def _components(outputs: Sequence[bytes], case: Case, rule: Comparison) -> list[set[bytes]]:
    """Outputs that are equal, or linked by others that are: within a tolerance, being equal is not transitive."""
    found: list[set[bytes]] = []
    for output in outputs:
        near = [group for group in found if any(_equal(output, other, case, rule) for other in group)]
        found = [group for group in found if group not in near] + [{output}.union(*near)]
    return found


def _equal(one: bytes, other: bytes, case: Case, rule: Comparison) -> bool:
    """Whether either output would do where the other is expected."""
    if isinstance(case, Feed):
        return not difference(one, other, rule) or not difference(other, one, rule)
    try:
        values = case.seen(read(one)), case.seen(read(other))
    except NotPlain:
        return False
    return any(Expected("equal", each).met(given, rule) for each, given in (values, values[::-1]))


def text_of(output: bytes, case: Case, rule: Comparison) -> str | None:
    """An output as a test has it; None where a test cannot say it."""
    if isinstance(case, Feed):
        return _decoded(output)
    try:
        value = case.seen(read(output))
        text = repr(value)
        again = of_call(case.source, text, frozenset([case.name]))
    except (NotPlain, DataError, ValueError):
        return None
    return text if again.name == case.name and again.expected.met(value, rule) else None


def _decoded(output: bytes) -> str | None:
    try:
        return output.decode()
    except UnicodeDecodeError:
        return None

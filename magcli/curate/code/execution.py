"""Run every solution of a code problem on every test in the sandbox, and group equal outputs (recipe, section 4).

Outputs are compared by the problem's comparison, not as text. With a checker the groups are its verdicts: two rejected
outputs need not be equal, but neither can replace the expected one.

If tests call a Python function, a C++ solution gets the arguments on stdin, and its output is parsed as the value
(``magcli.curate.cpp_ports.calls``).
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from magcli.curate.code.agreement import RIGHT, Cell
from magcli.curate.code.prepare import RunPlan
from magcli.curate.code.problems import Solution
from magcli.curate.cpp_ports.calls import CppCalls
from magcli.curate.cpp_ports.cpp import UnsupportedSignature
from magcli.errors import DataError, EnvironmentFault
from magcli.verify.code import runs
from magcli.verify.code.cases import Call, Case, equal, parse_call
from magcli.verify.code.judge import MAX_ATTEMPTS
from magcli.verify.code.outputs import Comparison, NotPlain, decode, difference
from magcli.verify.code.script_runs import judge_script
from magcli.verify.code.scripts import Script
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.sandbox import Limits, Program, Sandbox, printable
from magcli.verify.types import Fault

MAX_OUTPUT_BYTES, MAX_TOTAL_BYTES = 1 << 20, 256 << 20
"""Maximum size of a wrong output, and of all wrong outputs of a problem, that is kept for comparison. Larger ones are
compared byte by byte, and cannot replace an expected output."""
MAX_TIMEOUTS = 2
"""Number of timeouts after which a solution not labelled right is ``unrun`` on the remaining tests."""
REJECTED = RIGHT + 1
"""The group of outputs rejected by a checker."""
T = TypeVar("T")
Outcome = tuple[Fault | None, bytes | None, float | None]
"""The fault, the output if there is one, and CPU seconds."""


class ExecutionFailed(Exception):
    """The sandbox, a compiler or the checker failed, which says nothing about the programs."""


class CompilerFailed(ExecutionFailed):
    """A compiler timed out or died, as happens on a busy machine."""


class BadTest(Exception):
    """A script is broken by itself."""


class RunnableSolution(NamedTuple):
    """A compiled program; ``calls`` is set for a C++ program whose tests call a Python function."""

    program: Program
    calls: CppCalls | None

    def run(self, case: Case, limits: Limits) -> runs.RunOutput:
        """Run one test: the output, for a call the text of its value, or a fault."""
        if self.calls is None or not isinstance(case, Call):
            return runs.run(self.program, case, limits)
        try:
            run = runs.run(self.program, StdinCase(self.calls.stdin(case), b""), limits)
        except UnsupportedSignature as error:
            return runs.RunOutput(Fault("runtime-error", f"the arguments have no C++ type: {error.reason}"), 0.0)
        if isinstance(run.output, Fault):
            return run
        try:
            return run._replace(output=self.calls.value(run.output))
        except NotPlain as error:
            detail = printable(str(error).encode())
            return run._replace(output=Fault("wrong-answer", f"the value cannot be parsed: {detail}"))


class ExclusiveRetry:
    """Runs problems concurrently; one whose compiler timed out is run a second time, alone.

    Shared by the threads that run problems; not reentrant.
    """

    def __init__(self) -> None:
        # Guards how many problems run side by side, and whether one runs alone.
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False

    def run(self, work: Callable[[], T]) -> T:
        """Do the work of a problem alongside others; if a compiler timed out, once more alone.

        Raises:
            CompilerFailed: it failed alone, too.
        """
        try:
            with self._shared():
                return work()
        except CompilerFailed:
            with self._exclusive():
                return work()

    @contextmanager
    def _shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            # Closed first, so that no more start while those that run come to their end.
            self._closed = True
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()


def run_all(plan: RunPlan, box: Sandbox, stopped: Callable[[], bool], retry: ExclusiveRetry) -> list[Cell]:
    """Run every solution on every test. Blocks for about as long as the programs run.

    If the sandbox or the checker fails, or a compiler times out twice, the result is a single run with the verdict
    ``infra-error`` and the error as output; ``bad-gold`` if a script is broken.

    Raises:
        EnvironmentFault: there is no compiler, or ``stopped`` returned True.
    """
    try:
        return retry.run(lambda: _run_all(plan, box, stopped))
    except BadTest as error:
        return [Cell(min(plan.solutions), min(plan.numbers), "bad-gold", None, str(error))]
    except (ExecutionFailed, DataError) as error:
        return [Cell(min(plan.solutions), min(plan.numbers), "infra-error", None, str(error))]


def _run_all(plan: RunPlan, box: Sandbox, stopped: Callable[[], bool]) -> list[Cell]:
    """The runs of all solutions on all tests, with the groups of their outputs."""
    executed: list[Cell] = []
    # The wrong outputs of each test, by solution.
    wrong: dict[int, dict[int, bytes]] = {test: {} for test in plan.tests}
    stored = 0
    for number, solution in plan.solutions.items():
        for test, outcome in _run_solution(plan, solution, box, stopped):
            if outcome is None:
                executed.append(Cell(number, test, "unrun", None))
                continue
            fault, output, seconds = outcome
            verdict = fault.reason if fault else "accepted"
            # The group of a wrong output is set below, when all outputs of the test are compared.
            group = None if output is None else RIGHT
            executed.append(Cell(number, test, verdict, group, None, seconds))
            if fault and output is not None:
                fits = len(output) <= min(MAX_OUTPUT_BYTES, MAX_TOTAL_BYTES - stored)
                # The stand-in is not UTF-8, so it cannot become the output of a test.
                # Equal outputs have equal digests, so large ones are still grouped.
                compared = output if fits else b"\xff" + hashlib.sha256(output).digest()
                wrong[test][number] = compared
                stored += len(compared)
    groups = {test: _grouped(plan, test, outputs) for test, outputs in wrong.items()}
    for index, run in enumerate(executed):
        if run.solution in groups.get(run.test, ()):
            group, text = groups[run.test][run.solution]
            executed[index] = run._replace(group=group, output=text)
    return executed


def _run_solution(
    plan: RunPlan, solution: Solution, box: Sandbox, stopped: Callable[[], bool]
) -> Iterator[tuple[int, Outcome | None]]:
    """The outcome of each test; None if it is skipped."""
    timeouts = 0
    with compiled(plan, solution, box) as program:
        # A plan has either tests or scripts.
        cases: dict[int, Case | Script] = {**plan.tests, **plan.scripts}
        for test, case in cases.items():
            if stopped():
                raise EnvironmentFault("filter-code: stopped before this problem was finished")
            if isinstance(program, Fault):
                yield test, (program, None, None)
            # A solution that is labelled right decides on the tests, so all its runs count.
            elif timeouts == MAX_TIMEOUTS and solution.verdict != "right":
                yield test, None
            else:
                if isinstance(case, Script):
                    outcome = run_script(plan, program, case, box)
                else:
                    outcome = run_test(plan, program, case, box)
                timeouts += bool(outcome[0] and outcome[0].reason == "time-limit")
                yield test, outcome


def run_test(plan: RunPlan, program: RunnableSolution, case: Case, box: Sandbox) -> Outcome:
    """Run a program on one test.

    Raises:
        ExecutionFailed: the sandbox or the checker failed repeatedly.
    """
    error = ""
    for _ in range(MAX_ATTEMPTS):
        result, seconds = program.run(case, plan.limits)
        if isinstance(result, Fault):
            fault: Fault | None = result
            output = None
        else:
            fault = runs.check_output(result, case, plan.rule, plan.checker, box)
            output = result
        if fault is None or fault.reason != "infra-error":
            return fault, output, seconds
        error = fault.detail
    raise ExecutionFailed(error)


def run_script(plan: RunPlan, program: RunnableSolution, script: Script, box: Sandbox) -> Outcome:
    """Run a program on a script, whose output is empty if it passes.

    Raises:
        BadTest: the test is broken.
        ExecutionFailed: the sandbox failed repeatedly.
    """
    fault: Fault | None = None
    for _ in range(MAX_ATTEMPTS):
        try:
            fault = judge_script(program.program, script, plan.limits, plan.rule, box)
        except DataError as error:
            raise BadTest(str(error)) from error
        if fault is None:
            return None, b"", None
        if fault.reason != "infra-error":
            return fault, None, None
    raise ExecutionFailed(fault.detail if fault else "")


def _grouped(plan: RunPlan, test: int, outputs: Mapping[int, bytes]) -> dict[int, tuple[int, str | None]]:
    """The group of each wrong output and, for one solution of each group, its representative text."""
    # A checker says only whether an output is right, not whether two are equal.
    if plan.checker:
        return dict.fromkeys(outputs, (REJECTED, None))
    case = plan.tests[test]
    distinct_outputs = sorted(set(outputs.values()))
    groups: dict[int, tuple[int, str | None]] = {}
    # Sorted outputs, so that the numbers of groups do not depend on the order of solutions.
    for number, component in enumerate(_components(distinct_outputs, case, plan.rule), RIGHT + 1):
        members = [solution for solution, output in outputs.items() if output in component]
        representative = _most_common([outputs[solution] for solution in members])
        groups.update(dict.fromkeys(members, (number, None)))
        groups[members[0]] = (number, output_text(representative, case, plan.rule))
    return groups


def _most_common(outputs: Sequence[bytes]) -> bytes:
    """The most frequent output, ties broken by order, independent of the order of solutions."""
    counts = Counter(outputs)
    return min(counts, key=lambda output: (-counts[output], output))


def _components(outputs: Sequence[bytes], case: Case, rule: Comparison) -> list[set[bytes]]:
    """Connected components of equal outputs: with a tolerance, equality is not transitive."""
    components: list[set[bytes]] = []
    for output in outputs:
        # An output that equals members of several components joins these.
        joined = {output}
        apart = []
        for component in components:
            if any(_equal(output, other, case, rule) for other in component):
                joined |= component
            else:
                apart.append(component)
        components = [*apart, joined]
    return components


def _equal(one: bytes, other: bytes, case: Case, rule: Comparison) -> bool:
    """Whether either output is accepted if the other is expected."""
    if isinstance(case, StdinCase):
        return not difference(one, other, rule) or not difference(other, one, rule)
    try:
        value, other_value = decode(one), decode(other)
    except NotPlain:
        return False
    return equal(value, other_value, rule) or equal(other_value, value, rule)


def output_text(output: bytes, case: Case, rule: Comparison) -> str | None:
    """An output as the text of a test; None if it cannot be expressed."""
    try:
        if isinstance(case, StdinCase):
            return output.decode()
        value = decode(output)
        text = repr(value)
        test = parse_call(case.source, text, frozenset([case.name]))
    except (NotPlain, DataError, ValueError):
        return None
    # Read back, the text must call the same function and accept its own value.
    is_faithful = test.name == case.name and test.expected.matches(value, rule)
    return text if is_faithful else None


@contextmanager
def compiled(plan: RunPlan, solution: Solution, box: Sandbox) -> Iterator[RunnableSolution | Fault]:
    """Compile a solution for the tests of its problem; a fault if it does not compile.

    Raises:
        CompilerFailed: the compiler timed out or died.
        EnvironmentFault: there is no compiler.
    """
    # Python programs are called directly.
    calls = plan.calls if plan.has_calls and solution.language == "cpp" else None
    source = calls.program(solution.code) if calls else solution.code
    serving = bool(plan.scripts)
    with runs.start_program(source, solution.language, box, called=plan.has_calls, serving=serving) as program:
        if isinstance(program, Fault) and program.reason in ("compile-timeout", "infra-error"):
            raise CompilerFailed(f"a C++ solution was not compiled: {program.detail}")
        yield program if isinstance(program, Fault) else RunnableSolution(program, calls)

"""A solution of a code problem, started and ready to be asked by any test.

C++ has no call by text, so where tests call a Python function a C++ solution gets the arguments as stdin, and what it
writes stands for its value (``magcli.curate.twins.cpp_calls``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from magcli.curate.code.solutions import Solution
from magcli.curate.code.trials import Trial
from magcli.curate.twins.cpp_calls import CppCalls
from magcli.curate.twins.signatures import Unfit
from magcli.verify.code import runs
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.faults import Fault, printable
from magcli.verify.code.plain import NotPlain
from magcli.verify.sandbox import Limits, Program, Sandbox


class NotRun(Exception):
    """The sandbox, a compiler or the checker failed, which says nothing of the programs."""


class NotCompiled(NotRun):
    """A compiler ran out of time or was lost, as happens on a busy machine."""


class Started(NamedTuple):
    """A program that runs tests; ``calls`` where a C++ one is asked what tests ask of a Python function."""

    program: Program
    calls: CppCalls | None

    def run(self, case: Case, limits: Limits) -> runs.Run:
        """One test: the output, or of a call the text of its value, or why there is none."""
        if self.calls is None or not isinstance(case, Call):
            return runs.run(self.program, case, limits)
        try:
            found = runs.run(self.program, Feed(self.calls.stdin(case), b""), limits)
        except Unfit as error:
            return runs.Run(Fault("runtime-error", f"the arguments are none of C++: {error.reason}"), 0.0)
        if isinstance(found.output, Fault):
            return found
        try:
            return found._replace(output=self.calls.value(found.output))
        except NotPlain as error:
            told = printable(str(error).encode())
            return found._replace(output=Fault("wrong-answer", f"its value cannot be read: {told}"))


@contextmanager
def started(trial: Trial, solution: Solution, box: Sandbox) -> Iterator[Started | Fault]:
    """A solution that can be run on the tests of its problem; a fault where it is no program.

    Raises:
        NotCompiled: whether it is one is not known.
        EnvironmentFault: there is no compiler.
    """
    calls = trial.calls if trial.called and solution.language == "cpp" else None
    source = calls.program(solution.code) if calls else solution.code
    with runs.started(source, solution.language, box, called=trial.called) as program:
        if isinstance(program, Fault) and program.reason in ("compile-timeout", "infra-error"):
            raise NotCompiled(f"a solution in C++ was not compiled: {program.detail}")
        yield program if isinstance(program, Fault) else Started(program, calls)

"""One run of a program on one test: started in the sandbox, its output taken, and judged outside it.

What a run gives is bytes: what the program wrote to stdout or, of a call, the text of its value
(``magcli.verify.code.plain``). Judging them needs no program, so outputs can be kept and compared with each other.
"""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from magcli.verify.code import compiler
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.checker import Checker, check
from magcli.verify.code.faults import Fault, fault, last_line, printable
from magcli.verify.code.interpreter import command, sources
from magcli.verify.code.outputs import MAX_EXCERPT, Comparison, difference
from magcli.verify.code.plain import NotPlain, Other, read, shown
from magcli.verify.sandbox import Limits, Outcome, Program, Sandbox

MAX_VALUE = 4 << 20
"""Bytes of text for the value of a call: in memory it takes twenty times as much."""


class Run(NamedTuple):
    """What a run gave, or why it gave nothing, and its seconds of CPU time."""

    output: bytes | Fault
    seconds: float


@contextmanager
def started(source: str, language: str, box: Sandbox, *, called: bool) -> Iterator[Program | Fault]:
    """A program that can be run on tests; a fault where it does not compile.

    Args:
        source: Its source.
        language: ``python`` or ``cpp``.
        box: Where it runs.
        called: That its tests are calls.

    Raises:
        EnvironmentFault: there is no compiler.
    """
    if language == "python":
        argv = command(box, "driver.py" if called else "boot.py")
        with box.program(argv, sources(source, called=called)) as program:
            yield program
        return
    with tempfile.TemporaryDirectory(prefix="magcli-") as folder:
        binary = Path(folder, "program")
        if wrong := compiler.build(source, box, binary):
            yield wrong
            return
        with box.program(["./program"], {"program": binary}) as program:
            yield program


def run(program: Program, case: Case, limits: Limits) -> Run:
    """One test by stdin and stdout, or by a call. A crash after the right output is a crash."""
    if isinstance(case, Feed):
        outcome = program.run(case.stdin, limits)
        return Run(_crash(outcome, limits) or outcome.stdout, outcome.cpu)
    token = secrets.token_hex(8)
    outcome = program.run(f"{token}\n{case.name}\n{case.asked}".encode(), limits)
    return Run(_crash(outcome, limits) or _reported(outcome.report, token, case), outcome.cpu)


def judged(output: bytes, case: Case, rule: Comparison, checker: Checker | None, box: Sandbox) -> Fault | None:
    """What is wrong with the output of a run; None where it is right.

    Raises:
        DataError: the checker does not compile.
    """
    if isinstance(case, Call):
        return _value(output, case, rule)
    if checker:
        return check(checker, case, output, box)
    differs = difference(case.output, output, rule)
    return Fault("wrong-answer", differs) if differs else None


def _reported(report: bytes, token: str, case: Call) -> bytes | Fault:
    """The text of a value. The token keeps what the program itself writes to descriptor 3 from being taken for it."""
    if len(report) > MAX_VALUE:
        return Fault("output-limit", f"{_short(case)} is a value of more than {MAX_VALUE >> 20} MiB")
    given, _, said = report.partition(b" ")
    if given != token.encode():
        return Fault("runtime-error", f"{_short(case)} ended the program")
    word, _, text = said.partition(b" ")
    if word == b"no":
        return Fault("wrong-answer", f"{_short(case)} is a {printable(text)}, which is no plain data")
    return text


def _value(text: bytes, case: Call, rule: Comparison) -> Fault | None:
    try:
        values = read(text)
    except NotPlain as error:
        return Fault("wrong-answer", f"{_short(case)} cannot be read: {printable(str(error).encode())}")
    if isinstance(values, Other) and case.view == "V0" and not isinstance(case.expected.value, Other):
        return Fault("wrong-answer", f"{_short(case)} is a {values.kind}, which is no plain data")
    try:
        value = case.seen(values)
    except NotPlain as error:
        return Fault("wrong-answer", f"{_short(case)} has no value where the call gives {shown(values)}: {error}")
    try:
        met = case.expected.met(value, rule)
    except RecursionError:
        return Fault("wrong-answer", f"{_short(case)} is nested too deep to compare")
    if met:
        return None
    if case.is_condition:
        return Fault("wrong-answer", f"{_short(case)} does not hold of {shown(values)}")
    return Fault("wrong-answer", f"{_short(case)}: expected {case.expected}, got {shown(value)}")


def _crash(outcome: Outcome, limits: Limits) -> Fault | None:
    if outcome.report == b"not python" and outcome.status == "exited":
        return Fault("compile-error", last_line(outcome.stderr))
    return fault(outcome, limits)


def _short(case: Call) -> str:
    return case.source if len(case.source) <= MAX_EXCERPT else case.source[:MAX_EXCERPT] + "..."

"""Runs of a program on one test: started in the sandbox, its output judged outside.

The result of a run is bytes: stdout or, of a call, its value as text (``magcli.verify.code.outputs``). Judging them
does not need the program, so outputs can be kept and compared with each other.

A checker, for problems with several right outputs, is an ICPC output validator: ``checker INPUT ANSWER FEEDBACK <
OUTPUT``. It reads the test's input and expected output from two files and the output from stdin, and exits with 42
(right) or 43 (wrong); its stderr or stdout is the verdict's detail. Nothing is writable, not even the feedback folder.
It is Python or C++20 and runs in its own sandbox, the only one with the expected output. If it exits otherwise, as
``int(word)`` does on a word, the output is wrong if the checker accepts the expected one, so that a policy cannot have
its group dropped; else the checker itself is broken (``infra-error``).
"""

import re
import secrets
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from magcli.errors import DataError
from magcli.verify.code import compiler
from magcli.verify.code.cases import Call, Case
from magcli.verify.code.compiler import command, sources
from magcli.verify.code.outputs import Comparison, NotPlain, Other, decode, difference, shortened, shown
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.sandbox import Limits, Outcome, Program, Sandbox, last_line, printable
from magcli.verify.types import Fault

RIGHT, WRONG = 42, 43
CHECKER_LIMITS = Limits(cpu=10.0, memory=1 << 30)
_OUT_OF_MEMORY = (b"MemoryError", b"std::bad_alloc")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,16}\b")
_lock = threading.Lock()


class Checker(NamedTuple):
    """A checker's source and its language, ``python`` or ``cpp``."""

    source: str
    language: str


def check(checker: Checker, case: StdinCase, output: bytes, sandbox: Sandbox) -> Fault | None:
    """Why the checker rejects an output; None if it accepts it. Raises DataError if the checker does not compile."""
    argv = ["./checker"]
    files: dict[str, bytes | Path] = {"input": case.stdin, "answer": case.output}
    if checker.language == "python":
        argv, files = command(sandbox), {**sources(checker.source), **files}
    else:
        files["checker"] = _checker_binary(checker.source, sandbox)
    with sandbox.program([*argv, "input", "answer", "feedback"], files) as program:
        outcome = program.run(output, CHECKER_LIMITS)
        if _accepts(outcome):
            return None
        says = last_line(outcome.stderr) or last_line(outcome.stdout)
        if outcome.status == "exited" and outcome.code == WRONG:
            return Fault("wrong-answer", f"the checker says: {says}" if says else "the checker rejects it")
        failed = f"the checker failed: {outcome.status} {outcome.code}: {says}"
        # A checker that can judge the expected output failed because of the program's.
        if outcome.status != "lost" and _accepts(program.run(case.output, CHECKER_LIMITS)):
            return Fault("wrong-answer", f"{failed}; it accepts the expected output")
        return Fault("infra-error", failed)


def _accepts(outcome: Outcome) -> bool:
    return outcome.status == "exited" and outcome.code == RIGHT


def _checker_binary(source: str, sandbox: Sandbox) -> Path:
    """The checker's binary, compiled once per process."""
    # Threads of the same problem ask for it at once.
    with _lock:
        made = Path(_folder().name, f"{hash(source):x}")
        if not made.exists() and (fault := compiler.build(source, sandbox, made)):
            raise DataError(f"the checker does not compile: {fault.detail}")
        return made


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="magcli-checkers-")


MAX_VALUE = 4 << 20
"""Bytes of text of a call's value, which takes twenty times as much in memory."""


class RunOutput(NamedTuple):
    """The output of a run, or why there is none, and its seconds of CPU time."""

    output: bytes | Fault
    seconds: float


@contextmanager
def start_program(
    source: str, language: str, sandbox: Sandbox, *, called: bool, serving: bool = False
) -> Iterator[Program | Fault]:
    """A program that can be run on tests; a fault if it does not compile.

    Args:
        source: Its source.
        language: ``python`` or ``cpp``.
        sandbox: Where it runs.
        called: Whether its tests are calls.
        serving: Whether the judge of a script calls it, rather than ``run``.

    Raises EnvironmentFault if there is no compiler.
    """
    if language == "python":
        argv = command(sandbox, "driver.py" if called else "session.py")
        if serving:
            argv.append("serve")
        with sandbox.program(argv, sources(source, called=called, python=sandbox.python)) as program:
            yield program
        return
    with tempfile.TemporaryDirectory(prefix="magcli-") as folder:
        binary = Path(folder, "program")
        if wrong := compiler.build(source, sandbox, binary):
            yield wrong
            return
        with sandbox.program(["./program"], {"program": binary}) as program:
            yield program


def run(program: Program, case: Case, limits: Limits) -> RunOutput:
    """Run one test. A crash after the right output is a crash."""
    if isinstance(case, StdinCase):
        outcome = program.run(case.stdin, limits)
        return RunOutput(fault_of(outcome, limits) or outcome.stdout, outcome.cpu)
    token = secrets.token_hex(8)
    outcome = program.run(f"{token}\n{case.name}\n{case.request}".encode(), limits)
    return RunOutput(fault_of(outcome, limits) or _parse_report(outcome.report, token, case), outcome.cpu)


def check_output(
    output: bytes, case: Case, rule: Comparison, checker: Checker | None, sandbox: Sandbox
) -> Fault | None:
    """Why the output of a run is wrong; None if it is right. Raises DataError if the checker does not compile."""
    if isinstance(case, Call):
        return _check_value(output, case, rule)
    if checker:
        return check(checker, case, output, sandbox)
    differs = difference(case.output, output, rule)
    return Fault("wrong-answer", differs) if differs else None


def _parse_report(report: bytes, token: str, case: Call) -> bytes | Fault:
    """The text of a value. The token distinguishes it from the program's own writes to descriptor 3."""
    called = shortened(case.source)
    if len(report) > MAX_VALUE:
        return Fault("output-limit", f"{called} is a value of more than {MAX_VALUE >> 20} MiB")
    echoed_token, _, said = report.partition(b" ")
    if echoed_token != token.encode():
        return Fault("runtime-error", f"{called} ended the program")
    word, _, text = said.partition(b" ")
    if word == b"no":
        return Fault("wrong-answer", f"{called} is a {printable(text)}, which is not plain data")
    return text


def _check_value(text: bytes, case: Call, rule: Comparison) -> Fault | None:
    try:
        value = decode(text)
        if isinstance(value, Other):
            said = f" is a {value.kind}, which is not plain data"
        elif case.expected.matches(value, rule):
            return None
        else:
            said = f": expected {case.expected}, got {shown(value)}"
    except NotPlain as error:
        said = f" cannot be read: {printable(str(error).encode())}"
    except RecursionError:
        said = " is nested too deep to compare"
    return Fault("wrong-answer", shortened(case.source) + said)


def fault_of(outcome: Outcome, limits: Limits) -> Fault | None:
    """Why a run did not exit with code 0; None if it did. A failed allocation exceeds the memory limit.

    The text is the same in every run: it has no measured times, and no addresses of objects.
    """
    last = without_addresses(last_line(outcome.stderr))
    # Limits first: a program that is killed at one has a signal or an exit code, too.
    match outcome.status:
        case "lost":
            return Fault("infra-error", f"the sandbox was lost: {last}")
        case "cpu-limit":
            return Fault("time-limit", f"more than {limits.cpu:g} s of CPU time")
        case "wall-limit":
            return Fault("time-limit", f"not done after {limits.wall:g} s")
        case "memory-limit":
            return Fault("memory-limit", f"more than {limits.memory >> 20} MiB")
        case "output-limit":
            return Fault("output-limit", f"more than {limits.output >> 20} MiB of output")
    if outcome.status == "exited" and outcome.report == b"not python":
        return Fault("compile-error", last)
    if outcome.status == "exited" and outcome.code == 0:
        return None
    # At the end of stderr, where the exception that ended the program is.
    if any(word in outcome.stderr[-4096:] for word in _OUT_OF_MEMORY):
        return Fault("memory-limit", f"refused more than {limits.memory >> 20} MiB: {last}")
    ended = f"exit code {outcome.code}" if outcome.status == "exited" else _signal_name(outcome.code)
    return Fault("runtime-error", f"{ended}: {last}" if last else ended)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def without_addresses(text: str) -> str:
    """A message without the addresses of objects, which differ in every run."""
    return _ADDRESS.sub("0x...", text)

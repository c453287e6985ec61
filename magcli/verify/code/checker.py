"""Checkers: programs that say whether an output is right, where several are.

A checker is an ICPC output validator: ``checker INPUT ANSWER FEEDBACK < OUTPUT``. It reads the test's input and the
expected output from the two files and the output that it judges from stdin, and ends with exit code 42 (right) or 43
(wrong); what it writes to stderr or stdout is the verdict's detail. Nothing can be written, to the feedback folder
neither. It is Python or C++20 and runs in a sandbox of its own, never in the program's: only there is the expected
output. Where it ends in another way, as ``int(word)`` does on a word, the output is wrong if the checker accepts the
expected one: a policy must not be able to choose that its group is dropped. Else the checker itself is broken
(``infra-error``).
"""

import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple

from magcli.errors import DataError
from magcli.verify.code import compiler
from magcli.verify.code.cases import Feed
from magcli.verify.code.faults import Fault, last_line
from magcli.verify.code.interpreter import command, sources
from magcli.verify.sandbox import Limits, Outcome, Sandbox

RIGHT, WRONG = 42, 43
LIMITS = Limits(cpu=10.0, memory=1 << 30)
_lock = threading.Lock()


class Checker(NamedTuple):
    """A checker's source and its language, ``python`` or ``cpp``."""

    source: str
    language: str


def check(checker: Checker, case: Feed, output: bytes, box: Sandbox) -> Fault | None:
    """What the checker has against an output; None where it accepts it.

    Raises:
        DataError: the checker does not compile.
    """
    argv, files = _program(checker, box)
    given = {"input": case.stdin, "answer": case.output}
    with box.program([*argv, "input", "answer", "feedback"], {**files, **given}) as program:
        outcome = program.run(output, LIMITS)
        if _accepts(outcome):
            return None
        says = last_line(outcome.stderr) or last_line(outcome.stdout)
        if outcome.status == "exited" and outcome.code == WRONG:
            return Fault("wrong-answer", f"the checker says: {says}" if says else "the checker rejects it")
        failed = f"the checker failed: {outcome.status} {outcome.code}: {says}"
        if outcome.status != "lost" and _accepts(program.run(case.output, LIMITS)):
            return Fault("wrong-answer", f"{failed}; it accepts the expected output")
        return Fault("infra-error", failed)


def _accepts(outcome: Outcome) -> bool:
    return outcome.status == "exited" and outcome.code == RIGHT


def _program(checker: Checker, box: Sandbox) -> tuple[list[str], dict[str, bytes | Path]]:
    if checker.language == "python":
        return command(box), sources(checker.source)
    return ["./checker"], {"checker": _compiled(checker.source, box)}


def _compiled(source: str, box: Sandbox) -> Path:
    """The checker's binary, compiled once a process."""
    with _lock:
        made = Path(_folder().name, f"{hash(source):x}")
        if not made.exists() and (fault := compiler.build(source, box, made)):
            raise DataError(f"the checker does not compile: {fault.detail}")
        return made


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="magcli-checkers-")

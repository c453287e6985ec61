"""Runs a test's script against a program: two sandboxes, one for each, and a socket between them.

The judge's runner stays warm from one problem to the next: it has loaded ``referee.py``, and each test runs in a fresh
fork of it. It runs no test itself, so nothing of a test is left in it.
"""

import json
import os
import socket
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from magcli.errors import DataError
from magcli.verify.code.compiler import script_source
from magcli.verify.code.outputs import Comparison
from magcli.verify.code.runs import MAX_VALUE, fault_of, without_addresses
from magcli.verify.code.scripts import Script
from magcli.verify.sandbox import Limits, Outcome, Program, Sandbox, printable
from magcli.verify.sandbox.program import attempt_often, finish_together
from magcli.verify.types import Fault

REFEREE = "referee.py"
FILES = (
    REFEREE, "comparing.py", "guarding.py", "handles.py", "proxies.py", "reaching.py", "rewriting.py",
    "script_library.py", "values.py", "writing.py",
)  # fmt: skip
"""The judge's script, and the modules that it imports."""
SUITE_REFEREE = "suite_referee.py"
SUITE_FILES = (*FILES, SUITE_REFEREE, "suites.py", "suite_runner.py", "suite_rewriting.py", "pytest_standin.py")
LIBRARY_VALUES = "library_values.py"
"""The driver's converters of values of the standard library and numpy, for suites."""
JUDGE_MEMORY = 128 << 20
"""Bytes that a judge has in any case: of its own, numpy, and one value of the largest size."""
_LIMITS = ("cpu-limit", "wall-limit", "memory-limit", "output-limit")
_of_thread = threading.local()


class _WarmJudge:
    """A judge of this thread and process, stopped with the thread; of suites or of other scripts."""

    def __init__(self, sandbox: Sandbox, *, of_suites: bool) -> None:
        names = SUITE_FILES if of_suites else FILES
        files: dict[str, bytes | Path] = {name: script_source(name) for name in names}
        self.program = sandbox.warm_program(SUITE_REFEREE if of_suites else REFEREE, files)
        weakref.finalize(self, _stop, self.program, os.getpid())


def _stop(program: Program, owner: int) -> None:
    """Stop a judge, unless this process only inherited it."""
    if os.getpid() == owner:
        program.__exit__()


def warm_judge(sandbox: Sandbox, *, of_suites: bool = False) -> Program:
    """The judge of this thread, which starts at its first test."""
    # A forked process has the dictionary but not the runners, which belong to its parent.
    judges: dict[tuple[int, Sandbox, bool], _WarmJudge] = _of_thread.__dict__.setdefault("judges", {})
    key = os.getpid(), sandbox, of_suites
    if key not in judges:
        judges[key] = _WarmJudge(sandbox, of_suites=of_suites)
    return judges[key].program


def judge_script(program: Program, script: Script, limits: Limits, rule: Comparison, sandbox: Sandbox) -> Fault | None:
    """Why a program fails a script; None if it passes.

    Both have the limits of the test, but the judge at least ``JUDGE_MEMORY``.

    Raises DataError if the script itself is broken.
    """

    def attempt() -> tuple[str, Outcome, Outcome]:
        judge = warm_judge(sandbox, of_suites=script.suite is not None)
        return run_script(program, judge, script, limits, rule)

    said, ran, judged = attempt_often(attempt)
    return verdict_of(said, ran, judged, script, limits)


def run_script(
    program: Program, judge: Program, script: Script, limits: Limits, rule: Comparison
) -> tuple[str, Outcome, Outcome]:
    """What the judge says, and how the program and the judge ended."""
    tolerance = rule.tolerance if rule.mode == "floats" else None
    asked: dict[str, Any] = {"script": script.text, "names": script.names, "mode": rule.mode, "tolerance": tolerance}
    request = f"{script.names[0]}\n{' '.join(script.supplied)}\n".encode()
    if script.suite is not None:
        asked |= script.suite._asdict() | {"excerpt": script.excerpt}
        request += script_source(LIBRARY_VALUES)
    ours, theirs = socket.socketpair()
    # Both ends are closed here once the runners have them, so that each side sees the end of the other.
    with ours, theirs:
        serving = program.begin(request, limits, theirs.fileno())
        if isinstance(serving, Outcome):
            return "", serving, Outcome("exited")
        try:
            # The judge mostly waits for the program, whose own clock ends both.
            judge_limits = replace(limits, memory=max(limits.memory, JUDGE_MEMORY), waits=True)
            judging = judge.begin(json.dumps(asked).encode(), judge_limits, ours.fileno())
        except BaseException:
            program.abandon(serving)
            raise
    if isinstance(judging, Outcome):
        program.abandon(serving)
        return "", Outcome("exited"), judging
    ran, judged = finish_together([(program, serving), (judge, judging)])
    return judged.report.decode(errors="replace"), ran, judged


def verdict_of(said: str, ran: Outcome, judged: Outcome, script: Script, limits: Limits) -> Fault | None:
    """The verdict from what the judge says and how both ended.

    A program that exceeded a limit ends the judge's test, too, and the other way round, so limits come first. A program
    that fails after the script has passed is a crash.

    Raises DataError if the script itself is broken.
    """
    ended, judge_ended = fault_of(ran, limits), fault_of(judged, limits)
    if ran.status == "lost" or ran.status in _LIMITS:
        return ended
    if judge_ended is not None:
        return Fault(judge_ended.reason, f"judging {script.excerpt}: {judge_ended.detail}")
    word, _, detail = said.partition(" ")
    if word == "broken":
        raise DataError(f"a test is a bad test: {printable(detail.encode())}")
    if word == "failed":
        shown = without_addresses(printable(detail.encode(errors="replace")))
        # "f(1) is false for 2", but "f(1): expected 1, got 2".
        joined = " " if shown.startswith(("is ", "cannot ")) else ": "
        return Fault("wrong-answer", f"{script.excerpt}{joined}{shown}")
    if word == "too-large":
        return Fault("output-limit", f"{script.excerpt} is a value of more than {MAX_VALUE >> 20} MiB")
    # "passed" of a program that has crashed since; "raised", and "ended" with an exit code.
    if word == "passed" or ended is not None:
        return ended
    return Fault("runtime-error", f"{script.excerpt} ended the program")

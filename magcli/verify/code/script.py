"""Runs a test's script against a program: two sandboxes, one for each, and a socket between them."""

import json
import socket
import threading
from functools import cache
from pathlib import Path

from magcli.verify.code.compiler import command
from magcli.verify.code.outputs import Comparison
from magcli.verify.sandbox import Limits, Outcome, Program, Sandbox
from magcli.verify.sandbox.program import finish_together

_warm = threading.local()


def judge_program(sandbox: Sandbox) -> Program:
    """The judge of this thread, warm from one problem to the next: each test runs in a fresh fork of it."""
    known: dict[Sandbox, Program] = _warm.__dict__.setdefault("judges", {})
    if sandbox not in known:
        files: dict[str, bytes | Path] = {name: _source(name) for name in ("referee.py", "values.py")}
        known[sandbox] = sandbox.warm_program("referee.py", files)
    return known[sandbox]


@cache
def _source(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def serving_command(sandbox: Sandbox) -> list[str]:
    """The command of a program that serves the judge of a script."""
    return [*command(sandbox, "driver.py"), "serve"]


def run_script(
    program: Program,
    judge: Program,
    script: str,
    names: list[str],
    mentioned: list[str],
    limits: Limits,
    rule: Comparison,
) -> tuple[str, Outcome, Outcome]:
    """The judge's verdict, and how the program and the judge ended."""
    tolerance = rule.tolerance if rule.mode == "floats" else None
    asked = {"script": script, "names": names, "mode": rule.mode, "tolerance": tolerance}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        begun = program.begin(f"{names[0]}\n{' '.join(mentioned)}".encode(), limits, theirs.fileno())
        judging = judge.begin(json.dumps(asked).encode(), limits, ours.fileno())
    assert not isinstance(begun, Outcome)
    assert not isinstance(judging, Outcome)
    ran, judged = finish_together([(program, begun), (judge, judging)])
    return judged.report.decode(errors="replace"), ran, judged

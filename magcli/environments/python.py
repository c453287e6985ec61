"""A Python tool: the model calls it in its template's form, or ends a turn with a fenced block of Python.

Each program runs by itself in the sandbox, with the limits of the programs that magcli judges. Its output goes to the
model and nowhere else: the reward is that of the last turn, by a verifier outside.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from magcli.environments.calls import Call, Tool, calls_in, results, schema
from magcli.verify.code.runs import fault_of, start_program
from magcli.verify.environment import Message
from magcli.verify.sandbox import Limits, Outcome, Sandbox
from magcli.verify.types import Fault

NAME, ARGUMENT = "python", "code"
MAX_OUTPUT = 2000
"""Characters of a program's output that the model gets."""
ERROR_LINES = 5
"""Lines of a traceback that it gets."""

# Only at the end of a turn: a block before is part of the explanation.
_BLOCK = re.compile(r"```(?:python|py)\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


class Python:
    """Runs programs, and returns what they print; the row's verifier grades the last turn."""

    roles = ("tool",)
    tools = (schema(NAME, "Run a Python program and get what it prints.", ARGUMENT, "The program."),)
    max_calls = 4
    # With a turn after the last call, for the answer.
    max_turns = max_calls + 1
    seconds = 120.0
    limits = Limits()

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def reply(self, row: Mapping[str, Any], messages: Sequence[Message]) -> list[dict[str, str]] | None:
        """What each program in the last turn prints; None if there is none."""
        return results(messages, Tool(NAME, ARGUMENT, self._run), programs_in, self.max_calls)

    def _run(self, source: str) -> str:
        """What a program prints, and how it fails."""
        # A program has no function that is called: it reads an empty stdin.
        with start_program(source, "python", self._sandbox, called=False) as program:
            if isinstance(program, Fault):
                return f"error: {program.detail}"
            return _shown(program.run(b"", self.limits), self.limits)


def programs_in(text: str) -> Sequence[Call]:
    """The calls of a turn, in the template's form or as a fenced block at its end."""
    block = _BLOCK.search(text)
    if block is None:
        return calls_in(text)
    return [Call(NAME, {ARGUMENT: block[1]})]


def _shown(outcome: Outcome, limits: Limits) -> str:
    output = _cut(outcome.stdout.decode(errors="replace").strip())
    fault = fault_of(outcome, limits)
    if fault is None:
        return output or "(no output: print what you want to see)"
    error = ""
    # Of other faults, such as a limit, the detail says more than the traceback.
    if fault.reason in ("runtime-error", "compile-error"):
        error = _traceback(outcome.stderr)
    shown_error = f"error: {_cut(error or fault.detail)}"
    return f"{output}\n{shown_error}" if output else shown_error


def _traceback(stderr: bytes) -> str:
    """The end of a traceback, without the frames of the script that runs programs."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    # The first frame of the program's own; without one, as for a syntax error, all lines.
    start = next((number for number, line in enumerate(lines) if 'File "<string>"' in line), 0)
    last_lines = lines[start:][-ERROR_LINES:]
    return "\n".join(line.strip() for line in last_lines)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}... ({len(text)} characters)"

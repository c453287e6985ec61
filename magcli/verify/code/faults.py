"""What is wrong with a program, from what happened when it ran."""

import signal
from typing import NamedTuple

from magcli.verify.sandbox import Limits, Outcome
from magcli.verify.types import CodeReason

MAX_DETAIL = 160
_OUT_OF_MEMORY = (b"MemoryError", b"std::bad_alloc")


class Fault(NamedTuple):
    """Why a program is not accepted, and where that shows."""

    reason: CodeReason
    detail: str


def fault(outcome: Outcome, limits: Limits) -> Fault | None:
    """The fault of a run that did not end by itself with exit code 0; None where it did.

    A program that was refused memory and died of it has met the memory limit, however it says so.
    """
    last = last_line(outcome.stderr)
    match outcome.status:
        case "lost":
            return Fault("infra-error", f"the sandbox was lost: {last}")
        case "cpu-limit":
            return Fault("time-limit", f"more than {limits.cpu:g} s of CPU time")
        case "wall-limit":
            return Fault("time-limit", f"not done after {limits.wall:g} s, {outcome.cpu:.1f} s of CPU time")
        case "memory-limit":
            return Fault("memory-limit", f"more than {limits.memory >> 20} MiB")
        case "output-limit":
            return Fault("output-limit", f"more than {limits.output >> 20} MiB of output")
    if outcome.status == "exited" and outcome.code == 0:
        return None
    if any(word in outcome.stderr[-4096:] for word in _OUT_OF_MEMORY):
        return Fault("memory-limit", f"refused more than {limits.memory >> 20} MiB: {last}")
    ended = f"exit code {outcome.code}" if outcome.status == "exited" else _signal(outcome.code)
    return Fault("runtime-error", f"{ended}: {last}" if last else ended)


def last_line(stderr: bytes) -> str:
    """The last line that is not empty, cut and made printable."""
    return printable(stderr[-4096:].rstrip().rpartition(b"\n")[2])


def printable(line: bytes) -> str:
    """A line of a program's, fit for a table: decoded, cut, without control characters."""
    text = line[: 4 * MAX_DETAIL].decode(errors="replace").strip()[:MAX_DETAIL]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

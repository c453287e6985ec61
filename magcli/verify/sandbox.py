"""Sandboxes for untrusted programs: one bubblewrap per program, a fresh process per test.

A program sees a read-only ``/usr``, its own files read-only under ``/box`` (its working directory) and nothing else of
the machine: no network, no ``/proc``, nothing writable, a few fixed environment variables; of Python packages, numpy
and sortedcontainers if they are installed (``magcli[judge]``) and a file of the program mentions them. It cannot start
processes, share memory or reach another process. Its stdin, stdout, stderr and report are memory files, the first three
under their usual names (``/dev/stdin``), so the kernel limits output. Expected outputs stay outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from magcli.errors import EnvironmentFault, UsageError
from magcli.verify.isolation.launch import Isolation, Level, ProgramSpec
from magcli.verify.isolation.primitives import REQUIRED, Finding, candidates, check_isolation, findings
from magcli.verify.isolation.program import Limits, Outcome, Program, last_line, printable

__all__ = [
    "Finding", "Limits", "Outcome", "Probe", "Program", "Sandbox", "last_line", "open_sandbox", "printable", "probe",
]  # fmt: skip

Choice = Literal["auto", "full", "restricted", "none"]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How untrusted programs run on this machine; created by ``open_sandbox``, used from any thread."""

    isolation: Isolation

    @property
    def level(self) -> Level:
        """The level of isolation; see ``magcli.verify.isolation.launch``."""
        return self.isolation.level

    @property
    def python(self) -> str:
        """The interpreter inside; start it as ``[sandbox.python, "-I", "-S", "-E", ...]``."""
        return self.isolation.python

    def program(self, argv: Sequence[str], files: Mapping[str, bytes | Path]) -> Program:
        """A program to run many times: ``argv`` inside, ``files`` read-only under ``/box``.

        A path is not copied but mounted; it must be readable by all.
        """
        return Program(self.isolation, ProgramSpec(tuple(argv), files))

    def build(
        self, argv: Sequence[str], files: Mapping[str, bytes | Path], product: str, *, limits: Limits, into: Path
    ) -> Outcome:
        """Run one command (a compiler) that may start processes and write ``limits.output`` bytes in ``/box``.

        On success its file ``product`` is copied to ``into``.
        """
        with Program(self.isolation, ProgramSpec(tuple(argv), files, product, limits.output)) as compiler:
            return compiler.make(limits, into)


@dataclass(frozen=True, slots=True)
class Probe:
    """The strongest isolation that the escape test could not leave, and the state of every primitive."""

    sandbox: Sandbox | None
    findings: tuple[Finding, ...]


def probe() -> Probe:
    """Find the strongest level that works here."""
    found = (_best(level, ())[0] for level in ("full", "restricted"))
    return Probe(next((sandbox for sandbox in found if sandbox), None), tuple(findings()))


def open_sandbox(choice: Choice = "full", *, readable: Sequence[str] = (), accept_unsandboxed: bool = False) -> Sandbox:
    """The sandbox of this machine, after a test program failed to escape from it.

    Args:
        choice: ``auto`` takes ``full``, else ``restricted``; ``none`` does not isolate.
        readable: Additional folders that programs may read, such as a compiler's outside ``/usr``.
        accept_unsandboxed: Accept that programs written by a model run with the user's rights.

    Raises:
        UsageError: ``none`` without ``accept_unsandboxed``.
        EnvironmentFault: the level does not work here; names the failing primitive and the fix.
    """
    if choice == "none" and not accept_unsandboxed:
        raise UsageError("programs written by a model would run with all your rights: that must be accepted explicitly")
    levels: tuple[Level, ...] = ("full", "restricted") if choice == "auto" else (choice,)
    faults = []
    for level in levels:
        sandbox, fault = _best(level, tuple(readable))
        if sandbox:
            return sandbox
        faults.append(f"{level}: {_reasons(level) or fault}")
    raise EnvironmentFault(f"programs cannot be sandboxed here: {'; '.join(faults)}")


def _best(level: Level, readable: tuple[str, ...]) -> tuple[Sandbox | None, str]:
    """The first isolation of a level that holds, or why the first does not."""
    faults = []
    for isolation in candidates(level, readable):
        fault = check_isolation(isolation)
        if not fault:
            return Sandbox(isolation), ""
        faults.append(fault)
    return None, next(iter(faults), "")


def _reasons(level: Level) -> str:
    """The primitives of a level that fail."""
    return ", ".join(
        str(finding) for finding in findings() if finding.primitive in REQUIRED[level] and not finding.works
    )

"""The sandbox, in the order of use: what the machine offers and a program that tries to escape (``levels``), a runner
in an empty environment (``launch``), the runner's script (``runner``) with its filter (``seccomp``), and one program
and its runs (``program``)."""

import sys

from magcli.errors import EnvironmentFault

if sys.platform != "linux":
    raise EnvironmentFault(f"programs can be judged on Linux only, where they can be isolated; this is {sys.platform}")

from magcli.verify.sandbox.levels import MEANING, Choice, Finding, Probe, Sandbox, open_sandbox, probe
from magcli.verify.sandbox.program import Limits, Outcome, Program, last_line, printable

__all__ = [
    "MEANING",
    "Choice",
    "Finding",
    "Limits",
    "Outcome",
    "Probe",
    "Program",
    "Sandbox",
    "last_line",
    "open_sandbox",
    "printable",
    "probe",
]

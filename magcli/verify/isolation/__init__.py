"""The sandbox, in the order of use: what the machine offers and a program that tries to escape (``primitives``), a
runner in an empty environment (``launch``), the runner's script (``runner``) with its filter (``seccomp``), and one
program and its runs (``program``)."""

import sys

from magcli.errors import EnvironmentFault

if sys.platform != "linux":
    raise EnvironmentFault(f"programs can be judged on Linux only, where they can be isolated; this is {sys.platform}")

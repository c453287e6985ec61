"""What the sandbox is made of, in the order of use: what the machine offers (``primitives``), a runner with nothing
around it (``launch``), the script that it is (``runner``) with the filter that it sets (``seccomp``), one program and
its runs (``program``), and a program that tries to get out (``canary``)."""

import sys

from magcli.errors import EnvironmentFault

if sys.platform != "linux":
    raise EnvironmentFault(
        f"programs can be judged on Linux only, where they can be kept apart; this is {sys.platform}"
    )

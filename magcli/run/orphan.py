"""A child process that does not outlive its parent, not even while it imports its modules.

Started by the command line of ``command(MODULE, ...)``, it runs a module as ``python -m`` does. Imports only the
standard library.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module in a process that dies with this one."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), module, *map(str, arguments)]


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` dies (Linux; elsewhere the closed socket ends it), and leave
    SIGINT to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before the kernel was asked.
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

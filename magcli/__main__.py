"""Where the command ``magcli`` and ``python -m magcli`` begin."""

import os
import signal
import sys

SPINS = "1000"
"""How often a thread of OpenMP looks for work before it sleeps: some 20 µs, instead of libgomp's milliseconds."""


def main() -> None:
    """Run the command line; until a stage handles it, an interrupt ends the process silently."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    occupy_closed_streams()
    from magcli.run.limits import refuse_low_limits

    refuse_low_limits()
    share_cores()
    if sys.getfilesystemencoding().lower() != "utf-8":
        start_in_utf8()
    # Imported last: libraries crash below some limits, and read their settings when they are loaded.
    from magcli.cli import main as run

    run()


def occupy_closed_streams() -> None:
    """Open the null device in place of a stdin, stdout or stderr that is closed, as by ``>&-``.

    Otherwise the next file would get its number, and what a library writes to stderr would end up in a table.
    ``sys.stdin``, ``sys.stdout`` and ``sys.stderr`` stay None.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


def share_cores() -> None:
    """Let the threads of matrix products sleep where they wait for each other, which libgomp reads at its start.

    On a busy machine a thread that spins keeps the other, which it waits for, from a core: sampling with two threads on
    two cores beside one other process was more than ten times slower. ``OMP_WAIT_POLICY`` takes precedence.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def start_in_utf8() -> None:
    """Start again in Python's UTF-8 mode: in an ASCII locale file names and texts could not be read."""
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, sys.orig_argv)


if __name__ == "__main__":
    main()

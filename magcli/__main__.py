"""Where the command ``magcli`` and ``python -m magcli`` begin."""

import os
import signal
import sys


def main() -> None:
    """Run the command line; until a stage handles it, an interrupt ends the process silently."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    occupy_closed_streams()
    refuse_low_limits()
    if sys.getfilesystemencoding().lower() != "utf-8":
        start_in_utf8()
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


def refuse_low_limits() -> None:
    """End with one line and exit code 4 where a limit on memory is too low to load what every command needs."""
    from magcli.console import Console
    from magcli.errors import EnvironmentFault
    from magcli.run.limits import check_limit

    try:
        check_limit()
    except EnvironmentFault as fault:
        Console(as_json="--json" in sys.argv).error(str(fault), code=fault.exit_code)
        sys.exit(fault.exit_code)


def start_in_utf8() -> None:
    """Start again in Python's UTF-8 mode: in an ASCII locale file names and texts could not be read."""
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, sys.orig_argv)


if __name__ == "__main__":
    main()

"""Starts a Python program inside the sandbox; its file is ``program.py``. This runs there, without the package.

The program is ``__main__`` and finds what ``session.py`` supplies. A syntax error is reported on descriptor 3, to
distinguish it from an error at run time.
"""

import posix
import sys

REPORT = 3
NOT_PYTHON = b"not python"


def start() -> None:
    """Run the program; whatever it raises ends the process as usual."""
    with open("program.py", "rb") as file, open("session.py", "rb") as script:
        source, session = file.read(), script.read()
    exec(session, supplied := {"__name__": "session"})
    program = sys.modules["__main__"] = type(sys)("__main__")
    supplied["prepare"](vars(program))  # type: ignore[operator]
    sys.argv[0] = "program.py"
    try:
        exec(source, vars(program))  # not by compile(), which would first make the types of the syntax tree: 1.3 ms
    except BaseException as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is None:
            posix.write(REPORT, NOT_PYTHON)
        supplied["name_refusal"](error, vars(program))  # type: ignore[operator]
        raise


if __name__ == "__main__":
    start()

"""Starts a Python program inside the sandbox; its file is ``program.py``. This runs there, without the package.

The program is ``__main__`` and has ``exit`` and ``quit``, which an interpreter without its site module lacks. What is
no Python is said so on descriptor 3, as it is told from an error at run time.
"""

import builtins
import posix
import sys

REPORT = 3
NOT_PYTHON = b"not python"


def start() -> None:
    """Run the program; whatever it raises ends the process as usual."""
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    with open("program.py", "rb") as file:
        source = file.read()
    program = sys.modules["__main__"] = type(sys)("__main__")
    sys.argv[0] = "program.py"
    try:
        exec(source, vars(program))  # not by compile(), which would first make the types of the syntax tree: 1.3 ms
    except BaseException as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is None:
            posix.write(REPORT, NOT_PYTHON)
        raise


if __name__ == "__main__":
    start()

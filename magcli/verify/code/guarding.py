"""Keeps what a program returns from being executed where its verdict is made.

Runs inside the judge's sandbox, without magcli. Python reports each execution of code to a hook, which cannot be
removed (``sys.addaudithook``). Code that is not written in the test, or of a module that is imported, ends it: a test
that executes what the program returns could be passed by any program. What a pickle of the program may name are types
of plain data.
"""

import sys

from magcli.verify.code.proxies import refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

OF_PLAIN_DATA = frozenset(
    (
        *(("builtins", name) for name in ("set", "frozenset", "complex", "bytearray", "range", "slice")),
        *(("collections", name) for name in ("OrderedDict", "deque", "Counter")),
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta")),
        ("decimal", "Decimal"), ("fractions", "Fraction"), ("_codecs", "encode"),
    )
)  # fmt: skip
"""What pickles may name."""
STARTS = frozenset(("os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "subprocess.Popen"))
"""Events of programs that are started."""
MAKERS = (("collections", "namedtuple"), ("dataclasses", "_create_fn"), ("types", "coroutine"))
"""Functions of the standard library that execute code that they write from checked names, or change a flag of code."""


class Guard:
    """The hook.

    Args:
        own: The script's code.
        texts: Texts that are written in the script.
    """

    def __init__(self, own: "CodeType", texts: "frozenset[str]") -> None:
        self._own, self._texts = own, texts
        self._checks: dict[str, Callable[[tuple[Any, ...]], bool]] = {
            # The frame of the code that caused the event: 0 is the check, 1 is ``__call__``.
            "exec": lambda args: self._may_execute(args[0], sys._getframe(2)),
            "function.__new__": lambda args: self._is_written(args[0]),
            "object.__setattr__": lambda args: args[1] != "__code__" or is_maker(sys._getframe(2)),
            "marshal.loads": lambda args: is_import(sys._getframe(2)),
            **dict.fromkeys(STARTS, lambda args: False),
        }

    def __call__(self, event: str, args: "tuple[Any, ...]") -> None:
        """Raise Refused for what must not happen."""
        # Called for each event of the interpreter, most of which are not watched.
        check = self._checks.get(event)
        if check is not None and not check(args):
            raise refused("", "broken it executes what is not written in the test")
        if event == "pickle.find_class" and args[:2] not in OF_PLAIN_DATA:
            raise refused(f"a pickle that names {args[0]}.{args[1]}, which is not plain data")

    def _may_execute(self, code: "CodeType", caller: "FrameType") -> bool:
        return code is self._own or is_import(caller) or is_maker(caller) or self._is_written(code)

    def _is_written(self, code: "CodeType") -> bool:
        """Whether code is that of a text in the script."""
        # Code equals code that is compiled from the same text in the same way; ``eval`` strips blanks before.
        for text in self._texts:
            for mode in ("eval", "exec"):
                try:
                    if (
                        compile(text.strip(), code.co_filename, mode) == code
                        or compile(text, code.co_filename, mode) == code
                    ):
                        return True
                except (SyntaxError, ValueError):
                    continue
        return False


def is_maker(caller: "FrameType") -> bool:
    """Whether a function of the standard library makes code from checked names."""
    # By the module's globals: any function can have the name.
    return any(
        caller.f_code.co_name == function and caller.f_globals is vars(sys.modules.get(module, sys))
        for module, function in MAKERS
    )


def is_import(caller: "FrameType") -> bool:
    """Whether code is executed or read by Python's import of a module."""
    # The name alone could be that of a module of the script.
    return caller.f_globals.get("__name__") in ("importlib._bootstrap", "importlib._bootstrap_external") and (
        caller.f_code.co_filename.startswith("<frozen importlib")
    )


def guard(own: "CodeType", texts: "frozenset[str]") -> None:
    """Watch what is executed from now on."""
    sys.addaudithook(Guard(own, texts))

"""Code problems of each kind that ``filter-code`` keeps or drops, with small programs.

Most lack solutions or tests, as in archives of contests: of 100 problems 17 are run, 30 programs in 68 runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]

CODE_KINDS = {
    ("plain", "kept"): 4,
    ("many", "kept"): 1,
    ("weak", "kept"): 1,
    ("misprinted", "kept"): 2,
    ("split", "kept"): 2,
    ("called", "kept"): 2,
    ("failing", "solutions-fail"): 2,
    ("unsolved", "no-solutions"): 40,
    ("untested", "few-tests"): 43,
    ("short", "few-tests"): 3,
}
"""(kind, outcome): number per 100 rows."""

CPP_EVERY = 400
"""Plain problems per one with C++ solutions: compiling one takes as long as a hundred runs of Python."""


def code_row(kind: str, serial: int) -> Row:
    """The columns of a kind's problem with a serial number, without ``id``."""
    return _MAKERS[kind](serial)


def _statement(serial: int) -> str:
    factor, offset = _figures(serial)
    return (
        f"The input is one line of two integers a and b, 0 <= a, b <= 1000000. Print {factor} * (a + b) + {offset}.\n\n"
        f"Input\na b\n\nOutput\nOne integer."
    )


def _figures(serial: int) -> tuple[int, int]:
    """A factor and an offset, unique for each problem of a kind."""
    return 2 + serial % 997, serial // 997


def _tests(serial: int, count: int) -> list[Row]:
    factor, offset = _figures(serial)
    pairs = [(3 + serial % 50, 4), (0, 17 + serial % 31), (1000, 5)][:count]
    return [{"input": f"{a} {b}\n", "output": f"{factor * (a + b) + offset}\n"} for a, b in pairs]


def _short(serial: int, more: str = "") -> str:
    factor, offset = _figures(serial)
    return f"print({factor} * sum(int(word) for word in input().split()) + {offset}{more})\n"


def _long(serial: int, more: str = "") -> str:
    factor, offset = _figures(serial)
    return f"a, b = map(int, input().split())\nvalue = a + b\nvalue *= {factor}\nprint(value + {offset}{more})\n"


def _cpp(serial: int, more: str = "") -> str:
    factor, offset = _figures(serial)
    body = f"long long a, b; std::cin >> a >> b; std::cout << {factor} * (a + b) + {offset}{more};"
    return f"#include <iostream>\nint main() {{ {body} }}\n"


def _solutions(*programs: tuple[str, str], language: str = "python") -> list[Row]:
    return [{"language": language, "code": code, "verdict": verdict} for verdict, code in programs]


def _problem(serial: int, tests: Sequence[Row], solutions: Sequence[Row]) -> Row:
    return {"prompt": _statement(serial), "tests": tests, "solutions": solutions}


def _plain(serial: int) -> Row:
    if serial % CPP_EVERY == CPP_EVERY - 1:
        solutions = _solutions(("right", _cpp(serial)), ("wrong", _cpp(serial, " + 1")), language="cpp")
    else:
        solutions = _solutions(("right", _short(serial)), ("wrong", _short(serial, " + 1")))
    return _problem(serial, _tests(serial, 2), solutions)


def _many(serial: int) -> Row:
    programs = ("right", _short(serial)), ("right", _long(serial)), ("wrong", _long(serial, " - a"))
    return _problem(serial, _tests(serial, 3), _solutions(*programs))


def _weak(serial: int) -> Row:
    """The wrong solution fails only on large numbers, which no test has."""
    programs = ("right", _long(serial)), ("wrong", _long(serial, " + a // 10000"))
    return _problem(serial, _tests(serial, 2), _solutions(*programs))


def _misprinted(serial: int) -> Row:
    """One of three expected outputs is wrong."""
    tests = _tests(serial, 3)
    tests[1] = {**tests[1], "output": "-1\n"}
    return _problem(serial, tests, _solutions(("right", _short(serial)), ("right", _long(serial))))


def _split(serial: int) -> Row:
    """On one of three tests solutions disagree."""
    programs = ("right", _short(serial)), ("right", _long(serial, " + a // 1000"))
    return _problem(serial, _tests(serial, 3), _solutions(*programs))


def _called(serial: int) -> Row:
    factor, offset = _figures(serial)
    prompt = f"Write a function scaled_{serial}(a, b) that gives {factor} * (a + b) + {offset} for integers a and b."
    tests = [
        {"call": f"scaled_{serial}({a}, {b})", "output": str(factor * (a + b) + offset)} for a, b in ((1, 2), (70, 5))
    ]
    code = f"def scaled_{serial}(a: int, b: int) -> int:\n    return {factor} * (a + b) + {offset}"
    programs = _solutions(("right", f"{code}\n"), ("wrong", f"{code} - b\n"))
    return {"prompt": prompt, "tests": tests, "solutions": programs}


def _failing(serial: int) -> Row:
    return _problem(serial, _tests(serial, 2), _solutions(("right", _short(serial, " + 9"))))


def _unsolved(serial: int) -> Row:
    return _problem(serial, _tests(serial, 2), [])


def _untested(serial: int) -> Row:
    return _problem(serial, [], _solutions(("right", _short(serial)), ("wrong", _long(serial, " - a"))))


def _one_test(serial: int) -> Row:
    return _problem(serial, _tests(serial, 1), _solutions(("right", _short(serial))))


_MAKERS: dict[str, Callable[[int], Row]] = {
    "plain": _plain,
    "many": _many,
    "weak": _weak,
    "misprinted": _misprinted,
    "split": _split,
    "called": _called,
    "failing": _failing,
    "unsolved": _unsolved,
    "untested": _untested,
    "short": _one_test,
}

"""One problem asked twice: for a program in Python and for one in C++ (recipe, section 4).

A problem by stdin and stdout only has to say the language. One whose tests call a Python function gets a C++ signature,
with types from its annotations and the values of its tests, and a harness that makes the same calls. It stays as it is,
with the reason, where that makes no sense:

====================  =================================================================================
``asks-already``      the row has a language
``about-python``      the statement is about Python itself: comprehensions, decorators, a module of its
``helper-code``       the statement's code holds more than the function that is asked for
``types``             a value has no type in C++, such as a list of numbers and strings
``big-integers``      a value needs more than 64 bits
``non-ascii-text``    a string whose places are others in bytes
``arguments``         tests do not call with constants, or with a different number of them
``value``             tests look at something else than the value, such as its length, or at one of several
``any-order``         the value may come in any order
``names``             tests call several functions, or one whose name C++ takes
``bad-tests``         the tests cannot be read
====================  =================================================================================
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from magcli.curate.twins import python_functions
from magcli.curate.twins.cpp_harness import Signature, feed, harness
from magcli.curate.twins.signatures import STUB, Unfit, tests_of_function
from magcli.errors import DataError
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import cases
from magcli.verify.code.outputs import comparison
from magcli.verify.code.programs import tests_of

_MARKS = (("python", "Python 3"), ("cpp", "C++20"))
PROGRAM = "Write a program in {language} that reads from standard input and writes to standard output."
MARKED = "Put it into one code block marked `{mark}`."
DEFAULT_TOLERANCE = 1e-6
"""Of floats that a Python test compares exactly: C++ may round in another order."""

_PYTHON = (
    r"python\w*|kwargs|docstring|itertools|functools|heapq|numpy|collections module|type hints?|pep ?8|"
    r"(?:monkey[- ]?patch|duck[- ]typ)\w*"
)
_ABOUT_PROGRAM = re.compile(rf"\b(?:{_PYTHON})\b|__\w+__", re.IGNORECASE)
_ABOUT_FUNCTION = re.compile(
    rf"\b(?:{_PYTHON}|comprehensions?|lambda|decorators?|generators?|pandas|global variable|class method)\b|__\w+__"
    r"|\bimport \w+",
    re.IGNORECASE,
)
"""The tales of contests, whose programs read stdin, have pandas, generators and decorators of other kinds."""
_ADDRESS = re.compile(r"\bhttps?://\S+")
_ASKS_PYTHON = re.compile(
    r"\b(a |an |the |following )?python\s?3?\s+(?=(?:function|program|code|script|solution)\b)", re.I
)


class Twins(NamedTuple):
    """What becomes of a problem's columns in Python and in C++."""

    python: Mapping[str, Any]
    cpp: Mapping[str, Any]


def twins(row: Mapping[str, Any]) -> Twins:
    """A code problem in both languages.

    Raises:
        Unfit: it stays as it is; says why.
    """
    if row.get("language"):
        raise Unfit("asks-already")
    try:
        found = cases(tests_of(row))
    except DataError:
        raise Unfit("bad-tests") from None
    calls = [case for case in found if isinstance(case, Call)]
    return _called(row, calls) if calls else _fed(row)


def _fed(row: Mapping[str, Any]) -> Twins:
    prompt = _neutral(str(row["prompt"]))
    _refuse(_ABOUT_PROGRAM, prompt)
    asks = {mark: _joined(prompt, PROGRAM.format(language=name), mark) for mark, name in _MARKS}
    return Twins({"prompt": asks["python"]}, {"prompt": asks["cpp"]})


def _called(row: Mapping[str, Any], calls: Sequence[Call]) -> Twins:
    if any(call.expected.kind == "one-of" for call in calls):
        raise Unfit("value")
    prompt = str(row["prompt"])
    solutions = row.get("solutions") if isinstance(row.get("solutions"), list) else ()
    codes = (each.get("code") for each in solutions or () if isinstance(each, Mapping))
    tests = tests_of_function(calls, prompt, (code for code in codes if code and isinstance(code, str)))
    statement = _statement(prompt, tests.name)
    signature = tests.signature()
    compare = _compare(row, signature, calls)
    feeds = [feed(given, value, signature) for given, value in zip(tests.given, tests.values, strict=True)]
    python = "Write this function in Python 3."
    if f"def {tests.name.rpartition('::')[2]}(" not in prompt:
        line = tests.function.line if tests.function else python_functions.line(tests.name, tests.names)
        python = f"Write this Python 3 function:\n\n```python\n{line}\n```"
    types = (signature.returns, *(type for _, type in signature.parameters))
    null = " `None` is `std::nullopt`." if any(type.holds("optional") for type in types) else ""
    cpp = f"Write it in C++20, with this signature and without a `main`.{null}\n\n```cpp\n{signature}\n```"
    return Twins(
        {"prompt": _joined(_neutral(prompt), python, "python")},
        {"prompt": _joined(statement, cpp, "cpp"), "tests": feeds, "compare": compare, "harness": harness(signature)},
    )


def _joined(statement: str, ask: str, mark: str) -> str:
    return f"{statement.rstrip()}\n\n{ask}\n\n{MARKED.format(mark=mark)}"


def _compare(row: Mapping[str, Any], signature: Signature, calls: Sequence[Call]) -> str:
    """How tokens are compared: case counts, and of floats what the row or its tests allow."""
    given = str(row.get("compare") or "")
    if comparison(given or "tokens").mode == "unordered-lines":
        raise Unfit("any-order")
    if not signature.returns.holds("double"):
        return "tokens-case"
    if signature.returns.holds("string"):
        raise Unfit("types")
    asked = [call.expected for call in calls if call.expected.kind == "near"]
    tolerances = [tolerance for each in asked if (tolerance := max(each.absolute, each.relative))]
    return given if given.startswith("floats") else f"floats:{min(tolerances, default=DEFAULT_TOLERANCE):g}"


# ---- statements ----


def _neutral(prompt: str) -> str:
    """A statement that does not ask for Python: *Write a python function* is *Write a function*."""
    return _ASKS_PYTHON.sub(lambda found: found[1] or "", prompt)


def _statement(prompt: str, name: str) -> str:
    """What a call-style problem says, without Python's declaration of the function.

    Raises:
        Unfit: it is about Python, or its code is more than the declaration.
    """
    tree = python_functions.parsed(prompt)
    if tree and any(not isinstance(node, ast.Expr) for node in tree.body):
        text = _of_stub(tree, name)
    else:
        for found in STUB.finditer(prompt):
            _of_stub(python_functions.parsed(found[1]), name)
        text = STUB.sub("", prompt)
    text = _neutral(text).strip()
    if not text:
        raise Unfit("helper-code")
    _refuse(_ABOUT_FUNCTION, text)
    return text


def _of_stub(tree: ast.Module | None, name: str) -> str:
    text = python_functions.stub_text(tree, name) if tree else None
    if text is None:
        raise Unfit("helper-code")
    return text


def _refuse(about: re.Pattern[str], text: str) -> None:
    """Raises Unfit for a text about Python; addresses do not count."""
    if about.search(_ADDRESS.sub("", text)):
        raise Unfit("about-python")

"""Tests that call a Python function, taken apart, and the signature that the function has in C++.

Names of parameters and types come from the function's declaration as far as there is one; what that leaves open, from
the values in the tests.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from magcli.curate.twins import cpp_types, python_functions
from magcli.curate.twins.cpp_harness import Signature
from magcli.curate.twins.python_functions import Function
from magcli.verify.code.calls import Call
from magcli.verify.code.expressions import constant

Reason = (
    Literal["asks-already", "about-python", "helper-code", "arguments", "value", "any-order", "names", "bad-tests"]
    | cpp_types.Reason
)

STUB = re.compile(r"(?:^[^\n]*:[ \t]*\n+)?```(?:python3?|py)?[ \t]*\n(.*?)```", re.DOTALL | re.MULTILINE)
"""A block of Python in a statement, with the line that announces it."""

_C_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS_TAKEN = (
    "abs acos asin atan atan2 auto bool break case catch cbrt ceil char clock close const continue cos default "
    "delete div do double else enum erf exp explicit extern false float floor fmod for friend gamma goto hypot if "
    "index inline int isalnum isalpha isdigit islower isspace isupper j0 j1 jn kill labs link log log10 log2 long "
    "main mutable namespace new not operator or pause pipe pow private protected public raise rand random read "
    "register remove rename return rint round select short signed sin sizeof sqrt static struct swab switch sync "
    "system tan template this throw time tolower toupper true try typedef typename union unlink unsigned using "
    "virtual void volatile wait while write xor y0 y1 yn"
)
_TAKEN = frozenset(_WORDS_TAKEN.split())
"""Words of C++, and functions of C that a function of the same name and types would collide with."""


class Unfit(Exception):
    """The problem's tests, or the problem itself, cannot be put to a program in C++."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Asked(NamedTuple):
    """A call taken apart: what is called, with which arguments."""

    name: str
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]


class FunctionTests(NamedTuple):
    """The tests of one function: its name, as declared, the arguments and the value of each test.

    ``Solution::name`` is a method of that class. ``names`` are those of the arguments that the tests give.
    """

    name: str
    function: Function | None
    names: Sequence[str]
    given: Sequence[Sequence[Any]]
    values: Sequence[Any]

    def signature(self) -> Signature:
        """The C++ function that takes the arguments of all tests and gives their values.

        Raises:
            Unfit: there is none.
        """
        hints = dict(self.function.parameters) if self.function else {}
        try:
            types = [
                cpp_types.common(column, hints.get(each, cpp_types.UNKNOWN))
                for each, column in zip(self.names, zip(*self.given, strict=True), strict=True)
            ]
            returns = cpp_types.common(self.values, self.function.returns if self.function else cpp_types.UNKNOWN)
        except cpp_types.Inexpressible as error:
            raise Unfit(error.reason) from None
        return Signature(self.name, tuple(zip(map(_safe, self.names), types, strict=True)), returns)


def tests_of_function(calls: Sequence[Call], prompt: str, codes: Iterable[str]) -> FunctionTests:
    """The tests of a problem, all of which call one function.

    Args:
        calls: They.
        prompt: The statement, which may declare the function.
        codes: Programs that may declare it else.

    Raises:
        Unfit: they call several, not with constants, or look at something else than the value.
    """
    tests = [asked(call) for call in calls]
    name = _name(tests)
    function = python_functions.declared([prompt, *(found[1] for found in STUB.finditer(prompt)), *codes], name)
    names = _parameters(tests, function)
    given = [arguments(test, names) for test in tests]
    return FunctionTests(name, function, names, given, [call.expected.value for call in calls])


def asked(call: Call) -> Asked:
    """A test taken apart; a function that is asked for the truth of its value returns a ``bool``.

    Raises:
        Unfit: it looks at something else than the value, or the arguments are no constants.
    """
    node = ast.parse(call.source, mode="eval").body
    match node:
        case ast.Call(ast.Name("bool"), [inner], []) if isinstance(call.expected.value, bool):
            node = inner
    match node:
        case ast.Call(ast.Name(name), given, keywords):
            pass
        case ast.Call(ast.Attribute(ast.Call(ast.Name("Solution"), [], []), method), given, keywords):
            name = f"Solution::{method}"
        case _:
            raise Unfit("value")
    if call.name != name.partition("::")[0]:
        raise Unfit("value")
    try:
        named = {word.arg or "": constant(word.value) for word in keywords}
        return Asked(name, [constant(each) for each in given], named)
    except ValueError:
        raise Unfit("arguments") from None


def arguments(test: Asked, names: Sequence[str]) -> list[Any]:
    """A test's arguments in the order of the parameters.

    Raises:
        Unfit: they are others.
    """
    rest = names[len(test.arguments) :]
    if len(test.arguments) > len(names) or set(rest) != set(test.keywords):
        raise Unfit("arguments")
    return [*test.arguments, *(test.keywords[name] for name in rest)]


def _name(tests: Sequence[Asked]) -> str:
    """The function that all tests call."""
    names = {test.name for test in tests}
    own = tests[0].name.rpartition("::")[2]
    if len(names) > 1 or not _C_NAME.fullmatch(own) or own in _TAKEN or own.startswith("__"):
        raise Unfit("names")
    return tests[0].name


def _parameters(tests: Sequence[Asked], function: Function | None) -> list[str]:
    """The names of the arguments that tests give: as declared, else letters."""
    count = len(tests[0].arguments) + len(tests[0].keywords)
    if function and len(function.parameters) >= count:
        return [name for name, _ in function.parameters[:count]]
    if any(test.keywords for test in tests) or count > 26:
        raise Unfit("arguments")
    return [chr(ord("a") + number) for number in range(count)]


def _safe(name: str) -> str:
    return name + "_" if name in _TAKEN else name

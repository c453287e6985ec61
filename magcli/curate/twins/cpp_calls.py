"""C++ programs that others have written, on tests that call a Python function.

Such a program has the function but no ``main``, and its types are its own, as ``int64_t`` or ``vector<char>``. It is
judged as a Python program is: its value is taken back into Python's types and compared with the expected one.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from magcli.curate.twins import cpp_types
from magcli.curate.twins.cpp_harness import Signature, deduced_harness, stdin
from magcli.curate.twins.signatures import Unfit, arguments, asked, tests_of_function
from magcli.verify.code.calls import Call
from magcli.verify.code.plain import NotPlain, Plain
from magcli.verify.code.programs import with_harness

_HEADERS, _NAMESPACE = "#include <bits/stdc++.h>\n", "using namespace std;\n"
"""What sites put before a bare function or class; the latter not where a program has headers and names ``std``."""

_NAMES_STD = re.compile(r"\bnamespace\s+std\b|^\s*#\s*include\b.*\bstd::", re.MULTILINE | re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_LITERALS: dict[bytes, bool | None] = {b"true": True, b"false": False, b"null": None}


class CppCalls(NamedTuple):
    """How a C++ program is asked what tests ask of a Python function.

    ``names`` are Python's parameters, ``shape`` what containers the expected values are.
    """

    signature: Signature
    names: Sequence[str]
    shape: "Shape"

    def program(self, code: str) -> str:
        """A program that can be run: with what its site put before it, and a ``main``."""
        before = _HEADERS if _NAMES_STD.search(code) else _HEADERS + _NAMESPACE
        return with_harness(before + code, deduced_harness(self.signature))

    def stdin(self, call: Call) -> bytes:
        """What goes into the program.

        Raises:
            Unfit: an argument is none of the function's types.
        """
        given = arguments(asked(call), self.names)
        for value, (_, type) in zip(given, self.signature.parameters, strict=True):
            _refuse_unlike(value, type)
        return stdin(given, self.signature).encode()

    def value(self, stdout: bytes) -> bytes:
        """What came out, as the text of a value (``magcli.verify.code.plain``).

        Raises:
            NotPlain: it is no value, as of a program that ended itself.
        """
        try:
            return json.dumps(_tagged(_reshaped(_tree(stdout.split()), self.shape))).encode()
        except (TypeError, RecursionError) as error:
            raise NotPlain(str(error)) from error


def cpp_calls(calls: Sequence[Call], prompt: str, codes: Iterable[str]) -> CppCalls:
    """How the tests of a problem are put to a C++ program.

    Args:
        calls: All tests.
        prompt: The statement, which may declare the function.
        codes: Python programs that may declare it else.

    Raises:
        Unfit: they cannot be; says why. So where a list is expected of one test and a tuple of another: one type of
            C++ is both.
    """
    tests = tests_of_function(calls, prompt, codes)
    return CppCalls(tests.signature(), tests.names, shape_of(tests.values))


def _refuse_unlike(value: Any, type: cpp_types.Type) -> None:
    try:
        found = cpp_types.common([value], type)
    except cpp_types.Inexpressible as error:
        raise Unfit(error.reason) from None
    if found != type:
        raise Unfit("types")


# ---- values ----


class Shape(NamedTuple):
    """What stands at a place of several values: a container and what is in it, else ``bool``, ``float`` or other.

    A tuple whose length is always the same has a part for each place, another container one for all, a dict two.
    """

    kind: type
    parts: tuple["Shape", ...] = ()


_OTHER = Shape(object)


def shape_of(values: Iterable[Plain]) -> Shape:
    """The shape of all values that are expected at one place.

    Raises:
        Unfit: containers of several kinds stand there.
    """
    found = list(values)
    held = [value for value in found if isinstance(value, list | tuple | frozenset | dict)]
    if not held:
        kinds = {type(value) for value in found}
        return Shape(float) if float in kinds else Shape(bool) if kinds == {bool} else _OTHER
    kind = type(held[0])
    alike: list[Any] = [value for value in held if isinstance(value, kind)]
    if len(alike) < len(held):
        raise Unfit("types")
    if kind is dict:
        return Shape(dict, (shape_of(chain(*alike)), shape_of(chain(*(value.values() for value in alike)))))
    if kind is tuple and len({len(value) for value in alike}) == 1:
        return Shape(tuple, tuple(map(shape_of, zip(*alike, strict=True))))
    return Shape(kind, (shape_of(chain(*alike)),))


def _reshaped(value: Any, shape: Shape) -> Any:
    """A value of lists, numbers and text in the containers of the shape.

    Raises:
        TypeError: it cannot be, such as a list as a key.
    """
    if not isinstance(value, list):
        return _scalar(value, shape.kind)
    parts = shape.parts if len(shape.parts) == len(value) or shape.kind is dict else shape.parts[:1]
    parts = parts or (_OTHER,)
    items = [_reshaped(item, parts[place % len(parts)]) for place, item in enumerate(value)]
    if shape.kind is dict:
        return dict(zip(items[::2], items[1::2], strict=False))
    return shape.kind(items) if shape.kind in (tuple, frozenset) else items


def _scalar(value: Any, kind: type) -> Any:
    if isinstance(value, int) and kind in (bool, float):
        return kind(value)
    return value


def _tree(tokens: Iterable[bytes]) -> Any:
    """The value that tokens stand for, its containers as lists; without recursion, as a program may write anything.

    Raises:
        NotPlain: they stand for none, or for several.
    """
    levels: list[list[Any]] = [[]]
    for token in tokens:
        if token == b"[":
            levels.append([])
        elif token == b"]" and len(levels) > 1:
            closed = levels.pop()
            levels[-1].append(closed)
        else:
            levels[-1].append(_literal(token))
    if len(levels) > 1 or len(levels[0]) != 1:
        raise NotPlain("the program wrote no value")
    return levels[0][0]


def _literal(token: bytes) -> bool | int | float | str | None:
    if token in _LITERALS:
        return _LITERALS[token]
    try:
        if token[:1] == b'"':
            return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), token[1:-1]).decode()
        return int(token) if token.lstrip(b"-").isdigit() else float(token)
    except ValueError as error:
        raise NotPlain(str(error)) from error


def _tagged(value: Any) -> Any:
    """A value as JSON, with what JSON lacks in objects of one key."""
    match value:
        case float() if not math.isfinite(value):
            return {"float": str(value)}
        case tuple() | frozenset():
            return {type(value).__name__: list(map(_tagged, value))}
        case dict():
            return {"dict": [[_tagged(key), _tagged(item)] for key, item in value.items()]}
        case list():
            return list(map(_tagged, value))
    return value

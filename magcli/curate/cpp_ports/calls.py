"""Run existing C++ solutions on tests that call a Python function.

Such a program has the function but no ``main``, and uses its own types, such as ``int64_t`` or ``vector<char>``. It is
judged like a Python program: its value is converted back to Python types and compared with the expected one.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from magcli.curate.cpp_ports.cpp import NoCppType, Signature, Type, common_type, generic_harness, stdin
from magcli.curate.cpp_ports.signatures import UnsupportedSignature, arguments, parse_call, tests_of_function
from magcli.verify.code.cases import Call
from magcli.verify.code.judge import with_harness
from magcli.verify.code.outputs import NotPlain, Plain

_HEADERS, _NAMESPACE = "#include <bits/stdc++.h>\n", "using namespace std;\n"
"""What judges prepend to a bare function or class; the second unless the program includes headers and names ``std``."""

_NAMES_STD = re.compile(r"\bnamespace\s+std\b|^\s*#\s*include\b.*\bstd::", re.MULTILINE | re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_LITERALS: dict[bytes, bool | None] = {b"true": True, b"false": False, b"null": None}


class CppCalls(NamedTuple):
    """Adapts C++ programs to tests that call a Python function.

    ``names`` are the Python parameters, ``shape`` the container types of the expected values.
    """

    signature: Signature
    names: Sequence[str]
    shape: "Shape"

    def program(self, code: str) -> str:
        """A complete program: with headers and a ``main``."""
        prefix = _HEADERS if _NAMES_STD.search(code) else _HEADERS + _NAMESPACE
        return with_harness(prefix + code, generic_harness(self.signature))

    def stdin(self, call: Call) -> bytes:
        """The stdin of the program for a call.

        Raises:
            UnsupportedSignature: an argument does not have the function's type.
        """
        given = arguments(parse_call(call), self.names)
        for value, (_, type) in zip(given, self.signature.parameters, strict=True):
            _check_type(value, type)
        return stdin(given, self.signature).encode()

    def value(self, stdout: bytes) -> bytes:
        """The output of the program as the text of a value (``magcli.verify.code.outputs``).

        Raises:
            NotPlain: it is not a value, for example because the program exited early.
        """
        try:
            return json.dumps(_tagged(_reshaped(_tree(stdout.split()), self.shape))).encode()
        except (TypeError, RecursionError) as error:
            raise NotPlain(str(error)) from error


def cpp_calls(calls: Sequence[Call], prompt: str, codes: Iterable[str]) -> CppCalls:
    """The adapter for the tests of a problem.

    Args:
        calls: All tests.
        prompt: The statement, which may declare the function.
        codes: Python programs that may declare it otherwise.

    Raises:
        UnsupportedSignature: they cannot; for example, one test expects a list and another a tuple, which are the
            same type in C++.
    """
    tests = tests_of_function(calls, prompt, codes)
    return CppCalls(tests.signature(), tests.names, shape_of(tests.values))


def _check_type(value: Any, type: Type) -> None:
    try:
        found = common_type([value], type)
    except NoCppType as error:
        raise UnsupportedSignature(error.reason) from None
    if found != type:
        raise UnsupportedSignature("types")


# ---- values ----


class Shape(NamedTuple):
    """The common structure of several values: a container and its items, else ``bool``, ``float`` or other.

    A tuple of constant length has one part per item, a dict two, any other container one.
    """

    kind: type
    parts: tuple["Shape", ...] = ()


_OTHER = Shape(object)


def shape_of(values: Iterable[Plain]) -> Shape:
    """The common shape of values.

    Raises:
        UnsupportedSignature: they are different kinds of containers.
    """
    found = list(values)
    held = [value for value in found if isinstance(value, list | tuple | frozenset | dict)]
    if not held:
        kinds = {type(value) for value in found}
        return Shape(float) if float in kinds else Shape(bool) if kinds == {bool} else _OTHER
    kind = type(held[0])
    alike: list[Any] = [value for value in held if isinstance(value, kind)]
    if len(alike) < len(held):
        raise UnsupportedSignature("types")
    if kind is dict:
        return Shape(dict, (shape_of(chain(*alike)), shape_of(chain(*(value.values() for value in alike)))))
    if kind is tuple and len({len(value) for value in alike}) == 1:
        return Shape(tuple, tuple(map(shape_of, zip(*alike, strict=True))))
    return Shape(kind, (shape_of(chain(*alike)),))


def _reshaped(value: Any, shape: Shape) -> Any:
    """Convert nested lists to the containers of the shape.

    Raises:
        TypeError: impossible, such as a list as a key.
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
    """Parse tokens to a value with containers as lists; without recursion, as a program may write anything.

    Raises:
        NotPlain: they are not exactly one value.
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
        raise NotPlain("the program did not write exactly one value")
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
    """A value as JSON, with types that JSON lacks as objects with one key."""
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

"""Tests that call a Python function: derive its C++ signature, and run existing C++ solutions on them.

Parameter names and types come from the declaration of the function in the statement, a stub or a solution, if there is
one; what it leaves open, from the values in the tests.

An existing C++ solution has the function but no ``main``, and uses its own types, such as ``int64_t`` or
``vector<char>``. It is judged like a Python program: its value is converted back to Python types and compared with the
expected one.
"""

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from magcli.curate.cpp_ports.cpp import (
    UNKNOWN,
    Signature,
    Type,
    UnsupportedSignature,
    annotation_type,
    common_type,
    generic_harness,
    stdin,
)
from magcli.verify.code.cases import Call, constant
from magcli.verify.code.judge import with_harness
from magcli.verify.code.outputs import NotPlain, Plain

STUB = re.compile(r"(?:^[^\n]*:[ \t]*\n+)?```(?:python3?|py)?[ \t]*\n(.*?)```", re.DOTALL | re.MULTILINE)
"""A block of Python in a statement, with the line that introduces it."""
_C_NAME = re.compile(r"[A-Za-z_]\w*")
_RESERVED_WORDS = (
    "abs acos asin atan atan2 auto bool break case catch cbrt ceil char clock close const continue cos default "
    "delete div do double else enum erf exp explicit extern false float floor fmod for friend gamma goto hypot if "
    "index inline int isalnum isalpha isdigit islower isspace isupper j0 j1 jn kill labs link log log10 log2 long "
    "main mutable namespace new not operator or pause pipe pow private protected public raise rand random read "
    "register remove rename return rint round select short signed sin sizeof sqrt static struct swab switch sync "
    "system tan template this throw time tolower toupper true try typedef typename union unlink unsigned using "
    "virtual void volatile wait while write xor y0 y1 yn"
)
_RESERVED = frozenset(_RESERVED_WORDS.split())
"""C++ keywords, and C library functions that a function of the same name could collide with."""


class ParsedCall(NamedTuple):
    """A parsed call: the function and its arguments."""

    name: str
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]


class Function(NamedTuple):
    """A declaration: its source line, parameters with types, and return type, as far as annotated."""

    line: str
    parameters: Sequence[tuple[str, Type]]
    returns: Type


class FunctionTests(NamedTuple):
    """The tests of one function: its name, declaration, and the arguments and value of each test.

    ``Solution::name`` is a method of that class. ``names`` are the parameters that the tests pass.
    """

    name: str
    function: Function | None
    names: Sequence[str]
    arguments: Sequence[Sequence[Any]]
    values: Sequence[Any]

    def signature(self) -> Signature:
        """The C++ signature for the arguments and values of all tests.

        Raises:
            UnsupportedSignature: there is none.
        """
        # A declaration may say what the values leave open, such as the elements of an empty list.
        hints = dict(self.function.parameters) if self.function else {}
        returns_hint = self.function.returns if self.function else UNKNOWN
        parameters = []
        # The values of each parameter in all tests.
        for name, *values in zip(self.names, *self.arguments, strict=True):
            type = common_type(values, hints.get(name, UNKNOWN))
            free_name = f"{name}_" if name in _RESERVED else name
            parameters.append((free_name, type))
        return Signature(self.name, tuple(parameters), common_type(self.values, returns_hint))


def tests_of_function(calls: Sequence[Call], prompt: str, codes: Iterable[str]) -> FunctionTests:
    """Parse the tests of a problem, all of which must call the same function.

    Args:
        calls: The tests.
        prompt: The statement, which may declare the function.
        codes: Programs that may declare it otherwise.

    Raises:
        UnsupportedSignature: they call several functions, pass non-constants, or check something other than the value.
    """
    tests = [parse_call(call) for call in calls]
    name = _name(tests)
    stubs = [match[1] for match in STUB.finditer(prompt)]
    function = declared([prompt, *stubs, *codes], name)
    names = _parameters(tests, function)
    ordered = [arguments(test, names) for test in tests]
    return FunctionTests(name, function, names, ordered, [call.expected.value for call in calls])


def parse_call(call: Call) -> ParsedCall:
    """Parse a test; a call wrapped in ``bool()`` returns a ``bool``.

    Raises:
        UnsupportedSignature: it checks something other than the value, or the arguments are not constants.
    """
    match call.node:
        case ast.Call(ast.Name(name), positional, keywords):
            pass
        case ast.Call(ast.Attribute(ast.Call(ast.Name("Solution"), [], []), method), positional, keywords):
            name = f"Solution::{method}"
        case _:
            raise UnsupportedSignature("value")
    try:
        named = {keyword.arg or "": constant(keyword.value) for keyword in keywords}
        return ParsedCall(name, [constant(argument) for argument in positional], named)
    except ValueError:
        raise UnsupportedSignature("arguments") from None


def arguments(test: ParsedCall, names: Sequence[str]) -> list[Any]:
    """The arguments of a call in the order of the parameters.

    Raises:
        UnsupportedSignature: they do not match the parameters.
    """
    # What is not passed by position must be passed by name.
    rest = names[len(test.arguments) :]
    if len(test.arguments) > len(names) or set(rest) != set(test.keywords):
        raise UnsupportedSignature("arguments")
    return [*test.arguments, *(test.keywords[name] for name in rest)]


def _name(tests: Sequence[ParsedCall]) -> str:
    """The function that all tests call."""
    names = {test.name for test in tests}
    short = tests[0].name.rpartition("::")[2]
    # C++ reserves names with two leading underscores.
    if len(names) > 1 or not _C_NAME.fullmatch(short) or short in _RESERVED or short.startswith("__"):
        raise UnsupportedSignature("names")
    return tests[0].name


def _parameters(tests: Sequence[ParsedCall], function: Function | None) -> list[str]:
    """Names of the parameters that the tests pass: as declared, else letters."""
    # Trailing parameters with defaults are left out if the tests do not pass them.
    count = len(tests[0].arguments) + len(tests[0].keywords)
    if function and len(function.parameters) >= count:
        return [name for name, _ in function.parameters[:count]]
    if any(test.keywords for test in tests) or count > 26:
        raise UnsupportedSignature("arguments")
    return [chr(ord("a") + number) for number in range(count)]


def declared(codes: Iterable[str], name: str) -> Function | None:
    """The first declaration of a function; ``Solution::name`` is a method of that class.

    None if there is none, or it has ``*args``, ``**kwargs`` or keyword-only parameters.
    """
    owner = name.rpartition("::")[0]
    for code in codes:
        tree = parsed(code)
        definition = find(tree, name) if tree else None
        if definition:
            return _function(definition, owner)
    return None


def parsed(code: str) -> ast.Module | None:
    """The syntax tree of code that may lack a function body; None if it is not Python."""
    # A body for a method, for a function, and after a head without a line break.
    for ending in ("", "\n        pass\n", "\n    pass\n", " pass\n"):
        try:
            return ast.parse(code.rstrip() + ending)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def find(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The definition of a function."""
    owner, _, short = name.rpartition("::")
    statements: list[ast.stmt] = tree.body
    if owner:
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
        statements = [part for node in classes for part in node.body]
    for node in statements:
        if isinstance(node, ast.FunctionDef) and node.name == short:
            return node
    return None


def stub_text(tree: ast.Module, name: str) -> str | None:
    """The docstring of the only function in a stub; None if the code contains anything else."""
    definition = find(tree, name)
    expected = ast.ClassDef if "::" in name else ast.FunctionDef
    # Imports for annotations are no helper code.
    others = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | expected)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if definition is None or others or len(functions) > 1:
        return None
    return ast.get_docstring(definition) or ""


def declaration(name: str, parameters: Sequence[str]) -> str:
    """A declaration without type annotations."""
    owner, _, short = name.rpartition("::")
    names = ["self", *parameters] if owner else parameters
    return _in_class(f"def {short}({', '.join(names)}):", owner)


def _function(node: ast.FunctionDef, owner: str) -> Function | None:
    signature = node.args
    if signature.vararg or signature.kwarg or signature.kwonlyargs:
        return None
    parameters = [*signature.posonlyargs, *signature.args]
    if owner:
        parameters = parameters[1:]  # without self
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    hints = [(parameter.arg, annotation_type(parameter.annotation)) for parameter in parameters]
    line = _in_class(f"def {node.name}({ast.unparse(signature)}){returns}:", owner)
    return Function(line, hints, annotation_type(node.returns))


def _in_class(declaration: str, owner: str) -> str:
    return f"class {owner}:\n    {declaration}" if owner else declaration


# ---- calls ----

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
        values = arguments(parse_call(call), self.names)
        for value, (_, type) in zip(values, self.signature.parameters, strict=True):
            # A new call may need a wider type than those of the tests, which the program could not read.
            if common_type([value], type) != type:
                raise UnsupportedSignature("types")
        return stdin(values, self.signature).encode()

    def value(self, stdout: bytes) -> bytes:
        """The output of the program as the text of a value (``magcli.verify.code.outputs``).

        Raises:
            NotPlain: it is not a value, for example because the program exited early.
        """
        try:
            # The harness writes every container as [ ... ], so the tests say which one it is.
            value = _reshaped(_tree(stdout.split()), self.shape)
            return json.dumps(_tagged(value)).encode()
        except (TypeError, RecursionError) as error:
            raise NotPlain(str(error)) from error


def cpp_calls(calls: Sequence[Call], prompt: str, codes: Iterable[str]) -> CppCalls:
    """The adapter for the tests of a problem.

    Args:
        calls: All tests.
        prompt: The statement, which may declare the function.
        codes: Python programs that may declare it otherwise.

    Raises:
        UnsupportedSignature: the tests cannot be ported; for example, one expects a list and another a tuple, which are
            the same type in C++.
    """
    tests = tests_of_function(calls, prompt, codes)
    return CppCalls(tests.signature(), tests.names, shape_of(tests.values))


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
    all_values = list(values)
    containers: list[Any] = [value for value in all_values if isinstance(value, list | tuple | set | dict)]
    if not containers:
        return _shape_of_scalars(all_values)
    kind: type[Any] = type(containers[0])
    if not all(isinstance(value, kind) for value in containers):
        raise UnsupportedSignature("types")
    if kind is dict:
        keys = chain.from_iterable(containers)
        items = chain.from_iterable(container.values() for container in containers)
        return Shape(dict, (shape_of(keys), shape_of(items)))
    lengths = set(map(len, containers))
    if kind is tuple and len(lengths) == 1:
        by_position = zip(*containers, strict=True)
        return Shape(tuple, tuple(map(shape_of, by_position)))
    elements = chain.from_iterable(containers)
    return Shape(frozenset if kind is set else kind, (shape_of(elements),))


def _shape_of_scalars(values: Sequence[Plain]) -> Shape:
    """Floats, also with integers among them, or truth values only; other values have no shape to restore."""
    kinds = set(map(type, values))
    # C++ writes 1.0 as 1, so integers beside floats are floats too.
    if float in kinds:
        return Shape(float)
    return Shape(bool) if kinds == {bool} else _OTHER


def _reshaped(value: Any, shape: Shape) -> Any:
    """Convert nested lists to the containers of the shape.

    Raises:
        TypeError: impossible, such as a list as a key.
    """
    if not isinstance(value, list):
        return _scalar(value, shape.kind)
    parts = shape.parts or (_OTHER,)
    if shape.kind is not dict and len(parts) != len(value):
        # A container of any length has one part, which is that of all items.
        parts = parts[:1]
    items = [_reshaped(item, parts[index % len(parts)]) for index, item in enumerate(value)]
    if shape.kind is dict:
        # Keys and values alternate.
        return dict(zip(items[::2], items[1::2], strict=False))
    if shape.kind in (tuple, frozenset):
        return shape.kind(items)
    return items


def _scalar(value: Any, kind: type) -> Any:
    # A C++ function may return an int for a truth value, and 1.0 is written as 1.
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
        # A bracket too many is no literal either, which ends the parsing.
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
            # Escapes are bytes, so they become characters only together.
            return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), token[1:-1]).decode()
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

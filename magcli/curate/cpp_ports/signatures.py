"""Parse tests that call a Python function and derive the signature of the function in C++.

Parameter names and types come from the declaration of the function in the statement, a stub or a solution, if there is
one; what it leaves open, from the values in the tests.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from magcli.curate.cpp_ports.cpp import UNKNOWN, NoCppType, Signature, Type, annotation_type, common_type
from magcli.curate.cpp_ports.cpp import Reason as CppReason
from magcli.verify.code.cases import Call
from magcli.verify.code.expressions import constant

Reason = (
    Literal["asks-already", "about-python", "helper-code", "arguments", "value", "any-order", "names", "bad-tests"]
    | CppReason
)
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


class UnsupportedSignature(Exception):
    """A problem or its tests cannot be ported to C++."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


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
    given: Sequence[Sequence[Any]]
    values: Sequence[Any]

    def signature(self) -> Signature:
        """The C++ signature for the arguments and values of all tests.

        Raises:
            UnsupportedSignature: there is none.
        """
        hints = dict(self.function.parameters) if self.function else {}
        try:
            types = [
                common_type(column, hints.get(each, UNKNOWN))
                for each, column in zip(self.names, zip(*self.given, strict=True), strict=True)
            ]
            returns = common_type(self.values, self.function.returns if self.function else UNKNOWN)
        except NoCppType as error:
            raise UnsupportedSignature(error.reason) from None
        return Signature(self.name, tuple(zip(map(_safe, self.names), types, strict=True)), returns)


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
    function = declared([prompt, *(found[1] for found in STUB.finditer(prompt)), *codes], name)
    names = _parameters(tests, function)
    given = [arguments(test, names) for test in tests]
    return FunctionTests(name, function, names, given, [call.expected.value for call in calls])


def parse_call(call: Call) -> ParsedCall:
    """Parse a test; a call wrapped in ``bool()`` returns a ``bool``.

    Raises:
        UnsupportedSignature: it checks something other than the value, or the arguments are not constants.
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
            raise UnsupportedSignature("value")
    if call.name != name.partition("::")[0]:
        raise UnsupportedSignature("value")
    try:
        named = {word.arg or "": constant(word.value) for word in keywords}
        return ParsedCall(name, [constant(each) for each in given], named)
    except ValueError:
        raise UnsupportedSignature("arguments") from None


def arguments(test: ParsedCall, names: Sequence[str]) -> list[Any]:
    """The arguments of a call in the order of the parameters.

    Raises:
        UnsupportedSignature: they do not match the parameters.
    """
    rest = names[len(test.arguments) :]
    if len(test.arguments) > len(names) or set(rest) != set(test.keywords):
        raise UnsupportedSignature("arguments")
    return [*test.arguments, *(test.keywords[name] for name in rest)]


def _name(tests: Sequence[ParsedCall]) -> str:
    """The function that all tests call."""
    names = {test.name for test in tests}
    own = tests[0].name.rpartition("::")[2]
    if len(names) > 1 or not _C_NAME.fullmatch(own) or own in _RESERVED or own.startswith("__"):
        raise UnsupportedSignature("names")
    return tests[0].name


def _parameters(tests: Sequence[ParsedCall], function: Function | None) -> list[str]:
    """Names of the parameters that the tests pass: as declared, else letters."""
    count = len(tests[0].arguments) + len(tests[0].keywords)
    if function and len(function.parameters) >= count:
        return [name for name, _ in function.parameters[:count]]
    if any(test.keywords for test in tests) or count > 26:
        raise UnsupportedSignature("arguments")
    return [chr(ord("a") + number) for number in range(count)]


def _safe(name: str) -> str:
    return name + "_" if name in _RESERVED else name


def declared(codes: Iterable[str], name: str) -> Function | None:
    """The first declaration of a function; ``Solution::name`` is a method of that class.

    None if there is none, or it has ``*args``, ``**kwargs`` or keyword-only parameters.
    """
    for code in codes:
        if (tree := parsed(code)) and (found := find(tree, name)):
            return _function(found, name.rpartition("::")[0])
    return None


def parsed(code: str) -> ast.Module | None:
    """The syntax tree of code that may lack a function body; None if it is not Python."""
    for ending in ("", "\n        pass\n", "\n    pass\n", " pass\n"):
        try:
            return ast.parse(code.rstrip() + ending)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def find(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The definition of a function."""
    owner, _, own = name.rpartition("::")
    body: list[ast.stmt] = tree.body
    if owner:
        body = [part for node in body if isinstance(node, ast.ClassDef) and node.name == owner for part in node.body]
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == own), None)


def stub_text(tree: ast.Module, name: str) -> str | None:
    """The docstring of the only function in a stub; None if the code contains anything else."""
    found = find(tree, name)
    holder = ast.ClassDef if "::" in name else ast.FunctionDef
    more = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | holder)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if found is None or more or len(functions) > 1:
        return None
    return ast.get_docstring(found) or ""


def declaration(name: str, parameters: Sequence[str]) -> str:
    """A declaration without type annotations."""
    owner, _, own = name.rpartition("::")
    return _in_class(f"def {own}({', '.join(['self', *parameters] if owner else parameters)}):", owner)


def _function(node: ast.FunctionDef, owner: str) -> Function | None:
    given = node.args
    if given.vararg or given.kwarg or given.kwonlyargs:
        return None
    parameters = [*given.posonlyargs, *given.args][1 if owner else 0 :]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    hints = [(each.arg, annotation_type(each.annotation)) for each in parameters]
    line = _in_class(f"def {node.name}({ast.unparse(given)}){returns}:", owner)
    return Function(line, hints, annotation_type(node.returns))


def _in_class(declaration: str, owner: str) -> str:
    return f"class {owner}:\n    {declaration}" if owner else declaration

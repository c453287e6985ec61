"""Tests that call a function: taken apart so that what is expected never goes where the program runs.

The call is evaluated in the sandbox, its value comes back as plain data (``magcli.verify.code.plain``) and is compared
here. An ``assert`` is split by its syntax tree into the call and what it asks of the value:

======================================================  ============================================
``assert f(1) == [1, 2]`` or ``is``                     the value is equal
``assert set(f(1)) == {1, 2}``                          the value of ``set(f(1))`` is equal
``assert f(1) in (1, 2)``                               it is one of them
``assert f(1)``, ``assert not f(1)``                    it is true, it is false
``assert abs(f(1) - 0.5) < 1e-6``                       it is within the tolerance
``assert math.isclose(f(1), 0.5, rel_tol=1e-3)``        the same
``assert is_same_list(f(..), list_node([..]))``         the list it heads is equal (``is_same_tree`` too)
======================================================  ============================================

Whatever else could carry the expected value into the sandbox, such as ``f(1) - 5 == 0``, is refused as a bad test.
"""

import ast
import builtins
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from magcli.errors import DataError
from magcli.verify.code.constants import constant
from magcli.verify.code.outputs import Comparison
from magcli.verify.code.plain import Plain, in_any_order, same, shown

DEFAULT_REL_TOL = 1e-9
"""Of ``math.isclose``."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a test asks of a value; ``absolute`` and ``relative`` are tolerances of kind ``near``."""

    kind: Literal["equal", "one-of", "near"]
    value: Plain = None
    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        match self.kind:
            case "one-of":
                return f"one of {shown(self.value)}"
            case "near":
                return f"about {shown(self.value)}"
        return shown(self.value)

    def met(self, given: Plain, rule: Comparison) -> bool:
        """Whether a value is right; of the rule only a tolerance and the freedom of order matter."""
        tolerance = rule.tolerance if rule.mode == "floats" else None
        equal = in_any_order if rule.mode == "unordered-lines" else same
        match self.kind:
            case "equal":
                return equal(self.value, given, tolerance)
            case "one-of":
                return isinstance(self.value, list | tuple | frozenset) and any(
                    equal(value, given, tolerance) for value in self.value
                )
            case "near":
                return self._near(given)

    def _near(self, given: Plain) -> bool:
        if isinstance(given, bool) or not isinstance(given, int | float) or not isinstance(self.value, int | float):
            return False
        try:
            return math.isclose(given, self.value, rel_tol=self.relative, abs_tol=self.absolute)
        except OverflowError:
            return False


@dataclass(frozen=True, slots=True)
class Call:
    """An expression for the sandbox, the name in it that the program must define, and what its value must be."""

    source: str
    name: str
    expected: Expected


def of_call(source: str, output: str) -> Call:
    """A test given as a call and a value, both as Python text (the value may be JSON).

    Raises:
        DataError: one of them cannot be read.
    """
    try:
        return _call(_expression(source), Expected("equal", _value(output)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"a test cannot be used: {error}") from error


def of_assert(source: str) -> Call:
    """A test given as one ``assert`` statement.

    Raises:
        DataError: it cannot be split into a call and an expected value.
    """
    statements = _parsed(source).body
    if len(statements) != 1 or not isinstance(statements[0], ast.Assert):
        raise DataError(f"{_short(source)} is not one assert statement")
    try:
        return _split(statements[0].test)
    except (ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{_short(source)} cannot be split into a call and an expected value: {error}") from error


def asserts(source: str, entry_point: str = "") -> list[str]:
    """The assert statements of a test script, one by one, for tests of their own.

    A function ``check(candidate)`` gives its asserts, with ``candidate`` replaced by what the script passes to
    ``check`` or else by ``entry_point``; ``assert True`` is left out.

    Raises:
        DataError: the script does more than assert, such as loop or assign, or names no function to check.
    """
    tree = _parsed(source)
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not checks:
        return list(_asserts(tree.body))
    passed = [
        node.value.args[0]
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args
    ]
    if not passed and not entry_point:
        raise DataError("the script defines check() but does not say what it checks; give the entry point")
    subject = passed[0] if passed else _expression(entry_point)
    replaced = _Replace(checks[0].args.args[0].arg, subject).visit(checks[0])
    return list(_asserts(replaced.body))


class _Replace(ast.NodeTransformer):
    """Puts an expression in place of a name."""

    def __init__(self, name: str, subject: ast.expr) -> None:
        self._name, self._subject = name, subject

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._subject if node.id == self._name else node


def _asserts(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Assert):
            if not isinstance(node.test, ast.Constant):
                yield ast.unparse(ast.Assert(node.test))
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) and not _is_note(node):
            raise DataError(f"{_short(ast.unparse(node))} is no assert statement")


def _is_note(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name)


def _split(test: ast.expr) -> Call:
    match test:
        case ast.Call(ast.Attribute(ast.Name("math"), "isclose"), [call, value], options):
            call, value = (value, call) if _is_constant(call) else (call, value)
            return _call(call, _near(constant(value), {option.arg: constant(option.value) for option in options}))
        case ast.Compare(
            ast.Call(ast.Name("abs") | ast.Attribute(ast.Name("math"), "fabs"), [ast.BinOp(call, ast.Sub(), value)]),
            [ast.Lt() | ast.LtE()],
            [bound],
        ):
            call, value = (value, call) if _is_constant(call) else (call, value)
            return _call(call, _near(constant(value), {"rel_tol": 0.0, "abs_tol": constant(bound)}))
        case ast.Call(ast.Name("is_same_list" | "is_same_tree" as helper), [call, value]):
            return _node(call, value, helper.removeprefix("is_same_"))
        case ast.Compare(one, [ast.Eq() | ast.Is()], [other]):
            call, value = (other, one) if _is_constant(one) else (one, other)
            return _call(call, Expected("equal", constant(value)))
        case ast.Compare(call, [ast.In()], [values]):
            return _call(call, Expected("one-of", constant(values)))
        case ast.UnaryOp(ast.Not(), call):
            return _truth(call, False)
    return _truth(test, True)


def _truth(call: ast.expr, expected: bool) -> Call:
    inner = _call(call, Expected("equal", expected))
    return Call(f"bool({inner.source})", inner.name, inner.expected)


def _near(value: Plain, options: Mapping[str | None, Any]) -> Expected:
    relative, absolute = options.get("rel_tol", DEFAULT_REL_TOL), options.get("abs_tol", 0.0)
    if not all(isinstance(number, int | float) for number in (value, relative, absolute)):
        raise ValueError("the expected value or its tolerance is not a real number")
    return Expected("near", value, float(absolute), float(relative))


def _node(call: ast.expr, value: ast.expr, kind: str) -> Call:
    """A linked list or tree, compared by its values, which a helper of the driver's lists."""
    match value:
        case ast.Constant(None):
            values: Plain = []
        case ast.Call(ast.Name(maker), [content]) if maker == f"{kind}_node":
            values = _without_end(constant(content))
        case _:
            raise ValueError(f"what is expected is no {kind}_node([..])")
    inner = _call(call, Expected("equal", values))
    return Call(f"{kind}_values({inner.source})", inner.name, inner.expected)


def _without_end(values: Plain) -> Plain:
    """The values of a tree, level by level, without missing children at the end."""
    if not isinstance(values, list):
        raise ValueError("the values of the nodes are no list")
    while values and values[-1] is None:
        values.pop()
    return values


def _call(node: ast.expr, expected: Expected) -> Call:
    name = _root(node)
    if name is None:
        raise ValueError(f"{_short(ast.unparse(node))} is not just a call")
    return Call(ast.unparse(node), name, expected)


_CONVERSIONS = frozenset(
    [set, sorted, list, tuple, frozenset, dict, len, str, int, float, round, bool, sum, max, min, repr]
)
_BUILTIN = vars(builtins)


def _root(node: ast.expr) -> str | None:
    """The name that is called in ``name(..).method(..)[..]``, perhaps inside a conversion such as ``set(..)``.

    The arguments of the innermost call are inputs and may be anything. A conversion has no other arguments but
    constants, so that only inputs and the program's own values are in the sandbox.
    """
    match node:
        case ast.Call(ast.Name(name), arguments, _) if name in _BUILTIN and any(map(_calls, arguments)):
            constants = all(map(_is_constant, arguments[1:]))
            return _root(arguments[0]) if _BUILTIN[name] in _CONVERSIONS and constants else None
        case ast.Call(ast.Name(name), _, _) | ast.Attribute(ast.Name(name), _):
            return name
        case ast.Call(inner, _, _) | ast.Attribute(inner, _) | ast.Subscript(inner, _):
            return _root(inner)
    return None


def _calls(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _is_constant(node: ast.expr) -> bool:
    try:
        constant(node)
    except ValueError:
        return False
    return True


def _value(text: str) -> Plain:
    try:
        return constant(_expression(text))
    except (DataError, ValueError):
        pass
    try:
        value: Plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the expected value {_short(text)} is neither Python nor JSON") from error
    return value


def _expression(source: str) -> ast.expr:
    match _parsed(source).body:
        case [ast.Expr(value)]:
            return value
    raise DataError(f"{_short(source)} is no expression")


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{_short(source)} cannot be read as Python: {error}") from error


def _short(source: str) -> str:
    return repr(source if len(source) <= 80 else source[:80] + "...")

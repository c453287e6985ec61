"""The tests of a code problem: what goes into a program, and what must come out.

A test is a mapping with ``input`` and ``output`` (stdin and stdout), with ``call`` and ``output`` (an expression and
its value), or with ``assert`` (one statement, split into calls and a condition). All tests of a problem are of one
kind.

Tests that call a function: split so that the expected value never enters the process of the program.

Only the calls of the problem's own functions are evaluated in the sandbox, with their arguments. Their values come back
as plain data (``magcli.verify.code.plain``), and whatever else a test does is evaluated here on them, by
``magcli.verify.code.expressions``: methods, builtins, the comparisons of ``math`` and ``numpy``. So nothing that a
program defines, rebinds or returns can answer for the test. An ``assert`` becomes

=============================================  =======================  =======================================
the test                                       asked of the program     evaluated here
=============================================  =======================  =======================================
``assert f(1) == [1, 2]``                      ``f(1)``                 the value is equal
``assert f(1) is True``                        ``f(1)``                 it is equal and of the same type
``assert set(f(1)) == {1, 2}``                 ``f(1)``                 ``set`` of it is equal
``assert f(1) in (1, 2)``                      ``f(1)``                 it is one of them
``assert f(1)``, ``assert not f(1)``           ``f(1)``                 it counts as true, as false
``assert abs(f(1) - 0.5) < 1e-6``              ``f(1)``                 it is within the tolerance
``assert math.isclose(f(1), 0.5)``             ``f(1)``                 the same
``assert is_same_list(f(1), list_node([1]))``  ``list_values(f(1))``    it is equal (``is_same_tree`` too)
``assert f(1)[0] > 2 and len(f(3)) == 2``      ``f(1)``, ``f(3)``       the condition holds of them
=============================================  =======================  =======================================

Which calls are the problem's own, ``magcli.verify.code.extraction`` finds. What is left is refused as a bad test.
"""

import ast
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from magcli.errors import DataError
from magcli.verify.code.expressions import constant, is_constant, value_of
from magcli.verify.code.extraction import (
    Replace,
    find_problem_names,
    names_in,
    parsed,
    resolve_names,
    root_of,
    short,
    split_calls,
)
from magcli.verify.code.outputs import Comparison
from magcli.verify.code.plain import NotPlain, Plain, in_any_order, same, shown

DEFAULT_REL_TOL = 1e-9
"""Of ``math.isclose``."""

APPROX_REL_TOL, APPROX_ABS_TOL = 1e-6, 1e-12
"""Of ``pytest.approx``."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a test asks of a value; ``absolute`` and ``relative`` are tolerances of kind ``near``.

    ``strict``: equal and of the same type, as ``is True`` asks; of ``near``, closer than the absolute tolerance.
    """

    kind: Literal["equal", "one-of", "near"]
    value: Plain = None
    absolute: float = 0.0
    relative: float = 0.0
    strict: bool = False

    def __str__(self) -> str:
        match self.kind:
            case "one-of":
                return f"one of {shown(self.value)}"
            case "near":
                return f"about {shown(self.value)}"
        return shown(self.value)

    def matches(self, given: Plain, rule: Comparison) -> bool:
        """Whether a value is right; of the rule a tolerance, the freedom of order and ``exact`` matter."""
        match self.kind:
            case "equal":
                return self._equal(self.value, given, rule)
            case "one-of":
                return isinstance(self.value, list | tuple | frozenset) and any(
                    self._equal(value, given, rule) for value in self.value
                )
            case "near":
                return self._near(given)

    def _equal(self, value: Plain, given: Plain, rule: Comparison) -> bool:
        tolerance = rule.tolerance if rule.mode == "floats" else None
        if rule.mode == "unordered-lines" and not self.strict:
            return in_any_order(value, given, tolerance)
        return same(value, given, tolerance, exact=self.strict or rule.mode == "exact")

    def _near(self, given: Plain) -> bool:
        one, other = _real(self.value), _real(given)
        if one is None or other is None:
            return False
        try:
            if self.strict:
                return abs(other - one) < self.absolute
            return math.isclose(other, one, rel_tol=self.relative, abs_tol=self.absolute)
        except OverflowError:
            return False


def _real(value: Plain) -> float | None:
    """A number, but not True or False, as a float or integer."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if not isinstance(value, str | bytes | complex) else None  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Call:
    """A test that calls a function.

    Args:
        source: The expression that the test asks about, as it has it, such as ``set(f(1))``.
        name: The name in it that the program must define.
        expected: What its value must be.
        calls: What of it is evaluated in the sandbox, in order.
        view: The expression over their values, ``V0``, ``V1`` and so on; ``V0`` where it is the value of the call.
    """

    source: str
    name: str
    expected: Expected
    calls: tuple[str, ...]
    view: str = "V0"

    @property
    def request(self) -> str:
        """The expression for the sandbox: the call, or a tuple of them."""
        return self.calls[0] if len(self.calls) == 1 else f"({', '.join(self.calls)})"

    @property
    def is_condition(self) -> bool:
        """Whether the source is a whole condition, expected to be true, rather than a value and its conversions."""
        return self.source.startswith("bool(") and self.view not in ("V0", "bool(V0)")

    def evaluate(self, values: Plain) -> Plain:
        """What the test asks about, from the value for ``asked``.

        Raises:
            NotPlain: it cannot be evaluated on such a value.
        """
        if self.view == "V0":
            return values
        given = (values,) if len(self.calls) == 1 else values
        if not isinstance(given, tuple) or len(given) != len(self.calls):
            raise NotPlain("these are not the values that were asked for")
        try:
            return value_of(self._view, {f"V{number}": value for number, value in enumerate(given)})
        except ValueError as error:
            raise NotPlain(str(error)) from error

    @cached_property
    def _view(self) -> ast.expr:
        return ast.parse(self.view, mode="eval").body


def parse_call(source: str, output: str, problem_names: frozenset[str] = frozenset()) -> Call:
    """A test given as a call and a value, both as Python text (the value may be JSON).

    Args:
        source: The call, perhaps inside conversions.
        output: Its value.
        problem_names: Names that the problem is known to define.

    Raises:
        DataError: one of them cannot be read.
    """
    try:
        node = _expression(source)
        return _test(node, Expected("equal", _value(output)), resolve_names(node, problem_names))
    except (ValueError, RecursionError) as error:
        raise DataError(f"a test cannot be used: {error}") from error


@lru_cache(maxsize=4096)
def parse_assert(source: str, problem_names: frozenset[str] = frozenset()) -> Call:
    """A test given as one ``assert`` statement.

    Args:
        source: The statement.
        problem_names: Names that the problem is known to define.

    Raises:
        DataError: it cannot be split into calls and a condition on their values.
    """
    try:
        test = _asserted(source)
        return _split(test, resolve_names(test, problem_names))
    except (ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{short(source)} cannot be split into a call and an expected value: {error}") from error


def _asserted(source: str) -> ast.expr:
    statements = parsed(source).body
    if len(statements) != 1 or not isinstance(statements[0], ast.Assert):
        raise DataError(f"{short(source)} is not one assert statement")
    return statements[0].test


def split_asserts(source: str, entry_point: str = "") -> list[str]:
    """The assert statements of a test script, one test each.

    A function ``check(candidate)`` gives its asserts, with ``candidate`` replaced by what the script passes to
    ``check`` or else by ``entry_point``; ``assert True`` is left out.

    Raises:
        DataError: the script does more than assert, such as loop or assign, or names no function to check.
    """
    tree = parsed(source)
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
    replaced = Replace({checks[0].args.args[0].arg: subject}).visit(checks[0])
    return list(_asserts(replaced.body))


def _asserts(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Assert):
            if not isinstance(node.test, ast.Constant):
                yield ast.unparse(ast.Assert(node.test))
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) and not _is_note(node):
            raise DataError(f"{short(ast.unparse(node))} is not an assert statement")


def _is_note(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name)


# ---- conditions on a value ----


def _split(test: ast.expr, problem_names: frozenset[str]) -> Call:
    match test:
        case ast.Call(ast.Attribute(ast.Name("math"), "isclose") | ast.Name("isclose"), [one, other], options):
            call, value = _sides(one, other, problem_names)
            if _is_fixed(value, problem_names):
                asked = {option.arg: constant(option.value) for option in options}
                return _test(call, _near(constant(value), asked), problem_names)
        case ast.Compare(
            ast.Call(ast.Name("abs") | ast.Attribute(ast.Name("math"), "fabs"), [ast.BinOp(one, ast.Sub(), other)], []),
            [ast.Lt() | ast.LtE() as sign],
            [bound],
        ):
            call, value = _sides(one, other, problem_names)
            if (
                _is_fixed(value, problem_names)
                and _is_fixed(bound, problem_names)
                and _real(constant(value)) is not None
            ):
                near = _near(constant(value), {"rel_tol": 0.0, "abs_tol": constant(bound)})
                return _test(call, replace(near, strict=isinstance(sign, ast.Lt)), problem_names)
        case ast.Call(ast.Name("is_same_list" | "is_same_tree" as helper), [call, value], []):
            return _node(call, value, helper.removeprefix("is_same_"), problem_names)
        case ast.Compare(one, [ast.Eq() | ast.Is() as sign], [other]):
            call, value = _sides(one, other, problem_names)
            if (about := _approximate(value, sign)) is not None:
                return _test(call, about, problem_names)
            if _is_fixed(value, problem_names):
                strict = isinstance(sign, ast.Is) and isinstance(constant(value), bool | None)
                return _test(call, Expected("equal", constant(value), strict=strict), problem_names)
            if ast.dump(one) == ast.dump(other):
                raise ValueError("the function is compared with itself")
        case ast.Compare(call, [ast.In()], [values]) if _is_fixed(values, problem_names):
            known = constant(values)
            if isinstance(known, list | tuple | frozenset):
                return _test(call, Expected("one-of", known), problem_names)
        case ast.UnaryOp(ast.Not(), call):
            return _truth(call, False, problem_names)
    return _truth(test, True, problem_names)


def _sides(one: ast.expr, other: ast.expr, problem_names: frozenset[str]) -> tuple[ast.expr, ast.expr]:
    """Of two expressions that which calls, and that which is constant."""
    return (other, one) if _is_fixed(one, problem_names) else (one, other)


def _is_fixed(node: ast.expr, problem_names: frozenset[str]) -> bool:
    """Whether an expression is constant; the problem's own function may have the name of a builtin."""
    return problem_names.isdisjoint(names_in(node)) and is_constant(node)


def _truth(test: ast.expr, expected: bool, problem_names: frozenset[str]) -> Call:
    return _test(ast.Call(ast.Name("bool"), [test], []), Expected("equal", expected), problem_names)


def _near(value: Plain, options: Mapping[str | None, Any]) -> Expected:
    relative, absolute = options.get("rel_tol", DEFAULT_REL_TOL), options.get("abs_tol", 0.0)
    if not all(isinstance(number, int | float) for number in (value, relative, absolute)):
        raise ValueError("the expected value or its tolerance is not a real number")
    return Expected("near", value, float(absolute), float(relative))


def _approximate(value: ast.expr, sign: ast.cmpop) -> Expected | None:
    """``pytest.approx(1.5)`` of a number."""
    match value:
        case ast.Call(ast.Attribute(ast.Name("pytest"), "approx") | ast.Name("approx"), [number], options) if (
            isinstance(sign, ast.Eq)
        ):
            given = {option.arg: constant(option.value) for option in options}
            asked: dict[str | None, Any] = {
                "rel_tol": given.get("rel", APPROX_REL_TOL),
                "abs_tol": given.get("abs", APPROX_ABS_TOL),
            }
            return _near(constant(number), asked)
    return None


def _node(call: ast.expr, value: ast.expr, kind: str, problem_names: frozenset[str]) -> Call:
    """A linked list or tree, compared by its values, which a helper of the driver's lists."""
    match value:
        case ast.Constant(None):
            values: Plain = []
        case ast.Call(ast.Name(maker), [content]) if maker == f"{kind}_node":
            values = _without_end(constant(content))
        case _:
            raise ValueError(f"what is expected is no {kind}_node([..])")
    return _test(ast.Call(ast.Name(f"{kind}_values"), [call], []), Expected("equal", values), problem_names)


def _without_end(values: Plain) -> Plain:
    """The values of a tree, level by level, without missing children at the end."""
    if not isinstance(values, list):
        raise ValueError("the values of the nodes are no list")
    while values and values[-1] is None:
        values.pop()
    return values


# ---- requests to the program ----


def _test(node: ast.expr, expected: Expected, problem_names: frozenset[str]) -> Call:
    """An expression split into what the sandbox evaluates and what is evaluated on its values."""
    found, view = split_calls(node, problem_names)
    return Call(ast.unparse(node), root_of(found[0]), expected, tuple(map(ast.unparse, found)), ast.unparse(view))


# ---- text ----


def _value(text: str) -> Plain:
    try:
        return constant(_expression(text))
    except (DataError, ValueError):
        pass
    try:
        value: Plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the expected value {short(text)} is neither Python nor JSON") from error
    return value


def _expression(source: str) -> ast.expr:
    match parsed(source).body:
        case [ast.Expr(value)]:
            return value
    raise DataError(f"{short(source)} is not an expression")


class Feed(NamedTuple):
    """A test by stdin and stdout."""

    stdin: bytes
    output: bytes


Case = Feed | Call

_COLUMNS = ("input", "output", "call", "assert")


def cases(tests: Sequence[Mapping[str, Any]], problem_names: frozenset[str] | None = None) -> Sequence[Case]:
    """The tests, ready to run.

    Args:
        tests: They.
        problem_names: The names that the problem defines (``names_of``); derived from these tests if None.

    Raises:
        DataError: there are none, one cannot be used (it is named), or some are calls and some are not.
    """
    problem_names = names_of(tests) if problem_names is None else problem_names
    found = [_case(number, test, problem_names) for number, test in enumerate(tests, 1)]
    feeds = [case for case in found if isinstance(case, Feed)]
    calls = [case for case in found if isinstance(case, Call)]
    if not found:
        raise DataError("the problem has no tests")
    if feeds and calls:
        raise DataError("some tests of the problem call a function and some give it input; they must be of one kind")
    return feeds or calls


def names_of(tests: Sequence[Mapping[str, Any]], entry_point: str = "") -> frozenset[str]:
    """The names that a problem defines, from all its tests and its entry point, if known."""
    sources = (test.get("assert") or test.get("call") for test in tests)
    return find_problem_names((source for source in sources if source and isinstance(source, str)), entry_point)


def pairs(tests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The inputs and outputs of those tests that have both as text."""
    for test in tests:
        given, output = test.get("input") or "", test.get("output")
        if isinstance(given, str) and isinstance(output, str) and not test.get("call") and not test.get("assert"):
            yield given, output


def _case(number: int, test: Mapping[str, Any], problem_names: frozenset[str]) -> Case:
    try:
        if wrong := [name for name in _COLUMNS if not isinstance(test.get(name), str | None)]:
            raise DataError(f"its {wrong[0]} is not a string")
        if test.get("assert"):
            return parse_assert(test["assert"], problem_names)
        if test.get("call"):
            return parse_call(test["call"], test.get("output") or "", problem_names)
        if test.get("output") is None:
            raise DataError("it has no output")
        return Feed(_bytes(test.get("input") or ""), _bytes(test["output"]))
    except DataError as error:
        raise DataError(f"test {number} is a bad test: {error}") from error


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")

"""The tests of a code problem as curation needs them: what goes into a solution, and what value comes out.

A test is a mapping with ``input`` and ``output`` (stdin and stdout), with ``call`` and ``output`` (an expression and
its value), or with ``assert`` (one statement). All tests of a problem are of one kind.

The judge of programs only needs a verdict and runs such a test as a script (``magcli.verify.code.scripts``). Curation
needs the value itself: it groups solutions by their values, replaces an expected value that most of them contradict,
ports arguments to C++, and asks what a trivial program would pass. So tests are split here into calls of the problem's
own functions, found by ``magcli.verify.code.extraction`` and evaluated in the sandbox, and the rest: methods, builtins,
comparisons of ``math`` and ``numpy``, which ``magcli.verify.code.expressions`` evaluates on their plain values
(``magcli.verify.code.outputs``) with a bound on the work. Expected values never enter the process of a solution. An
``assert`` that cannot be split in this way is a bad test for curation; the others become

=============================================  =======================  =======================================
the test                                       in the sandbox           on the values
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
    SubstituteNames,
    find_problem_names,
    names_in,
    parsed,
    quote,
    resolve_names,
    root_of,
    split_calls,
)
from magcli.verify.code.outputs import Comparison, NotPlain, Plain, in_any_order, same, shown

DEFAULT_REL_TOL = 1e-9
"""Of ``math.isclose``."""

APPROX_REL_TOL, APPROX_ABS_TOL = 1e-6, 1e-12
"""Of ``pytest.approx``."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a test requires of a value; ``absolute`` and ``relative`` are tolerances of kind ``near``.

    ``strict``: also of the same type, as ``is True`` requires; of ``near``, strictly below the absolute tolerance.
    """

    kind: Literal["equal", "one-of", "near"]
    value: Plain = None
    absolute: float = 0.0
    relative: float = 0.0
    strict: bool = False

    def __str__(self) -> str:
        return {"one-of": "one of ", "near": "about "}.get(self.kind, "") + shown(self.value)

    def matches(self, actual: Plain, rule: Comparison) -> bool:
        """Whether a value is right; the rule's tolerance, ``unordered-lines`` and ``exact`` apply."""
        if self.kind == "equal":
            return self._equal(self.value, actual, rule)
        if self.kind == "near":
            return self._near(actual)
        options = self.value if isinstance(self.value, list | tuple | frozenset) else ()
        return any(self._equal(option, actual, rule) for option in options)

    def _equal(self, value: Plain, actual: Plain, rule: Comparison) -> bool:
        tolerance = rule.tolerance if rule.mode == "floats" else None
        if rule.mode == "unordered-lines" and not self.strict:
            return in_any_order(value, actual, tolerance)
        return same(value, actual, tolerance, exact=self.strict or rule.mode == "exact")

    def _near(self, actual: Plain) -> bool:
        one, other = _real(self.value), _real(actual)
        if one is None or other is None:
            return False
        try:
            if self.strict:
                return abs(other - one) < self.absolute
            return math.isclose(other, one, rel_tol=self.relative, abs_tol=self.absolute)
        except OverflowError:
            return False


def _real(value: Plain) -> float | None:
    """A real number other than True and False as a float or integer."""
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
        source: The tested expression as written, such as ``set(f(1))``.
        name: The name in it that the program must define.
        expected: What its value must be.
        calls: Its parts that are evaluated in the sandbox, in order.
        view: The expression over their values ``V0``, ``V1``, ..; just ``V0`` for the value of a single call.
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
        """Whether the source is a condition, expected to be true, rather than a value with conversions."""
        return self.source.startswith("bool(") and self.view not in ("V0", "bool(V0)")

    def evaluate(self, values: Plain) -> Plain:
        """The value of the tested expression, from that of ``request``; raises NotPlain if it has none."""
        if self.view == "V0":
            return values
        results = (values,) if len(self.calls) == 1 else values
        if not isinstance(results, tuple) or len(results) != len(self.calls):
            raise NotPlain("the calls did not return one value each")
        try:
            return value_of(self._view, {f"V{number}": value for number, value in enumerate(results)})
        except ValueError as error:
            raise NotPlain(str(error)) from error

    @cached_property
    def _view(self) -> ast.expr:
        return ast.parse(self.view, mode="eval").body


def parse_call(source: str, output: str, problem_names: frozenset[str] = frozenset()) -> Call:
    """A test given as a call, perhaps inside conversions, and its value as Python or JSON text.

    Args:
        source: The call.
        output: Its value.
        problem_names: Names that the problem is known to define.

    Raises:
        DataError: one of them cannot be parsed.
    """
    try:
        node = _expression(source)
        return _make_call(node, Expected("equal", _value(output)), resolve_names(node, problem_names))
    except (ValueError, RecursionError) as error:
        raise DataError(f"a test cannot be used: {error}") from error


@lru_cache(maxsize=4096)
def parse_assert(source: str, problem_names: frozenset[str] = frozenset()) -> Call:
    """A test given as one ``assert`` statement; ``problem_names`` as of ``parse_call``.

    Raises DataError if it cannot be split into calls and a condition on their values.
    """
    try:
        test = _assert_condition(source)
        return _split_condition(test, resolve_names(test, problem_names))
    except (ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{quote(source)} cannot be split into a call and an expected value: {error}") from error


def _assert_condition(source: str) -> ast.expr:
    statements = parsed(source).body
    if len(statements) != 1 or not isinstance(statements[0], ast.Assert):
        raise DataError(f"{quote(source)} is not one assert statement")
    return statements[0].test


def split_asserts(source: str, entry_point: str = "") -> list[str]:
    """The assert statements of a test script, one test each.

    Of a function ``check(candidate)`` they are its asserts, with ``candidate`` replaced by the argument that the script
    passes to ``check``, else by ``entry_point``. ``assert True`` is skipped.

    Raises:
        DataError: the script contains other statements, such as loops, or names no function to check.
    """
    tree = parsed(source)
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not checks:
        return list(_iter_asserts(tree.body))
    passed = [
        node.value.args[0]
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args
    ]
    if not passed and not entry_point:
        raise DataError("the script defines check() but does not say what it checks; give the entry point")
    subject = passed[0] if passed else _expression(entry_point)
    replaced = SubstituteNames({checks[0].args.args[0].arg: subject}).visit(checks[0])
    return list(_iter_asserts(replaced.body))


def _iter_asserts(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Assert):
            if not isinstance(node.test, ast.Constant):
                yield ast.unparse(ast.Assert(node.test))
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) and not _is_docstring(node):
            raise DataError(f"{quote(ast.unparse(node))} is not an assert statement")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name)


# ---- conditions on a value ----


def _split_condition(test: ast.expr, problem_names: frozenset[str]) -> Call:
    match test:
        case ast.Call(ast.Attribute(ast.Name("math"), "isclose") | ast.Name("isclose"), [one, other], options):
            call, value = _call_and_constant(one, other, problem_names)
            if _is_constant(value, problem_names):
                asked = {option.arg: constant(option.value) for option in options}
                return _make_call(call, _tolerance(constant(value), asked), problem_names)
        case ast.Compare(
            ast.Call(ast.Name("abs") | ast.Attribute(ast.Name("math"), "fabs"), [ast.BinOp(one, ast.Sub(), other)], []),
            [ast.Lt() | ast.LtE() as sign],
            [bound],
        ):
            call, value = _call_and_constant(one, other, problem_names)
            if (
                _is_constant(value, problem_names)
                and _is_constant(bound, problem_names)
                and _real(constant(value)) is not None
            ):
                near = _tolerance(constant(value), {"rel_tol": 0.0, "abs_tol": constant(bound)})
                return _make_call(call, replace(near, strict=isinstance(sign, ast.Lt)), problem_names)
        case ast.Call(ast.Name("is_same_list" | "is_same_tree" as helper), [call, value], []):
            return _node_test(call, value, helper.removeprefix("is_same_"), problem_names)
        case ast.Compare(one, [ast.Eq() | ast.Is() as sign], [other]):
            call, value = _call_and_constant(one, other, problem_names)
            if (about := _pytest_approx(value, sign)) is not None:
                return _make_call(call, about, problem_names)
            if _is_constant(value, problem_names):
                strict = isinstance(sign, ast.Is) and isinstance(constant(value), bool | None)
                return _make_call(call, Expected("equal", constant(value), strict=strict), problem_names)
            if ast.dump(one) == ast.dump(other):
                raise ValueError("the function is compared with itself")
        case ast.Compare(call, [ast.In()], [values]) if _is_constant(values, problem_names):
            choices = constant(values)
            if isinstance(choices, list | tuple | frozenset):
                return _make_call(call, Expected("one-of", choices), problem_names)
        case ast.UnaryOp(ast.Not(), call):
            return _truth_test(call, False, problem_names)
    return _truth_test(test, True, problem_names)


def _call_and_constant(one: ast.expr, other: ast.expr, problem_names: frozenset[str]) -> tuple[ast.expr, ast.expr]:
    """The calling and the constant one of two expressions."""
    return (other, one) if _is_constant(one, problem_names) else (one, other)


def _is_constant(node: ast.expr, problem_names: frozenset[str]) -> bool:
    """Whether an expression is constant; the problem's function may shadow a builtin."""
    return problem_names.isdisjoint(names_in(node)) and is_constant(node)


def _truth_test(test: ast.expr, expected: bool, problem_names: frozenset[str]) -> Call:
    return _make_call(ast.Call(ast.Name("bool"), [test], []), Expected("equal", expected), problem_names)


def _tolerance(value: Plain, options: Mapping[str | None, Any]) -> Expected:
    relative = options.get("rel_tol", DEFAULT_REL_TOL)
    absolute = options.get("abs_tol", 0.0)
    if not all(isinstance(number, int | float) for number in (value, relative, absolute)):
        raise ValueError("the expected value or its tolerance is not a real number")
    return Expected("near", value, float(absolute), float(relative))


def _pytest_approx(value: ast.expr, sign: ast.cmpop) -> Expected | None:
    """``pytest.approx(1.5)`` of a number."""
    match value:
        case ast.Call(ast.Attribute(ast.Name("pytest"), "approx") | ast.Name("approx"), [number], options) if (
            isinstance(sign, ast.Eq)
        ):
            keywords = {option.arg: constant(option.value) for option in options}
            asked: dict[str | None, Any] = {
                "rel_tol": keywords.get("rel", APPROX_REL_TOL),
                "abs_tol": keywords.get("abs", APPROX_ABS_TOL),
            }
            return _tolerance(constant(number), asked)
    return None


def _node_test(call: ast.expr, value: ast.expr, kind: str, problem_names: frozenset[str]) -> Call:
    """A linked list or tree, compared by the list of its values, which a helper in the driver returns."""
    match value:
        case ast.Constant(None):
            values: Plain = []
        case ast.Call(ast.Name(maker), [content]) if maker == f"{kind}_node":
            values = _strip_trailing_none(constant(content))
        case _:
            raise ValueError(f"the expected value is not a {kind}_node([..])")
    return _make_call(ast.Call(ast.Name(f"{kind}_values"), [call], []), Expected("equal", values), problem_names)


def _strip_trailing_none(values: Plain) -> Plain:
    """The values of a tree, level by level, without trailing missing children."""
    if not isinstance(values, list):
        raise ValueError("the values of the nodes are not a list")
    while values and values[-1] is None:
        values.pop()
    return values


# ---- requests to the program ----


def _make_call(node: ast.expr, expected: Expected, problem_names: frozenset[str]) -> Call:
    """Split an expression into calls for the sandbox and the expression over their values."""
    calls, view = split_calls(node, problem_names)
    sources = tuple(map(ast.unparse, calls))
    return Call(ast.unparse(node), root_of(calls[0]), expected, sources, ast.unparse(view))


# ---- text ----


def _value(text: str) -> Plain:
    try:
        return constant(_expression(text))
    except (DataError, ValueError):
        pass
    try:
        value: Plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the expected value {quote(text)} is neither Python nor JSON") from error
    return value


def _expression(source: str) -> ast.expr:
    match parsed(source).body:
        case [ast.Expr(value)]:
            return value
    raise DataError(f"{quote(source)} is not an expression")


class StdinCase(NamedTuple):
    """A test with stdin and expected stdout."""

    stdin: bytes
    output: bytes


Case = StdinCase | Call

_COLUMNS = ("input", "output", "call", "assert")


def parse_tests(tests: Sequence[Mapping[str, Any]], problem_names: frozenset[str] | None = None) -> Sequence[Case]:
    """Parse tests; ``problem_names`` are derived from them by ``defined_names`` if None.

    Raises DataError if there are none, one is invalid (the message has its number), or only some are calls.
    """
    problem_names = defined_names(tests) if problem_names is None else problem_names
    cases = [_parse_test(number, test, problem_names) for number, test in enumerate(tests, 1)]
    feeds = [case for case in cases if isinstance(case, StdinCase)]
    calls = [case for case in cases if isinstance(case, Call)]
    if not cases:
        raise DataError("the problem has no tests")
    if feeds and calls:
        raise DataError("some tests of the problem call a function and others use stdin; all must be of one kind")
    return feeds or calls


def defined_names(tests: Sequence[Mapping[str, Any]], entry_point: str = "") -> frozenset[str]:
    """The names that a problem defines, by all its tests and its entry point, if known."""
    sources = (test.get("assert") or test.get("call") for test in tests)
    return find_problem_names((source for source in sources if source and isinstance(source, str)), entry_point)


def stdin_pairs(tests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The inputs and outputs of the stdin tests that have both as text."""
    for test in tests:
        if test.get("call") or test.get("assert"):
            continue
        stdin, output = test.get("input") or "", test.get("output")
        if isinstance(stdin, str) and isinstance(output, str):
            yield stdin, output


def _parse_test(number: int, test: Mapping[str, Any], problem_names: frozenset[str]) -> Case:
    try:
        check_columns(test)
        if test.get("assert"):
            return parse_assert(test["assert"], problem_names)
        if test.get("call"):
            return parse_call(test["call"], test.get("output") or "", problem_names)
        return stdin_case(test)
    except DataError as error:
        raise DataError(f"test {number} is a bad test: {error}") from error


def check_columns(test: Mapping[str, Any]) -> None:
    """Raise DataError if a column of a test is not text."""
    if wrong := [name for name in _COLUMNS if not isinstance(test.get(name), str | None)]:
        raise DataError(f"its {wrong[0]} is not a string")


def stdin_case(test: Mapping[str, Any]) -> StdinCase:
    """A test with stdin and stdout. Raises DataError if it has no output."""
    if test.get("output") is None:
        raise DataError("it has no output")
    return StdinCase(_bytes(test.get("input") or ""), _bytes(test["output"]))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")

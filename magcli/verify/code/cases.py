"""The tests of a code problem as curation needs them: what goes into a solution, and what value comes out.

A test is a mapping with ``input`` and ``output`` (stdin and stdout), with ``call`` and ``output`` (an expression and
its value), or with ``assert`` (one statement). All tests of a problem are of one kind.

The judge of programs only needs a verdict and runs such a test as a script (``magcli.verify.code.scripts``). Curation
also groups solutions by their values, replaces an expected value that most of them contradict, ports arguments to C++,
and asks what a trivial program would pass. For that it needs a test that is one call of the problem's function and what
its value must be, as written in the test: nothing is computed from a value outside of the sandbox, and the expected
value never enters the process of a solution. These are

====================================  ================  ==============================
the test                              in the sandbox    its value
====================================  ================  ==============================
``assert f(1) == [1, 2]``             ``f(1)``          is equal
``assert f(1) is True``               ``f(1)``          is equal and of the same type
``assert f(1) in (1, 2)``             ``f(1)``          is one of them
``assert f(1)``, ``assert not f(1)``  ``not not f(1)``  is True, is False
``assert abs(f(1) - 0.5) < 1e-6``     ``f(1)``          is within the tolerance
``assert math.isclose(f(1), 0.5)``    ``f(1)``          the same
====================================  ================  ==============================

where ``f`` may be ``Solution().f``. Any other assert, such as ``set(f(1)) == {1, 2}``, is a script for curation too,
which gives a verdict but no value (``magcli.curate.code.prepare``).
"""

import ast
import dis
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from magcli.errors import DataError
from magcli.verify.code.outputs import Comparison, Plain, in_any_order, same, shown
from magcli.verify.code.scripts import parse_all, resolve_names
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.code.syntax import SubstituteNames, json_value, parsed, quote

DEFAULT_REL_TOL = 1e-9
"""Of ``math.isclose``."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a test requires of a value; ``absolute`` and ``relative`` are tolerances of kind ``near``."""

    kind: Literal["equal", "identical", "one-of", "near"]
    value: Plain = None
    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        return {"one-of": "one of ", "near": "about "}.get(self.kind, "") + shown(self.value)

    def matches(self, actual: Plain, rule: Comparison) -> bool:
        """Whether a value is right; the rule's tolerance, ``unordered-lines`` and ``exact`` apply."""
        match self.kind:
            case "equal":
                return equal(self.value, actual, rule)
            case "identical":
                return type(actual) is type(self.value) and actual == self.value
            case "one-of":
                return any(equal(option, actual, rule) for option in self.value)  # type: ignore[union-attr]
        try:
            near = math.isclose(actual, self.value, rel_tol=self.relative, abs_tol=self.absolute)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            return False
        return near and not isinstance(actual, bool)  # True is a number for isclose


def equal(value: Plain, actual: Plain, rule: Comparison) -> bool:
    """Whether a value equals an expected one by the comparison of the problem."""
    tolerance = rule.tolerance if rule.mode == "floats" else None
    if rule.mode == "unordered-lines":
        return in_any_order(value, actual, tolerance)
    return same(value, actual, tolerance, exact=rule.mode == "exact")


@dataclass(frozen=True)
class Call:
    """A test that calls a function.

    Args:
        source: The tested expression: the call, within ``bool()`` if only its truth counts.
        name: The name in it that the program must define.
        expected: What its value must be.
    """

    source: str
    name: str
    expected: Expected

    @property
    def is_condition(self) -> bool:
        """Whether only the truth of the call's value counts."""
        # A problem may ask for a function of its own with the name ``bool``.
        return self.source.startswith("bool(") and self.name != "bool"

    @property
    def request(self) -> str:
        """The expression that the program evaluates; of a truth test one without a name that it could redefine."""
        return f"not not {ast.unparse(self.node)}" if self.is_condition else self.source

    @property
    def node(self) -> ast.Call:
        """The call itself."""
        call = ast.parse(self.source, mode="eval").body
        assert isinstance(call, ast.Call)
        return call.args[0] if self.is_condition else call  # type: ignore[return-value]


def parse_call(source: str, output: str, problem_names: frozenset[str] = frozenset()) -> Call:
    """A test given as a call and its value, as Python or JSON text.

    Args:
        source: The call, or ``bool`` of it.
        output: Its value.
        problem_names: Names that the problem is known to define.

    Raises:
        DataError: one of them cannot be parsed, or the source is more than a call.
    """
    try:
        return _make_call(_expression(source), Expected("equal", _value(output)), problem_names)
    except (ValueError, RecursionError) as error:
        raise DataError(f"a test cannot be used: {error}") from error


@lru_cache(maxsize=4096)
def parse_assert(source: str, problem_names: frozenset[str] = frozenset()) -> Call:
    """A test given as one ``assert`` statement; ``problem_names`` as of ``parse_call``.

    Raises DataError if it is not one call and its expected value.
    """
    try:
        return _split_condition(_assert_condition(source), problem_names)
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
    # The script itself says what it checks: check(f)
    passed: list[ast.expr] = []
    for node in tree.body:
        match node:
            case ast.Expr(ast.Call(_, [argument, *_])):
                passed.append(argument)
    if not passed and not entry_point:
        raise DataError("the script defines check() but does not say what it checks; give the entry point")
    subject = passed[0] if passed else _expression(entry_point)
    candidate = checks[0].args.args[0].arg
    replaced = SubstituteNames({candidate: subject}).visit(checks[0])
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
    """The call that a condition tests, and the value that it expects."""
    match test:
        # math.isclose(f(1), 2.0, rel_tol=1e-9)
        case ast.Call(ast.Attribute(ast.Name("math"), "isclose") | ast.Name("isclose"), [one, other], options):
            call, value = _call_and_constant(one, other)
            asked = {option.arg: constant(option.value) for option in options}
            expected = _near(constant(value), asked)
        # abs(f(1) - 2.0) < 1e-6
        case ast.Compare(
            ast.Call(ast.Name("abs") | ast.Attribute(ast.Name("math"), "fabs"), [ast.BinOp(one, ast.Sub(), other)], []),
            [ast.Lt() | ast.LtE()],
            [bound],
        ):
            call, value = _call_and_constant(one, other)
            expected = _near(constant(value), {"rel_tol": 0.0, "abs_tol": constant(bound)})
        case ast.Compare(one, [ast.Eq() | ast.Is() as sign], [other]):
            call, value = _call_and_constant(one, other)
            plain = constant(value)
            # "is" says more than "==" of True, False and None only.
            is_singleton = isinstance(sign, ast.Is) and isinstance(plain, bool | None)
            expected = Expected("identical" if is_singleton else "equal", plain)
        case ast.Compare(call, [ast.In()], [ast.List() | ast.Tuple() | ast.Set() as values]):
            expected = Expected("one-of", constant(values))
        case ast.UnaryOp(ast.Not(), operand):
            call, expected = _truth_of(operand), Expected("equal", False)
        case _:
            call, expected = _truth_of(test), Expected("equal", True)
    return _make_call(call, expected, problem_names)


def _call_and_constant(one: ast.expr, other: ast.expr) -> tuple[ast.expr, ast.expr]:
    """Two expressions, the calling one first."""
    return (one, other) if isinstance(one, ast.Call) else (other, one)


def _truth_of(call: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool"), [call], [])


def _near(value: Plain, options: Mapping[str | None, Any]) -> Expected:
    relative = options.get("rel_tol", DEFAULT_REL_TOL)
    absolute = options.get("abs_tol", 0.0)
    if not all(type(number) in (int, float) for number in (value, relative, absolute)):
        raise ValueError("the expected value or its tolerance is not a real number")
    return Expected("near", value, float(absolute), float(relative))


def _make_call(node: ast.expr, expected: Expected, problem_names: frozenset[str]) -> Call:
    """A test of a call, perhaps within ``bool()``.

    Raises ValueError if the expression is more than a call of the problem's function, or it is not known which it is.
    """
    call = node
    match node:
        case ast.Call(ast.Name("bool"), [inner], []) if "bool" not in problem_names:
            call = inner
    source = ast.unparse(call)
    # Known names of the problem come first in ``names``; others of the call are its arguments' own.
    names = resolve_names(parsed(source), problem_names)
    match call:
        case ast.Call(ast.Name(name)) | ast.Call(ast.Attribute(ast.Call(ast.Name("Solution" as name)))) if (
            name in names
        ):
            return Call(ast.unparse(node), name, expected)
    raise ValueError(f"{quote(source)} is more than a call of {names[0]}")


# ---- constants ----


def constant(node: ast.expr) -> Plain:
    """The value of a literal, also of ``set([1])``, ``inf``, and of arithmetic that Python's compiler computes.

    Raises ValueError if it is anything else.
    """
    # Of a copy, as the tree belongs to the caller.
    try:
        value: Plain = ast.literal_eval(_Spelled().visit(deepcopy(node)))
    except (TypeError, ArithmeticError, SyntaxError, MemoryError) as error:
        raise ValueError(str(error)) from error
    return value


class _Spelled(ast.NodeTransformer):
    """Writes what has no literal in Python as a syntax tree that ``ast.literal_eval`` reads."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """``set([1])`` as ``{1}``, and ``float("inf")``."""
        match self.generic_visit(node):
            case ast.Call(ast.Name("set" | "frozenset"), [ast.List(parts) | ast.Tuple(parts) | ast.Set(parts)]) if (
                parts
            ):
                return ast.Set(parts)
            # An empty set, which literal_eval reads as the call ``set()``.
            case ast.Call(ast.Name("set" | "frozenset"), [] | [ast.List() | ast.Tuple()]):
                return ast.Call(ast.Name("set"), [], [])
            case ast.Call(ast.Name("float"), [ast.Constant(str(text))], []):
                return ast.Constant(float(text))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Arithmetic of constants, such as ``10 ** 6``: the compiler computes what is not too large."""
        self.generic_visit(node)
        ast.literal_eval(node.left), ast.literal_eval(node.right)  # refuses anything else
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "constant", "eval")
        # What is too large the compiler leaves to be computed at run time.
        if any(step.opname == "BINARY_OP" for step in dis.get_instructions(code)):
            raise ValueError(f"{quote(ast.unparse(node))} is not computed")
        return ast.Constant(eval(code))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """``inf`` and ``nan``."""
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """``math.inf``."""
        return self.visit_Name(ast.Name(node.attr)) if ast.unparse(node.value) in ("math", "np") else node


def _value(text: str) -> Plain:
    try:
        return constant(_expression(text))
    except (DataError, ValueError):
        pass
    # JSON, whose true and null are no literals in Python
    value: Plain = json_value(text)
    return value


def _expression(source: str) -> ast.expr:
    match parsed(source).body:
        case [ast.Expr(value)]:
            return value
    raise DataError(f"{quote(source)} is not an expression")


# ---- tests ----

Case = StdinCase | Call


def parse_tests(tests: Sequence[Mapping[str, Any]], problem_names: frozenset[str] | None = None) -> Sequence[Case]:
    """Parse tests as ``magcli.verify.code.scripts.parse_all`` does."""
    return parse_all(tests, problem_names, parse_assert, parse_call)

"""The tests of a code problem as curation needs them: what goes into a solution, and what value comes out.

A test is a mapping with ``input`` and ``output`` (stdin and stdout), with ``call`` and ``output`` (an expression and
its value), or with ``assert`` (one statement). All tests of a problem are of one kind.

The judge of programs only needs a verdict and runs such a test as a script (``magcli.verify.code.scripts``). Curation
also groups solutions by their values, replaces an expected value that most of them contradict, ports arguments to C++,
and asks what a trivial program would pass. For that it needs a test that is one call of the problem's function and what
its value must be, as written in the test: nothing is computed from a value outside of the sandbox, and the expected
value never enters the process of a solution. These are

=============================================  =======================  =======================================
the test                                       in the sandbox           its value
=============================================  =======================  =======================================
``assert f(1) == [1, 2]``                      ``f(1)``                 is equal
``assert f(1) is True``                        ``f(1)``                 is equal and of the same type
``assert f(1) in (1, 2)``                      ``f(1)``                 is one of them
``assert f(1)``, ``assert not f(1)``           ``f(1)``                 counts as true, as false
``assert abs(f(1) - 0.5) < 1e-6``              ``f(1)``                 is within the tolerance
``assert math.isclose(f(1), 0.5)``             ``f(1)``                 the same
``assert f(1) == pytest.approx(0.5)``          ``f(1)``                 the same
``assert is_same_list(f(1), list_node([1]))``  ``list_values(f(1))``    is equal (``is_same_tree`` too)
=============================================  =======================  =======================================

where ``f`` may be ``Solution().f``. Any other assert, such as ``set(f(1)) == {1, 2}``, is a script for curation too,
which gives a verdict but no value (``magcli.curate.code.prepare``).
"""

import ast
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from magcli.errors import DataError
from magcli.verify.code.outputs import Comparison, NotPlain, Other, Plain, in_any_order, same, shown
from magcli.verify.code.scripts import names_of_problem, resolve_names
from magcli.verify.code.stdin_cases import StdinCase, check_columns, stdin_case
from magcli.verify.code.syntax import SubstituteNames, parsed, quote, root_of

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
        source: The tested expression: the call, within ``bool()`` if only its truth counts.
        name: The name in it that the program must define.
        expected: What its value must be.
        request: The call, which the program evaluates.
    """

    source: str
    name: str
    expected: Expected
    request: str

    @property
    def is_condition(self) -> bool:
        """Whether only the truth of the call's value counts."""
        return self.source != self.request

    def evaluate(self, value: Plain) -> Plain:
        """The value of the tested expression, from that of the call; raises NotPlain if it has none."""
        if not self.is_condition:
            return value
        if isinstance(value, Other) and value.items is None and value.kind != "Match":
            raise NotPlain(f"a {value.kind} is not plain data")
        return value.kind == "Match" or bool(value.items) if isinstance(value, Other) else bool(value)


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
            asked = {option.arg: constant(option.value) for option in options}
            return _make_call(call, _tolerance(constant(value), asked), problem_names)
        case ast.Compare(
            ast.Call(ast.Name("abs") | ast.Attribute(ast.Name("math"), "fabs"), [ast.BinOp(one, ast.Sub(), other)], []),
            [ast.Lt() | ast.LtE() as sign],
            [bound],
        ):
            call, value = _call_and_constant(one, other, problem_names)
            near = _tolerance(constant(value), {"rel_tol": 0.0, "abs_tol": constant(bound)})
            return _make_call(call, replace(near, strict=isinstance(sign, ast.Lt)), problem_names)
        case ast.Call(ast.Name("is_same_list" | "is_same_tree" as helper), [call, value], []):
            return _node_test(call, value, helper.removeprefix("is_same_"), problem_names)
        case ast.Compare(call, [ast.Eq()], [ast.Call(function, [number], options)]) if _is_approx(function):
            return _make_call(call, _approximate(number, options), problem_names)
        case ast.Compare(one, [ast.Eq() | ast.Is() as sign], [other]):
            call, value = _call_and_constant(one, other, problem_names)
            strict = isinstance(sign, ast.Is) and isinstance(constant(value), bool | None)
            return _make_call(call, Expected("equal", constant(value), strict=strict), problem_names)
        case ast.Compare(call, [ast.In()], [ast.List() | ast.Tuple() | ast.Set() as values]):
            return _make_call(call, Expected("one-of", constant(values)), problem_names)
        case ast.UnaryOp(ast.Not(), call):
            return _truth_test(call, False, problem_names)
    return _truth_test(test, True, problem_names)


def _call_and_constant(one: ast.expr, other: ast.expr, problem_names: frozenset[str]) -> tuple[ast.expr, ast.expr]:
    """The calling and the constant one of two expressions; the problem's function may shadow a builtin."""
    calls = isinstance(one, ast.Call) and (not is_constant(one) or root_of(one) in problem_names)
    return (one, other) if calls else (other, one)


def _truth_test(test: ast.expr, expected: bool, problem_names: frozenset[str]) -> Call:
    return _make_call(ast.Call(ast.Name("bool"), [test], []), Expected("equal", expected), problem_names)


def _tolerance(value: Plain, options: Mapping[str | None, Any]) -> Expected:
    relative = options.get("rel_tol", DEFAULT_REL_TOL)
    absolute = options.get("abs_tol", 0.0)
    if not all(type(number) in (int, float) for number in (value, relative, absolute)):
        raise ValueError("the expected value or its tolerance is not a real number")
    return Expected("near", value, float(absolute), float(relative))


def _is_approx(function: ast.expr) -> bool:
    return ast.unparse(function) in ("pytest.approx", "approx")


def _approximate(number: ast.expr, options: Sequence[ast.keyword]) -> Expected:
    """``pytest.approx(1.5)`` of a number."""
    asked = {option.arg: constant(option.value) for option in options}
    relative, absolute = asked.get("rel", APPROX_REL_TOL), asked.get("abs", APPROX_ABS_TOL)
    return _tolerance(constant(number), {"rel_tol": relative, "abs_tol": absolute})


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


def _make_call(node: ast.expr, expected: Expected, problem_names: frozenset[str]) -> Call:
    """A test of a call, perhaps within ``bool()``.

    Raises ValueError if the expression is more than a call of the problem's function, or it is not known which it is.
    """
    call = node
    match node:
        case ast.Call(ast.Name("bool"), [inner], []) if "bool" not in problem_names:
            call = inner
    request = ast.unparse(call)
    names = resolve_names(parsed(request), problem_names)
    if not _is_call(call, names):
        raise ValueError(f"{quote(request)} is more than a call of {names[0]}")
    return Call(ast.unparse(node), root_of(call), expected, request)


def _is_call(node: ast.expr, names: Sequence[str]) -> bool:
    """Whether an expression is a call of one of the functions, or of a method of ``Solution``."""
    match node:
        case ast.Call(ast.Name("list_values" | "tree_values"), [inner], []):
            return _is_call(inner, names)
        case ast.Call(ast.Name(name)) | ast.Call(ast.Attribute(ast.Call(ast.Name("Solution" as name)))):
            return name in names
    return False


# ---- constants ----

MAX_POWER = 1_000
"""Maximum exponent in a constant."""

MAX_LITERAL = 1_000_000
"""Maximum elements of a repeated list or text in a constant, and maximum base of a power."""

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip


def constant(node: ast.expr) -> Plain:
    """The value of a literal; sets become frozensets. Also of ``set([1])``, ``math.inf``, ``10 ** 6`` and ``[0] * 3``.

    Raises ValueError if it is anything else.
    """
    try:
        return _frozen(ast.literal_eval(_Spelled().visit(deepcopy(node))))
    except (TypeError, ArithmeticError, SyntaxError, MemoryError) as error:
        raise ValueError(str(error)) from error


class _Spelled(ast.NodeTransformer):
    """Writes what has no literal in Python as a syntax tree that ``ast.literal_eval`` reads."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """``set([1])`` as ``{1}``, and ``float("inf")``."""
        match self.generic_visit(node):
            case ast.Call(ast.Name("set" | "frozenset"), [ast.List(parts) | ast.Tuple(parts) | ast.Set(parts)], []):
                return ast.Set(parts) if parts else ast.Call(ast.Name("set"), [], [])
            case ast.Call(ast.Name("frozenset"), [], []):
                return ast.Call(ast.Name("set"), [], [])
            case ast.Call(ast.Name("float"), [ast.Constant(str(text))], []):
                return ast.Constant(float(text))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Arithmetic of literals, such as ``10 ** 6``."""
        self.generic_visit(node)
        one, other = ast.literal_eval(node.left), ast.literal_eval(node.right)
        operation = _ARITHMETIC.get(type(node.op))
        if operation is None or _is_large(one, node.op, other):
            raise ValueError(f"{quote(ast.unparse(node))} is not computed")
        return ast.Constant(operation(one, other))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """``inf`` and ``nan``."""
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """``math.inf``."""
        known = ("math.inf", "math.nan", "np.inf", "np.nan")
        return ast.Constant(float(node.attr)) if ast.unparse(node) in known else node


def _is_large(one: Any, sign: ast.operator, other: Any) -> bool:
    """Whether the result of an operation may be too large to compute."""
    match sign:
        case ast.Pow():
            return (
                not isinstance(other, int)
                or abs(other) > MAX_POWER
                or not isinstance(one, int)
                or abs(one) > MAX_LITERAL
            )
        case ast.Mult():
            items, times = (other, one) if isinstance(one, int) else (one, other)
            return isinstance(times, int) and hasattr(items, "__len__") and len(items) * times > MAX_LITERAL
    return False


def _frozen(value: Any) -> Plain:
    """A value with its sets as frozensets."""
    match value:
        case list() | tuple():
            return type(value)(map(_frozen, value))
        case dict():
            return {key: _frozen(item) for key, item in value.items()}
        case set():
            return frozenset(value)
    if value is ...:
        raise ValueError("an ellipsis is not plain data")
    return value  # type: ignore[no-any-return]


def is_constant(node: ast.expr) -> bool:
    """Whether an expression is constant."""
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
        raise DataError(f"the expected value {quote(text)} is neither Python nor JSON") from error
    return value


def _expression(source: str) -> ast.expr:
    match parsed(source).body:
        case [ast.Expr(value)]:
            return value
    raise DataError(f"{quote(source)} is not an expression")


# ---- tests ----

Case = StdinCase | Call


def parse_tests(tests: Sequence[Mapping[str, Any]], problem_names: frozenset[str] | None = None) -> Sequence[Case]:
    """Parse tests; ``problem_names`` are derived from them by ``names_of_problem`` if None.

    Raises DataError if there are none, one is invalid (the message has its number), or only some are calls.
    """
    problem_names = names_of_problem(tests) if problem_names is None else problem_names
    cases = [_parse_test(number, test, problem_names) for number, test in enumerate(tests, 1)]
    feeds = [case for case in cases if isinstance(case, StdinCase)]
    calls = [case for case in cases if isinstance(case, Call)]
    if not cases:
        raise DataError("the problem has no tests")
    if feeds and calls:
        raise DataError("some tests of the problem call a function and others use stdin; all must be of one kind")
    return feeds or calls


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

"""Evaluates Python expressions on plain data without executing them: what tests of curation compute from values.

Literals, operators, comparisons, comprehensions, lambdas, f-strings, methods of plain types, and the functions of
``magcli.verify.code.functions``. The values may be hostile: sizes of results are bounded, and so is the work, as each
operation is charged for what it may read.
"""

import ast
import math
import operator
from collections.abc import Callable, Container, Iterator, Mapping
from types import GeneratorType
from typing import Any

from magcli.verify.code.functions import CONSTANTS, FUNCTIONS, TYPES, callable_of, called
from magcli.verify.code.methods import MAX_SIZE, METHODS, Budget, Unsupported, bits_of, check_template, method_of, truth
from magcli.verify.code.outputs import Other, Plain, same

STEP, ROUND = 2, 10
"""The work of a node of the expression, and of a round of a comprehension besides."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.BitAnd: operator.and_,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Not: lambda value: not truth(value),
}  # fmt: skip
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def constant(node: ast.expr) -> Plain:
    """The value of a constant expression; sets become frozensets. Raises ValueError if it has none."""
    return value_of(node, {})


def value_of(node: ast.expr, names: Mapping[str, Plain]) -> Plain:
    """The value of an expression over named values; sets become frozensets.

    Raises ValueError if there is none, or it takes too much work.
    """
    try:
        return to_plain(_Evaluation(dict(names)).value(node))
    except Exception as error:  # whatever Python's own operations raise on values that a program chose
        raise ValueError(f"{type(error).__name__}: {str(error)[:200]}") from error


def check(node: ast.AST, names: Container[str]) -> None:
    """Reject an expression that has no value for any values of its names, because a constant part has none.

    Raises ValueError if so.
    """
    names_one = any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
    if names_one or not isinstance(node, ast.expr) or isinstance(node, ast.FormattedValue | ast.Starred):
        for part in ast.iter_child_nodes(node):
            if isinstance(node, ast.Call) and isinstance(part, ast.Attribute):
                part = part.value  # a method has no value by itself
            check(part, names)
    elif dotted(node) is None:
        try:
            _Evaluation({}).value(node)
        except Exception as error:  # as in value_of
            raise ValueError(f"{type(error).__name__}: {str(error)[:200]}") from error


def is_constant(node: ast.expr) -> bool:
    """Whether an expression is constant."""
    try:
        constant(node)
    except ValueError:
        return False
    return True


def to_plain(value: Any) -> Plain:
    """A value as plain data; views of a dict become sets. Raises Unsupported if it is none, such as a function."""
    match value:
        case type() | ast.AST():
            raise Unsupported("it is a type")
        case range() if len(value) <= MAX_SIZE:
            return Other("range", tuple(value))
        case GeneratorType():
            return Other("generator", tuple(value))
        case _ if isinstance(value, type({}.keys()) | type({}.items())):
            return frozenset(value)
        case _ if callable(value):
            raise Unsupported("it is a function")
    return value  # type: ignore[no-any-return]


class _Evaluation:
    """Evaluates one expression.

    Args:
        names: Values of its names.
        budget: The remaining work; a new budget if None.
    """

    def __init__(self, names: dict[str, Any], budget: Budget | None = None) -> None:
        self._names, self._budget = names, budget or Budget()

    def value(self, node: ast.expr) -> Any:
        """The value; raises whatever Python does, or Unsupported."""
        self._budget.spend(STEP)
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is None:
            raise Unsupported(f"{ast.unparse(node)[:80]!r} is not supported")
        return handler(node)

    def _Constant(self, node: ast.Constant) -> Any:
        if node.value is ...:
            raise Unsupported("an ellipsis is not plain data")
        return node.value

    def _Name(self, node: ast.Name) -> Any:
        if node.id in self._names:
            return self._names[node.id]
        for table in (TYPES, CONSTANTS, FUNCTIONS):
            if node.id in table:
                return table[node.id]
        raise Unsupported(f"{node.id!r} is not known")

    def _Attribute(self, node: ast.Attribute) -> Any:
        if (name := dotted(node)) is not None and name.partition(".")[0] not in self._names:
            for table in (CONSTANTS, FUNCTIONS):
                if name in table:
                    return table[name]
        match node:
            case ast.Attribute(ast.Name(name), method) if name in TYPES and method in METHODS.get(TYPES[name], ()):
                return lambda receiver, *args: method_of(self._budget, receiver, method, args, {})
            case ast.Attribute(ast.Call(ast.Name("type"), [inner], []), "__name__"):
                kind = called(self._budget, FUNCTIONS["type"], [self.value(inner)], {})
                return kind.__name__
            case ast.Attribute(inner, "real" | "imag" | "numerator" | "denominator" as name):
                value = self.value(inner)
                return getattr(value, name) if isinstance(value, int | float | complex) else _refuse(node)
        return _refuse(node)

    def _Call(self, node: ast.Call) -> Any:
        function: Any = None
        if isinstance(node.func, ast.Attribute) and not self._is_function(node.func):
            receiver = self.value(node.func.value)
        else:
            function = callable_of(self.value(node.func))
        args = list(self._elements(node.args))
        kwargs = {word.arg: self.value(word.value) for word in node.keywords if word.arg is not None}
        if len(kwargs) < len(node.keywords):
            raise Unsupported("arguments are unpacked")
        if function is None:
            return method_of(self._budget, receiver, node.func.attr, args, kwargs)  # type: ignore[attr-defined]
        return called(self._budget, function, args, kwargs)

    def _is_function(self, node: ast.Attribute) -> bool:
        name = dotted(node)
        return name is not None and name.partition(".")[0] not in self._names and name in FUNCTIONS

    def _Lambda(self, node: ast.Lambda) -> Any:
        signature = node.args
        if signature.posonlyargs or signature.vararg or signature.kwonlyargs or signature.kwarg or signature.defaults:
            raise Unsupported("a lambda has other arguments than names")
        names = [parameter.arg for parameter in signature.args]

        def function(*args: Any) -> Any:
            inner = dict(zip(names, args, strict=True))
            return _Evaluation({**self._names, **inner}, self._budget).value(node.body)

        return function

    def _List(self, node: ast.List) -> Any:
        return list(self._elements(node.elts))

    def _Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node.elts))

    def _Set(self, node: ast.Set) -> Any:
        return self._budget.make_set(list(self._elements(node.elts)))

    def _Dict(self, node: ast.Dict) -> Any:
        if None in node.keys:
            raise Unsupported("a dict is unpacked")
        keys = [self.value(key) for key in node.keys if key is not None]
        return self._budget.make_dict(list(zip(keys, map(self.value, node.values), strict=True)))

    def _elements(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._budget.items(self.value(node.value))
            else:
                yield self.value(node)

    def _ListComp(self, node: ast.ListComp) -> Any:
        return list(self._loop(node.generators, lambda inner: inner.value(node.elt)))

    def _SetComp(self, node: ast.SetComp) -> Any:
        return self._budget.make_set(list(self._loop(node.generators, lambda inner: inner.value(node.elt))))

    def _GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """A lazy generator, as ``any`` stops at the first true element."""
        return self._loop(node.generators, lambda inner: inner.value(node.elt))

    def _DictComp(self, node: ast.DictComp) -> Any:
        pairs = self._loop(node.generators, lambda inner: (inner.value(node.key), inner.value(node.value)))
        return self._budget.make_dict(list(pairs))

    def _loop(self, generators: list[ast.comprehension], element: "Callable[[_Evaluation], Any]") -> Iterator[Any]:
        if not generators:
            yield element(self)
            return
        first, *rest = generators
        for item in self._budget.items(self.value(first.iter)):
            self._budget.spend(ROUND)
            inner = _Evaluation({**self._names, **bind_target(first.target, item)}, self._budget)
            if all(truth(inner.value(condition)) for condition in first.ifs):
                yield from inner._loop(rest, element)

    def _JoinedStr(self, node: ast.JoinedStr) -> Any:
        return "".join(map(self._formatted, node.values))

    def _formatted(self, node: ast.expr) -> str:
        if not isinstance(node, ast.FormattedValue):
            return str(self.value(node))
        conversion = {115: "str", 114: "repr", 97: "ascii"}.get(node.conversion)
        value = self.value(node.value)
        if conversion:
            value = called(self._budget, FUNCTIONS[conversion], [value], {})
        spec = self.value(node.format_spec) if node.format_spec else ""
        return str(called(self._budget, FUNCTIONS["format"], [value, spec], {}))

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        return _UNARY[type(node.op)](self._budget.charge(self.value(node.operand)))

    def _BinOp(self, node: ast.BinOp) -> Any:
        one, other = self.value(node.left), self.value(node.right)
        self._budget.charge(one)
        self._budget.charge(other)
        _bound_size(one, node.op, other, self._budget)
        if isinstance(one, type) and isinstance(other, type):
            return (one, other)  # int | str, of isinstance
        return _BINARY[type(node.op)](one, other) if type(node.op) in _BINARY else _refuse(node)

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        for part in node.values:
            value = self.value(part)
            if truth(value) == stops:
                break
        return value

    def _IfExp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if truth(self.value(node.test)) else node.orelse)

    def _Subscript(self, node: ast.Subscript) -> Any:
        value, index = self.value(node.value), self.value(node.slice)
        if isinstance(value, Other) and value.kind in ("range", "deque"):
            value = value.items
        if not isinstance(value, str | bytes | list | tuple | dict | range):
            raise Unsupported(f"a {type(value).__name__} has no elements")
        return value[index]

    def _Slice(self, node: ast.Slice) -> Any:
        bounds = (node.lower, node.upper, node.step)
        return slice(*(None if bound is None else self.value(bound) for bound in bounds))

    def _Compare(self, node: ast.Compare) -> Any:
        left, one = node.left, self.value(node.left)
        for sign, right in zip(node.ops, node.comparators, strict=True):
            other = self.value(right)
            if not self._holds(left, one, sign, right, other):
                return False
            left, one = right, other
        return True

    def _holds(self, left: ast.expr, one: Any, sign: ast.cmpop, right: ast.expr, other: Any) -> bool:
        self._budget.charge(one)
        self._budget.charge(other)
        match sign:
            case ast.Eq():
                return self._equal(left, one, right, other)
            case ast.NotEq():
                return not self._equal(left, one, right, other)
            case ast.In():
                return self._contains(right, other, one)
            case ast.NotIn():
                return not self._contains(right, other, one)
            case ast.Is():
                return _identical(one, other)
            case ast.IsNot():
                return not _identical(one, other)
        if any(isinstance(value, float) and value != value for value in (one, other)):
            raise Unsupported("NaN has no order")
        if isinstance(one, float) and one == other and math.isinf(one):
            raise Unsupported("infinities have no order")
        return bool(_ORDER[type(sign)](one, other))

    def _equal(self, left: ast.expr, one: Any, right: ast.expr, other: Any) -> bool:
        """Equality; where one side is constant, as with any expected value."""
        if isinstance(one, type) or isinstance(other, type):
            return one is other
        one, other = to_plain(one), to_plain(other)
        if not self._names_a_value(left):
            return same(one, other)
        if not self._names_a_value(right):
            return same(other, one)
        return bool(one == other)

    def _names_a_value(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self._names for part in ast.walk(node))

    def _contains(self, node: ast.expr, container: Any, value: Any) -> bool:
        if isinstance(container, str | bytes):
            return bool(value in container)
        if isinstance(container, list | tuple) and not self._names_a_value(node):
            return any(same(element, value) for element in container)
        return value in (self._budget.items(container) if isinstance(container, Other) else container)


def _refuse(node: ast.expr) -> Any:
    raise Unsupported(f"{ast.unparse(node)[:80]!r} is not supported")


def dotted(node: ast.expr) -> str | None:
    """``math.isclose`` as it is written; None for what is more than names."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(inner, name):
            return None if (before := dotted(inner)) is None else f"{before}.{name}"
    return None


def bind_target(target: ast.expr, item: Any) -> dict[str, Any]:
    """The names of a loop target and their values for an item; raises ValueError if it cannot be unpacked."""
    match target:
        case ast.Name(name):
            return {name: item}
        case ast.Tuple(parts) | ast.List(parts) if isinstance(item, list | tuple | str):
            pairs = zip(parts, item, strict=True)
            return {name: value for part, inner in pairs for name, value in bind_target(part, inner).items()}
    raise Unsupported(f"{ast.unparse(target)[:80]!r} cannot be bound")


def _identical(one: Any, other: Any) -> bool:
    """``is``, of which only types, None, True and False can say anything outside the program."""
    if isinstance(one, type) or isinstance(other, type) or one is None or other is None:
        return one is other
    if isinstance(one, bool) or isinstance(other, bool):
        return type(one) is type(other) and one == other
    raise Unsupported("'is' does not compare values")


def _bound_size(one: Any, sign: ast.operator, other: Any, budget: Budget) -> None:
    """Reject an operation whose result, or its computation, is too large."""
    match sign:
        case ast.Mult():
            for part, times in ((one, other), (other, one)):
                if isinstance(times, int) and isinstance(part, str | bytes | list | tuple):
                    budget.check_size(len(part) * times)
        case ast.Pow() if isinstance(other, int):
            budget.check_size(abs(other) * bits_of(one) // 8)
        case ast.LShift() if isinstance(other, int):
            budget.check_size(other // 8)
        case ast.Mod() if isinstance(one, str | bytes):
            check_template(one)
    bitwise = isinstance(sign, ast.BitAnd | ast.BitOr | ast.BitXor | ast.RShift)
    if not bitwise:
        budget.spend_on_numbers(one, other)

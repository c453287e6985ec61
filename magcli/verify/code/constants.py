"""The value of a constant Python expression, worked out without running anything.

Literals of all plain types, arithmetic and repetition on them, ``float("inf")``, ``math.pi``, ``set([1, 2])`` and the
like: what tests write for expected values. Sizes are bounded, so no expression takes long.
"""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from magcli.verify.code.plain import Plain

MAX_SIZE = 1_000_000
"""Elements of a repeated list or characters of a repeated string; bits of an integer."""

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "set": frozenset,
    "frozenset": frozenset,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "sorted": sorted,
    "float": float,
    "complex": complex,
    "bool": bool,
    "str": str,
    "bytes": bytes,
}


def constant(node: ast.expr) -> Plain:
    """The value; a set comes as a frozenset.

    Raises:
        ValueError: the expression is not constant, or too large.
    """
    try:
        value: Plain = _constant(node)
    except (TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{ast.unparse(node)[:80]!r} has no value: {error}") from error
    return value


def _constant(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value) if value is not ...:
            return value
        case ast.List(parts):
            return [_constant(part) for part in parts]
        case ast.Tuple(parts):
            return tuple(_constant(part) for part in parts)
        case ast.Set(parts):
            return frozenset(_constant(part) for part in parts)
        case ast.Dict(keys, values):
            return {_constant(_key(key)): _constant(value) for key, value in zip(keys, values, strict=True)}
        case ast.UnaryOp(ast.USub(), part):
            return -_constant(part)
        case ast.UnaryOp(ast.UAdd(), part):
            return +_constant(part)
        case ast.BinOp(one, sign, other):
            return _binary(_constant(one), sign, _constant(other))
        case ast.Attribute(ast.Name("math"), "pi" | "e" | "inf" | "nan" | "tau" as name):
            return getattr(math, name)
        case ast.Call(ast.Name(name), parts, []) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_constant(part) for part in parts))
    raise ValueError(f"{ast.unparse(node)[:80]!r} is no constant")


def _key(key: ast.expr | None) -> ast.expr:
    if key is None:
        raise ValueError("a dict is unpacked")
    return key


def _binary(one: Any, sign: ast.operator, other: Any) -> Any:
    match sign:
        case ast.Mult():
            if not _is_number(one) or not _is_number(other):
                _bound(len(other if _is_number(one) else one) * (one if _is_number(one) else other))
            return one * other
        case ast.Pow() if _is_number(one) and isinstance(other, int):
            _bound(abs(other) * (abs(one).bit_length() if isinstance(one, int) else 64))
            return one**other
    if type(sign) not in _OPERATORS or (isinstance(sign, ast.Mod) and not _is_number(one)):
        raise ValueError(f"{type(sign).__name__} is not worked out")
    return _OPERATORS[type(sign)](one, other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex)


def _bound(size: float) -> None:
    if size > MAX_SIZE:
        raise ValueError("too large")

"""Conditions on rows, such as ``reward < 0.5 and reason == "wrong"``: parsed, never executed."""

import ast
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.config import did_you_mean
from magcli.errors import UsageError, first_line

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def parse_condition(text: str, schema: pa.Schema) -> pc.Expression:
    """The filter that a condition describes: comparisons of columns and constants joined by ``and``, ``or``, ``not``.

    A comparison with a null is false, also under ``not``.

    Raises:
        UsageError: it is not of this form, names an unknown column, or compares values of different types.
    """
    try:
        found = _condition(ast.parse(text, mode="eval").body, schema)
        pa.RecordBatch.from_pylist([], schema=schema).filter(found)
    except (SyntaxError, ValueError, pa.ArrowException, UsageError) as error:
        raise UsageError(f"condition '{text}': {getattr(error, 'msg', None) or first_line(error)}") from None
    return found


def _condition(tree: ast.expr, schema: pa.Schema) -> Any:
    match tree:
        case ast.BoolOp(op=op, values=values):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            return reduce(join, [_condition(value, schema) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_condition(operand, schema)
        case (
            ast.Compare(left=ast.Name() as column, ops=[op], comparators=[ast.Constant(value=None)])
            | ast.Compare(left=ast.Constant(value=None), ops=[op], comparators=[ast.Name() as column])
        ):
            if not isinstance(op, ast.Eq | ast.NotEq):
                raise UsageError("None can only be compared by == and !=")
            value = _value(column, schema)
            return value.is_null() if isinstance(op, ast.Eq) else value.is_valid()
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            if not isinstance(left, ast.Name) and not isinstance(right, ast.Name):
                raise UsageError("a comparison needs a column on one side")
            return COMPARE[type(op)](_value(left, schema), _value(right, schema))
        case ast.Name(id=name):
            value = _value(tree, schema)
            if not pa.types.is_boolean(schema.field(name).type):
                raise UsageError(f"column {name} is not true or false")
            return value
    raise UsageError("use comparisons of columns and constants joined by and, or, not")


def _value(tree: ast.expr, schema: pa.Schema) -> Any:
    match tree:
        case ast.Name(id=name) if name in schema.names:
            return pc.field(name)
        case ast.Name(id=name):
            raise UsageError(f"no column '{name}'{did_you_mean(name, schema.names)}")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return _constant(-number)
        case ast.Constant(value=str() | bytes() | int() | float() as constant):
            return _constant(constant)
    raise UsageError("use columns and constants on both sides of a comparison")


def _constant(value: str | bytes | float) -> Any:
    try:
        return pc.scalar(value)
    except (OverflowError, UnicodeEncodeError):
        raise UsageError(f"{value!a} cannot be the value of a column") from None

"""Conditions on rows, such as ``reward < 0.5 and reason == "wrong"``: parsed, never executed."""

import ast
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.config import did_you_mean
from magcli.errors import UsageError

Mask = Callable[[pa.RecordBatch], pa.Array]
"""From a batch to one boolean a row."""

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}


def compile_condition(tree: ast.expr, text: str, schema: pa.Schema) -> Mask:
    """Turn a parsed condition into a function from batches to masks.

    A comparison with a null is false, also under ``not``.

    Raises:
        UsageError: part of it is not a comparison of columns and constants.
    """
    known = _mask(tree, text, schema)
    return lambda batch: pc.fill_null(known(batch), False)


def _mask(tree: ast.expr, text: str, schema: pa.Schema) -> Mask:
    """The mask of a part of the condition, null where it is unknown."""
    match tree:
        case ast.BoolOp(op=op, values=values):
            parts = [_mask(value, text, schema) for value in values]
            join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return lambda batch: reduce(join, [part(batch) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _mask(operand, text, schema)
            return lambda batch: pc.invert(inner(batch))
        case ast.Compare(left=ast.Name() as column, ops=[op], comparators=[ast.Constant(value=None)]):
            return _presence(op, column, text, schema)
        case ast.Compare(left=ast.Constant(value=None), ops=[op], comparators=[ast.Name() as column]):
            return _presence(op, column, text, schema)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            return _comparison(COMPARE[type(op)], left, right, text, schema)
        case ast.Name(id=name):
            values_of = _value(tree, text, schema)
            if not pa.types.is_boolean(schema.field(name).type):
                raise UsageError(f"condition '{text}': column {name} is not true or false")
            return values_of
    raise UsageError(f"condition '{text}': use comparisons of columns and constants joined by and, or, not")


def _presence(op: ast.cmpop, column: ast.Name, text: str, schema: pa.Schema) -> Mask:
    values = _value(column, text, schema)
    if not isinstance(op, ast.Eq | ast.NotEq):
        raise UsageError(f"condition '{text}': None goes with == and != only")
    test = pc.is_null if isinstance(op, ast.Eq) else pc.is_valid
    return lambda batch: test(values(batch))


def _comparison(
    compare: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr, text: str, schema: pa.Schema
) -> Mask:
    one, other = _value(left, text, schema), _value(right, text, schema)
    if not any(isinstance(side, ast.Name) for side in (left, right)):
        raise UsageError(f"condition '{text}': a comparison needs a column on one side")
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    try:
        compare(one(nothing), other(nothing))
    except pa.ArrowException:
        kinds = f"{one(nothing).type} and {other(nothing).type}"
        raise UsageError(f"condition '{text}': {kinds} cannot be compared") from None
    return lambda batch: compare(one(batch), other(batch))


def _value(tree: ast.expr, text: str, schema: pa.Schema) -> Callable[[pa.RecordBatch], Any]:
    match tree:
        case ast.Constant(value=constant):
            return _constant(constant, text)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return _constant(-number, text)
        case ast.Name(id=name) if name in schema.names:
            return lambda batch: batch.column(name)
        case ast.Name(id=name):
            raise UsageError(f"condition '{text}': no column '{name}'{did_you_mean(name, schema.names)}")
    raise UsageError(f"condition '{text}': use columns and constants on both sides of a comparison")


def _constant(value: object, text: str) -> Callable[[pa.RecordBatch], Any]:
    try:
        if isinstance(value, str | bytes | int | float):
            scalar = pa.scalar(value)
            return lambda batch: scalar
    except (OverflowError, UnicodeEncodeError):
        pass
    raise UsageError(f"condition '{text}': {value!a} cannot be the value of a column")

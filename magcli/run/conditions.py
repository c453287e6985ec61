"""Conditions on rows, such as ``reward < 0.5 and reason == "wrong"``: parsed, never executed."""

import ast
from collections.abc import Callable
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

    Raises:
        UsageError: something in it is no comparison of columns and constants.
    """
    match tree:
        case ast.BoolOp(op=op, values=values):
            parts = [compile_condition(value, text, schema) for value in values]
            join = pc.and_ if isinstance(op, ast.And) else pc.or_
            return lambda batch: _fold(join, [part(batch) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = compile_condition(operand, text, schema)
            return lambda batch: pc.invert(inner(batch))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            return _comparison(COMPARE[type(op)], _value(left, text, schema), _value(right, text, schema), text, schema)
        case ast.Name(id=name):
            column = _value(tree, text, schema)
            if not pa.types.is_boolean(schema.field(name).type):
                raise UsageError(f"condition '{text}': column {name} is not true or false")
            return lambda batch: pc.fill_null(column(batch), False)
    raise UsageError(f"condition '{text}': use comparisons of columns and constants joined by and, or, not")


def _comparison(
    compare: Callable[[Any, Any], Any],
    left: Callable[[pa.RecordBatch], Any],
    right: Callable[[pa.RecordBatch], Any],
    text: str,
    schema: pa.Schema,
) -> Mask:
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    try:
        compare(left(nothing), right(nothing))
    except pa.ArrowException:
        kinds = f"{left(nothing).type} and {right(nothing).type}"
        raise UsageError(f"condition '{text}': {kinds} cannot be compared") from None
    return lambda batch: pc.fill_null(compare(left(batch), right(batch)), False)


def _fold(join: Callable[[Any, Any], Any], masks: list[Any]) -> Any:
    result = masks[0]
    for mask in masks[1:]:
        result = join(result, mask)
    return result


def _value(tree: ast.expr, text: str, schema: pa.Schema) -> Callable[[pa.RecordBatch], Any]:
    match tree:
        case ast.Constant(value=constant):
            return lambda batch: pa.scalar(constant)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda batch: pa.scalar(-number)
        case ast.Name(id=name) if name in schema.names:
            return lambda batch: batch.column(name)
        case ast.Name(id=name):
            raise UsageError(f"condition '{text}': no column '{name}'{did_you_mean(name, schema.names)}")
    raise UsageError(f"condition '{text}': use columns and constants on both sides of a comparison")

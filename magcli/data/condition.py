"""Conditions on rows, such as ``reward < 0.5 and reason == "wrong"``: what ``--where`` takes.

A condition has comparisons of columns, lengths and constants joined by ``and``, ``or``, ``not``; it is parsed as Python
is, but never executed. A comparison with a null is neither true nor false, also under ``not``, as in SQL.
"""

import ast
import io
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magcli.data import column_paths
from magcli.data.json_columns import DECODER, decoded, is_json_text
from magcli.data.readable import is_short_float, readable_numbers
from magcli.errors import DataError, UsageError, first_line

COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
HELP = "use < <= == != >= > in contains, 'is null' and len(...) of columns and constants, joined by and, or, not"
ERRORS = (SyntaxError, tokenize.TokenError, ValueError, RecursionError, pa.ArrowException, UsageError, DataError)
"""What parsing a wrong condition, or trying it on an empty table, raises."""


@dataclass(frozen=True)
class Condition:
    """A parsed condition; ``columns`` are the columns of the table that it reads."""

    tree: ast.expr
    columns: frozenset[str]

    def matching(self, batch: pa.RecordBatch) -> pa.Array:
        """Whether the condition holds, for each row; never null."""
        return pc.fill_null(_mask(self.tree, batch), False)


def parse(text: str, schema: pa.Schema) -> Condition:
    """The condition that a text describes on tables of a schema.

    Raises:
        UsageError: it is not of the form above, names an unknown column, or compares values of different types.
    """
    try:
        tree = ast.parse(_with_operators(text), mode="eval").body
        condition = Condition(tree, _columns_of(tree, schema))
        condition.matching(pa.RecordBatch.from_pylist([], schema=schema))  # raises for unknown columns and wrong types
    except ERRORS as error:
        raise UsageError(f"condition '{text}': {getattr(error, 'msg', None) or first_line(error)}") from None
    return condition


def columns_of(text: str, schema: pa.Schema) -> frozenset[str]:
    """The columns of a table that a condition reads, of those that the table has; none if it is no condition."""
    try:
        tree = ast.parse(_with_operators(text), mode="eval").body
    except ERRORS:
        return frozenset()
    return _columns_of(tree, schema)


def _columns_of(tree: ast.expr, schema: pa.Schema) -> frozenset[str]:
    """The columns of a table that the parts of a condition name."""
    columns = set()
    for node in ast.walk(tree):
        name = _name(node)
        column = None if name is None else column_paths.top_name(name, schema)
        if column is not None:
            columns.add(column)
    return frozenset(columns)


def _with_operators(text: str) -> str:
    """The text with ``@``, which Python can parse, in place of the operator ``contains``."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text.strip()).readline))
    replaced = []
    # After an operand "contains" is the operator, elsewhere the name of a function or column.
    follows_operand = False
    for kind, word, *_ in tokens:
        is_operator = word == "contains" and follows_operand
        replaced.append((tokenize.OP, "@") if is_operator else (kind, word))
        is_keyword = word in ("and", "or", "not", "in", "is")
        is_operand = kind in (tokenize.NAME, tokenize.STRING) and not is_keyword and not is_operator
        follows_operand = is_operand or word == ")"
    # Pairs have no positions, which would be wrong behind a word that became shorter.
    return tokenize.untokenize(replaced)


# ---- true or false ----


def _mask(tree: ast.expr, batch: pa.RecordBatch) -> pa.Array:
    """Whether a condition holds, for each row; null where it depends on a null."""
    match tree:
        case ast.BoolOp(op=op, values=values):
            # Kleene's logic, as SQL's: "null or true" is true, "null and true" null.
            join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return reduce(join, [_mask(value, batch) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return pc.invert(_mask(operand, batch))
        case ast.Compare(left=left, ops=ops, comparators=others):
            # 0 < reward < 1 are two comparisons.
            sides = pairwise([left, *others])
            links = [_compared(one, op, other, batch) for (one, other), op in zip(sides, ops, strict=True)]
            return reduce(pc.and_kleene, links)
        case (
            ast.BinOp(left=left, op=ast.MatMult(), right=right)
            | ast.Call(func=ast.Name(id="contains"), args=[left, right], keywords=[])
        ):
            return _contains(left, right, batch)
        case _ if (name := _name(tree)) is not None:
            field = column_paths.field_at(batch.schema, name)
            if not pa.types.is_boolean(field.type):
                raise UsageError(f"column {name} is not true or false")
            return column_paths.column_at(batch, name)
    raise UsageError(HELP)


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, batch: pa.RecordBatch) -> pa.Array:
    """One comparison of two operands, for each row."""
    right_is_null = _is_null(right, batch)
    has_null = right_is_null or _is_null(left, batch)
    match op:
        case ast.In() | ast.NotIn():
            membership = _is_in(left, right, batch)
            return membership if isinstance(op, ast.In) else pc.invert(membership)
        case ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() if has_null:
            column = _values(left if right_is_null else right, batch, None)
            return column.is_null() if isinstance(op, ast.Is | ast.Eq) else column.is_valid()
    # `reward is 1`, `null < 1`
    if type(op) not in COMPARE or has_null:
        raise UsageError(f"null can only be compared by is, is not, == and !=; {HELP}")
    left_constant = _constant(left, batch)
    right_constant = _constant(right, batch)
    if left_constant is not None and right_constant is not None:
        raise UsageError("a comparison needs a column on one side")
    left_side = _values(left, batch, right_constant) if left_constant is None else left_constant
    right_side = _values(right, batch, left_constant) if right_constant is None else right_constant
    return COMPARE[type(op)](*_of_one_type(left_side, right_side))


def _of_one_type(left: Any, right: Any) -> tuple[Any, Any]:
    """Both sides in types that can be compared; a text beside a time is read as a time.

    Raises:
        UsageError: there are none.
    """
    if pa.types.is_temporal(left.type) and pa.types.is_string(right.type):
        return left, right.cast(left.type)
    if pa.types.is_temporal(right.type) and pa.types.is_string(left.type):
        return left.cast(right.type), right
    if _kind(left.type) != _kind(right.type):
        raise UsageError(f"{left.type} and {right.type} cannot be compared")
    return left, right


def _kind(kind: pa.DataType) -> str:
    is_a = pa.types
    is_number = is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind)
    return "number" if is_number else str(kind)


def _is_in(left: ast.expr, right: ast.expr, batch: pa.RecordBatch) -> pa.Array:
    """Whether a value is one of a list of constants, or a constant is within the texts or lists of a column."""
    if not isinstance(right, ast.List | ast.Tuple | ast.Set):
        return _contains(right, left, batch)
    scalars = [_constant(element, batch) for element in right.elts]
    constants = [scalar for scalar in scalars if scalar is not None]
    is_uniform = len({_kind(constant.type) for constant in constants}) == 1
    if not is_uniform or len(constants) < len(scalars):
        raise UsageError("in needs constants of one type: in ('a', 'b')")
    column = _values(left, batch, constants[0])
    # Raises for a column of another type; the constants have one.
    _of_one_type(column, constants[0])
    choices = pa.array([constant.as_py() for constant in constants])
    # 1 is in (1.0, 2).
    if not pa.types.is_string(column.type):
        column, choices = column.cast(pa.float64()), choices.cast(pa.float64())
    # Arrow says false for a null, of which it is unknown.
    is_in = pc.is_in(column, value_set=choices)
    return pc.if_else(column.is_null(), pa.scalar(None, pa.bool_()), is_in)


def _contains(whole: ast.expr, part: ast.expr, batch: pa.RecordBatch) -> pa.Array:
    """Whether the texts or lists of a column contain a constant."""
    constant, name = _constant(part, batch), _name(whole)
    if constant is None or name is None:
        raise UsageError("contains needs a column and a constant: prompt contains 'prime'")
    field = column_paths.field_at(batch.schema, name)
    column = column_paths.column_at(batch, name)
    if is_json_text(field):
        wanted = constant.as_py()
        # A null of the column is null; the JSON text "null" contains nothing.
        texts = column.to_pylist()
        matches = [None if text is None else _json_contains(DECODER.decode(text), wanted) for text in texts]
        return pa.array(matches, pa.bool_())
    if pa.types.is_list(column.type):
        return _list_contains(column, constant)
    if not pa.types.is_string(column.type) or not pa.types.is_string(constant.type):
        raise UsageError(f"{column.type} cannot contain {constant.type}")
    return pc.match_substring(column, constant.as_py())


def _json_contains(value: Any, part: Any) -> bool:
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    return isinstance(value, list | dict) and part in value


def _list_contains(column: pa.Array, constant: pa.Scalar) -> pa.Array:
    elements, wanted = _of_one_type(_as_shown(column.flatten()), constant)
    # The rows of those elements that are the constant.
    rows = pc.list_parent_indices(column).filter(pc.equal(elements, wanted))
    mask = np.zeros(len(column), bool)
    mask[rows.to_numpy()] = True
    return pc.if_else(column.is_null(), pa.scalar(None, pa.bool_()), pa.array(mask))


# ---- values ----


def _values(tree: ast.expr, batch: pa.RecordBatch, beside: pa.Scalar | None) -> pa.Array:
    """The values of a column, or its lengths; values of JSON in the type of ``beside``, the other operand."""
    match tree:
        case ast.Call(func=ast.Name(id="len" | "length"), args=[inner], keywords=[]) if _name(inner) is not None:
            return _lengths(batch, str(_name(inner)))
        case _ if (name := _name(tree)) is not None:
            column = column_paths.column_at(batch, name)
            if beside is not None and is_json_text(column_paths.field_at(batch.schema, name)):
                return _of_json(column, beside.type)
            return _as_shown(column)
    raise UsageError(HELP)


def _as_shown(column: pa.Array) -> pa.Array:
    """The numbers that a table shows: a float32 of 0.1 equals 0.1."""
    return readable_numbers(column) if is_short_float(column.type) else column


def _lengths(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The number of characters, or of elements."""
    field = column_paths.field_at(batch.schema, name)
    column = column_paths.column_at(batch, name)
    if is_json_text(field):
        has_length = (str, list, dict)
        lengths = [len(value) if isinstance(value, has_length) else None for value in decoded(column)]
        return pa.array(lengths, pa.int64())
    if pa.types.is_list(column.type):
        return pc.list_value_length(column)
    if not pa.types.is_string(column.type):
        raise UsageError(f"column {name} is {column.type}, which has no length")
    return pc.utf8_length(column)


def _of_json(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of JSON texts that are of a type; null for the others."""
    values = decoded(column)
    if pa.types.is_string(kind) or pa.types.is_boolean(kind):
        wanted = str if pa.types.is_string(kind) else bool
        return pa.array([value if type(value) is wanted else None for value in values], kind)
    # Not ``isinstance``: a truth value is an integer in Python.
    numbers = [float(value) if type(value) in (int, float) else None for value in values]
    return pa.array(numbers, pa.float64())


def _constant(tree: ast.expr, batch: pa.RecordBatch) -> "pa.Scalar | None":
    """The constant that a part of a condition is; None if it is none."""
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return _scalar(-number)
        case ast.Constant(value=str() | int() | float() as constant):
            return _scalar(constant)
        case ast.Name(id="true" | "false" as word) if word not in batch.schema.names:
            return _scalar(word == "true")
    return None


def _scalar(value: str | float) -> pa.Scalar:
    try:
        return pa.scalar(value)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):  # more than 64 bits, or a lone surrogate
        raise UsageError(f"{value!a} cannot be the value of a column") from None


def _is_null(tree: ast.expr, batch: pa.RecordBatch) -> bool:
    match tree:
        case ast.Constant(value=None):
            return True
        case ast.Name(id="null"):
            return "null" not in batch.schema.names
    return False


def _name(tree: ast.AST) -> str | None:
    """The path of a column that a part of a condition is; None if it is no column."""
    match tree:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=key):
            outer = _name(value)
            return None if outer is None else f"{outer}.{key}"
        case ast.Call(func=ast.Name(id="column"), args=[ast.Constant(value=str() as name)], keywords=[]):
            return name
    return None

"""The Arrow type of a column of JSON values, and the order of the columns."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from magcli.errors import DataError

TEXT_KEY = b"magcli.json_text"
"""Marks a column that keeps each value as JSON text."""
ABSENT_KEY = b"magcli.absent"
"""Marks a column whose nulls are keys that were not there."""


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with the values themselves where a column keeps them as JSON text."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for field in batch.schema:
        if TEXT_KEY in (field.metadata or {}):
            for row in rows:
                row[field.name] = None if row[field.name] is None else json.loads(row[field.name])
    return rows


def is_text(field: pa.Field) -> bool:
    """Whether a column keeps each value as JSON text."""
    return TEXT_KEY in (field.metadata or {})


def valued(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """JSON texts as values of the type; as text what is no string stays as it is written.

    Raises:
        DataError: a value is of another type.
    """
    return pa.array([None if text is None else _valued(text, name, kind) for text in column.to_pylist()], kind)


def _valued(text: str, name: str, kind: pa.DataType) -> Any:
    value = json.loads(text)
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else text
    if pa.types.is_boolean(kind) and value in (0, 1):
        return bool(value)
    is_number = kind_of(value) in (pa.int64(), pa.float64())
    if pa.types.is_integer(kind) and is_number and value % 1 == 0 and abs(value) < 2**63:
        return int(value)
    what = "true or false" if pa.types.is_boolean(kind) else "a whole number"
    raise DataError(f"column {name} has {text[:100]}, where {what} is expected; mend it, or leave the column out")


@dataclass(slots=True)
class Column:
    """What was seen of one key so far: its type (None when there is none), in how many rows, whether null was there."""

    kind: pa.DataType | None = pa.null()
    present: int = 0
    null: bool = False

    def see(self, value: Any) -> None:
        """Take in one more value."""
        self.present += 1
        self.null = self.null or value is None
        if self.kind is not None and value is not None:
            self.kind = unify(self.kind, kind_of(value))

    def field(self, key: str, total: int) -> pa.Field:
        """The column's name, type and marks."""
        absent = self.present < total
        if self.kind is None or (absent and self.null):
            return pa.field(key, pa.string(), metadata={TEXT_KEY: b"1"})
        kind = pa.string() if pa.types.is_null(self.kind) else self.kind
        return pa.field(key, kind, metadata={ABSENT_KEY: b"1"} if absent else None)


def order(orders: Iterable[tuple[str, ...]]) -> list[str]:
    """The keys in an order that agrees with every row's; in that of their first appearance when rows contradict."""
    seen = dict.fromkeys(key for keys in orders for key in keys)
    after: dict[str, set[str]] = {key: set() for key in seen}
    for keys in orders:
        for before, key in itertools.pairwise(keys):
            after[key].add(before)
    ordered: list[str] = []
    while waiting := [key for key in seen if key not in ordered]:
        ready = next((key for key in waiting if after[key].issubset(ordered)), None)
        if ready is None:
            return list(seen)
        ordered.append(ready)
    return ordered


def kind_of(value: Any) -> pa.DataType | None:
    """The Arrow type of a JSON value; None when it has none of its own."""
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(2**63) <= value < 2**63 else None
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            return _list_kind(value)
        case dict() if value:
            parts = [(key, kind_of(part)) for key, part in value.items()]
            if any(part is None or pa.types.is_null(part) for _, part in parts):
                return None
            return pa.struct([pa.field(key, part) for key, part in parts])
        case _:
            return None


def _list_kind(values: Sequence[Any]) -> pa.DataType | None:
    kind: pa.DataType | None = pa.null()
    for value in values:
        kind = unify(kind, kind_of(value))
        if kind is None:
            return None
    return pa.list_(kind)


def unify(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    """The one type that holds the values of both, None when there is none that gives them back unchanged."""
    if left is None or right is None:
        return None
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_list(left) and pa.types.is_list(right):
        inner = unify(left.value_type, right.value_type)
        return None if inner is None else pa.list_(inner)
    return None

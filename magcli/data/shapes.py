"""The types of JSON values: what Arrow type holds all values of a key.

Null and an absent key are both null. Integers and floats are floats if every integer is exact as one. Objects are the
union of their keys. A key whose values have no common type is stored as JSON (``json_columns``).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from heapq import heappop, heappush
from typing import Any

import pyarrow as pa

from magcli.data.json_columns import json_field

Shape = Any
"""The type of a JSON value: a name such as ``int64``, ``("list", shape)`` or ``("struct", ((key, shape), ...))``.
``wide`` is an integer that a float would round. Creating and comparing Arrow types for each value would take most of
the time to read a file."""
SCALARS = {type(None): "null", bool: "bool", float: "float64", str: "string"}
NOTHING: Shape = "null"
EXACT = 2**53
"""The integers up to this one are exact as floats."""
MAX_KEYS = 256
"""Objects with more different keys are dictionaries, which are stored as JSON: a struct would be almost empty."""
MAX_DEPTH = 32
"""Values nested more deeply are stored as JSON. Arrow's formats read up to 64 levels."""
ABSENT_KEY = b"magcli.absent"
"""Marks a column whose nulls are absent keys."""
NULL_KEY = b"magcli.null"
"""Marks a column without any value, whose type is unknown."""


@dataclass(slots=True)
class Column:
    """A key of JSON objects: the shape of its values (None: none in common), number of rows, whether null occurs."""

    shape: Shape | None = "null"
    present: int = 0
    null: bool = False

    def add(self, value: Any) -> None:
        """Add the value of one more row."""
        self.present += 1
        if value is None:
            self.null = True
        elif self.shape is not None:
            self.shape = unify(self.shape, json_shape(value))

    def field(self, key: str, total: int) -> pa.Field:
        """The column's field with its marks."""
        # Of a key that is null in some rows and absent in others, all are written as null.
        marks = {ABSENT_KEY: b"1"} if self.present < total and not self.null else {}
        if self.shape is None or not _is_storable(self.shape):
            return json_field(key, marks)
        if self.shape == "null":
            return pa.field(key, pa.string(), metadata={**marks, NULL_KEY: b"1"})
        return pa.field(key, arrow_type(self.shape), metadata=marks or None)


def key_order(orders: Iterable[tuple[str, ...]]) -> list[str]:
    """The keys in an order that agrees with every row, or in order of appearance if rows contradict each other."""
    distinct = dict.fromkeys(itertools.chain.from_iterable(orders))
    seen = {key: number for number, key in enumerate(distinct)}
    # The keys that come directly after a key in some row.
    following: dict[str, set[str]] = {key: set() for key in seen}
    for keys in orders:
        for before, key in itertools.pairwise(keys):
            following[before].add(key)
    # A topological sort; of several keys that can be next, the one that appeared first. Keys on a cycle are never
    # ready.
    waits = Counter(itertools.chain.from_iterable(following.values()))
    ready = [(number, key) for key, number in seen.items() if not waits[key]]
    ordered: list[str] = []
    while ready:
        _, before = heappop(ready)
        ordered.append(before)
        for key in following[before]:
            waits[key] -= 1
            if not waits[key]:
                heappush(ready, (seen[key], key))
    return ordered if len(ordered) == len(seen) else list(seen)


def json_shape(value: Any, depth: int = 0) -> Shape | None:
    """The shape of a JSON value; None if no Arrow type represents it exactly."""
    kind = type(value)
    if kind in SCALARS:
        return SCALARS[kind]
    if kind is int:
        return _int_shape(value)
    if depth == MAX_DEPTH:
        return None
    return _list_shape(value, depth + 1) if kind is list else _struct_shape(value, depth + 1)


def _int_shape(value: int) -> Shape | None:
    """Whether a float represents an integer exactly; None if 64 bits are too few."""
    if -EXACT <= value <= EXACT:
        return "int64"
    return "wide" if -(2**63) <= value < 2**63 else None


def _list_shape(values: Sequence[Any], depth: int) -> Shape | None:
    """The shape of a list, from the types that occur in it; integers only from the least and the greatest."""
    kinds = set(map(type, values))
    shapes: list[Shape | None] = [SCALARS[kind] for kind in kinds if kind in SCALARS]
    if int in kinds:
        # Not ``isinstance``: a truth value is an integer in Python.
        integers = [value for value in values if type(value) is int]
        shapes += [_int_shape(min(integers)), _int_shape(max(integers))]
    if list in kinds or dict in kinds:
        nested = [value for value in values if isinstance(value, list | dict)]
        shapes += [json_shape(value, depth) for value in nested]
    inner: Shape | None = reduce(unify, shapes, NOTHING)
    return None if inner is None else ("list", inner)


def _struct_shape(value: dict[str, Any], depth: int) -> Shape | None:
    parts = tuple([(key, json_shape(part, depth)) for key, part in value.items()])
    return None if any(part is None for _, part in parts) else ("struct", parts)


def unify(left: Shape | None, right: Shape | None) -> Shape | None:
    """The shape that represents the values of both exactly; None if there is none."""
    if left is None or right is None:
        return None
    if left == right or right == "null":
        return left
    if left == "null":
        return right
    if isinstance(left, str) or isinstance(right, str):
        return _common_number(left, right)
    return _unify_nested(left, right) if left[0] == right[0] else None


def _common_number(left: Shape, right: Shape) -> Shape | None:
    """The shape of two different numbers; None for a float beside an integer that it cannot represent."""
    kinds = {left, right}
    if kinds == {"int64", "float64"}:
        return "float64"
    return "wide" if kinds == {"int64", "wide"} else None


# The rows of a file have few different shapes, which are unified again and again.
@lru_cache(maxsize=1 << 14)
def _unify_nested(left: Shape, right: Shape) -> Shape | None:
    """The shape of two lists, or of two structs."""
    if left[0] == "list":
        inner = unify(left[1], right[1])
        return None if inner is None else ("list", inner)
    # A key that one of them lacks is null there.
    parts = dict(left[1])
    for key, part in right[1]:
        parts[key] = unify(parts.get(key, "null"), part)
        if parts[key] is None:
            return None
    if len(parts) > MAX_KEYS:
        return None
    return "struct", tuple(parts.items())


def _is_storable(shape: Shape) -> bool:
    """Whether every struct has a field: Parquet has no empty struct."""
    match shape:
        case ("list", part):
            return _is_storable(part)
        case ("struct", parts):
            return bool(parts) and all(_is_storable(part) for _, part in parts)
    return True


def arrow_type(shape: Shape) -> pa.DataType:
    """The Arrow type of a shape."""
    match shape:
        case ("list", part):
            return pa.list_(arrow_type(part))
        case ("struct", parts):
            return pa.struct([(key, arrow_type(part)) for key, part in parts])
        case "wide":
            return pa.int64()
    return pa.type_for_alias(shape)

"""Column types: the plain types that stages get, the types of JSON values, and the size of rows.

Other tools write dictionaries, large or view strings, lists with 64-bit offsets, and columns of type null. They are
read as ``string``, ``binary`` and ``list``; an extension type is read as its storage type.
"""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.errors import DataError

Sizes = npt.NDArray[np.int64]
FOREIGN_KEYS = (b"pandas", b"huggingface", b"PARQUET:field_id", b"ARROW:schema")
"""Metadata of other tools that describes columns and would be wrong after columns change."""
BATCH_BYTES = 1 << 26
"""Maximum bytes of a batch with more than one row, far below the 2 GiB of a text column."""
TEXT_KEY = b"magcli.json_text"
"""Marks a column that stores each value as JSON text."""
ABSENT_KEY = b"magcli.absent"
"""Marks a column whose nulls are absent keys."""


def refuse_bytes(schema: pa.Schema, form: str) -> None:
    """Check that no column contains raw bytes at any depth, for a text format.

    Raises:
        DataError: one does; the message names the column.
    """
    for field in schema:
        if any(map(_is_bytes, _leaves(field.type))):
            raise DataError(f"column {field.name} has raw bytes, which have no {form} form; drop it or write arrow")


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the values within a type."""
    if not pa.types.is_nested(kind):
        yield kind
    for place in range(kind.num_fields if pa.types.is_nested(kind) else 0):
        yield from _leaves(kind.field(place).type)


def _is_bytes(kind: pa.DataType) -> bool:
    is_a = pa.types
    return bool(is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_fixed_size_binary(kind))


def is_exact_in_json(kind: pa.DataType) -> bool:
    """Whether values of this type survive a round trip through JSON if the type is stored."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return is_exact_in_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_exact_in_json(kind.field(i).type) for i in range(kind.num_fields))
    is_number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    return bool(is_number or pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_null(kind))


def plain_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """A table's schema in plain types.

    Raises:
        DataError: two columns have the same name, or a name is not valid UTF-8.
    """
    try:
        names = schema.names
        fields = [_plain_field(field) for field in schema]
    except UnicodeDecodeError:
        raise DataError(f"{name} is damaged, or has a column whose name is not valid UTF-8") from None
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise DataError(
            f"{name} has more than one column named {', '.join(twice)}; rename them with the tool that wrote it"
        )
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in fields]
    return pa.schema(fields, _without_foreign(schema.metadata))


def _without_foreign(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return {key: value for key, value in (metadata or {}).items() if key not in FOREIGN_KEYS} or None


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), metadata=_without_foreign(field.metadata))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type with the same values."""
    is_a = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if is_a.is_dictionary(kind):
        return plain_type(kind.value_type)
    if is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return pa.string()
    if is_a.is_large_binary(kind) or is_a.is_binary_view(kind):
        return pa.binary()
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        return pa.list_(_plain_field(kind.value_field).with_name("item"))
    if is_a.is_struct(kind):
        return pa.struct([_plain_field(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def plain_rows(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in the types of ``schema``, in batches of at most ``BATCH_BYTES``."""
    if batch.schema.types == schema.types and batch.nbytes <= BATCH_BYTES:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return
    sizes = row_bytes(batch)
    while batch.num_rows:
        count = fitting_rows(sizes, BATCH_BYTES)
        part, batch, sizes = batch.slice(0, count), batch.slice(count), sizes[count:]
        columns = [_cast(column, field.type) for column, field in zip(part.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    return storage if storage.type == kind else storage.cast(kind)


def fitting_rows(sizes: Sizes, max_bytes: int) -> int:
    """Number of leading rows that fit into ``max_bytes``, at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right")))


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """The bytes of each row, computed from its values: equal rows have equal sizes however they are stored."""
    return sum((_value_bytes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))


def _value_bytes(column: pa.Array) -> Sizes:
    is_a, kind = pa.types, column.type
    if isinstance(column, pa.ExtensionArray):
        return _value_bytes(column.storage)
    if is_a.is_dictionary(kind):
        return _numbers(pc.take(pa.array(_value_bytes(column.dictionary)), column.indices))
    if is_a.is_string(kind) or is_a.is_binary(kind) or is_a.is_large_string(kind) or is_a.is_large_binary(kind):
        return _numbers(pc.binary_length(column)) + 8
    if is_a.is_string_view(kind) or is_a.is_binary_view(kind):
        return _numbers(pc.binary_length(column.cast(pa.large_binary()))) + 8
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        return _list_bytes(column)
    if is_a.is_struct(kind):
        return sum((_value_bytes(part) for part in column.flatten()), np.zeros(len(column), np.int64))
    return np.full(len(column), 8, np.int64)


def _list_bytes(column: pa.Array) -> Sizes:
    """Sums of the elements' bytes between the offsets of each list."""
    before = np.concatenate([[0], np.cumsum(_value_bytes(column.values))])
    offsets = column.offsets.to_numpy()
    sizes = before[offsets[1:]] - before[offsets[:-1]] + 8
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), sizes, 8)


def _numbers(values: pa.Array) -> Sizes:
    return np.asarray(pc.fill_null(values, 0), np.int64)


# ---- JSON ----

Shape = Any
"""The type of a JSON value: a name such as ``int64``, ``("list", shape)`` or ``("struct", ((key, shape), ...))``.
Creating and comparing Arrow types for each value would take most of the time to read a file."""
SCALARS = {type(None): "null", bool: "bool", float: "float64", str: "string"}


def to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, with the values of columns that store JSON text."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for field in batch.schema:
        if is_json_text(field):
            for row in rows:
                row[field.name] = None if row[field.name] is None else json.loads(row[field.name])
    return rows


def is_json_text(field: pa.Field) -> bool:
    """Whether a column stores each value as JSON text."""
    return TEXT_KEY in (field.metadata or {})


def parse_texts(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """JSON texts as values of a type; for ``string``, values that are not strings stay as written.

    Raises:
        DataError: a value is of another type.
    """
    return pa.array([None if text is None else _parse_text(text, name, kind) for text in column.to_pylist()], kind)


def _parse_text(text: str, name: str, kind: pa.DataType) -> Any:
    value = json.loads(text)
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else text
    if pa.types.is_boolean(kind) and value in (0, 1):
        return bool(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_integer(kind) and is_number and value % 1 == 0 and abs(value) < 2**63:
        return int(value)
    what = "true or false" if pa.types.is_boolean(kind) else "a whole number"
    raise DataError(f"column {name} has {text[:100]}, where {what} is expected; correct it, or remove the column")


@dataclass(slots=True)
class Column:
    """A key of JSON objects: the shape of its values (None: they differ), number of rows, whether null occurs."""

    shape: Shape | None = "null"
    present: int = 0
    null: bool = False

    def add(self, value: Any) -> None:
        """Add the value of one more row."""
        self.present += 1
        self.null = self.null or value is None
        if self.shape is not None and value is not None:
            self.shape = unify(self.shape, json_shape(value))

    def field(self, key: str, total: int) -> pa.Field:
        """The column's field with its marks."""
        absent = self.present < total
        if self.shape is None or (absent and self.null):
            return pa.field(key, pa.string(), metadata={TEXT_KEY: b"1"})
        kind = pa.string() if self.shape == "null" else arrow_type(self.shape)
        return pa.field(key, kind, metadata={ABSENT_KEY: b"1"} if absent else None)


def key_order(orders: Iterable[tuple[str, ...]]) -> list[str]:
    """The keys in an order that agrees with every row, or in order of appearance if rows contradict each other."""
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


def json_shape(value: Any) -> Shape | None:
    """The shape of a JSON value; None if no Arrow type represents it exactly."""
    match value:
        case bool() | float() | str() | None:
            return SCALARS[type(value)]
        case int():
            return "int64" if -(2**63) <= value < 2**63 else None
        case list():
            return _list_shape(value)
        case dict() if value:
            parts = tuple((key, json_shape(part)) for key, part in value.items())
            return None if any(part in (None, "null") for _, part in parts) else ("struct", parts)
    return None


def _list_shape(values: Sequence[Any]) -> Shape | None:
    shape: Shape | None = "null"
    for value in values:
        shape = unify(shape, json_shape(value))
        if shape is None:
            return None
    return ("list", shape)


def unify(left: Shape | None, right: Shape | None) -> Shape | None:
    """The shape that represents the values of both exactly; None if there is none."""
    if left is None or right is None:
        return None
    if left == right or right == "null":
        return left
    if left == "null":
        return right
    if left[0] == right[0] == "list":
        inner = unify(left[1], right[1])
        return None if inner is None else ("list", inner)
    return None


def arrow_type(shape: Shape) -> pa.DataType:
    """The Arrow type of a shape."""
    match shape:
        case ("list", part):
            return pa.list_(arrow_type(part))
        case ("struct", parts):
            return pa.struct([(key, arrow_type(part)) for key, part in parts])
    return pa.type_for_alias(shape)


# ---- pyarrow without pandas ----


class _NoPandas:
    """An import finder that does not find pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def skip_pandas() -> None:
    """Prevent the import of pandas in the first ``pa.array``, which checks for pandas objects.

    pyarrow remembers the result of this import. ``to_pandas`` still imports pandas.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


skip_pandas()

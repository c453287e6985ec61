"""Column types as stages see them, and the size of rows.

Other tools write text as dictionaries, large or view strings, lists with wide offsets, columns without a type. They are
read as ``string``, ``binary`` and ``list``; an extension type is read as its storage.
"""

import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.errors import DataError

Sizes = npt.NDArray[np.int64]
FOREIGN_KEYS = (b"pandas", b"huggingface", b"PARQUET:field_id", b"ARROW:schema")
"""Metadata of other tools that describes columns by name, and would be wrong after a change of columns."""
BATCH_BYTES = 1 << 26
"""A batch of more than one row holds at most this many bytes, far from the 2 GiB that a text column can hold."""


def without_bytes(schema: pa.Schema, form: str) -> None:
    """Refuse columns that hold raw bytes anywhere, for a format of text.

    Raises:
        DataError: names the first such column.
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


def exact(kind: pa.DataType) -> bool:
    """Whether JSON gives values of this type back unchanged, once the type is known."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return exact(kind.value_type)
    if pa.types.is_struct(kind):
        return all(exact(kind.field(i).type) for i in range(kind.num_fields))
    is_number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    return bool(is_number or pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_null(kind))


def plain_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """A table's schema in plain types.

    Raises:
        DataError: two columns have the same name, or a name is no text.
    """
    try:
        names = schema.names
        fields = [_plain_field(field) for field in schema]
    except UnicodeDecodeError:
        raise DataError(f"{name} is damaged, or has a column whose name is no text") from None
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise DataError(
            f"{name} has more than one column named {', '.join(twice)}; rename them with the tool it is from"
        )
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in fields]
    return pa.schema(fields, _own(schema.metadata))


def _own(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return {key: value for key, value in (metadata or {}).items() if key not in FOREIGN_KEYS} or None


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), metadata=_own(field.metadata))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type that holds the same values."""
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
    """The rows of a batch in the types of ``schema``, in as many batches as their size asks for."""
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


def fitting_rows(sizes: Sizes, room: int) -> int:
    """How many leading rows fit into ``room`` bytes, at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), room, side="right")))


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """The bytes of each row, from its values alone: equal rows have equal sizes however they are stored."""
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
    """Sums of the elements' bytes between each list's offsets."""
    before = np.concatenate([[0], np.cumsum(_value_bytes(column.values))])
    offsets = column.offsets.to_numpy()
    sizes = before[offsets[1:]] - before[offsets[:-1]] + 8
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), sizes, 8)


def _numbers(values: pa.Array) -> Sizes:
    return np.asarray(pc.fill_null(values, 0), np.int64)


class _WithoutPandas:
    """An import finder that finds no pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def leave_pandas_out() -> None:
    """Keep pyarrow from importing pandas at its first ``pa.array``, which asks whether the values are pandas'.

    It asks once and remembers the answer. ``to_pandas`` still imports pandas, and one that is there already stays.
    """
    if "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


leave_pandas_out()

"""Column types: the plain types that stages get, and the size of rows.

Other tools write dictionaries, large or view strings, lists with 64-bit offsets, and columns of type null. They are
read as ``string``, ``binary`` and ``list``, extension types as ``plain`` says, ``arrow.json`` and unions as JSON text.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.features import feature_marks, features_of
from magcli.data.json_columns import holds_json, json_field, json_texts
from magcli.data.plain import marked_type, plain_array, plain_type, type_marks
from magcli.data.readable import nested_types
from magcli.data.rebuild import fixed_size_values, is_listlike, physical_runs
from magcli.data.shapes import NULL_KEY
from magcli.errors import DataError

Sizes = npt.NDArray[np.int64]
FOREIGN_KEYS = (b"pandas", b"huggingface", b"PARQUET:field_id", b"ARROW:schema")
"""Metadata of other tools that describes columns and would be wrong after columns change."""
VARIANT_FIELDS = frozenset(("metadata", "value"))
"""The fields of Parquet's type Variant; a third one, ``typed_value``, has values of a common type."""
BATCH_BYTES = 1 << 26
"""Maximum bytes of a batch with more than one row, far below the 2 GiB of a text column."""


def refuse_bytes(schema: pa.Schema, form: str) -> None:
    """Check that no column contains raw bytes at any depth, for a text format.

    Raises:
        DataError: one does; the message names the column.
    """
    for field in schema:
        if any(map(_is_bytes, _leaves(field.type))):
            problem = f"column {field.name} has raw bytes, which have no {form} form (its type is {_type_name(field)})"
            raise DataError(f"{problem}; drop it or write arrow")


def _type_name(field: pa.Field) -> str:
    """The type of a column in the file that it came from."""
    name = (field.metadata or {}).get(b"ARROW:extension:name")
    return name.decode("utf-8", "replace") if name else str(marked_type(field) or field.type)


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the values within a type."""
    return (part for part in nested_types(kind) if not pa.types.is_nested(part))


def _is_bytes(kind: pa.DataType) -> bool:
    is_a = pa.types
    return bool(is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_fixed_size_binary(kind))


def is_exact_in_json(kind: pa.DataType) -> bool:
    """Whether values of this type survive a round trip through JSON if the type is stored."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return is_exact_in_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_exact_in_json(kind.field(i).type) for i in range(kind.num_fields))
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if is_whole or pa.types.is_floating(kind):
        return True
    return bool(pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_null(kind))


def plain_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """A table's schema in plain types.

    Raises:
        DataError: two columns have the same name, a name is not valid UTF-8, or a column has Parquet's type Variant.
    """
    features = features_of(schema)
    try:
        # Decodes all names, which may raise.
        names = schema.names
        for field in schema:
            _refuse_variants(field, name)
        fields = [_plain_column(field, features.get(field.name)) for field in schema]
    except UnicodeDecodeError:
        raise DataError(f"{name} is damaged, or has a column whose name is not valid UTF-8") from None
    twice = sorted(column for column, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(
            f"{name} has more than one column named {', '.join(twice)}; rename them with the tool that wrote it"
        )
    return pa.schema(fields, _without_foreign(schema.metadata))


def _plain_column(field: pa.Field, feature: Any) -> pa.Field:
    """A column in plain types, with its feature of `datasets`."""
    metadata = _without_foreign(field.metadata)
    if holds_json(field.type):
        _refuse_bytes_in_json(field)
        return json_field(field.name, metadata)
    plain = pa.field(field.name, plain_type(field.type))
    marks = metadata or {}
    marks = marks | _extension_marks(field.type) | type_marks(field.type) | feature_marks(feature)
    # A column without any value could have any type; it is text, and marked.
    if pa.types.is_null(field.type):
        return pa.field(field.name, pa.string(), metadata={**marks, NULL_KEY: b"1"})
    return plain.with_metadata(marks or None)


def _refuse_variants(field: pa.Field, name: str) -> None:
    """Check that no part of a column has Parquet's type Variant, whose encoded values Arrow shows as a struct.

    Raises:
        DataError: it has; the message names the file and the column.
    """
    if any(map(_is_variant, nested_types(field.type))):
        advice = "convert it with the tool that wrote it, for example to JSON: CAST(... AS JSON) in DuckDB"
        raise DataError(f"{name}: column {field.name} has Parquet's type Variant, which cannot be read; {advice}")


def _is_variant(kind: pa.DataType) -> bool:
    """Whether a struct has just the fields of the Parquet format's VariantEncoding.md."""
    if not pa.types.is_struct(kind):
        return False
    names = set(kind.names)
    if not VARIANT_FIELDS <= names <= {*VARIANT_FIELDS, "typed_value"}:
        return False
    return all(_is_bytes(plain_type(kind.field(name).type)) for name in VARIANT_FIELDS)


def _refuse_bytes_in_json(field: pa.Field) -> None:
    """Check that a column that becomes JSON has no raw bytes.

    Raises:
        DataError: it has; the message names the column and its type.
    """
    if any(_is_bytes(plain_type(leaf)) for leaf in _leaves(field.type)):
        problem = f"column {field.name} of type {field.type} has raw bytes beside values of other types"
        raise DataError(f"{problem}; convert it with the tool that wrote it")


def _extension_marks(kind: pa.DataType) -> dict[bytes, bytes]:
    """The entries from which Arrow restores an extension type that a library registered, such as `datasets`' arrays."""
    if not isinstance(kind, pa.ExtensionType):
        return {}
    name, parameters = kind.extension_name.encode(), kind.__arrow_ext_serialize__()
    return {b"ARROW:extension:name": name, b"ARROW:extension:metadata": parameters}


def _without_foreign(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    kept = {key: value for key, value in (metadata or {}).items() if key not in FOREIGN_KEYS}
    return kept or None


def plain_rows(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in the types of ``schema``, in batches of at most ``BATCH_BYTES``."""
    if batch.schema.types == schema.types and batch.nbytes <= BATCH_BYTES:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return
    for part in split_rows(batch, BATCH_BYTES):
        columns = [_cast(column, field) for column, field in zip(part.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def split_rows(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in batches of at most ``max_bytes``; a row of more is a batch of its own."""
    sizes = row_bytes(batch)
    while batch.num_rows:
        count = fitting_rows(sizes, max_bytes)
        yield batch.slice(0, count)
        batch = batch.slice(count)
        sizes = sizes[count:]


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if holds_json(column.type):
        return json_texts(column, field.name)
    return plain_array(column, field.type)


def fitting_rows(sizes: Sizes, max_bytes: int) -> int:
    """Number of leading rows that fit into ``max_bytes``, at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right")))


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """The bytes of each row, computed from its values: equal rows have equal sizes however they are stored."""
    return sum((_value_bytes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))


def _value_bytes(column: pa.Array) -> Sizes:
    """The bytes of each value; those of variable length have 8 more, as a null has."""
    is_a, kind = pa.types, column.type
    sizes: Sizes
    if isinstance(column, pa.ExtensionArray):
        return _value_bytes(column.storage)
    if is_a.is_dictionary(kind):
        return _numbers(pc.take(pa.array(_value_bytes(column.dictionary)), column.indices))
    if is_a.is_run_end_encoded(kind):
        sizes = _value_bytes(column.values)[physical_runs(column).to_numpy()]
        return sizes
    is_text = is_a.is_string(kind) or is_a.is_large_string(kind)
    if is_text or is_a.is_binary(kind) or is_a.is_large_binary(kind):
        return _numbers(pc.binary_length(column)) + 8
    # Arrow has no lengths of views.
    if is_a.is_string_view(kind) or is_a.is_binary_view(kind):
        return _numbers(pc.binary_length(column.cast(pa.large_binary()))) + 8
    if is_listlike(kind):
        return _list_bytes(column)
    if is_a.is_fixed_size_list(kind) and len(column):
        sizes = _value_bytes(fixed_size_values(column)).reshape(len(column), -1).sum(axis=1) + 8
        return sizes
    if is_a.is_struct(kind):
        return sum((_value_bytes(part) for part in column.flatten()), np.zeros(len(column), np.int64))
    return np.full(len(column), 8, np.int64)


def _list_bytes(column: pa.Array) -> Sizes:
    """Sums of the elements' bytes of each list."""
    # The bytes of all elements before one, and at the end of all.
    bytes_before = np.concatenate([[0], np.cumsum(_value_bytes(column.flatten()))])
    ends = np.cumsum(_numbers(pc.list_value_length(column)))
    bounds = np.concatenate([[0], ends])
    sizes: Sizes = np.diff(bytes_before[bounds]) + 8
    return sizes


def _numbers(values: pa.Array) -> Sizes:
    return np.asarray(pc.fill_null(values, 0), np.int64)


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

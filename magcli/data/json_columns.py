"""Columns of JSON values without a common type: text of JSON within magcli, ``arrow.json`` in Arrow and Parquet files.

``arrow.json`` is Arrow's extension type for JSON, `datasets`' feature ``Json()``. Other tools use it at any depth, for
example a list of JSON objects; magcli reads such a column as a column of JSON, and a column of unions too.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from magcli.data.plain import plain_array, plain_type
from magcli.data.readable import readable_values
from magcli.data.rebuild import fixed_size_values, map_parts, physical_runs
from magcli.errors import DataError, first_line

TEXT_KEY = b"magcli.json_text"
"""Marks a column that stores each value as JSON text."""
DECODER = json.JSONDecoder(parse_constant=lambda _: None)
"""NaN and Infinity are not JSON; they are null."""


def json_field(name: str, marks: Mapping[bytes, bytes] | None = None) -> pa.Field:
    """A column that stores each value as JSON text."""
    return pa.field(name, pa.string(), metadata={**(marks or {}), TEXT_KEY: b"1"})


def is_json_text(field: pa.Field) -> bool:
    """Whether a column stores each value as JSON text."""
    return TEXT_KEY in (field.metadata or {})


def holds_json(kind: pa.DataType) -> bool:
    """Whether a type is ``arrow.json`` or a union, or has one at any depth: values without a common type."""
    if isinstance(kind, pa.JsonType) or pa.types.is_union(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return holds_json(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return holds_json(kind.value_type)
    if not pa.types.is_nested(kind):
        return False
    return any(holds_json(kind.field(i).type) for i in range(kind.num_fields))


def json_texts(column: pa.Array, name: str) -> pa.Array:
    """A column whose type ``holds_json`` as JSON text.

    Raises:
        DataError: a text in it is not JSON.
    """
    try:
        if isinstance(column.type, pa.JsonType):
            return pa.array(map(_checked, column.to_pylist()), pa.string())
        return encoded(json_values(column))
    except (ValueError, RecursionError) as error:
        raise DataError(f"column {name} has a text that is not JSON: {first_line(error)}") from None


def _checked(text: str | None) -> str | None:
    """A JSON text of another tool, in one line; null is null."""
    if text is None:
        return None
    value = DECODER.decode(text)
    # NaN and Infinity, which JSON does not have.
    may_have_constants = "N" in text or "I" in text
    if value is None or "\n" in text or may_have_constants:
        return dumps(value)
    return text


def dumps(value: Any) -> str | None:
    """A value as JSON text; null is null."""
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


def json_values(column: pa.Array) -> list[Any]:
    """The values of a column whose type ``holds_json``: of unions as they are, of JSON parsed."""
    kind = column.type
    if not holds_json(kind):
        return readable_values(plain_array(column, plain_type(kind)))
    if isinstance(kind, pa.JsonType):
        return decoded(column)
    if isinstance(kind, pa.BaseExtensionType):
        return json_values(column.storage)
    if pa.types.is_union(kind):
        return _union_values(column)
    if pa.types.is_struct(kind):
        return _struct_values(column)
    if pa.types.is_map(kind):
        return _map_values(column)
    # Each value of these two is stored once, and parsed once.
    if pa.types.is_dictionary(kind):
        return _taken(json_values(column.dictionary), column.indices)
    if pa.types.is_run_end_encoded(kind):
        return _taken(json_values(column.values), physical_runs(column))
    return _list_values(column)


def _taken(values: Sequence[Any], numbers: pa.Array) -> list[Any]:
    return [None if number is None else values[number] for number in numbers.to_pylist()]


def _union_values(column: pa.Array) -> list[Any]:
    """Each value from the child of its type code: in a dense union at its offset, in a sparse one at its row."""
    children = {code: json_values(column.field(index)) for index, code in enumerate(column.type.type_codes)}
    codes = column.type_codes.to_pylist()
    is_dense = column.type.mode == "dense"
    offsets = column.offsets.to_pylist() if is_dense else range(len(column))
    return [children[code][offset] for code, offset in zip(codes, offsets, strict=True)]


def _struct_values(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    rows = zip(*map(json_values, column.flatten()), strict=True)
    objects = []
    for values, is_valid in zip(rows, column.is_valid().to_pylist(), strict=True):
        objects.append(dict(zip(names, values, strict=True)) if is_valid else None)
    return objects


def _map_values(column: pa.Array) -> list[Any]:
    """Maps as objects; those with keys that are no text, or that repeat, as pairs."""
    start, keys, items = map_parts(column)
    all_pairs = list(zip(json_values(keys), json_values(items), strict=True))
    has_text_keys = pa.types.is_string(plain_type(column.type.key_type))
    maps: list[Any] = []
    for begin, stop, is_valid in _spans(column.offsets.to_pylist(), column):
        if not is_valid:
            maps.append(None)
            continue
        pairs = all_pairs[begin - start : stop - start]
        is_object = has_text_keys and len(dict(pairs)) == len(pairs)
        maps.append(dict(pairs) if is_object else pairs)
    return maps


def _list_values(column: pa.Array) -> list[Any]:
    offsets: Sequence[int]
    if pa.types.is_fixed_size_list(column.type):
        values = json_values(fixed_size_values(column))
        offsets = [column.type.list_size * row for row in range(len(column) + 1)]
    else:
        # Without the elements of null lists, which then have the length 0.
        values = json_values(column.flatten())
        lengths = column.value_lengths().fill_null(0).to_pylist()
        offsets = list(accumulate(lengths, initial=0))
    return [values[begin:stop] if is_valid else None for begin, stop, is_valid in _spans(offsets, column)]


def _spans(offsets: Sequence[int], column: pa.Array) -> Iterator[tuple[int, int, bool]]:
    """Start, end and validity of each list."""
    return zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)


def with_arrow_json(schema: pa.Schema) -> pa.Schema:
    """The schema for Arrow and Parquet files: columns of JSON text are ``arrow.json``."""
    return pa.schema([_as_arrow_json(field) for field in schema], schema.metadata)


def _as_arrow_json(field: pa.Field) -> pa.Field:
    if not is_json_text(field):
        return field
    marks = {key: value for key, value in field.metadata.items() if key != TEXT_KEY}
    return pa.field(field.name, pa.json_(), metadata=marks or None)


def encoded(values: Iterable[Any]) -> pa.Array:
    """Values as a column of JSON text."""
    return pa.array(map(dumps, values), pa.string())


def decoded(texts: pa.Array) -> list[Any]:
    """The inverse of ``encoded``."""
    return [None if text is None else DECODER.decode(text) for text in texts.to_pylist()]


def finite(value: Any) -> Any:
    """A value with null in place of NaN and Infinity, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return value

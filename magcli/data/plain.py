"""The plain types that stages get, the types that files have, and the values of one in the other.

Some types are another way to store the same values: dictionaries, run-end encoding, large and view strings, lists with
64-bit offsets. They become ``string``, ``binary`` and ``list``. Others mean something that plain values do not say, and
are written to Arrow files again: ``arrow.uuid`` (text), ``arrow.bool8`` (true and false), intervals of months, days and
nanoseconds (text), tensors of one shape (nested lists), and types that only their author knows (``arrow.opaque``).
"""

import base64
import uuid
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data import intervals
from magcli.data.rebuild import changed_type, fixed_size_values, physical_runs, rebuilt

KEPT = (pa.UuidType, pa.Bool8Type, pa.FixedShapeTensorType, pa.OpaqueType)
"""Extension types that are written to Arrow files again."""
TYPE_KEY = b"magcli.arrow_type"
"""Marks a column with its type in Arrow files."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type with the same values."""
    return changed_type(kind, _plain)


def _plain(kind: pa.DataType) -> pa.DataType | None:
    if isinstance(kind, pa.UuidType) or pa.types.is_interval(kind):
        return pa.string()
    if isinstance(kind, pa.Bool8Type):
        return pa.bool_()
    if isinstance(kind, pa.FixedShapeTensorType):
        return _nested_lists(plain_type(kind.value_type), _logical_shape(kind))
    return plain_type(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else _unencoded(kind, plain_type)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in Arrow files: without other ways to store the same values, but with what plain types do not say."""
    return changed_type(kind, _stored)


def _stored(kind: pa.DataType) -> pa.DataType | None:
    if isinstance(kind, KEPT):
        return kind
    return stored_type(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else _unencoded(kind, stored_type)


def _unencoded(kind: pa.DataType, of_values: Any) -> pa.DataType | None:
    """The type without dictionaries, run ends, views and 64-bit offsets; None if it has none of them itself."""
    is_a = pa.types
    if is_a.is_dictionary(kind) or is_a.is_run_end_encoded(kind):
        values: pa.DataType = of_values(kind.value_type)
        return values
    if is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return pa.string()
    if is_a.is_large_binary(kind) or is_a.is_binary_view(kind):
        return pa.binary()
    return None


def _logical_shape(kind: pa.FixedShapeTensorType) -> list[int]:
    order = kind.permutation or range(len(kind.shape))
    return [kind.shape[dimension] for dimension in order]


def _nested_lists(kind: pa.DataType, shape: list[int]) -> pa.DataType:
    # The last dimension is the innermost.
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return kind


def type_marks(kind: pa.DataType) -> dict[bytes, bytes]:
    """The mark of a column whose type in Arrow files is not its plain one."""
    stored = stored_type(kind)
    if stored == plain_type(kind):
        return {}
    # A type alone cannot be serialized, a schema with one column can.
    return {TYPE_KEY: base64.b64encode(pa.schema([pa.field("", stored)]).serialize().to_pybytes())}


def marked_type(field: pa.Field) -> pa.DataType | None:
    """The type in Arrow files that a column is marked with; None without one, or if its values are of another type."""
    mark = (field.metadata or {}).get(TYPE_KEY)
    if mark is None:
        return None
    try:
        kind = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(mark))).field(0).type
    except (ValueError, pa.ArrowException):  # of another program, or damaged
        return None
    return kind if plain_type(kind) == field.type else None


def stored_field(field: pa.Field, *, in_parquet: bool) -> pa.Field:
    """A column as Arrow and Parquet files have it: of the type that it is marked with, if the format has that type."""
    kind = marked_type(field)
    if kind is None or (in_parquet and not _is_parquet(kind)):
        return field
    marks = {key: value for key, value in field.metadata.items() if key != TYPE_KEY}
    return pa.field(field.name, kind, field.nullable, metadata=marks or None)


def plain_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in their plain type ``kind``."""
    return rebuilt(array, kind, _plain_part)


def _plain_part(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values that are not nested, or of an extension, dictionary or run-end encoded type, in their plain type."""
    own = array.type
    if isinstance(own, pa.UuidType):
        stored = array.storage.to_pylist()
        texts = [None if data is None else str(uuid.UUID(bytes=data)) for data in stored]
        return pa.array(texts, pa.string())
    if isinstance(own, pa.FixedShapeTensorType):
        return _unfolded(array, kind)
    if isinstance(own, pa.BaseExtensionType):
        return plain_array(array.storage, kind)
    # The values of these two are converted once each, then repeated.
    if pa.types.is_dictionary(own):
        return plain_array(array.dictionary, kind).take(array.indices)
    if pa.types.is_run_end_encoded(own):
        return plain_array(array.values, kind).take(physical_runs(array))
    if pa.types.is_interval(own):
        return intervals.interval_texts(array)
    return array.cast(kind)


def _unfolded(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Tensors as nested lists of their logical shape."""
    tensor = array.type
    values = fixed_size_values(array.storage)
    if tensor.permutation:
        values = values.take(_order(tensor, len(array), to_logical=True))
    return _folded_lists(values, kind, len(tensor.shape), array)


def _folded_lists(values: pa.Array, kind: pa.DataType, levels: int, array: pa.Array) -> pa.Array:
    """Values of nested lists of fixed sizes, the outermost with the nulls of ``array``."""
    kinds = [kind]
    for _ in range(levels):
        kinds.append(kinds[-1].value_type)
    nested = plain_array(values, kinds.pop())
    mask = array.is_null() if array.null_count else None
    while kinds:
        inner = kinds.pop()
        # Only a whole tensor is null, never a part of one.
        nulls = None if kinds else mask
        nested = pa.FixedSizeListArray.from_arrays(nested, type=inner, mask=nulls)
    return nested


def _order(tensor: pa.FixedShapeTensorType, rows: int, *, to_logical: bool) -> pa.Array:
    """Where each value of the logical order is in the stored one, or the other way round."""
    size = prod(tensor.shape)
    # For each value in logical order, its number in storage order; ``argsort`` inverts a permutation.
    order = np.arange(size).reshape(tensor.shape).transpose(tensor.permutation).ravel()
    if not to_logical:
        order = np.argsort(order)
    return pa.array((np.arange(rows)[:, None] * size + order).ravel())


def stored_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The inverse of ``plain_array``, in the type that ``stored_type`` says.

    Raises:
        ValueError: a text is no UUID, or no interval.
    """
    return rebuilt(array, kind, _stored_part)


def _stored_part(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_interval(kind):
        return intervals.intervals_of(array)
    if isinstance(kind, pa.UuidType):
        storage = pa.array(
            [None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()], pa.binary(16)
        )
    elif isinstance(kind, pa.FixedShapeTensorType):
        storage = _folded(array, kind)
    elif isinstance(kind, pa.BaseExtensionType):
        storage = rebuilt(array, kind.storage_type, _stored_part)
    else:
        return array.cast(kind)
    return pa.ExtensionArray.from_storage(kind, storage)


def _folded(array: pa.Array, kind: pa.FixedShapeTensorType) -> pa.Array:
    """Nested lists as the storage of a tensor."""
    values = array
    while pa.types.is_fixed_size_list(values.type):
        values = fixed_size_values(values)
    if kind.permutation:
        values = values.take(_order(kind, len(array), to_logical=False))
    values = stored_array(values, kind.value_type)
    mask = array.is_null() if array.null_count else None
    return pa.FixedSizeListArray.from_arrays(values, type=kind.storage_type, mask=mask)


def _is_parquet(kind: pa.DataType) -> bool:
    """Whether Parquet has the type: it has no intervals."""
    if pa.types.is_nested(kind):
        return all(_is_parquet(kind.field(index).type) for index in range(kind.num_fields))
    return not pa.types.is_interval(kind)

"""Arrays in another type, part by part: lists, structs and maps are rebuilt around values that a function converts.

Arrow's own ``cast`` does not reach into every nested type, and knows nothing of extension types.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Part = Callable[[pa.Array, pa.DataType], pa.Array]
"""Converts an array of another kind than its target type, or of values that are not nested."""
Change = Callable[[pa.DataType], pa.DataType | None]
"""What a type becomes; None for a type that stays, apart from those nested in it."""


def is_listlike(kind: pa.DataType) -> bool:
    """Whether a type is a list of any length: with 32- or 64-bit offsets, or a view."""
    is_a = pa.types
    is_view = is_a.is_list_view(kind) or is_a.is_large_list_view(kind)
    return bool(is_a.is_list(kind) or is_a.is_large_list(kind) or is_view)


def changed_type(kind: pa.DataType, change: Change) -> pa.DataType:
    """A type after ``change`` at every depth; lists with 64-bit offsets and views become ordinary lists."""
    replaced = change(kind)
    if replaced is not None:
        return replaced
    if is_listlike(kind):
        # Other tools call the values ``element`` or ``l``; types that differ in this name would not be equal.
        return pa.list_(_changed_field(kind.value_field, change).with_name("item"))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_changed_field(kind.value_field, change), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([_changed_field(field, change) for field in kind])
    if pa.types.is_map(kind):
        key, item = _changed_field(kind.key_field, change), _changed_field(kind.item_field, change)
        return pa.map_(key, item, kind.keys_sorted)
    return kind


def _changed_field(field: pa.Field, change: Change) -> pa.Field:
    return field.with_type(changed_type(field.type, change))


def rebuilt(array: pa.Array, kind: pa.DataType, part: Part) -> pa.Array:
    """The values of ``array`` in the type ``kind``, of the same nesting; ``part`` converts what is not nested alike."""
    is_a = pa.types
    own = array.type
    if own == kind:
        return array
    # The nulls of this level; those of the levels within are in their parts.
    mask = array.is_null() if array.null_count else None
    if is_listlike(own) and is_a.is_list(kind):
        offsets = _offsets(pc.list_value_length(array))
        values = rebuilt(array.flatten(), kind.value_type, part)
        return pa.ListArray.from_arrays(offsets, values, kind, mask=mask)
    both_fixed = is_a.is_fixed_size_list(own) and is_a.is_fixed_size_list(kind)
    if both_fixed and own.list_size == kind.list_size:
        values = rebuilt(fixed_size_values(array), kind.value_type, part)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    if is_a.is_struct(own) and is_a.is_struct(kind):
        children = zip(array.flatten(), kind, strict=True)
        columns = [rebuilt(column, field.type, part) for column, field in children]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    if is_a.is_map(own) and is_a.is_map(kind):
        return _rebuilt_map(array, kind, part)
    return part(array, kind)


def validity(array: pa.Array) -> pa.Buffer | None:
    """Which rows are not null, as a bitmap for ``pa.Array.from_buffers``; None if no row is null.

    An array's own bitmap may begin before its first row.
    """
    if not array.null_count:
        return None
    return pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]


def fixed_size_values(array: pa.Array) -> pa.Array:
    """The values of all lists of an array of lists of one size, those of null lists included."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def map_parts(array: pa.Array) -> tuple[int, pa.Array, pa.Array]:
    """The first offset of an array of maps, and all keys and items from there on."""
    # A slice has the keys and items of the whole array; its own begin at its first offset.
    start = array.offsets[0].as_py()
    length = array.offsets[-1].as_py() - start
    return start, array.keys.slice(start, length), array.items.slice(start, length)


def _rebuilt_map(array: pa.Array, kind: pa.DataType, part: Part) -> pa.Array:
    start, own_keys, own_items = map_parts(array)
    keys = rebuilt(own_keys, kind.key_type, part)
    items = rebuilt(own_items, kind.item_type, part)
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    mask = array.is_null() if array.null_count else None
    # A copy of the offsets, because a mask needs an array that starts at its buffer's start.
    return pa.MapArray.from_arrays(pa.array(offsets.to_numpy()), keys, items, kind, mask=mask)


def _offsets(lengths: pa.Array) -> pa.Array:
    """Where each list starts and the last one ends, from the lengths of lists; a null list is empty."""
    counts = np.asarray(pc.fill_null(lengths, 0), np.int64)
    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def physical_runs(array: pa.Array) -> pa.Array:
    """For each row of a run-end encoded array, the number of its value."""
    ends = array.run_ends.to_numpy()
    rows = np.arange(array.offset, array.offset + len(array))
    return pa.array(np.searchsorted(ends, rows, side="right"))

"""Rows and columns of a table, chosen while its batches pass."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magcli.data import column_paths
from magcli.data.condition import Condition
from magcli.data.json_columns import decoded, encoded, is_json_text
from magcli.data.source import Rows
from magcli.errors import DataError, first_line


def matching(rows: Rows, condition: Condition) -> Rows:
    """The rows for which a condition holds."""
    for batch in rows:
        yield batch.filter(condition.matching(batch))


def columns(rows: Rows, paths: Sequence[str], schema: pa.Schema) -> Rows:
    """The columns at these paths, named by ``schema``."""
    for batch in rows:
        yield pa.RecordBatch.from_arrays([column_paths.column_at(batch, path) for path in paths], schema=schema)


def columns_schema(schema: pa.Schema, paths: Sequence[str]) -> pa.Schema:
    """The schema of the columns at these paths, named by them.

    Raises:
        DataError: a path leads nowhere.
    """
    return pa.schema([column_paths.field_at(schema, path) for path in paths], schema.metadata)


def first(rows: Rows, count: int, *, to_end: bool = False) -> Rows:
    """The first rows; ``to_end``: the others are read too, as the history of a pipe is at its end."""
    left = count
    for batch in rows:
        part = batch.slice(0, left)
        left -= part.num_rows
        if part.num_rows:
            yield part
        if not left and not to_end:
            return


def exploded_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """The schema after a column of lists has become one of their elements.

    Raises:
        DataError: the column holds no lists.
    """
    field = schema.field(name)
    if is_json_text(field):
        return schema
    if not pa.types.is_list(field.type):
        raise DataError(f"column {name} holds no lists but {field.type}; name one with lists")
    return schema.set(schema.get_field_index(name), pa.field(name, field.type.value_type))


def explode(batch: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.RecordBatch:
    """One row for each element of the lists in a column; a row without elements has none."""
    column = batch.column(name)
    if is_json_text(batch.schema.field(name)):
        lists = [value if isinstance(value, list) else [] for value in decoded(column)]
        elements = encoded(itertools.chain.from_iterable(lists))
        row_of_each = ([row] * len(value) for row, value in enumerate(lists))
        rows = pa.array(itertools.chain.from_iterable(row_of_each), pa.int64())
    else:
        elements = column.flatten()
        rows = pc.list_parent_indices(column)
    # The other columns repeat the value of the row that an element is from.
    columns = [elements if other == name else batch.column(other).take(rows) for other in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def is_empty_list(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Whether a row has no element in a column of lists."""
    column = batch.column(name)
    if is_json_text(batch.schema.field(name)):
        is_empty = [not value or not isinstance(value, list) for value in decoded(column)]
        return pa.array(is_empty, pa.bool_())
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return pc.equal(lengths, 0)


def sorted_order(batches: Sequence[pa.RecordBatch], keys: Sequence[str], schema: pa.Schema) -> Sequence[int]:
    """The numbers of all rows, sorted by the values at some paths; ``-`` before one: from large to small; nulls last.

    Raises:
        DataError: a path leads nowhere, or to values without an order.
    """
    paths = [key.removeprefix("-") for key in keys]
    columns = {}
    sort_keys = []
    for number, (key, path) in enumerate(zip(keys, paths, strict=True)):
        # Columns are named by their number, as a path may be named twice.
        name = str(number)
        field = column_paths.field_at(schema, path)
        parts = [column_paths.column_at(batch, path) for batch in batches]
        column = pa.chunked_array(parts, field.type)
        columns[name] = _ranks(column, path) if is_json_text(field) else column
        sort_keys.append((name, "descending" if key.startswith("-") else "ascending"))
    try:
        indices = pc.sort_indices(pa.table(columns), sort_keys)
    except pa.ArrowException as error:
        raise DataError(f"rows cannot be sorted by {', '.join(paths)}: {first_line(error)}") from None
    numbers: list[int] = indices.to_pylist()
    return numbers


def _ranks(texts: pa.ChunkedArray, path: str) -> pa.Array:
    """The ranks of values that are stored as JSON text, whose texts have another order: "10" is before "9".

    Raises:
        DataError: they are neither all numbers nor all texts.
    """
    values = decoded(texts)
    filled = [value for value in values if value is not None]
    are_numbers = all(type(value) in (int, float) for value in filled)
    if not are_numbers and not all(isinstance(value, str) for value in filled):
        raise DataError(f"rows cannot be sorted by {path}: it has values of several types; sort by another column")
    ranks = {value: rank for rank, value in enumerate(sorted(set(filled)))}
    return pa.array([None if value is None else ranks[value] for value in values], pa.int64())


def in_order(batches: Sequence[pa.RecordBatch], numbers: Sequence[int], size: int) -> Rows:
    """The rows of these numbers, in this order, in batches of ``size``."""
    # The number of each batch's first row.
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    for begin in range(0, len(numbers), size):
        wanted = np.asarray(numbers[begin : begin + size])
        # The batch of each row.
        owners = np.searchsorted(starts, wanted, side="right") - 1
        parts, positions = [], []
        for owner in np.unique(owners):
            of_owner = np.flatnonzero(owners == owner)
            rows_in_batch = wanted[of_owner] - starts[owner]
            parts.append(batches[owner].take(pa.array(rows_in_batch)))
            positions.append(of_owner)
        # The rows are joined by batch; the inverse permutation of their positions brings them into order.
        joined = pa.concat_batches(parts)
        inverse = np.argsort(np.concatenate(positions))
        yield joined.take(pa.array(inverse))

"""The rows of rollouts as the page needs them: the columns that it knows, in one type each, in chunks of equal size.

Columns that an older or a foreign table lacks are null.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from magcli.data import table
from magcli.data.schema import EPISODE, REWARD_PARTS, VERSION_SPAN
from magcli.data.source import Rows
from magcli.data.types import split_rows

CHUNK_BYTES = 1 << 21
"""Size of a chunk before compression; the page decodes one in some 10 ms."""
PROBLEM_TEXTS = ("id", "prompt", "answer")
TEXTS = ("completion", "extracted", "detail", "messages")
"""Texts of a rollout; ``messages`` is JSON."""
CHOICES = ("reason", "dropped", "finish", "correct", "languages", "language", "kind")
"""Columns with few values."""
NUMBERS = ("step", "group", "sample", "reward", "advantage", "num_tokens", "temperature")
PART = "reward_"
"""Columns of numbers that begin like this are parts of the reward."""
TOKEN_VALUES = ("logprobs", "ratios")
"""Columns with a number for each token. Runs store no importance ratios; a table that has them is shown with them."""
LISTS = {
    "tokens": pa.list_(pa.int32()),
    **dict.fromkeys(TOKEN_VALUES, pa.list_(pa.float32())),
    "versions": pa.list_(VERSION_SPAN),
    "given": EPISODE.field("given").type,
}


def chunks(tables: Sequence[Path], every: int) -> Iterator[pa.RecordBatch]:
    """The rows of the tables in chunks of about ``CHUNK_BYTES``; of every ``every``-th group only.

    Raises:
        DataError: a table is truncated or damaged.
    """
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in _known(tables, every):
        for part in split_rows(batch, CHUNK_BYTES):
            pending.append(part)
            size += part.nbytes
            if size >= CHUNK_BYTES:
                yield _joined(pending)
                pending, size = [], 0
    if pending:
        yield _joined(pending)


def _known(tables: Iterable[Path], every: int) -> Rows:
    groups: dict[tuple[str | None, ...], int] = {}
    for path in tables:
        for batch in table.read(str(path)).rows:
            rows = _with_groups(known_columns(batch), groups)
            if every > 1:
                # By numpy, as Arrow has no remainders.
                groups_of_rows = rows.column("group").to_numpy(zero_copy_only=False)
                rows = rows.filter(pa.array(groups_of_rows % every == 0))
            yield rows


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches as one. Their parts of the reward may differ."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    # Columns that some batches lack are null there.
    combined = pa.concat_tables(tables, promote_options="default").combine_chunks()
    (joined,) = combined.to_batches()
    return joined


def known_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of the page, in its types; a value of another type that cannot be converted is null."""
    # ``reward_parts`` is JSON, though its name begins like those of parts.
    parts = [name for name in batch.schema.names if name.startswith(PART) and name != REWARD_PARTS]
    columns: dict[str, pa.Array] = {}
    for name in (*PROBLEM_TEXTS, *TEXTS, *CHOICES, REWARD_PARTS):
        columns[name] = as_text(_column(batch, name))
    for name in (*NUMBERS, *parts):
        columns[name] = _cast(_column(batch, name), pa.float64())
    for name, kind in LISTS.items():
        columns[name] = _cast(_column(batch, name), kind)
    return pa.RecordBatch.from_pydict(columns)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.nulls(len(column), kind)


def as_text(column: pa.Array) -> pa.Array:
    """A column as text: text as it is, other values as JSON."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return column.cast(pa.string())
    texts = [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _with_groups(batch: pa.RecordBatch, groups: dict[tuple[str | None, ...], int]) -> pa.RecordBatch:
    """The rows, each with a group: those of one problem at one update are one, if the table does not say."""
    if not batch.column("group").null_count:
        return batch
    columns = [batch.column(name).to_pylist() for name in ("step", *PROBLEM_TEXTS)]
    # The number that the group of these values has, or the next.
    numbers = [groups.setdefault(values, len(groups)) for values in zip(*columns, strict=True)]
    index = batch.schema.get_field_index("group")
    return batch.set_column(index, "group", pa.array(numbers, pa.float64()))

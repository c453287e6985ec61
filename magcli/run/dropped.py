"""The table of dropped rows, ``--dropped``: whole rows in their own columns, with the reason; an input like any other.

Columns ``drop_reason`` and ``drop_detail`` follow those of the input. Rows are written while the stage runs, so that
memory stays bounded.
"""

import contextlib
import json
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

import pyarrow as pa

from magcli.data import manifest, seal, table
from magcli.data.schema import DROPPED, extend_schema
from magcli.data.source import Sink
from magcli.data.values import from_rows
from magcli.errors import DataError

ROWS_PER_BATCH = 128
MAX_DETAIL = 4000
"""Maximum number of characters of a detail."""
Row = Mapping[str, Any]
EMPTY: Row = MappingProxyType({})


def schema_of(input_schema: pa.Schema, learned: pa.Schema) -> pa.Schema:
    """The columns of dropped rows: those of the input, what the stage learned about them, and the reason."""
    return extend_schema(extend_schema(input_schema, learned), DROPPED)


class DroppedTable:
    """The table of dropped rows while it is written: a context, within which ``finish`` makes it appear.

    If the block ends by an error before that, it is discarded. ``learned`` are the columns of what the stage learned
    about a row, in place of the row's own values.
    """

    def __init__(self, name: str, schema: pa.Schema, stage: str, learned: Collection[str] = ()) -> None:
        self._name, self.schema = name, schema
        self._learned = frozenset(learned)
        self.num_rows = 0
        self._context = table.write(name, schema, seal.pack({"stage": stage}))
        self._sink: Sink | None = None
        self._waiting: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "DroppedTable":
        try:
            self._sink = self._context.__enter__()
        except DataError as error:
            raise DataError(f"--dropped {self._name}: {error}") from None
        return self

    @property
    def num_waiting(self) -> int:
        """The number of rows in memory, to be written with the next ones."""
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether it is not finished yet."""
        return self._sink is not None

    def add(self, id: str, reason: str, row: Row, detail: Row = EMPTY) -> None:
        """Append a row, with what else is known about it; a value that has no column is part of ``drop_detail``.

        ``id`` is that of a row without one, if it is not empty.
        """
        values, others = _split(row, self.schema.names)
        # A column of the row may have the name of a detail.
        learned, others_known = _split(detail, self._learned)
        values |= learned
        others |= others_known
        # A dropped table is an input like any other, whose rows need ids.
        if id and values.get("id") is None and "id" in self.schema.names:
            values["id"] = id
        with self._lock:
            self._waiting.append({**values, "drop_reason": reason, "drop_detail": _detail(others)})
            self.num_rows += 1
            if len(self._waiting) == ROWS_PER_BATCH:
                self._flush()

    def append(self, batch: pa.RecordBatch) -> None:
        """Append rows of another table of dropped rows with the same columns."""
        assert self._sink is not None
        with self._lock:
            self._flush()
            self.num_rows += batch.num_rows
            self._sink.write(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))

    def _flush(self) -> None:
        assert self._sink is not None
        if self._waiting:
            self._sink.write(_batch(self._waiting, self.schema))
            self._waiting = []

    def finish(self, history: manifest.Chain) -> None:
        """Write the rest; the table appears."""
        assert self._sink is not None
        self._flush()
        self._sink.finish(history)
        self._sink = None  # ``__exit__`` leaves a finished table alone
        self._context.__exit__(None, None, None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._sink is not None and error is not None:
            with contextlib.suppress(type(error)):
                self._context.__exit__(type(error), error, error.__traceback__)


def _split(row: Row, columns: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a row that have one of these columns, and the others."""
    own_names = set(DROPPED.names)  # which the table of dropped rows adds
    names = set(columns)
    values, others = {}, {}
    for name, value in row.items():
        if name in own_names:
            continue
        if name in names:
            values[name] = value
        else:
            others[name] = value
    return values, others


def _detail(others: Row) -> str | None:
    """What is known about a row besides its columns, as text; a lone error or detail stands for itself."""
    details = {name: value for name, value in others.items() if value not in (None, "")}
    if not details:
        return None
    value: Any = details
    if details.keys() in ({"error"}, {"detail"}):
        (value,) = details.values()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > MAX_DETAIL:
        text = text[:MAX_DETAIL] + "..."
    return text


def _batch(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    try:
        return from_rows(rows, schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Row by row is slow, so it is tried only where the batch as a whole does not fit.
        return from_rows([_fitting(row, schema) for row in rows], schema)


def _fitting(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The row with values that a stage changed beyond the type of their column as text, or in the detail."""
    fitting, others = {}, {}
    for name, value in row.items():
        field = schema.field(name)
        if _fits(value, field):
            fitting[name] = value
        elif pa.types.is_string(field.type):
            fitting[name] = json.dumps(value, ensure_ascii=False, default=str)
        else:
            others[name] = value
    if others:
        fitting["drop_detail"] = _detail({"detail": row.get("drop_detail"), **others})
    return fitting


def _fits(value: Any, field: pa.Field) -> bool:
    try:
        from_rows([{field.name: value}], pa.schema([field]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True

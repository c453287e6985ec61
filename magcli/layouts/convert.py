"""Rows in the columns of magcli, converted from a layout.

The columns that a place uses up are left out, so that a converted table is not converted twice. Several samples of a
row become rows of their own. A row that cannot be read keeps what it has, with the reason in column ``UNREAD``, for
which validation drops it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from magcli.data.json_columns import is_json_text, json_field
from magcli.data.source import Rows
from magcli.data.values import from_rows, to_rows
from magcli.layouts import readers, responses
from magcli.layouts.kinds import KIND, with_kinds
from magcli.layouts.readers import as_text
from magcli.layouts.recognise import Reading, readings
from magcli.layouts.texts import with_texts
from magcli.layouts.types import COLUMNS, Unreadable, column_of, value_at
from magcli.run.layout import Converted
from magcli.run.validation import UNREAD

KEPT = frozenset(("entry_point", "starter_code", "metadata", "ability", "examples", "error"))
"""Columns that are kept although a place reads them, as they contain more than is read."""
SAID = ("prompt", "answer", "tests", "solutions", "completion", "thoughts", "verdict", "messages")
"""Roles whose columns a message names."""
OF_SAMPLES = (
    "completion", "thoughts", "verdict", "trainer_reward", "finish", "num_tokens", "logprobs", "trainer_logprobs",
)  # fmt: skip
"""Roles that may have one value for each sample of a row."""
SAMPLE = pa.field("sample", pa.int32())
NO_SAMPLES = "missing-completion\tthe list of completions is empty"

Row = dict[str, Any]


@dataclass(frozen=True)
class Conversion:
    """How the rows of a table are converted: the readings, and the columns before and after."""

    readings: Sequence[Reading]
    input_schema: pa.Schema
    schema: pa.Schema

    @cached_property
    def unchanged(self) -> list[pa.Field]:
        """The columns that are not converted."""
        return [
            field
            for field in self.input_schema
            if field.name in self.schema.names
            # A column of JSON has the type of text, and differs in its metadata.
            and self.schema.field(field.name).equals(field, check_metadata=True)
        ]

    @cached_property
    def texts(self) -> list[str]:
        """The names of the columns of text."""
        return [field.name for field in self.schema if pa.types.is_string(field.type) and not is_json_text(field)]

    @property
    def has_samples(self) -> bool:
        """Whether a row may become several."""
        return SAMPLE.name in self.schema.names and SAMPLE.name not in self.input_schema.names

    def rows(self, batches: Rows) -> Rows:
        """The converted rows."""
        views = [Views(reading) for reading in self.readings if reading.layout.views]
        for batch in batches:
            converted: list[Row] = []
            for row in to_rows(batch):
                repeated = _repetition(views, row)
                if repeated:
                    converted.append(self._unread(row, repeated))
                else:
                    converted += self._converted(row)
            yield from_rows(converted, self.schema)

    def _unread(self, row: Row, reason: str) -> Row:
        """A row that is dropped for a reason, with what it has: as JSON where its column is of text."""
        kept = {name: as_text(row[name]) for name in self.texts if name in row}
        kept |= {field.name: row[field.name] for field in self.unchanged}
        return {**kept, UNREAD: reason}

    def _misfit(self, row: Row) -> str:
        """Why a row that was read does not fit its columns, and the detail; empty if it does."""
        for name in self.texts:
            value = row.get(name)
            if value is not None and not isinstance(value, str):
                return f"not-text\tthe {name} is {as_text(value)}; a text is expected"
        return ""

    def _converted(self, row: Row) -> Iterator[Row]:
        try:
            values = self._values(row)
        except Unreadable as error:
            yield self._unread(row, f"{error.reason}\t{error.detail}")
            return
        kept = self._rest(row)
        if "tests" in values and not row.get("kind"):
            # Null for a row without tests, which may have an answer.
            kept["kind"] = "code" if values["tests"] else None
        by_column = {COLUMNS[role].name: value for role, value in values.items()}
        for sample in _samples(by_column, kept):
            misfit = self._misfit(sample)
            yield self._unread(row, misfit) if misfit else sample

    def _values(self, row: Row) -> Row:
        """The values of all roles.

        Raises:
            Unreadable: the row is ambiguous, or lacks what its layout has.
        """
        values: Row = {}
        for reading in self.readings:
            arguments = [value_at(row, path) if path else None for path in reading.paths]
            read = reading.place.read
            value: Any = arguments[0] if read is None else read(*arguments)
            # A place of several roles gives a mapping of them.
            by_role = value if len(reading.roles) > 1 else {reading.roles[0]: value}
            for role in reading.wanted:
                values[role] = by_role[role]
        return values

    def _rest(self, row: Row) -> Row:
        """The row without what its places use up: objects lose the fields that are read."""
        rest = dict(row)
        for column, field in used_up(self.readings, self.input_schema):
            if field and isinstance(rest.get(column), Mapping):
                rest[column] = {name: value for name, value in rest[column].items() if name != field}
        return rest


class Views:
    """The rows of a table that show one completion in several views, of which the first counts.

    The column ``views`` of a layout names the view, such as the filter by which a harness extracts the answer. Rows
    that are equal in everything that the layout reads, and differ in it, are of one completion.
    """

    def __init__(self, reading: Reading) -> None:
        self.column = reading.layout.views
        self.read = reading.layout.columns_read
        self.first: dict[bytes, str] = {}

    def repeats(self, row: Row) -> str:
        """Why a row is dropped: its completion was there in another view; empty if it was not."""
        view = str(row.get(self.column))
        values = {name: row.get(name) for name in self.read}
        text = json.dumps(values, sort_keys=True, default=str)
        # A digest, because the rows of a whole table are remembered.
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        first_view = self.first.setdefault(key, view)
        if view == first_view:
            return ""
        again = f"it is the completion of {self.column} {first_view} again"
        return f"repeated-completion\t{again}, for {self.column} {view}"


def _repetition(views: Sequence[Views], row: Row) -> str:
    """Why a row is dropped as another view of an earlier one; empty if it is none."""
    for view in views:
        reason = view.repeats(row)
        if reason:
            return reason
    return ""


def converted(schema: pa.Schema, wanted: Sequence[str], *, natively: bool = False) -> Converted | None:
    """How a table of these columns becomes one with the roles that a stage reads; None if it is one already.

    Raises:
        DataError: a role could be read from several places.
    """
    layout = _converted(schema, wanted, natively=natively)
    return with_texts(layout, schema) if "completion" in wanted else layout


def _converted(schema: pa.Schema, wanted: Sequence[str], *, natively: bool) -> Converted | None:
    recognised = readings(schema, wanted, natively=natively)
    if not recognised:
        return with_kinds(schema) if "answer" in wanted else None
    made = conversion(recognised, schema)
    # What is named like its column needs no mention.
    sources = {_said(reading): reading.main for reading in recognised if _said(reading) != reading.main}
    names = ", ".join(dict.fromkeys(reading.layout.name for reading in recognised))
    layout = Converted(made.schema, made.rows, sources, names, made.has_samples)
    # Where the tests are converted, the kind of each row is set with them.
    has_tests = any("tests" in reading.wanted for reading in recognised)
    if has_tests or "answer" not in wanted:
        return layout
    kinds = with_kinds(made.schema)
    if kinds is None:
        return layout
    return replace(layout, schema=kinds.schema, rows=lambda batches: kinds.rows(made.rows(batches)))


def selected(layout: Converted, columns: Mapping[str, str]) -> Converted:
    """A converted table with only these columns, as name -> name in it."""
    chosen = {**columns, UNREAD: UNREAD}
    fields = [layout.schema.field(source).with_name(name) for name, source in chosen.items()]
    schema = pa.schema(fields, layout.schema.metadata)

    def rows(batches: Rows) -> Rows:
        for batch in layout.rows(batches):
            arrays = [batch.column(source) for source in chosen.values()]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return replace(layout, schema=schema, rows=rows)


def _said(reading: Reading) -> str:
    """The columns that a reading fills, for messages."""
    names = [COLUMNS[role].name for role in reading.wanted if role in SAID]
    return " or ".join(names) or reading.main


def conversion(recognised: Sequence[Reading], schema: pa.Schema) -> Conversion:
    """How a table of these columns is converted."""
    fields = {field.name: field for field in schema}
    for column, part in used_up(recognised, schema):
        if column in fields:
            remaining = _without(fields.pop(column), part)
            if remaining is not None:
                fields[column] = remaining
    roles = [role for reading in recognised for role in reading.wanted]
    for role in roles:
        field = COLUMNS[role]
        # Messages of other tools may have any fields, so they are JSON.
        fields[field.name] = json_field(field.name) if role == "messages" else field
    if "completion" in roles and any(_is_listed(reading, schema) for reading in recognised):
        fields.setdefault(SAMPLE.name, SAMPLE)
    if "tests" in roles:
        fields.setdefault(KIND.name, KIND)
    fields[UNREAD] = pa.field(UNREAD, pa.string())
    return Conversion(recognised, schema, pa.schema(list(fields.values()), schema.metadata))


def _is_listed(reading: Reading, schema: pa.Schema) -> bool:
    """Whether the completions of a row may be several."""
    if "completion" not in reading.roles:
        return False
    if reading.place.read is responses.of_traces:
        return True
    if reading.place.read in (responses.said, responses.batch_response):
        # By the type of the column, before any row is read: the schema must tell.
        return any(responses.may_be_several(schema.field(name)) for name in reading.columns)
    return reading.place.read in (readers.samples_of, readers.harness_samples)


def used_up(readings: Sequence[Reading], schema: pa.Schema) -> list[tuple[str, str]]:
    """The columns that places use up; with the name of the field if that is all that they use of an object."""
    used = []
    for reading in readings:
        if not reading.place.uses_up:
            continue
        for path in filter(None, reading.paths):
            column = column_of(path)
            if column in KEPT:
                continue
            field = ""
            if pa.types.is_struct(schema.field(column).type):
                _, _, inner = path.partition(".")
                field = column_of(inner)
            used.append((column, field))
    return used


def _without(field: pa.Field, part: str) -> pa.Field | None:
    """A column of objects without a field; None if nothing remains."""
    if not part:
        return None
    remaining = [subfield for subfield in field.type if subfield.name != part]
    return field.with_type(pa.struct(remaining)) if remaining else None


def _samples(values: Row, kept: Row) -> Iterator[Row]:
    """One row for each sample, or the only one."""
    columns = [COLUMNS[role].name for role in OF_SAMPLES]
    completions = values.get("completion")
    if not isinstance(completions, list):
        single = {name: _single(name, value) for name, value in values.items()}
        # A number that the row has itself wins over 0.
        yield {SAMPLE.name: 0, **kept, **single}
        return
    # It stays a row, so that it is counted among those that are dropped.
    if not completions:
        yield {**kept, **values, **dict.fromkeys(columns), UNREAD: NO_SAMPLES}
    listed = [name for name in columns if name in values]
    count = len(completions)
    for number in range(count):
        of_sample = {name: _single(name, _nth(values[name], number, count)) for name in listed}
        yield {**kept, SAMPLE.name: number, **values, **of_sample}


def _nth(values: Any, number: int, count: int) -> Any:
    """The value of one sample; if there is not one for each, all of them, from which nothing can be told."""
    has_one_each = isinstance(values, list) and len(values) == count
    return values[number] if has_one_each else values


def _single(column: str, value: Any) -> Any:
    """A verdict as text, and a message of a sample as its text."""
    if column == "correct":
        return None if value is None else str(value)
    if column == "completion" and isinstance(value, Mapping):
        return value.get("content")
    return value

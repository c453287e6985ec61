"""Which layouts a table has, and from where each role is read. What is ambiguous is refused with the choices."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from magcli.errors import DataError
from magcli.layouts.table import LAYOUTS
from magcli.layouts.types import COLUMNS, Layout, Place, column_of, has_path, options_present

MAIN_ROLES = ("prompt", "answer", "tests", "completion")
"""Roles whose own column and another place contradict each other."""


@dataclass(frozen=True)
class Reading:
    """Where the roles of one place are read from: the layout, the roles, and the paths that the table has.

    ``wanted`` are those of the roles that the stage reads.
    """

    layout: Layout
    roles: tuple[str, ...]
    wanted: tuple[str, ...]
    place: Place
    paths: tuple[str | None, ...]

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are read."""
        return [column_of(path) for path in self.paths if path]

    @property
    def main(self) -> str:
        """What is read, for messages: the first path."""
        present = [path for path in self.paths if path]
        if not present:
            return "?"
        return present[0].partition(":")[0].replace("[]", "")


def matching(schema: pa.Schema) -> list[Layout]:
    """The layouts by which a table is recognised, without those that another one replaces."""
    present = [layout for layout in LAYOUTS if _matches(layout, schema)]
    return [layout for layout in present if not any(_replaces(other, layout, schema) for other in present)]


def _matches(layout: Layout, schema: pa.Schema) -> bool:
    if any(name in schema.names for name in layout.without):
        return False
    return all(has_path(schema, path) for path in layout.columns)


def _replaces(layout: Layout, other: Layout, schema: pa.Schema) -> bool:
    """Whether a layout is recognised by all columns of another one, and more."""
    return _recognised_by(layout, schema) > _recognised_by(other, schema)


def _recognised_by(layout: Layout, schema: pa.Schema) -> frozenset[str]:
    """The columns of a table by which it has a layout."""
    present = (options_present(schema, path) for path in layout.columns)
    return frozenset(column_of(option) for options in present for option in options)


def readings(schema: pa.Schema, wanted: Collection[str], *, natively: bool = False) -> list[Reading]:
    """Where a table has the roles that a stage reads, as far as its layouts say.

    Args:
        schema: The columns of the table.
        wanted: The roles.
        natively: Whether the stage itself reads the layouts that are ``native``, which are then left out.

    Raises:
        DataError: a role could be read from several places; the message names them.
    """
    chosen: list[Reading] = []
    for layout in matching(schema):
        if layout.native and natively:
            continue
        for reading in _readings_of(layout, schema, wanted):
            if not any(reading.roles == other.roles and reading.main == other.main for other in chosen):
                _check_conflict(reading, chosen, schema)
                chosen.append(reading)
    return chosen


def _readings_of(layout: Layout, schema: pa.Schema, wanted: Collection[str]) -> Iterator[Reading]:
    """The places of a layout that a stage reads; a conversation is read in place of its prompt and completion."""
    is_conversation = "messages" in wanted and "messages" in layout.places
    sought = {"messages"} if is_conversation else set(wanted)
    for key, place in layout.places.items():
        roles = tuple(key.split("|"))
        if sought.isdisjoint(roles):
            continue
        paths = tuple(_present(schema, path) for path in place.paths)
        if paths[0] is not None:
            yield Reading(layout, roles, tuple(role for role in roles if role in wanted), place, paths)


def _present(schema: pa.Schema, path: str) -> str | None:
    """The one alternative of a path that a table has.

    Raises:
        DataError: it has several.
    """
    options = options_present(schema, path)
    if len(options) > 1:
        raise DataError(_ambiguous("the values", options))
    return options[0] if options else None


def _check_conflict(reading: Reading, chosen: Sequence[Reading], schema: pa.Schema) -> None:
    """Refuse a role that is read from elsewhere already, or that has a column of its own."""
    for role in reading.wanted:
        for other in chosen:
            if role in other.wanted and other.main != reading.main:
                raise DataError(_ambiguous(f"column {role}", [_described(other), _described(reading)]))
        column = COLUMNS[role].name
        is_of_layout = column in reading.columns or column in reading.layout.names
        if role in MAIN_ROLES and column in schema.names and not is_of_layout:
            raise DataError(_ambiguous(f"column {role}", [column, _described(reading)]))


def _described(reading: Reading) -> str:
    return f"{reading.main} ({reading.layout.name})"


def _ambiguous(what: str, choices: Sequence[str]) -> str:
    """A message that names the choices and how to choose."""
    return f"{what} could be {' or '.join(choices)}; keep one of them: magcli convert INPUT --columns A,B -o OUTPUT"

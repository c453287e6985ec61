"""Which layouts a table has, and from where each role is read. What is ambiguous is refused with the choices."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from magcli.errors import DataError
from magcli.layouts.table import LAYOUTS
from magcli.layouts.types import COLUMNS, Layout, Place, column_of, options_present

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
        # The first path is one that the table has; only the others may be missing.
        return str(self.paths[0]).partition(":")[0].replace("[]", "")


def matching(schema: pa.Schema) -> list[Layout]:
    """The layouts by which a table is recognised, without those that another one replaces."""
    columns_by_layout = [(layout, _recognised_by(layout, schema)) for layout in LAYOUTS if _matches(layout, schema)]
    kept = []
    for layout, columns in columns_by_layout:
        # Replaced by one that is recognised by all of these columns, and more.
        is_replaced = any(columns < others for _, others in columns_by_layout)
        if not is_replaced:
            kept.append(layout)
    return kept


def _matches(layout: Layout, schema: pa.Schema) -> bool:
    if any(name in schema.names for name in layout.without):
        return False
    return all(options_present(schema, path) for path in layout.columns)


def _recognised_by(layout: Layout, schema: pa.Schema) -> frozenset[str]:
    """The columns of a table by which it has a layout."""
    return frozenset(column_of(option) for path in layout.columns for option in options_present(schema, path))


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
            # Layouts of one family read some columns alike.
            is_repeated = any(reading.roles == other.roles and reading.main == other.main for other in chosen)
            if not is_repeated:
                _check_conflict(reading, chosen, schema)
                chosen.append(reading)
    return chosen


def _readings_of(layout: Layout, schema: pa.Schema, wanted: Collection[str]) -> Iterator[Reading]:
    """The places of a layout that a stage reads; a conversation is read in place of its prompt and completion."""
    # A stage that takes both would otherwise get the same text twice.
    is_conversation = "messages" in wanted and "messages" in layout.places
    sought = {"messages"} if is_conversation else set(wanted)
    for key, place in layout.places.items():
        roles = tuple(key.split("|"))  # one place may fill several
        if sought.isdisjoint(roles):
            continue
        paths = tuple(_present(schema, path) for path in place.paths)
        # Only the first path is required; the others may be missing.
        if paths[0] is not None:
            wanted_roles = tuple(role for role in roles if role in wanted)
            yield Reading(layout, roles, wanted_roles, place, paths)


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
        if role not in MAIN_ROLES:
            continue
        column = COLUMNS[role].name
        # A column that the layout itself has is no second source.
        is_of_layout = column in reading.columns or column in reading.layout.names
        if column in schema.names and not is_of_layout:
            raise DataError(_ambiguous(f"column {role}", [column, _described(reading)]))


def _described(reading: Reading) -> str:
    return f"{reading.main} ({reading.layout.name})"


def _ambiguous(what: str, choices: Sequence[str]) -> str:
    """A message that names the choices and how to choose."""
    return f"{what} could be {' or '.join(choices)}; keep one of them: magcli convert INPUT --columns A,B -o OUTPUT"

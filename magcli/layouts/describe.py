"""What layout a table has and why, and the table of all layouts for the documentation."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from magcli.errors import DataError
from magcli.layouts import names
from magcli.layouts.recognise import matching, readings
from magcli.layouts.table import GROUPS
from magcli.layouts.types import COLUMNS, Layout, options_present

SHOWN = ("prompt", "answer", "tests", "completion", "messages")
"""Roles that are listed as missing if a table lacks them."""
OWN: Mapping[str, Sequence[str]] = {
    "prompt": tuple(dict.fromkeys((*names.PROBLEM["prompt"], *names.CODE["prompt"]))),
    "answer": names.PROBLEM["answer"],
    "tests": names.TESTS[1:],
    "solutions": names.SOLUTIONS[1:],
    "completion": names.COMPLETION["completion"],
    "thoughts": names.TRACE_THOUGHTS,
    "verdict": names.TRACE_VERDICTS,
    "messages": names.CONVERSATIONS,
}
"""Names of single columns that are read as a role."""


def description(schema: pa.Schema) -> list[str]:
    """What is recognised in a table and why, a line each: the layouts, and where each role lies."""
    lines = []
    for layout in matching(schema):
        columns = ", ".join(option for path in layout.columns for option in options_present(schema, path))
        lines.append(f"layout {layout.name} ({layout.source}), recognised by: {columns}")
    locations: dict[str, str] = {}
    for role in COLUMNS:
        try:
            recognised = readings(schema, (role,))
        except DataError as error:
            locations[role] = f"ambiguous: {error}"
            continue
        own = _own_column(schema, role)
        if recognised:
            # Others read the role from the same column, or it would be ambiguous.
            first = recognised[0]
            locations[role] = f"{first.main} (layout {first.layout.name})"
        elif own:
            locations[role] = own
    lacking = what_is_missing(schema)
    if lacking:
        lines.append(lacking)
    if not lines:
        lines.append("no layout of another tool: columns are read by their names")
    lines += [f"{role}: {location}" for role, location in locations.items()]
    for role in SHOWN:
        if role not in locations:
            lines.append(f"{role}: none{could_be(schema.names, role)}")
    return lines


def what_is_missing(schema: pa.Schema) -> str:
    """What a table of its layout lacks, and where it is; empty if nothing is known."""
    return next((f"{layout.name} have no {layout.missing}" for layout in matching(schema) if layout.missing), "")


def _own_column(schema: pa.Schema, role: str) -> str:
    """The column of a role by its own or another name; empty without one."""
    # magcli's own name wins over those of other tools.
    own: str = COLUMNS[role].name
    if own in schema.names:
        return own
    others = [name for name in OWN.get(role, ()) if name in schema.names]
    # All columns of tests or solutions are read together; of other roles there may be only one.
    if role in ("tests", "solutions"):
        return ", ".join(others)
    if len(others) > 1:
        return f"ambiguous: could be {' or '.join(others)}; rename one: magcli convert --rename {own}=COLUMN"
    return others[0] if others else ""


def could_be(columns: Sequence[str], role: str) -> str:
    """The columns that could be meant by a role, for messages; empty if there are none."""
    parts = names.LIKELY.get(role, ())
    likely = [name for name in columns if any(part in name.lower() for part in parts)]
    return f", which could be {' or '.join(likely)}" if likely else ""


# ---- documentation ----


def markdown() -> str:
    """All layouts as tables in Markdown, one for each group."""
    sections = [f"**{group}**\n\n{_table(layouts)}" for group, layouts in GROUPS.items()]
    return "\n\n".join(sections) + "\n"


def _table(layouts: Sequence[Layout]) -> str:
    head = "| layout | recognised by | where what lies | source |\n| --- | --- | --- | --- |"
    return "\n".join([head, *map(_line, layouts)])


def _line(layout: Layout) -> str:
    recognised = _paths(layout.columns)
    if layout.without:
        recognised += f"; without {', '.join(f'`{name}`' for name in layout.without)}"
    locations = []
    for key, place in layout.places.items():
        roles = key.replace("|", " or ")
        locations.append(f"{roles}: {_paths(place.paths)}")
    return f"| {layout.name} | {recognised} | {'; '.join(locations)} | {layout.source} |"


def _paths(paths: Sequence[str]) -> str:
    return ", ".join(_path(path) for path in paths)


def _path(path: str) -> str:
    """A path in Markdown: alternatives joined by a word, as a bar ends a cell."""
    return " or ".join(map(_option, path.split("|")))


def _option(path: str) -> str:
    name, _, kind = path.partition(":")
    return f"`{name}`" + (f" ({kind})" if kind == "int" else "")


START = "<!-- layouts: made from magcli/layouts/table.py by `make layouts` -->"
END = "<!-- end of layouts -->"
"""The marks around the tables in a page."""


def with_tables(page: str) -> str:
    """A page with the tables of all layouts between their marks."""
    # What is between the marks is replaced.
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(with_tables(Path(name).read_text(encoding="utf-8")), encoding="utf-8")

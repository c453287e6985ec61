"""What a layout declares, and paths into the columns of a table.

A path names a value: ``answer``, ``reward_model.ground_truth`` (a field of an object), ``prompt[].role`` (of the
objects of a list). ``question|problem`` is whichever of them the table has. A type may follow for recognition:
``answer:int``. Columns that store JSON, whose values may be of any type, may be objects with any field.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from magcli.data.json_columns import is_json_text
from magcli.data.schema import SOLUTION, TEST

_ROLES = {
    **dict.fromkeys(("prompt", "system", "answer"), pa.string()),
    "choices": pa.list_(pa.string()),
    "tests": pa.list_(TEST),
    "solutions": pa.list_(SOLUTION),
    **dict.fromkeys(("completion", "thoughts", "verdict", "messages"), pa.string()),
    **dict.fromkeys(("time_limit", "memory_limit", "trainer_reward"), pa.float64()),
    "finish": pa.string(),
    "num_tokens": pa.int64(),
    **dict.fromkeys(("logprobs", "trainer_logprobs"), pa.list_(pa.float64())),
}
"""What a stage reads, with the type that a reader's values have. The log-probs are the sampler's and the trainer's, of
each token of the completion; ``messages`` are JSON."""
_RENAMED = {"thoughts": "reasoning_content", "verdict": "correct"}
COLUMNS: Mapping[str, pa.Field] = {role: pa.field(_RENAMED.get(role, role), kind) for role, kind in _ROLES.items()}
"""The column of each role."""

TYPES: Mapping[str, Callable[[pa.DataType], bool]] = {
    "int": pa.types.is_integer,
    # A column of nulls may be of texts that are all missing.
    "string": lambda kind: bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)),
    "object": pa.types.is_struct,
}
"""The types that a path may ask for."""


MAX_LITERAL = 1 << 22
"""Maximum number of characters of a Python literal; parsing one takes about a hundred times its size."""


class Unreadable(Exception):
    """A row that cannot be read as its layout says; ``reason`` is why it is dropped, ``detail`` what is wrong."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def json_or_none(text: str) -> Any:
    """The value of a JSON text; None for any other text, and for one that is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Place:
    """Where the values of one or more roles lie.

    ``paths`` are passed to ``read`` as values, None for one that a table or a row lacks. Without ``read`` the only
    value is taken as it is. For several roles ``read`` returns a mapping. With ``uses_up``, columns that are read
    completely are left out of the output.
    """

    paths: tuple[str, ...]
    read: Callable[..., Any] | None = None
    uses_up: bool = True


@dataclass(frozen=True)
class Layout:
    """How a data set or tool names and nests its columns.

    ``columns`` are the paths by which it is recognised; a table that has one of ``without`` is not of this layout.
    ``places`` say where each role lies (``answer|tests`` is both). ``source`` is where the layout is documented.
    ``native``: the code stages read its tests and solutions as they are. ``views``: a column whose values tell rows
    apart that show the same completion. ``missing`` is what a stage may need and the layout lacks, and where it is.
    """

    name: str
    source: str
    columns: tuple[str, ...]
    places: Mapping[str, Place]
    without: tuple[str, ...] = ()
    native: bool = False
    views: str = ""
    missing: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The columns, without what lies in them, by which it is recognised."""
        return _columns_of(self.columns)

    @property
    def columns_read(self) -> frozenset[str]:
        """The columns that it reads, and those by which it is recognised."""
        paths = [path for place in self.places.values() for path in place.paths]
        return self.names | _columns_of(paths)


def _columns_of(paths: Iterable[str]) -> frozenset[str]:
    """The columns that paths, with all their alternatives, begin in."""
    return frozenset(column_of(option) for path in paths for option in path.split("|"))


def column_of(path: str) -> str:
    """The name of the column that a path begins in."""
    return path.partition(":")[0].partition(".")[0].removesuffix("[]")


def options_present(schema: pa.Schema, path: str) -> list[str]:
    """The alternatives of a path that a table has."""
    return [option for option in path.split("|") if _has(schema, option)]


def _has(schema: pa.Schema, path: str) -> bool:
    steps, _, kind = path.partition(":")
    column, *inner = steps.split(".")
    name = column.removesuffix("[]")
    if name not in schema.names:
        return False
    field = schema.field(name)
    if is_json_text(field):
        # JSON may have any fields; of the types that a path may ask for, it is only taken for an object.
        return not kind or (kind == "object" and "[]" not in steps)
    inner_type = _type_at(field.type, column, inner)
    if inner_type is None:
        return False
    return not kind or TYPES[kind](inner_type)


def _type_at(kind: pa.DataType, step: str, inner: Sequence[str]) -> pa.DataType | None:
    """The type at the end of a path; None if there is nothing."""
    if step.endswith("[]"):
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return None
        kind = kind.value_type
    if not inner:
        return kind
    next_step, *rest = inner
    name = next_step.removesuffix("[]")
    if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
        return None
    return _type_at(kind.field(name).type, next_step, rest)


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The value of a row at a path; of a list, the whole list."""
    value: Any = row
    for step in path.partition(":")[0].split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(step.removesuffix("[]"))
        if step.endswith("[]"):
            return value
    return value

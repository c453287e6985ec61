"""Tables that a library makes from a name: ``reasoning-gym:NAME?size=100&seed=0`` and ``verifiers:NAME?size=100``.

What follows the question mark are options: numbers, truth values and lists as JSON, other values as text.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa

from magcli.data import seal
from magcli.data.json_columns import json_field
from magcli.data.source import Source
from magcli.data.values import from_rows
from magcli.errors import DataError, EnvironmentFault, UsageError, first_line, usage

LIBRARIES = ("reasoning-gym", "verifiers")
"""The libraries, by the names of their packages."""
ROWS_PER_BATCH = 64
"""Rows of a batch; some generators take a second for each."""


def problems_with(column: str) -> pa.Schema:
    """The columns of problems, with one of JSON for what the library's scorer needs."""
    texts = [(name, pa.string()) for name in ("id", "prompt", "answer", "source")]
    return pa.schema([*texts, json_field(column)])


@dataclass(frozen=True)
class Request:
    """What a name asks for: the library, what it makes, and options.

    ``text`` is the whole name.
    """

    text: str
    library: str
    name: str
    options: Mapping[str, Any]

    def whole_number(self, option: str, default: int | None, least: int) -> int | None:
        """The value of an option that is a whole number.

        Raises:
            UsageError: it is none, or smaller than ``least``.
        """
        value = self.options.get(option, default)
        # Not ``isinstance``: a truth value is an integer in Python.
        is_whole = type(value) is int and value >= least
        usage(value is default or is_whole, f"{self.text}: {option} is {value!r}, not a whole number from {least} on")
        return value  # type: ignore[no-any-return]  # checked above


def is_generated(name: str) -> bool:
    """Whether a name asks a library for a table."""
    return name.partition(":")[0] in LIBRARIES and ":" in name


def requested(text: str) -> Request:
    """The parts of a name.

    Raises:
        UsageError: there is no name after the colon, or an option is given twice or without a value.
    """
    library, _, rest = text.partition(":")
    name, _, query = rest.partition("?")
    usage(bool(name), f"{text}: name what {library} should make, as {library}:NAME?size=100")
    try:
        # ``option=`` is an empty text; ``option`` alone is an error.
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise UsageError(f"{text}: after the question mark are options, as size=100&seed=0") from None
    options: dict[str, Any] = {}
    for key, value in pairs:
        usage(key not in options, f"{text}: {key} is given twice")
        options[key] = _value(value)
    return Request(text, library, name, options)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def missing(library: str) -> EnvironmentFault:
    """The error for a library that is not installed."""
    return EnvironmentFault(f"{library} is not installed: pip install {library}")


def unknown(request: Request, what: str, name: str, available: Sequence[str]) -> UsageError:
    """The error for a name that a library does not have, with the nearest ones."""
    suggested = difflib.get_close_matches(name, available, n=3, cutoff=0.5) or sorted(available)
    shown = ", ".join(suggested[:8])
    if len(suggested) > 8:
        shown += f" and {len(suggested) - 8} others"
    return UsageError(f"{request.text}: {request.library} has no {what} {name!r}; it has {shown}")


def source(
    request: Request, schema: pa.Schema, rows: Iterable[Mapping[str, Any]], version: str = "", total: int | None = None
) -> Source:
    """The table of these rows; if the name and the library's ``version`` determine them, these are its digest."""

    def batches() -> Iterator[pa.RecordBatch]:
        numbered = iter(rows)
        try:
            while part := list(islice(numbered, ROWS_PER_BATCH)):
                yield from_rows(part, schema)
        except DataError:  # says already what is wrong with which row
            raise
        except Exception as error:
            raise DataError(f"{request.text}: {type(error).__name__}: {first_line(error)}") from error

    digest = seal.hash_text(f"{request.text} {version}") if version else ""
    return Source(request.text, schema, batches(), (), digest, total)

"""Tables of Weights & Biases as a run's folder has them, ``*.table.json``: names of columns, and rows of values."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from magcli.data import jsonl
from magcli.data.manifest import check_manifest
from magcli.data.source import BadRow, Source
from magcli.errors import DataError

SUFFIX = ".table.json"
HEAD_BYTES = 4096
# How W&B begins a table.
HEAD = re.compile(rb'\s*\{\s*"columns"\s*:\s*\[')


def is_table(path: Path) -> bool:
    """Whether a file is a table of W&B, by its name and its first bytes."""
    if not path.name.lower().endswith(SUFFIX):
        return False
    with open(path, "rb") as file:
        return HEAD.match(file.read(HEAD_BYTES)) is not None


def open_file(path: Path, bad: BadRow) -> Source:
    """Read the rows of a table; those with another number of values are reported to ``bad``.

    Raises:
        DataError: it is damaged, or has no rows.
    """
    digest, _ = check_manifest(path)
    columns, rows = _parsed(path)

    def read() -> Iterator[bytes]:
        for row in rows:
            is_row = isinstance(row, list) and len(row) == len(columns)
            # Any other row stays a list, which is no object, so the reader reports it.
            yield json.dumps(dict(zip(columns, row, strict=True)) if is_row else row).encode()

    source = jsonl.open_texts(jsonl.Texts(read, "row"), str(path), bad)
    source.sha256 = digest
    return source


def _parsed(path: Path) -> tuple[list[str], list[Any]]:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DataError(f"{path} is not a whole table of W&B: its JSON is damaged; copy it again") from None
    columns, rows = value.get("columns"), value.get("data")
    if not (isinstance(columns, list) and isinstance(rows, list) and all(isinstance(name, str) for name in columns)):
        raise DataError(f"{path} is not a table of W&B: it needs columns, a list of names, and data, a list of rows")
    return columns, rows

"""The work of `magcli duplicate`, once its options are checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.console import counted
from magcli.curate.cpp_ports.cpp import UnsupportedSignature
from magcli.curate.cpp_ports.prompts import language_pair
from magcli.data.schema import extend_schema
from magcli.data.values import from_rows, to_rows
from magcli.stages.duplicate import Config, reads
from magcli.stages.shared import tables

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.run.job import Job

ALIASES = tables.CODE_ALIASES
layouts = tables.problem_layouts(reads, aliases=tables.CODE_ALIASES)


LANGUAGES = ("python", "cpp")

TEXTS = ("language", "of", "harness")
"""Columns that become text, even in unchanged rows."""


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns and the new ones.

    ``language`` is the row's programming language, ``of`` the id of its original problem, ``duplicate`` is
    ``duplicated`` or why not (null for math), ``harness`` the end of a C++ program that calls its function. Tests that
    are mappings may also have ``input`` and ``output``.
    """
    fields = [field.with_type(_with_feeds(field.type)) if field.name == "tests" else field for field in input_schema]
    names = ["language", "compare", "of", "duplicate", "harness"]
    # A column of the input keeps its place and type.
    if "compare" in input_schema.names:
        names.remove("compare")
    new = pa.schema([pa.field(name, pa.string()) for name in names])
    return extend_schema(pa.schema(fields, input_schema.metadata), new)


def _with_feeds(type: pa.DataType) -> pa.DataType:
    """The type of a column of tests; mappings get fields for tests by stdin and stdout."""
    if not (pa.types.is_list(type) and pa.types.is_struct(type.value_type)):
        return type
    fields = list(type.value_type)
    names = [field.name for field in fields]
    # A C++ program gets the arguments of its function on stdin.
    fields += [pa.field(name, pa.string()) for name in ("input", "output") if name not in names]
    return pa.list_(pa.struct(fields))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Duplicate code problems."""
    with job.console.progress(job.total, "problems", "duplicate") as bar:
        for batch in rows:
            outputs = []
            for row in map(_with_texts, to_rows(batch)):
                outcome, variants = _duplicated(row)
                job.tally[outcome or "math"] += 1
                # None is a problem of another kind, which is no duplicate and stays.
                if config.only and outcome not in (None, "duplicated"):
                    job.drops.row(row["id"], str(outcome), row)
                else:
                    outputs += [{**variant, "duplicate": outcome} for variant in variants]
            bar.advance(batch.num_rows)
            yield from_rows(outputs, job.output_schema)


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report at the end how many problems were duplicated, and why others were not."""
    yield from rows
    _report(Counter(job.tally), job)


def _with_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with JSON instead of other values in text columns: other tools number languages, with 0 for none."""
    changed = dict(row)
    for name in TEXTS:
        value = row.get(name)
        if not isinstance(value, str | None):
            changed[name] = json.dumps(value, default=str) if value else None
    return changed


def _duplicated(row: Mapping[str, Any]) -> tuple[str | None, list[Mapping[str, Any]]]:
    """The outcome of a row, and the rows that it becomes."""
    if row.get("kind") != "code":
        return None, [row]
    try:
        pair = language_pair(row)
    except UnsupportedSignature as error:
        return error.reason, [row]
    # ``language_pair`` returns them in this order.
    changes = dict(zip(LANGUAGES, pair, strict=True))
    return "duplicated", list(_rows(row, changes))


def _rows(row: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for language, changed in changes.items():
        if isinstance(row["tests"], str) and "tests" in changed:  # a column has one type
            changed = {**changed, "tests": json.dumps(changed["tests"])}
        yield {**row, **changed, "id": f"{row['id']}-{language}", "of": row["id"], "language": language}


def _report(tally: Counter[str], job: Job) -> None:
    """One line: problems duplicated, and those unchanged by reason."""
    # What is left are reasons.
    duplicated = tally.pop("duplicated", 0)
    math = tally.pop("math", 0)
    text = f"duplicate: {duplicated:,} code problems now in both languages; unchanged {tally.total():,}"
    if tally:
        text += f" ({counted(tally)})"
    if math:
        text += f"; {math:,} of other kinds"
    job.console.result(text, event="duplicates", duplicated=duplicated, unchanged=dict(tally), other=math)

"""Ask each code problem for a program in Python and for one in C++, where both make sense.

Such a problem becomes two rows with the same tests. If its tests call a Python function, the C++ row asks for a
function by its signature; its tests then give the arguments on stdin to a main function in column harness. All other
rows are unchanged, with the reason in column duplicate.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.config import opt

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, tests, optional id; - is stdin."
OUTPUT = "the rows"
DEFAULT_OUTPUT = "-"
EXAMPLE = "magcli duplicate examples/code_problems.jsonl -o two_languages.arrow"
LANGUAGES = ("python", "cpp")
TEXTS = ("language", "of", "harness")
"""Columns that come out as texts, also in rows that stay as they are."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli duplicate`."""

    only: bool = opt(False, "Drop code problems that cannot be asked for in both languages.")


def whole(config: Config) -> str:
    """Nothing: each problem is asked for by itself."""
    return ""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there; rows of kind math need no tests."""
    return ("id", "prompt")


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, and what was done.

    ``language`` is what the row asks for, ``of`` the id of the problem that it comes from, ``duplicate`` is
    ``duplicated`` or why not (null for math), ``harness`` the end of a C++ program that calls its function. Tests that
    are mappings may have ``input`` and ``output`` besides.
    """
    import pyarrow as pa

    from magcli.data.columns import extended

    fields = [field.with_type(_with_feeds(field.type)) if field.name == "tests" else field for field in given]
    names = ("language", *(() if "compare" in given.names else ("compare",)), "of", "duplicate", "harness")
    return extended(pa.schema(fields, given.metadata), pa.schema([pa.field(name, pa.string()) for name in names]))


def _with_feeds(type: pa.DataType) -> pa.DataType:
    """The type of a column of tests, as text or as mappings, which must hold tests by stdin and stdout."""
    import pyarrow as pa

    if not (pa.types.is_list(type) and pa.types.is_struct(type.value_type)):
        return type
    fields = list(type.value_type)
    there = [field.name for field in fields]
    return pa.list_(
        pa.struct(fields + [pa.field(name, pa.string()) for name in ("input", "output") if name not in there])
    )


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Duplicate what can be; tells at the end how many were, and why others were not."""
    import pyarrow as pa

    assert job.schema is not None
    out, tally = schema(config, job.schema), Counter[str]()
    with job.console.progress(job.total, "problems", "duplicate") as bar:
        for batch in rows:
            found = []
            for row in map(_with_texts, batch.to_pylist()):
                outcome, asked = _asked(row)
                tally[outcome or "math"] += 1
                if config.only and outcome not in (None, "duplicated"):
                    job.drops.row(row["id"], str(outcome), row)
                else:
                    found += [{**each, "duplicate": outcome} for each in asked]
            bar.advance(batch.num_rows)
            yield pa.RecordBatch.from_pylist(found, out)
    _report(tally, job)


def _with_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row, what is no text in columns of ours as its JSON: other tools number languages, from 0 for none."""
    odd = {name: row[name] for name in TEXTS if not isinstance(row.get(name), str | None)}
    return {**row, **{name: json.dumps(value, default=str) if value else None for name, value in odd.items()}}


def _asked(row: Mapping[str, Any]) -> tuple[str | None, list[Mapping[str, Any]]]:
    """What was done with a row, and the rows that it becomes."""
    from magcli.curate.twins.rows import twins
    from magcli.curate.twins.signatures import Unfit

    if row.get("kind") != "code":
        return None, [row]
    try:
        pair = twins(row)
    except Unfit as error:
        return error.reason, [row]
    return "duplicated", list(_rows(row, dict(zip(LANGUAGES, pair, strict=True))))


def _rows(row: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for language, changed in changes.items():
        if isinstance(row["tests"], str) and "tests" in changed:
            changed = {**changed, "tests": json.dumps(changed["tests"])}
        yield {**row, **changed, "id": f"{row['id']}-{language}", "of": row["id"], "language": language}


def _report(tally: Counter[str], job: Job) -> None:
    """One line: problems asked twice, and those that stay as they are by reason."""
    twice, math = tally.pop("duplicated", 0), tally.pop("math", 0)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in tally.most_common())
    job.console.say(
        f"duplicate: {twice:,} code problems asked for in both languages; left as they were {tally.total():,}"
        + (f" ({reasons})" if reasons else "")
        + (f"; {math:,} of other kinds" if math else ""),
        event="duplicates",
        duplicated=twice,
        left=dict(tally),
        other=math,
    )

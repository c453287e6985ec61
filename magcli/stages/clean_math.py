"""Keep complete, verifiable math problems; multiple choice becomes an open question.

The format filter of the recipe: proofs, multi-part and incomplete statements go, and so do answers that the verifier
cannot check. --dropped keeps each with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magcli.config import opt

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, answer, id if there is one; - is stdin."
OUTPUT = "file, folder or -."
DEFAULT_OUTPUT = "-"
EXAMPLE = "magcli clean-math examples/messy.jsonl -o clean.arrow --dropped dropped.jsonl"


@dataclass(frozen=True)
class Config:
    """Options of `magcli clean-math`."""

    duplicates: bool = opt(False, "Keep problems whose statement was seen before.")


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there; an empty statement or answer is a reason of its own."""
    return ("id", "prompt", "answer")


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, and a note on what was changed in the row."""
    import pyarrow as pa

    from magcli.data.columns import extended

    return extended(given, pa.schema([pa.field("note", pa.string())]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Clean each problem; the first of equal statements, as they are after cleaning, stays."""
    import pyarrow as pa

    from magcli.curate.problems import Dropped, clean
    from magcli.verify.math import parsable

    seen: set[int] = set()
    assert job.schema is not None
    with job.console.progress(job.total, "problems", "clean-math") as bar:
        for batch in rows:
            kept = []
            for row in batch.to_pylist():
                found = clean(row["prompt"], row["answer"], parsable=parsable)
                if isinstance(found, Dropped):
                    job.drops.row(row["id"], found.reason, {**row, "detail": found.detail})
                    continue
                statement = hash(" ".join(found.prompt.split()))
                if statement in seen and not config.duplicates:
                    job.drops.row(row["id"], "duplicate", row)
                    continue
                seen.add(statement)
                kept.append({**row, "prompt": found.prompt, "answer": found.answer, "note": found.note})
            bar.advance(batch.num_rows)
            yield pa.RecordBatch.from_pylist(kept, schema(config, job.schema))

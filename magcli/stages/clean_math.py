"""Keep complete, verifiable math problems; multiple choice becomes an open question.

The format filter of the recipe: proofs, multi-part and incomplete statements go, and so do answers that the verifier
cannot check. Of problems that stand in the set twice, word for word or nearly so, one stays: the one with the smallest
id. --against drops what evaluation files hold too. --dropped keeps each row with its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.contamination import Evaluations
    from magcli.curate.duplicates import Duplicate, Seen
    from magcli.curate.problems import Dropped, Kept
    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, answer; id, choices or options if there are such; - is stdin."
OUTPUT = "file, folder or -."
DEFAULT_OUTPUT = "-"
EXAMPLE = "magcli clean-math examples/messy.jsonl -o clean.arrow --dropped dropped.jsonl"
ALIASES = {
    "prompt": ("problem", "question"),
    "answer": ("ground_truth", "gold", "reference_answer", "final_answer", "expected_answer", "target"),
}
"""What other tools call the columns that are needed."""
CHOICES = ("choices", "options")
"""Columns in which the options of a multiple-choice question may stand."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli clean-math`."""

    duplicates: bool = opt(False, "Keep problems whose statement was seen before.")
    similarity: float = opt(
        0.7,
        "Overlap of their words from which problems of the same numbers and answer are one; 1 drops equal ones only.",
    )
    against: tuple[str, ...] = opt((), "Tables of evaluation problems, comma-separated: what they hold is dropped.")


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there; an empty statement or answer is a reason of its own."""
    return ("id", "prompt", "answer")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.run.job import usage

    usage(0 < config.similarity <= 1, f"clean-math.similarity: {config.similarity} is not in (0, 1]")


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the digests of the evaluation files."""
    from magcli.stages import setup

    return {
        name: digest
        for path in config.against
        for name, digest in setup.table_bits(f"against {Path(path).name}", Path(path)).items()
    }


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, and a note on what was changed in the row."""
    import pyarrow as pa

    from magcli.data.columns import extended

    return extended(given, pa.schema([pa.field("note", pa.string())]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Clean each problem, then look at the set as a whole: equal and nearly equal statements."""
    from magcli.curate.contamination import read_evaluations

    evaluations = read_evaluations(map(Path, config.against)) if config.against else None
    hits: Counter[str] = Counter()
    kept = _cleaned(config, rows, job, evaluations, hits)
    yield from kept if config.duplicates else _once_each(config, kept, job)
    if evaluations:
        told = ", ".join(f"{Path(path).name} {hits[Path(path).name]:,}" for path in config.against)
        job.console.say(f"clean-math: held by evaluation files: {told}", event="contamination", hits=dict(hits))


def _cleaned(config: Config, rows: Rows, job: Job, evaluations: Evaluations | None, hits: Counter[str]) -> Rows:
    """The problems that the rules keep and no evaluation file holds."""
    import pyarrow as pa

    from magcli.curate.problems import Dropped

    assert job.schema is not None
    out = schema(config, job.schema)
    with job.console.progress(job.total, "problems", "clean-math") as bar:
        for batch in rows:
            kept = []
            for row in batch.to_pylist():
                found = _decided(row)
                if isinstance(found, Dropped):
                    job.drops.row(row["id"], found.reason, {**row, "detail": found.detail})
                elif evaluations and (source := evaluations.hit(found.prompt)):
                    hits[source.file] += 1
                    job.drops.row(row["id"], "contaminated", {**row, "against": source.file, "against_row": source.row})
                else:
                    kept.append({**row, **found._asdict()})
            bar.advance(batch.num_rows)
            yield pa.RecordBatch.from_pylist(kept, out)


def _decided(row: dict[str, Any]) -> Kept | Dropped:
    from magcli.curate.choices import with_options
    from magcli.curate.problems import clean
    from magcli.verify.math import parsable

    options = next((row[name] for name in CHOICES if row.get(name)), None)
    return clean(with_options(row["prompt"], options), row["answer"], parsable=parsable)


def _once_each(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows without those that another one stands for, in their order."""
    import pyarrow as pa

    from magcli.curate.duplicates import Seen
    from magcli.curate.spool import Spool, numbered

    assert job.schema is not None
    seen, spool = Seen(), Spool(schema(config, job.schema))
    for batch in rows:
        spool.add(batch)
        columns = (batch.column(name).to_pylist() for name in ("id", "prompt", "answer"))
        for id, prompt, answer in zip(*columns, strict=True):
            seen.add(id, prompt, answer)
    job.console.say(f"clean-math: comparing {len(seen.keys):,} statements", event="comparing", rows=len(seen.keys))
    gone = {each.number: each for each in seen.duplicates(config.similarity)}
    for before, batch in numbered(spool.rows()):
        numbers = range(before, before + batch.num_rows)
        for number in (number for number in numbers if number in gone):
            _drop(job, batch.slice(number - before, 1), gone[number], seen)
        yield batch.filter(pa.array([number not in gone for number in numbers], pa.bool_()))


def _drop(job: Job, row: pa.RecordBatch, duplicate: Duplicate, seen: Seen) -> None:
    (values,) = row.to_pylist()
    of, _ = seen.keys[duplicate.of]
    job.drops.row(values["id"], "duplicate" if duplicate.exact else "near-duplicate", {**values, "duplicate_of": of})

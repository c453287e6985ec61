"""Keep complete, verifiable math problems; multiple choice becomes an open question.

The format filter of the recipe: proofs, multi-part and incomplete statements are dropped, and so are problems whose
answers the verifier cannot check. Of exact and near-duplicates the one with the smallest id is kept. --against drops
problems that are in evaluation files. With --model, a model answers one short question about each row that the rules
cannot decide, such as whether it needs the figure that it mentions. --dropped stores dropped rows with their reasons.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.errors import PromptRefused, usage
from magcli.stages.shared import engines, options, tables

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.math.doubts import Answer, Doubt
    from magcli.curate.math.duplicates import Duplicate, StatementIndex
    from magcli.curate.math.problems import Dropped, Kept
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Result

INPUTS = "Problems: columns prompt, answer; optional id, choices or options; - is stdin."
RESUMES = True
EXAMPLE = "magcli clean-math examples/messy.jsonl -o clean.arrow --dropped dropped.jsonl"
ALIASES = tables.ALIASES
CHOICES = ("choices", "options")
"""Columns that may hold the options of a multiple-choice question."""
UNIT = 1024
"""Number of rows that are decided before they are journaled; a kill loses no more."""


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions):
    """Options of `magcli clean-math`."""

    duplicates: bool = opt(False, "Keep duplicate problems.")
    similarity: float = opt(
        0.7,
        "Word overlap above which problems with equal numbers and answer are near-duplicates; 1 drops exact ones only.",
    )
    against: tuple[str, ...] = opt(
        (), "Tables of evaluation problems, comma-separated; problems that they contain are dropped."
    )
    max_tokens: int = options.max_tokens(512)
    temperature: float = options.temperature(0.0)


def unshardable_reason(config: Config) -> str:
    """Duplicates are found by comparing all problems."""
    if config.duplicates:
        return ""
    return "duplicates are found among all rows; give --duplicates, then clean the joined table without it"


def reads(config: Config) -> tuple[str, ...]:
    """The required columns; an empty statement or answer has its own drop reason."""
    return ("id", "prompt", "answer")


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    usage(0 < config.similarity <= 1, f"clean-math.similarity: {config.similarity} is not in (0, 1]")
    options.check_generation("clean-math", config)
    if config.model:
        options.check_engine("clean-math", config)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the evaluation files and of the model."""
    from magcli.curate.math.contamination import short_names

    identity = engines.model_identity(config.model, Path("none")) if config.model else {}
    for path, called in short_names(map(Path, config.against)).items():
        identity |= tables.table_identity(f"against {called}", path)
    return identity


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, and a note on what changed in the row."""
    import pyarrow as pa

    from magcli.data.columns import extended

    return extended(given, pa.schema([pa.field("note", pa.string())]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Clean each problem, then drop contaminated ones, then duplicates."""
    rows = _with_facts(rows, job)
    cleaned = _clean_with_model(config, rows, job) if config.model else _clean(config, rows, job)
    if config.against:
        cleaned = _decontaminate(config, cleaned, job)
    yield from cleaned if config.duplicates else _deduplicate(config, cleaned, job)


def _with_facts(rows: Rows, job: Job) -> Rows:
    """The rows; where another tool stores the facts of a question in a separate column, they precede the question."""
    from magcli.curate.reading import context_columns, context_of

    assert job.inputs is not None
    given, reported = job.inputs.schema.names, False
    names = context_columns(given)
    for batch in rows:
        facts = [context_of(row, names) for row in batch.select(names).to_pylist()] if names else []
        if any(facts) and not reported:
            reported = True
            job.console.say(f"clean-math: prepending {', '.join(names)} to questions", event="joined", columns=names)
        yield _joined(batch, facts, hashed="id" not in given) if any(facts) else batch


def _joined(batch: pa.RecordBatch, facts: Sequence[str], *, hashed: bool) -> pa.RecordBatch:
    """Prompts that begin with the facts; ``hashed`` ids become hashes of both, as questions alone repeat."""
    import pyarrow as pa

    from magcli.curate.reading import with_context

    found = []
    for row, fact in zip(batch.to_pylist(), facts, strict=True):
        id = hashlib.sha256(f"{row['id']}\x1f{fact}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        made = {"id": id if hashed else row["id"], "prompt": with_context(fact, row["prompt"])}
        found.append({**row, **made} if fact else row)
    return pa.RecordBatch.from_pylist(found, batch.schema)


def _clean(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that the rules keep."""
    from magcli.run.units import resumable

    assert job.schema is not None
    out = schema(config, job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        given = part.to_pylist()
        return _result(given, [_decided(row) for row in given], out)

    async def close() -> None:
        """Nothing is open."""

    yield from resumable(rows, job, compute, close, size=UNIT, window=1, unit="problems")


def _clean_with_model(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that the rules keep, or the model where they are in doubt; reports its answers at the end."""
    from magcli.run.units import resumable

    assert job.schema is not None
    out, generator = schema(config, job.schema), engines.open_engine(config, job)
    answers: Counter[str] = Counter()

    async def compute(part: pa.RecordBatch) -> Result:
        (row,) = part.to_pylist()
        found = _decided(row)
        if doubt := _doubt(row, found):
            answer = await _answer(config, generator, row, doubt)
            answers[f"{doubt.question}: {answer}"] += 1
            found = doubt.settled(answer)
        return _result([row], [found], out)

    yield from resumable(rows, job, compute, generator.close, size=1, window=2 * config.slots, unit="problems")
    counts = ", ".join(f"{each} {count:,}" for each, count in sorted(answers.items())) or "no questions"
    job.console.say(f"clean-math: the model's answers on doubtful rows: {counts}", event="doubts", said=dict(answers))


def _result(rows: Sequence[dict[str, Any]], decided: Sequence[Kept | Dropped], out: pa.Schema) -> Result:
    """The cleaned rows, and the dropped ones with their reasons."""
    import pyarrow as pa

    from magcli.curate.math.problems import Dropped
    from magcli.run.job import as_text
    from magcli.run.journal import Dropped as DroppedRow
    from magcli.run.journal import Result

    kept, dropped = [], []
    for row, found in zip(rows, decided, strict=True):
        if isinstance(found, Dropped):
            dropped.append(DroppedRow(row["id"], found.reason, as_text({**row, "detail": found.detail})))
        else:
            kept.append({**row, **found._asdict()})
    return Result(pa.RecordBatch.from_pylist(kept, out), dropped)


async def _answer(config: Config, generator: Generator, row: dict[str, Any], doubt: Doubt) -> Answer:
    from magcli.curate.math.doubts import answer_in, messages
    from magcli.generate.types import Sampling, sample_seed

    sampling, seeds = Sampling(config.max_tokens, config.temperature), [sample_seed(config.seed, row["id"], 0)]
    try:
        (done,) = await generator.complete(messages(doubt.question, _statement(row)), sampling, seeds=seeds)
    except PromptRefused:
        return "neither"
    return answer_in(done.text)


def _decided(row: dict[str, Any]) -> Kept | Dropped:
    from magcli.curate.math.problems import clean
    from magcli.verify.math import parsable

    return clean(_statement(row), row["answer"], parsable=parsable)


def _doubt(row: dict[str, Any], decided: Kept | Dropped) -> Doubt | None:
    from magcli.curate.math.doubts import doubt_of
    from magcli.verify.math import parsable

    return doubt_of(_statement(row), row["answer"], decided, parsable=parsable)


def _statement(row: dict[str, Any]) -> str:
    """The statement with the options of a separate column."""
    from magcli.curate.math.choices import with_options

    return with_options(row["prompt"], next((row[name] for name in CHOICES if row.get(name)), None))


def _decontaminate(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that are in no evaluation file; reports the hits of each file at the end."""
    import pyarrow as pa

    from magcli.curate.math.contamination import read_evaluations, short_names

    evaluations, hits = read_evaluations(map(Path, config.against)), Counter[str]()
    for batch in rows:
        found = [evaluations.hit(prompt) for prompt in batch.column("prompt").to_pylist()]
        for row, source in zip(batch.to_pylist(), found, strict=True) if any(found) else ():
            if source:
                hits[source.file] += 1
                job.drops.row(row["id"], "contaminated", {**row, "against": source.file, "against_row": source.row})
        yield batch.filter(pa.array([source is None for source in found], pa.bool_()))
    counts = ", ".join(f"{name} {hits[name]:,}" for name in short_names(map(Path, config.against)).values())
    job.console.say(f"clean-math: found in evaluation files: {counts}", event="contamination", hits=dict(hits))


def _deduplicate(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows without duplicates, in their order."""
    import pyarrow as pa

    from magcli.curate.math.duplicates import StatementIndex
    from magcli.curate.spill import SpilledBatches, numbered

    assert job.schema is not None
    seen = StatementIndex()
    with closing(SpilledBatches(schema(config, job.schema))) as spilled:
        for batch in rows:
            spilled.add(batch)
            columns = (batch.column(name).to_pylist() for name in ("id", "prompt", "answer"))
            for id, prompt, answer in zip(*columns, strict=True):
                seen.add(id, prompt, answer)
        job.console.say(f"clean-math: comparing {len(seen.keys):,} statements", event="comparing", rows=len(seen.keys))
        gone = {each.number: each for each in seen.duplicates(config.similarity)}
        for before, batch in numbered(spilled.rows()):
            numbers = range(before, before + batch.num_rows)
            for number in (number for number in numbers if number in gone):
                _drop(job, batch.slice(number - before, 1), gone[number], seen)
            yield batch.filter(pa.array([number not in gone for number in numbers], pa.bool_()))


def _drop(job: Job, row: pa.RecordBatch, duplicate: Duplicate, seen: StatementIndex) -> None:
    (values,) = row.to_pylist()
    of, _ = seen.keys[duplicate.of]
    job.drops.row(values["id"], "duplicate" if duplicate.exact else "near-duplicate", {**values, "duplicate_of": of})

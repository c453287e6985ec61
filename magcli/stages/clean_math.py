"""Keep complete, verifiable math problems; multiple choice becomes an open question.

The format filter of the recipe: proofs, multi-part and incomplete statements are dropped, and so are problems whose
answers the verifier cannot check. Of exact and near-duplicates the one with the smallest id is kept. --against drops
problems that are in evaluation files. With --model, a model is asked one short question about each row that the rules
cannot decide, such as one that mentions a figure it may not need. --dropped stores each dropped row with its reason.
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
from magcli.run import options
from magcli.stages.parts import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.math.doubts import Answer, Doubt
    from magcli.curate.math.duplicates import Duplicate, Seen
    from magcli.curate.math.problems import Dropped, Kept
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job
    from magcli.run.journal import Result

INPUTS = "Problems: columns prompt, answer; optional id, choices or options; - is stdin."
OUTPUT = "the rows"
DEFAULT_OUTPUT = "-"
RESUMES = True
EXAMPLE = "magcli clean-math examples/messy.jsonl -o clean.arrow --dropped dropped.jsonl"
ALIASES = setup.ALIASES
CHOICES = ("choices", "options")
"""Columns in which the options of a multiple-choice question may stand."""
UNIT = 1024
"""Rows that the rules decide on before they are recorded, so that a kill costs no more."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli clean-math`."""

    duplicates: bool = opt(False, "Keep problems whose statement was seen before.")
    similarity: float = opt(
        0.7,
        "Word overlap above which problems with equal numbers and answer are near-duplicates; 1 drops exact ones only.",
    )
    against: tuple[str, ...] = opt(
        (), "Tables of evaluation problems, comma-separated; problems that they contain are dropped."
    )
    model: str = options.model()
    max_tokens: int = options.max_tokens(512)
    temperature: float = options.temperature(0.0)
    seed: int = options.seed()
    engine: options.Engine = options.engine()
    dtype: options.DType = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    deadline: float = options.deadline()


RUNTIME = ("deadline",)
"""Options that do not change the rows."""


def whole(config: Config) -> str:
    """The comparison of all problems with each other."""
    if config.duplicates:
        return ""
    return "equal problems are sought in all of them; give --duplicates, and clean the joined table without it"


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there; an empty statement or answer is a reason of its own."""
    return ("id", "prompt", "answer")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    usage(0 < config.similarity <= 1, f"clean-math.similarity: {config.similarity} is not in (0, 1]")
    usage(config.max_tokens > 0, f"clean-math.max_tokens: {config.max_tokens} is not positive")
    usage(config.temperature >= 0, f"clean-math.temperature: {config.temperature} is negative")
    if config.model:
        checks.engine("clean-math", config)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the digests of the evaluation files and of the model."""
    from magcli.curate.math.contamination import short_names

    identity = setup.model_identity(config.model, Path("none")) if config.model else {}
    for path, called in short_names(map(Path, config.against)).items():
        identity |= setup.table_identity(f"against {called}", path)
    return identity


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, and a note on what was changed in the row."""
    import pyarrow as pa

    from magcli.data.columns import extended

    return extended(given, pa.schema([pa.field("note", pa.string())]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Clean each problem, then look at what evaluation files hold, then at the set as a whole."""
    rows = _with_facts(rows, job)
    kept = _asked(config, rows, job) if config.model else _ruled(config, rows, job)
    if config.against:
        kept = _not_held(config, kept, job)
    yield from kept if config.duplicates else _once_each(config, kept, job)


def _with_facts(rows: Rows, job: Job) -> Rows:
    """The rows, their questions with what they are about where another tool keeps that in a column of its own."""
    from magcli.curate.math.facts import columns_of_facts, facts_of

    assert job.inputs is not None
    given, told = job.inputs.schema.names, False
    names = columns_of_facts(given)
    for batch in rows:
        facts = [facts_of(row, names) for row in batch.select(names).to_pylist()] if names else []
        if any(facts) and not told:
            told = True
            job.console.say(f"clean-math: questions come with their {', '.join(names)}", event="joined", columns=names)
        yield _joined(batch, facts, hashed="id" not in given) if any(facts) else batch


def _joined(batch: pa.RecordBatch, facts: Sequence[str], *, hashed: bool) -> pa.RecordBatch:
    """Prompts that begin with the facts; ids that are ``hashed`` become those of both, as questions alone repeat."""
    import pyarrow as pa

    from magcli.curate.math.facts import stated

    found = []
    for row, fact in zip(batch.to_pylist(), facts, strict=True):
        id = hashlib.sha256(f"{row['id']}\x1f{fact}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        made = {"id": id if hashed else row["id"], "prompt": stated(fact, row["prompt"])}
        found.append({**row, **made} if fact else row)
    return pa.RecordBatch.from_pylist(found, batch.schema)


def _ruled(config: Config, rows: Rows, job: Job) -> Rows:
    """What the rules keep."""
    from magcli.run.units import resumable

    assert job.schema is not None
    out = schema(config, job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        given = part.to_pylist()
        return _result(given, [_decided(row) for row in given], out)

    async def close() -> None:
        """Nothing is open."""

    yield from resumable(rows, job, compute, close, size=UNIT, window=1, unit="problems")


def _asked(config: Config, rows: Rows, job: Job) -> Rows:
    """What the rules keep, or a model where they are in doubt; tells at the end what it said."""
    from magcli.run.units import resumable

    assert job.schema is not None
    out, generator = schema(config, job.schema), setup.open_engine(config, job)
    said: Counter[str] = Counter()

    async def compute(part: pa.RecordBatch) -> Result:
        (row,) = part.to_pylist()
        found = _decided(row)
        if doubt := _doubt(row, found):
            answer = await _answer(config, generator, row, doubt)
            said[f"{doubt.question}: {answer}"] += 1
            found = doubt.settled(answer)
        return _result([row], [found], out)

    yield from resumable(rows, job, compute, generator.close, size=1, window=2 * config.slots, unit="problems")
    told = ", ".join(f"{each} {count:,}" for each, count in sorted(said.items())) or "it was not asked"
    job.console.say(f"clean-math: the model on doubtful rows: {told}", event="doubts", said=dict(said))


def _result(rows: Sequence[dict[str, Any]], decided: Sequence[Kept | Dropped], out: pa.Schema) -> Result:
    """The rows that are kept, as they are to be, and why the others go."""
    import pyarrow as pa

    from magcli.curate.math.problems import Dropped
    from magcli.run.job import as_text
    from magcli.run.journal import Dropped as Left
    from magcli.run.journal import Result

    kept, left = [], []
    for row, found in zip(rows, decided, strict=True):
        if isinstance(found, Dropped):
            left.append(Left(row["id"], found.reason, as_text({**row, "detail": found.detail})))
        else:
            kept.append({**row, **found._asdict()})
    return Result(pa.RecordBatch.from_pylist(kept, out), left)


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
    """The statement with the options that stand in a column of their own."""
    from magcli.curate.math.choices import with_options

    return with_options(row["prompt"], next((row[name] for name in CHOICES if row.get(name)), None))


def _not_held(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that no evaluation file holds; tells at the end how many each of them did."""
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
    told = ", ".join(f"{name} {hits[name]:,}" for name in short_names(map(Path, config.against)).values())
    job.console.say(f"clean-math: held by evaluation files: {told}", event="contamination", hits=dict(hits))


def _once_each(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows without those that another one stands for, in their order."""
    import pyarrow as pa

    from magcli.curate.math.aside import Aside, numbered
    from magcli.curate.math.duplicates import Seen

    assert job.schema is not None
    seen = Seen()
    with closing(Aside(schema(config, job.schema))) as aside:
        for batch in rows:
            aside.add(batch)
            columns = (batch.column(name).to_pylist() for name in ("id", "prompt", "answer"))
            for id, prompt, answer in zip(*columns, strict=True):
                seen.add(id, prompt, answer)
        job.console.say(f"clean-math: comparing {len(seen.keys):,} statements", event="comparing", rows=len(seen.keys))
        gone = {each.number: each for each in seen.duplicates(config.similarity)}
        for before, batch in numbered(aside.rows()):
            numbers = range(before, before + batch.num_rows)
            for number in (number for number in numbers if number in gone):
                _drop(job, batch.slice(number - before, 1), gone[number], seen)
            yield batch.filter(pa.array([number not in gone for number in numbers], pa.bool_()))


def _drop(job: Job, row: pa.RecordBatch, duplicate: Duplicate, seen: Seen) -> None:
    (values,) = row.to_pylist()
    of, _ = seen.keys[duplicate.of]
    job.drops.row(values["id"], "duplicate" if duplicate.exact else "near-duplicate", {**values, "duplicate_of": of})

"""Keep complete, verifiable math problems; multiple choice becomes an open question.

The format filter of the recipe: proofs, multi-part and incomplete statements are dropped, and so are problems whose
answers the verifier cannot check, or of which many are right (countdown, the game of 24). Of exact and
near-duplicates, the one with the smallest id is kept; where the answers to one statement contradict each other, none
is. --against drops problems that are in evaluation files. With
--model, a model answers one short question about each row that the rules cannot decide, such as whether it needs the
figure that it mentions. --dropped stores dropped rows with their reasons.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.config import opt
from magcli.data.seal import hash_text
from magcli.errors import PromptRefused
from magcli.layouts import names
from magcli.stages.shared import cluster, engines, options, tables, templates

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.math.duplicates import Duplicate, StatementIndex
    from magcli.curate.math.problems import Answer, Decision, ModelQuestion
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job

INPUTS = "Problems: columns prompt, answer; optional id, choices or options; - is stdin."
RESUMES = True
EXAMPLE = "magcli clean-math examples/messy.jsonl -o clean.arrow --dropped dropped.jsonl"
ALIASES = tables.ALIASES
SUITE = "suite:"
"""The start of a name of --against that is no file."""
UNIT = 1024
"""Rows per journal entry without a model."""


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions, cluster.ClusterOptions):
    """Options of `magcli clean-math`."""

    duplicates: bool = opt(False, "Keep duplicate problems.")
    similarity: float = opt(
        0.7,
        "Word overlap above which problems with equal numbers, names and answer may be near-duplicates; 1 drops exact "
        "ones only.",
        gt=0,
        le=1,
    )
    against: tuple[str, ...] = opt(
        (),
        "Tables of evaluation problems, comma-separated; problems that they contain are dropped. suite:aime24 is the "
        "suite of that name of magcli evaluate, in this folder or from the hub.",
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


layouts = tables.problem_layouts(reads)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    if config.model:
        options.check_engine("clean-math", config)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the evaluation files and of the model."""
    from magcli.curate.math.duplicates import short_names

    identity: dict[str, Any] = {}
    if config.model:
        identity = engines.model_identity(templates.open_model(config.model, config), templates.NO_SYSTEM)
    for path, name in short_names(_against_files(config)).items():
        identity |= tables.table_identity(f"against {name}", path)
    for name, problems in _against_suites(config).items():
        identity[f"against {name}_sha256"] = hash_text(json.dumps(problems, sort_keys=True, default=str))
    return identity


def _against_files(config: Config) -> list[Path]:
    """The tables of --against, without the suites."""
    return [Path(name) for name in config.against if not name.startswith(SUITE)]


def _against_suites(config: Config) -> dict[str, list[dict[str, Any]]]:
    """The problems of the suites of --against, by their names there.

    Raises:
        UsageError: there is no suite of that name.
        DataError: its data is neither in the current folder nor on the hub.
    """
    from magcli.evaluation import rows, suite

    wanted = [name.removeprefix(SUITE) for name in config.against if name.startswith(SUITE)]
    return {f"{SUITE}{found.name}": rows.problems(found, [".", rows.HUB]) for found in suite.load(wanted)}


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, and a note on what changed in the row."""
    import pyarrow as pa

    from magcli.data.schema import extend_schema

    return extend_schema(input_schema, pa.schema([pa.field("note", pa.string())]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Clean each problem, then drop contaminated ones, then duplicates."""
    rows = _clean(config, _with_context(rows, job), job)
    if config.against:
        rows = _decontaminate(config, rows, job)
    yield from rows if config.duplicates else _deduplicate(config, rows, job)


def _with_context(rows: Rows, job: Job) -> Rows:
    """The rows with context columns, in which other tools store the facts of a question, prepended to the question."""
    from magcli.curate.tables import context_columns, context_of
    from magcli.data.values import to_rows

    assert job.inputs is not None
    hash_ids = "id" not in job.inputs.schema.names
    reported = False
    columns = list(dict.fromkeys(name for table in job.inputs.schemas for name in context_columns(table.names)))
    for batch in rows:
        contexts = [context_of(row, columns) for row in to_rows(batch.select(columns))] if columns else []
        if any(contexts) and not reported:
            reported = True
            job.console.say(
                f"clean-math: prepending {', '.join(columns)} to questions", event="context", columns=columns
            )
        yield _prepended(batch, contexts, hash_ids=hash_ids) if any(contexts) else batch


def _prepended(batch: pa.RecordBatch, contexts: Sequence[str], *, hash_ids: bool) -> pa.RecordBatch:
    """Prompts that begin with their contexts; ids that are hashes of questions, which may repeat, include these."""
    from magcli.curate.tables import with_context
    from magcli.data.values import from_rows, to_rows

    rows = to_rows(batch)
    for row, context in zip(rows, contexts, strict=True):
        if context:
            row["prompt"] = with_context(context, row["prompt"])
        if context and hash_ids:
            key = f"{row['id']}\x1f{context}".encode("utf-8", "surrogatepass")
            row["id"] = hashlib.sha256(key).hexdigest()[:16]
    return from_rows(rows, batch.schema)


def _clean(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that the rules keep, or the model if they are uncertain."""
    from magcli.curate.math.problems import Kept, clean, model_question
    from magcli.run.each_row import Drop, each_row
    from magcli.verify.math import parsable

    assert job.schema is not None
    out = schema(config, job.schema)
    generator = engines.open_engine(config, job) if config.model else None

    async def decide(row: dict[str, Any]) -> dict[str, Any] | Drop:
        cleaned = await decision_on(row)
        if isinstance(cleaned, Kept):
            return {**row, **cleaned._asdict()}
        return Drop(cleaned.reason, detail=cleaned.detail)

    async def decision_on(row: dict[str, Any]) -> Decision:
        prompt = _statement(row)
        decided = clean(prompt, row["answer"], parsable=parsable)
        if generator is None:
            return decided
        asked = model_question(prompt, row["answer"], decided, parsable=parsable)
        if asked is None:
            return decided
        answer = await _answer(config, generator, row["id"], prompt, asked)
        job.tally[f"{asked.question}: {answer}"] += 1
        return asked.decision(answer)

    async def close() -> None:
        if generator:
            await generator.close()

    # With a model every row is a unit, so that many questions are asked at once.
    size, window = (1, 2 * config.num_slots) if generator else (UNIT, 1)
    yield from each_row(job, rows, decide, schema=out, close=close, size=size, window=window, unit="problems")


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report the model's answers at the end of the kept problems."""
    yield from rows
    if config.model:
        counts = ", ".join(f"{answer} {count:,}" for answer, count in sorted(job.tally.items())) or "no questions"
        text = f"clean-math: the model's answers on uncertain rows: {counts}"
        job.console.result(text, event="model-answers", answers=dict(job.tally))


def _statement(row: dict[str, Any]) -> str:
    """The statement with the options of a separate column."""
    from magcli.curate.math.choices import append_options

    choices = next((row[name] for name in names.OPTIONS if row.get(name)), None)
    return append_options(row["prompt"], choices)


async def _answer(config: Config, generator: Generator, id: str, prompt: str, asked: ModelQuestion) -> Answer:
    from magcli.curate.math.problems import messages, parse_answer
    from magcli.generate.types import Sampling, sample_seed

    sampling = Sampling(config.max_tokens, config.temperature)
    seeds = [sample_seed(config.seed, id, 0)]
    try:
        (completion,) = await generator.complete(messages(asked.question, prompt), sampling, seeds=seeds)
    except PromptRefused:
        return "neither"
    return parse_answer(completion.text, generator.thoughts)


def _decontaminate(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that are in no evaluation file; reports the matches of each file at the end."""
    import pyarrow as pa

    from magcli.curate.math.duplicates import index_evaluations, short_names
    from magcli.data.values import to_rows

    files, suites = _against_files(config), _against_suites(config)
    evaluations = index_evaluations(files, suites)
    matches: Counter[str] = Counter()
    for batch in rows:
        sources = [evaluations.match(prompt) for prompt in batch.column("prompt").to_pylist()]
        if any(sources):  # most batches have no match, and making rows is slow
            for row, source in zip(to_rows(batch), sources, strict=True):
                if source:
                    matches[source.file] += 1
                    against = {"against": source.file, "against_row": source.row}
                    job.drops.row(row["id"], "contaminated", {**row, **against})
        yield batch.filter(pa.array([source is None for source in sources], pa.bool_()))
    counts = ", ".join(f"{name} {matches[name]:,}" for name in [*short_names(files).values(), *suites])
    job.console.result(f"clean-math: found in evaluation files: {counts}", event="contamination", matches=dict(matches))


def _deduplicate(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows without duplicates, in their order."""
    import pyarrow as pa

    from magcli.curate.math.duplicates import StatementIndex
    from magcli.curate.tables import SpilledBatches
    from magcli.verify.math import equal

    assert job.schema is not None
    # The verifier takes what a policy writes first, so it may say other things about two ground truths exchanged.
    index = StatementIndex(lambda one, other: equal(one, other) or equal(other, one))
    before: Counter[str] = Counter()
    reworded: Counter[str] = Counter()
    number = 0
    with closing(SpilledBatches(schema(config, job.schema))) as spilled:
        for batch in rows:
            spilled.add(batch)
            before.update(_sources(batch))
            columns = (batch.column(name).to_pylist() for name in ("id", "prompt", "answer"))
            for id, prompt, answer in zip(*columns, strict=True):
                index.add(id, prompt, answer)
        count = len(index.keys)
        job.console.say(f"clean-math: searching for duplicates in {count:,} rows", event="comparing", rows=count)
        duplicates = {duplicate.number: duplicate for duplicate in index.duplicates(config.similarity)}
        for batch in spilled.rows():
            in_batch = [duplicates.get(number + offset) for offset in range(batch.num_rows)]
            for offset, (duplicate, source) in enumerate(zip(in_batch, _sources(batch), strict=True)):
                if duplicate:
                    _drop(job, batch.slice(offset, 1), duplicate, index)
                    reworded[source] += duplicate.reason == "near-duplicate"
            yield batch.filter(pa.array([duplicate is None for duplicate in in_batch], pa.bool_()))
            number += batch.num_rows
    _warn_of_templates(config, job, before, reworded)


def _sources(batch: pa.RecordBatch) -> list[str]:
    """The source of each row; empty where the table does not say it."""
    if "source" not in batch.schema.names:
        return [""] * batch.num_rows
    return [str(source or "") for source in batch.column("source").to_pylist()]


def _warn_of_templates(config: Config, job: Job, before: Counter[str], reworded: Counter[str]) -> None:
    """Say what decides about near-duplicates, and name each source that lost over half of its rows as such.

    They may be one template's problems.
    """
    if count := reworded.total():
        text = f"clean-math: {count:,} near-duplicates by --similarity {config.similarity:g}; a higher one keeps more"
        job.console.say(text, event="near-duplicates-dropped", dropped=count, similarity=config.similarity)
    for source, count in reworded.items():
        if 2 * count > before[source]:
            where = f" of source {source}" if source else ""
            job.console.warn(
                f"clean-math: {count:,} of {before[source]:,} rows{where} were dropped as near-duplicates; if they are "
                f"different problems, raise --similarity (now {config.similarity:g}; 1 drops exact duplicates only)",
                event="near-duplicates",
                source=source,
                dropped=count,
                rows=before[source],
            )


def _drop(job: Job, row: pa.RecordBatch, duplicate: Duplicate, index: StatementIndex) -> None:
    from magcli.data.values import to_rows

    (values,) = to_rows(row)
    id, _ = index.keys[duplicate.of]
    relation = "conflicts_with" if duplicate.reason == "conflicting-answers" else "duplicate_of"
    job.drops.row(values["id"], duplicate.reason, {**values, relation: id})

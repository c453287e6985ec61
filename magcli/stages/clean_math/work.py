"""The work of `magcli clean-math`, once its options are checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.curate.math.choices import append_options
from magcli.curate.math.duplicates import StatementIndex, index_evaluations, short_names
from magcli.curate.math.problems import Kept, clean, messages, model_question, parse_answer, worked_solution
from magcli.curate.tables import SpilledBatches, context_columns, context_of, with_context
from magcli.data.schema import extend_schema
from magcli.data.seal import hash_text
from magcli.data.shapes import ABSENT_KEY
from magcli.data.values import from_rows, to_rows
from magcli.errors import PromptRefused
from magcli.evaluation import rows, suite
from magcli.generate.types import Sampling, sample_seed
from magcli.layouts import names
from magcli.run.each_row import Counted, Drop, each_row, nothing_to_close
from magcli.stages.clean_math import Config, reads
from magcli.stages.shared import engines, tables, templates
from magcli.verify.math import equal, parsable

if TYPE_CHECKING:
    from magcli.curate.math.duplicates import Duplicate
    from magcli.curate.math.problems import Answer, Decision, ModelQuestion
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job

ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


SUITE = "suite:"
"""The start of a name of --against that is no file."""

SOLUTION = names.WORKED[0]
"""The column of worked solutions."""
UNIT = 1024
"""Rows per journal entry without a model."""


def settings(config: Config) -> dict[str, Any]:
    """Digests of the evaluation files and of the model."""
    identity: dict[str, Any] = {}
    if config.model:
        model = templates.open_model(config)
        identity = engines.model_identity(model, templates.NO_SYSTEM)
    for path, name in short_names(_against_files(config)).items():
        identity |= tables.table_identity(f"against {name}", path)
    for name, problems in _against_suites(config).items():
        # By content, as a suite is no file; values of any type by their text.
        text = json.dumps(problems, sort_keys=True, default=str)
        identity[f"against {name}_sha256"] = hash_text(text)
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
    wanted = [name.removeprefix(SUITE) for name in config.against if name.startswith(SUITE)]
    problems = {}
    for loaded in suite.load(wanted):
        problems[f"{SUITE}{loaded.name}"] = rows.problems(loaded, [".", rows.HUB])
    return problems


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns, worked solutions that were in the answers, and a note on what changed in the row."""
    added = [pa.field("note", pa.string())]
    if SOLUTION not in input_schema.names:
        added.insert(0, pa.field(SOLUTION, pa.string(), metadata={ABSENT_KEY: b"1"}))
    return extend_schema(input_schema, pa.schema(added))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Clean each problem, then drop contaminated ones, then duplicates."""
    rows = _clean(config, _with_context(rows, job), job)
    if config.against:
        rows = _decontaminate(config, rows, job)
    yield from rows if config.duplicates else _deduplicate(config, rows, job)


def _with_context(rows: Rows, job: Job) -> Rows:
    """The rows with context columns, in which other tools store the facts of a question, prepended to the question."""
    assert job.inputs is not None
    of_tables = (context_columns(table.names) for table in job.inputs.schemas)
    columns = list(dict.fromkeys(chain.from_iterable(of_tables)))
    if not columns:
        yield from rows
        return
    # Then the ids are hashes of the questions.
    hash_ids = "id" not in job.inputs.schema.names
    # Only once, at the first row that has a context.
    reported = False
    for batch in rows:
        contexts = [context_of(row, columns) for row in to_rows(batch.select(columns))]
        if not any(contexts):
            yield batch
            continue
        if not reported:
            text = f"clean-math: prepending {', '.join(columns)} to questions"
            job.console.say(text, event="context", columns=columns)
            reported = True
        yield _prepended(batch, contexts, hash_ids=hash_ids)


def _prepended(batch: pa.RecordBatch, contexts: Sequence[str], *, hash_ids: bool) -> pa.RecordBatch:
    """Prompts that begin with their contexts; ids that are hashes of questions, which may repeat, include these."""
    rows = to_rows(batch)
    for row, context in zip(rows, contexts, strict=True):
        if not context:
            continue
        row["prompt"] = with_context(context, row["prompt"])
        if hash_ids:
            # The unit separator is in no id.
            row["id"] = hash_text(f"{row['id']}\x1f{context}")[:16]
    return from_rows(rows, batch.schema)


def _clean(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that the rules keep, or the model if they are uncertain."""
    generator = engines.open_engine(config, job) if config.model else None

    def result(row: dict[str, Any], cleaned: Decision) -> dict[str, Any] | Drop:
        if isinstance(cleaned, Kept):
            return {**row, **_solution_of(row, job.output_schema), **cleaned._asdict()}
        return Drop(cleaned.reason, detail=cleaned.detail)

    async def decide(row: dict[str, Any]) -> dict[str, Any] | Drop | Counted:
        prompt = _statement(row)
        decided = clean(prompt, row["answer"], parsable=parsable)
        if generator is None:
            return result(row, decided)
        # None where the rules are certain.
        asked = model_question(prompt, row["answer"], decided, parsable=parsable)
        if asked is None:
            return result(row, decided)
        answer = await _answer(config, generator, row["id"], prompt, asked)
        return Counted(result(row, asked.decision(answer)), {f"{asked.question}: {answer}": 1})

    close = generator.close if generator else nothing_to_close
    size, window = UNIT, 1
    if generator:  # every row is a unit, so that many questions are asked at once
        size, window = 1, 2 * config.num_slots
    yield from each_row(job, rows, decide, close=close, size=size, window=window, unit="problems")


def _solution_of(row: dict[str, Any], schema: pa.Schema) -> dict[str, str]:
    """The worked solution in an answer as a column, if the row has none in a column of its own."""
    # Blanks are no solution, as for `cold-start`.
    has_own = any(str(row.get(name) or "").strip() for name in names.WORKED)
    if has_own or not pa.types.is_string(schema.field(SOLUTION).type):
        return {}
    solution = worked_solution(row["answer"])
    return {SOLUTION: solution} if solution else {}


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report the model's answers at the end of the kept problems."""
    yield from rows
    if config.model:
        counts = ", ".join(f"{answer} {count:,}" for answer, count in sorted(job.tally.items())) or "no questions"
        text = f"clean-math: the model's answers on uncertain rows: {counts}"
        job.console.result(text, event="model-answers", answers=dict(job.tally))


def _statement(row: dict[str, Any]) -> str:
    """The statement with the options of a separate column."""
    choices = next((row[name] for name in names.OPTIONS if row.get(name)), None)
    return append_options(row["prompt"], choices)


async def _answer(config: Config, generator: Generator, id: str, prompt: str, asked: ModelQuestion) -> Answer:
    sampling = Sampling(config.max_tokens, config.temperature)
    seeds = [sample_seed(config.seed, id, 0)]
    try:
        (completion,) = await generator.complete(messages(asked.question, prompt), sampling, seeds=seeds)
    except PromptRefused:
        # A refused question counts as one without a clear answer.
        return "neither"
    return parse_answer(completion.text, generator.thoughts)


def _decontaminate(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows that are in no evaluation file; reports the matches of each file at the end."""
    files = _against_files(config)
    suites = _against_suites(config)
    evaluations = index_evaluations(files, suites)
    matches: Counter[str] = Counter()
    for batch in rows:
        # A match for each row, None for most.
        sources = [evaluations.match(prompt) for prompt in batch.column("prompt").to_pylist()]
        if not any(sources):  # most batches, and making rows is slow
            yield batch
            continue
        for row, source in zip(to_rows(batch), sources, strict=True):
            if source:
                matches[source.file] += 1
                job.drops.row(row["id"], "contaminated", row, against=source.file, against_row=source.row)
        is_clean = [source is None for source in sources]
        yield batch.filter(pa.array(is_clean, pa.bool_()))
    names = [*short_names(files).values(), *suites]
    counts = ", ".join(f"{name} {matches[name]:,}" for name in names)
    job.console.result(f"clean-math: found in evaluation files: {counts}", event="contamination", matches=dict(matches))


def _deduplicate(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows without duplicates, in their order."""
    # The verifier takes what a policy writes first, so it may say other things about two ground truths exchanged.
    index = StatementIndex(lambda one, other: equal(one, other) or equal(other, one))
    before: Counter[str] = Counter()
    reworded: Counter[str] = Counter()
    # Which rows are duplicates is known only after the last one, so they wait on the disk.
    with closing(SpilledBatches(job.output_schema)) as spilled:
        for batch in rows:
            spilled.add(batch)
            # How many rows each source had, to tell what share of it is lost.
            before.update(_sources(batch))
            columns = (batch.column(name).to_pylist() for name in ("id", "prompt", "answer"))
            for id, prompt, answer in zip(*columns, strict=True):
                index.add(id, prompt, answer)
        count = len(index.keys)
        job.console.say(f"clean-math: searching for duplicates in {count:,} rows", event="comparing", rows=count)
        duplicates = {duplicate.number: duplicate for duplicate in index.duplicates(config.similarity)}
        start = 0
        for batch in spilled.rows():
            is_kept = []
            for offset, source in enumerate(_sources(batch)):
                duplicate = duplicates.get(start + offset)
                is_kept.append(duplicate is None)
                if duplicate:
                    _drop(job, batch.slice(offset, 1), duplicate, index)
                    # Only near-duplicates are a matter of --similarity.
                    reworded[source] += duplicate.reason == "near-duplicate"
            yield batch.filter(pa.array(is_kept, pa.bool_()))
            start += batch.num_rows
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
        # Half of a source is more than chance.
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
    (values,) = to_rows(row)
    id, _ = index.keys[duplicate.of]
    relation = "conflicts_with" if duplicate.reason == "conflicting-answers" else "duplicate_of"
    job.drops.row(values["id"], duplicate.reason, values, **{relation: id})

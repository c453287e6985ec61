"""The work of `magcli translate`, once its options are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.console import counted
from magcli.curate.instruction import instruction
from magcli.curate.translation import (
    EXISTING,
    LanguageChoice,
    defect,
    messages,
    read_translations,
    translated,
    untranslatable,
    with_translations,
)
from magcli.data.schema import extend_schema
from magcli.data.seal import hash_text
from magcli.errors import DataError, PromptRefused
from magcli.generate.types import Sampling, sample_seed
from magcli.run.each_row import each_row, nothing_to_close
from magcli.stages.shared import engines, tables, templates
from magcli.stages.translate import Config, reads
from magcli.verify.language import MIXED, UNDECIDED, identify

if TYPE_CHECKING:
    from pathlib import Path

    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job

    Outcome = tuple[str | None, str | None]

ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


DONE = "translated"
"""Column translation of a translated row; otherwise it has the reason."""

MAX_UNIT = 64
"""Maximum rows of a unit of work, which has about one selected row."""


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the instruction and of the existing translations."""
    identity: dict[str, Any] = {}
    if config.model:
        identity = engines.model_identity(templates.open_model(config), templates.NO_SYSTEM)
        # Of the instruction, which is the system prompt here.
        identity["system_sha256"] = hash_text(instruction(config.system))
    return identity | tables.table_identity("from", config.from_)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns and the new ones.

    ``language`` is that of the prompt (in code problems unchanged, as there it is a programming language), ``original``
    the English prompt of a translated row, ``translation`` is ``translated`` or the reason why not, and
    ``translated_to`` the target language; the last two are null in rows that were not selected.
    """
    names = ("language", "original", "translation", "translated_to")
    return extend_schema(input_schema, pa.schema([pa.field(name, pa.string()) for name in names]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Translate the selected rows."""
    choice = LanguageChoice(config.fraction, config.languages)
    if config.from_:
        rows = _with_texts_of(config, config.from_, rows, choice, job)
    generator = engines.open_engine(config, job) if config.model else None

    async def decide(row: dict[str, Any]) -> dict[str, Any]:
        changed = await _translate(config, row, choice, generator)
        return {**row, "language": _language_of(row), **changed}

    close = generator.close if generator else nothing_to_close
    completions = (lambda: generator.num_finished) if generator else None
    size = MAX_UNIT
    if config.fraction:  # a unit has about one row to translate
        # About so many rows have one that is selected.
        rows_a_selected = max(1, int(1 / config.fraction))
        size = min(MAX_UNIT, rows_a_selected)
    yield from each_row(
        job,
        _count_translated(rows, job),
        decide,
        close=close,
        size=size,
        window=2 * config.num_slots,
        unit="problems",
        completions=completions,
    )


def _with_texts_of(config: Config, table: Path, rows: Rows, choice: LanguageChoice, job: Job) -> Rows:
    """The rows with the translations of a table, by ids or by row numbers."""
    texts = read_translations(table, config.by, config.languages, lambda text: job.console.warn(f"translate: {text}"))
    # Ids match wherever a row is; row numbers only if no row is missing.
    if config.by != "id":
        rows = _complete(rows, job)
    return with_translations(rows, texts, config.by, choice, str(table))


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report at the end how many rows were translated, and why others were not."""
    outcomes: Counter[Outcome] = Counter()
    for batch in rows:
        outcomes.update(_outcomes(batch))
        yield batch
    # Translated by an earlier run, so not work of this one.
    earlier: Counter[Outcome] = Counter({(DONE, language): number for language, number in job.tally.items()})
    _report(outcomes - earlier, earlier.total(), job)


def _count_translated(rows: Rows, job: Job) -> Rows:
    """The rows, counting by language those that an earlier run translated."""
    for batch in rows:
        if {"translation", "translated_to"} <= set(batch.schema.names):
            # Of the input, before this run changes it.
            job.tally.update(language or "" for outcome, language in _outcomes(batch) if outcome == DONE)
        yield batch


def _outcomes(batch: pa.RecordBatch) -> Iterator[Outcome]:
    outcomes = batch.column("translation").to_pylist()
    languages = batch.column("translated_to").to_pylist()
    return zip(outcomes, languages, strict=True)


def _complete(rows: Rows, job: Job) -> Rows:
    """The rows, if their numbers are those in the table.

    Raises:
        DataError: a row was dropped, so the next ones would get wrong translations.
    """
    for batch in rows:
        if job.drops.counts:
            reasons = ", ".join(job.drops.counts)
            raise DataError(
                f"translate: --by position needs every row, but some were dropped ({reasons}); join by id, or remove "
                "them from both tables"
            )
        yield batch


async def _translate(
    config: Config, row: dict[str, Any], choice: LanguageChoice, generator: Generator | None
) -> dict[str, str | None]:
    """The changed columns of a row."""
    if row.get("translation") == DONE:
        return {}
    language = choice.of(row["id"])
    unchanged: dict[str, str | None] = {"original": None, "translation": None, "translated_to": language}
    if language is None:
        return unchanged
    reason: str | None = untranslatable(row["prompt"], str(row.get("answer") or ""))
    if reason:
        return {**unchanged, "translation": reason}
    # If there is no candidate at all.
    reason = "no-translation"
    async for text, wrong in _candidates(config, row, language, generator):
        reason = wrong or defect(row["prompt"], text, language)
        if reason is None:
            changed: dict[str, str | None] = {
                "prompt": text,
                "original": row["prompt"],
                "translation": DONE,
                "translated_to": language,
            }
            # In code problems the column is the programming language.
            return changed if row.get("kind") == "code" else {**changed, "language": language}
    return {**unchanged, "translation": reason}


async def _candidates(
    config: Config, row: dict[str, Any], language: str, generator: Generator | None
) -> AsyncIterator[tuple[str, str | None]]:
    """Translations, the existing one first, each with a reason to reject it if one is already known."""
    if config.from_ and row.get(EXISTING):
        yield row[EXISTING], None
    if generator is None:
        return
    question = messages(row["prompt"], language, instruction(config.system))
    sampling = Sampling(config.max_tokens, config.temperature)
    for number in range(config.tries):
        # Another seed each time, else a second try would be the first one again.
        seed = sample_seed(config.seed, row["id"], number)
        try:
            (done,) = await generator.complete(question, sampling, seeds=[seed])
        except PromptRefused as error:
            # Another try would be refused too.
            yield "", error.reason
            return
        yield translated(done, generator.thoughts), "cut" if done.finish == "length" else None


def _language_of(row: dict[str, Any]) -> str | None:
    """The row's own value, else the language of the prompt; null for code problems and if it cannot be identified."""
    if row.get("language") or row.get("kind") == "code":
        return row.get("language")
    language = identify(row["prompt"])
    return None if language in (UNDECIDED, MIXED) else language


def _report(outcomes: Counter[Outcome], earlier: int, job: Job) -> None:
    """One line: rows selected, translated by language, unchanged by reason, and translated before this run."""
    translated: Counter[str] = Counter()
    unchanged: Counter[str] = Counter()
    for (outcome, language), count in outcomes.items():
        if language and outcome == DONE:
            translated[language] += count
        elif language:
            unchanged[str(outcome)] += count

    selected = translated.total() + unchanged.total()
    text = (
        f"translate: {selected:,} of {outcomes.total():,} selected; translated {_listed(translated)}, "
        f"unchanged {_listed(unchanged)}"
    )
    if earlier:
        text += f"; {earlier:,} were translated before"
    counts = {"translated": dict(translated), "unchanged": dict(unchanged)}
    job.console.result(text, event="translations", selected=selected, **counts)


def _listed(counts: Counter[str]) -> str:
    """The sum of counts, and each by its name if there are any."""
    total = f"{counts.total():,}"
    return f"{total} ({counted(counts)})" if counts else total

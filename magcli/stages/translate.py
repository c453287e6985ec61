"""Translate a fraction of the problems into other languages, by a model or from existing translations.

Rows are selected by a hash of their ids. A translation must keep formulas, code and numbers and be in the target
language; otherwise the row is tried again, and after the last attempt it stays in English with the reason in column
translation. With --from, the translation in that table is tried first.

Every row is written, translated or unchanged. Rows that are already translated are unchanged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.errors import DataError, PromptRefused, usage
from magcli.stages.shared import cluster, engines, options, tables, templates

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.translation import LanguageChoice
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job

    Outcome = tuple[str | None, str | None]
    """A row's columns translation and translated_to."""

INPUTS = "Problems: columns prompt, optional id; - is stdin."
RESUMES = True
ALIASES = tables.ALIASES
EXAMPLE = (
    "magcli translate examples/word_problems.jsonl --from examples/translations.jsonl --fraction 0.5 "
    "--languages fr,de -o translated.arrow"
)
DONE = "translated"
"""Column translation of a translated row; otherwise it has the reason."""
MAX_UNIT = 64
"""Maximum rows of a unit of work, which has about one selected row."""
RECIPE_LANGUAGES = ("fr", "es", "it", "de", "zh", "ru")


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions, cluster.ClusterOptions):
    """Options of `magcli translate`."""

    fraction: float = opt(0.1, "Share of the rows to translate.", ge=0, le=1)
    languages: tuple[str, ...] = opt(RECIPE_LANGUAGES, "Target languages, in equal shares.")
    from_: Path | None = opt(
        None, "Table of existing translations: columns prompt, id or position; language if there are several."
    )
    by: Literal["id", "position"] = opt(
        "id",
        "How rows of --from are matched: by id, or by row number from 0 (column position, else the order of its rows).",
    )
    tries: int = opt(3, "Maximum number of attempts per row, each with another seed.", gt=0)
    temperature: float = options.temperature(0.5)
    system: Path | None = opt(
        None,
        "File with the instruction, in which {language} is the target language (default: magcli's).",
        panel=options.SAMPLING,
    )


def unshardable_reason(config: Config) -> str:
    """Rows are selected by their ids; only row numbers refer to the whole table."""
    return "--by position needs the row numbers of the whole table" if config.from_ and config.by == "position" else ""


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    return ("id", "prompt")


layouts = tables.problem_layouts(reads)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    from magcli.curate.translation import NAMES, instruction

    unknown = [name for name in config.languages if name not in NAMES]
    usage(len(config.languages) > 0, "translate.languages: no language given")
    usage(not unknown, f"translate.languages: unknown {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    usage(bool(config.model or config.from_), "translate: give --model, --from or both")
    usage(config.from_ is not None or config.by == "id", "translate: --by position requires --from")
    if config.model:
        options.check_engine("translate", config)
        instruction(config.system)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the model, of the instruction and of the existing translations."""
    from magcli.curate.translation import instruction

    identity: dict[str, Any] = {}
    if config.model:
        identity = engines.model_identity(templates.open_model(config.model, config), templates.NO_SYSTEM)
        identity["system_sha256"] = hashlib.sha256(instruction(config.system).encode()).hexdigest()
    return identity | tables.table_identity("from", config.from_)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The given columns and the new ones.

    ``language`` is that of the prompt (in code problems unchanged, as there it is a programming language), ``original``
    the English prompt of a translated row, ``translation`` is ``translated`` or the reason why not, and
    ``translated_to`` the target language; the last two are null in rows that were not selected.
    """
    import pyarrow as pa

    from magcli.data.schema import extend_schema

    names = ("language", "original", "translation", "translated_to")
    return extend_schema(input_schema, pa.schema([pa.field(name, pa.string()) for name in names]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Translate the selected rows."""
    from magcli.curate.translation import LanguageChoice, read_translations, with_translations
    from magcli.run.each_row import each_row

    choice = LanguageChoice(config.fraction, config.languages)
    if config.from_:
        texts = read_translations(
            config.from_, config.by, config.languages, lambda text: job.console.warn(f"translate: {text}")
        )
        matched = rows if config.by == "id" else _complete(rows, job)
        rows = with_translations(matched, texts, config.by, choice)
    generator = engines.open_engine(config, job) if config.model else None
    assert job.schema is not None
    out = schema(config, job.schema)

    async def decide(row: dict[str, Any]) -> dict[str, Any]:
        changed = await _translate(config, row, choice, generator)
        return {**row, "language": _language_of(row), **changed}

    def finished() -> int:
        return generator.num_finished if generator else 0

    async def close() -> None:
        if generator:
            await generator.close()

    size = min(MAX_UNIT, max(1, int(1 / config.fraction))) if config.fraction else MAX_UNIT
    yield from each_row(
        job,
        _count_translated(rows, job),
        decide,
        schema=out,
        close=close,
        size=size,
        window=2 * config.num_slots,
        unit="problems",
        completions=finished if generator else None,
    )


def report(config: Config, rows: Rows, job: Job) -> Rows:
    """Report at the end how many rows were translated, and why others were not."""
    outcomes: Counter[Outcome] = Counter()
    for batch in rows:
        outcomes.update(_outcomes(batch))
        yield batch
    earlier: Counter[Outcome] = Counter({(DONE, language): number for language, number in job.tally.items()})
    _report(outcomes - earlier, earlier.total(), job)


def _count_translated(rows: Rows, job: Job) -> Rows:
    """The rows, counting by language those that an earlier run translated."""
    for batch in rows:
        if {"translation", "translated_to"} <= set(batch.schema.names):
            job.tally.update(language or "" for outcome, language in _outcomes(batch) if outcome == DONE)
        yield batch


def _outcomes(batch: pa.RecordBatch) -> Iterator[Outcome]:
    return zip(*(batch.column(name).to_pylist() for name in ("translation", "translated_to")), strict=True)


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
    from magcli.curate.translation import defect, untranslatable

    language = choice.of(row["id"])
    if row.get("translation") == DONE:
        return {}
    unchanged: dict[str, str | None] = {"original": None, "translation": None, "translated_to": language}
    if language is None:
        return unchanged
    reason: str | None = untranslatable(row["prompt"], str(row.get("answer") or ""))
    if reason:
        return {**unchanged, "translation": reason}
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
    from magcli.curate.translation import EXISTING, instruction, messages, translated
    from magcli.generate.types import Sampling, sample_seed

    if config.from_ and row.get(EXISTING):
        yield row[EXISTING], None
    if generator is None:
        return
    question = messages(row["prompt"], language, instruction(config.system))
    sampling = Sampling(config.max_tokens, config.temperature)
    for number in range(config.tries):
        try:
            (done,) = await generator.complete(question, sampling, seeds=[sample_seed(config.seed, row["id"], number)])
        except PromptRefused as error:
            yield "", error.reason
            return
        yield translated(done, generator.thoughts), "cut" if done.finish == "length" else None


def _language_of(row: dict[str, Any]) -> str | None:
    """The row's own value, else the language of the prompt; null for code problems and if it cannot be identified."""
    from magcli.verify.language import MIXED, UNDECIDED, identify

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

    def listed(counts: Counter[str]) -> str:
        parts = ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
        return f"{counts.total():,}" + (f" ({parts})" if parts else "")

    selected = translated.total() + unchanged.total()
    job.console.result(
        f"translate: {selected:,} of {outcomes.total():,} selected; translated {listed(translated)}, "
        f"unchanged {listed(unchanged)}" + (f"; {earlier:,} were translated before" if earlier else ""),
        event="translations",
        selected=selected,
        translated=dict(translated),
        unchanged=dict(unchanged),
    )

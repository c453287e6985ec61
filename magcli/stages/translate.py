"""A fraction of the problems into other languages, by a model or from existing translations.

Rows are chosen by a hash of their ids. A translation must keep formulas, code and numbers and be in the target
language; one that is not is tried again, and after the last attempt the row stays in English with the reason in column
translation. With --from, the translation in that table is tried first.

Every row is written, translated or unchanged. Rows that are already translated are unchanged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.errors import DataError, PromptRefused, usage
from magcli.run import options
from magcli.stages.parts import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.language.translation import Choice
    from magcli.data.source import Rows
    from magcli.generate.types import Generator
    from magcli.run.job import Job

    Outcome = tuple[str | None, str | None]
    """A row's columns translation and translated_to."""

INPUTS = "Problems: columns prompt, optional id; - is stdin."
OUTPUT = "the rows"
DEFAULT_OUTPUT = "-"
RESUMES = True
ALIASES = setup.ALIASES
EXAMPLE = (
    "magcli translate examples/word_problems.jsonl --from examples/translations.jsonl --fraction 0.5 "
    "--languages fr,de -o translated.arrow"
)
DONE = "translated"
"""What column translation says of a row that is translated; else it says why not."""
MAX_UNIT = 64
"""Most rows of a unit of work, which has about one row that is chosen."""
RECIPE_LANGUAGES = ("fr", "es", "it", "de", "zh", "ru")


@dataclass(frozen=True)
class Config:
    """Options of `magcli translate`."""

    fraction: float = opt(0.1, "Share of the rows to translate.")
    languages: tuple[str, ...] = opt(RECIPE_LANGUAGES, "Target languages, in equal shares.")
    from_: Path | None = opt(
        None, "Table of existing translations: columns prompt, id or position, and language where there are several."
    )
    by: Literal["id", "position"] = opt(
        "id",
        "What joins --from: the id, or the row's number from 0, in column position or else the place in the table.",
    )
    tries: int = opt(3, "Maximum number of attempts per row, each with another seed.")
    model: str = options.model()
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature(0.5)
    system: Path | None = opt(
        None, "File with the instruction; {language} in it stands for the language (default: the one of magcli)."
    )
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
    """Nothing, as rows are chosen by their ids; but numbers that join translations are those of rows of the whole."""
    return "--by position needs the numbers of all" if config.from_ and config.by == "position" else ""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.curate.language.translation import NAMES, instruction

    unknown = [name for name in config.languages if name not in NAMES]
    usage(0 <= config.fraction <= 1, f"translate.fraction: {config.fraction} is not between 0 and 1")
    usage(len(config.languages) > 0, "translate.languages: there are none")
    usage(not unknown, f"translate.languages: {', '.join(unknown)} not among {', '.join(NAMES)}")
    usage(config.tries > 0, f"translate.tries: {config.tries} is not positive")
    usage(config.max_tokens > 0, f"translate.max_tokens: {config.max_tokens} is not positive")
    usage(config.temperature >= 0, f"translate.temperature: {config.temperature} is negative")
    usage(bool(config.model or config.from_), "translate: give --model, --from or both")
    if config.model:
        checks.engine("translate", config)
        instruction(config.system)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the digests of the model, of the instruction and of the existing translations."""
    from magcli.curate.language.translation import instruction

    told = hashlib.sha256(instruction(config.system).encode()).hexdigest()
    identity = setup.model_identity(config.model, Path("none")) | {"system_sha256": told} if config.model else {}
    return identity | setup.table_identity("from", config.from_)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns, and what was done.

    ``language`` is that of the prompt (of a code problem what it was, since there it names a programming language),
    ``original`` the English prompt of a translated row, ``translation`` is ``translated`` or why not, and
    ``translated_to`` the language that the row was chosen for; the last two are null in rows that were not chosen.
    """
    import pyarrow as pa

    from magcli.data.columns import extended

    names = ("language", "original", "translation", "translated_to")
    return extended(given, pa.schema([pa.field(name, pa.string()) for name in names]))


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Translate the rows that are chosen; tells at the end how many were, and why others were not."""
    import asyncio

    import pyarrow as pa

    from magcli.curate.language.existing import joined, read_translations
    from magcli.curate.language.translation import Choice
    from magcli.run.journal import Result
    from magcli.run.units import resumable

    choice = Choice(config.fraction, config.languages)
    if config.from_:
        given = rows if config.by == "id" else _unbroken(rows, job)
        texts = read_translations(config.from_, config.by, config.languages, _warning(job))
        rows = joined(given, texts, config.by, choice)
    generator = setup.open_engine(config, job) if config.model else None
    assert job.schema is not None
    out = schema(config, job.schema)

    async def compute(part: pa.RecordBatch) -> Result:
        rows = part.to_pylist()
        found = await asyncio.gather(*(_outcome(config, row, choice, generator) for row in rows))
        done = [{**row, "language": _language_of(row), **each} for row, each in zip(rows, found, strict=True)]
        return Result(pa.RecordBatch.from_pylist(done, out))

    async def close() -> None:
        if generator:
            await generator.close()

    tally: Counter[Outcome] = Counter()
    before: Counter[Outcome] = Counter()
    size = min(MAX_UNIT, max(1, int(1 / config.fraction))) if config.fraction else MAX_UNIT
    rows = _noted(rows, before)
    for batch in resumable(rows, job, compute, close, size=size, window=2 * config.slots, unit="problems"):
        tally.update(_outcomes(batch))
        yield batch
    _report(tally - before, before.total(), job)


def _noted(rows: Rows, before: Counter[Outcome]) -> Rows:
    """The rows; those of them that an earlier run has translated are counted."""
    for batch in rows:
        if {"translation", "translated_to"} <= set(batch.schema.names):
            before.update(each for each in _outcomes(batch) if each[0] == DONE)
        yield batch


def _outcomes(batch: pa.RecordBatch) -> Iterator[Outcome]:
    return zip(*(batch.column(name).to_pylist() for name in ("translation", "translated_to")), strict=True)


def _warning(job: Job) -> Callable[[str], None]:
    return lambda text: job.console.warn(f"translate: {text}")


def _unbroken(rows: Rows, job: Job) -> Rows:
    """The rows, as long as their numbers are those that they have in the table.

    Raises:
        DataError: one was dropped, so that those after it would get the translations of others.
    """
    for batch in rows:
        if job.drops.counts:
            reasons = ", ".join(job.drops.counts)
            raise DataError(
                f"translate: --by position needs every row, but some cannot be used ({reasons}); join by id, or remove "
                "them from both tables"
            )
        yield batch


async def _outcome(
    config: Config, row: dict[str, Any], choice: Choice, generator: Generator | None
) -> dict[str, str | None]:
    """The columns that change in a row."""
    from magcli.curate.language.translation import fault, unfit

    language = choice.of(row["id"])
    if row.get("translation") == DONE:
        return {}
    if language is None:
        return {"original": None, "translation": None, "translated_to": None}
    why: str | None = unfit(row["prompt"], str(row.get("answer") or ""))
    if why is None:
        why = "no-translation"
        async for text, wrong in _candidates(config, row, language, generator):
            why = wrong or fault(row["prompt"], text, language)
            if why is None:
                spoken = {} if row.get("kind") == "code" else {"language": language}
                done = {"original": row["prompt"], "translation": DONE, "translated_to": language}
                return {"prompt": text, **spoken, **done}
    return {"original": None, "translation": why, "translated_to": language}


async def _candidates(
    config: Config, row: dict[str, Any], language: str, generator: Generator | None
) -> AsyncIterator[tuple[str, str | None]]:
    """Translations one after the other, the existing one first, each with what is wrong with it for certain."""
    from magcli.curate.language.existing import EXISTING
    from magcli.curate.language.translation import instruction, messages, translated
    from magcli.generate.types import Sampling, sample_seed

    if config.from_ and row.get(EXISTING):
        yield row[EXISTING], None
    asked = messages(row["prompt"], language, instruction(config.system))
    sampling = Sampling(config.max_tokens, config.temperature)
    for number in range(config.tries if generator else 0):
        assert generator
        try:
            (done,) = await generator.complete(asked, sampling, seeds=[sample_seed(config.seed, row["id"], number)])
        except PromptRefused as error:
            yield "", error.reason
            return
        yield translated(done), "cut" if done.finish == "length" else None


def _language_of(row: dict[str, Any]) -> str | None:
    """What stands in the row, else the language of the prompt; null for code problems and where it cannot be told."""
    from magcli.verify.language import MIXED, UNDECIDED, identify

    if row.get("language") or row.get("kind") == "code":
        return row.get("language")
    told = identify(row["prompt"])
    return None if told in (UNDECIDED, MIXED) else told


def _report(tally: Counter[Outcome], before: int, job: Job) -> None:
    """One line: rows chosen, translated by language, kept as they were by reason, and translated before this run."""
    into, kept = Counter[str](), Counter[str]()
    for (outcome, language), count in tally.items():
        if language:
            (into if outcome == DONE else kept)[language if outcome == DONE else str(outcome)] += count

    def told(counts: Counter[str]) -> str:
        parts = ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
        return f"{counts.total():,}" + (f" ({parts})" if parts else "")

    chosen = into.total() + kept.total()
    job.console.say(
        f"translate: {chosen:,} chosen of {tally.total():,}; translated {told(into)}, left as they were {told(kept)}"
        + (f"; {before:,} were translated before" if before else ""),
        event="translations",
        chosen=chosen,
        translated=dict(into),
        left=dict(kept),
    )

"""Translate a fraction of the problems into other languages, by a model or from existing translations.

Rows are selected by a hash of their ids. A translation must keep formulas, code and numbers and be in the target
language; otherwise the row is tried again, and after the last attempt it stays in English with the reason in column
translation. With --from, the translation in that table is tried first.

Every row is written, translated or unchanged. Rows that are already translated are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from magcli.config import opt
from magcli.curate.instruction import NAMES, instruction
from magcli.errors import usage
from magcli.stages.shared import options

INPUTS = "Problems: columns prompt, optional id; - is stdin."
RESUMES = True
EXAMPLE = (
    "magcli translate examples/word_problems.jsonl --from examples/translations.jsonl --fraction 0.5 "
    "--languages fr,de -o translated.arrow"
)
IN_RECIPE = options.ENGINE_IN_RECIPE

RECIPE_LANGUAGES = ("fr", "es", "it", "de", "zh", "ru")


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions, options.ClusterOptions):
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
    if config.from_ and config.by == "position":
        return "--by position needs the row numbers of the whole table"
    return ""


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    return ("id", "prompt")


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    usage(len(config.languages) > 0, "translate.languages: no language given")
    unknown = [name for name in config.languages if name not in NAMES]
    usage(not unknown, f"translate.languages: unknown {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    usage(bool(config.model or config.from_), "translate: give --model, --from or both")
    usage(config.from_ is not None or config.by == "id", "translate: --by position requires --from")
    if config.model:
        options.check_engine("translate", config)
        # Read here, so that a file that is missing or has no {language} is refused.
        instruction(config.system)

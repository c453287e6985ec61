"""Keep complete, verifiable math problems; multiple choice becomes an open question.

The format filter of the recipe: proofs, multi-part and incomplete statements are dropped, and so are problems whose
answers the verifier cannot check, or of which many are right (countdown, the game of 24). Of exact and
near-duplicates, the one with the smallest id is kept; where the answers to one statement contradict each other, none
is. Of an answer that ends in its value (GSM8K), the worked solution is kept in column solution. --against drops
problems that are in evaluation files. With --model, a model answers one short question about each row that the rules
cannot decide, such as whether it needs the figure that it mentions. --dropped stores dropped rows with their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.config import opt
from magcli.stages.shared import options

INPUTS = "Problems: columns prompt, answer; optional id, choices or options; - is stdin."
RESUMES = True
IN_RECIPE = options.ENGINE_IN_RECIPE
EXAMPLE = "magcli clean-math examples/messy.jsonl -o clean.arrow --dropped dropped.jsonl"


@dataclass(frozen=True)
class Config(options.GenerationOptions, options.EngineOptions, options.ClusterOptions):
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


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    if config.model:
        options.check_engine("clean-math", config)

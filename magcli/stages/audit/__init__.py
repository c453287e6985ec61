"""Check the rollouts that a trainer dumped: verdicts, truncation, groups, log-probs, languages, repetition.

DUMPS are what TRL, verl, prime-rl (verifiers), NeMo-RL and OpenRLHF write, or any table of completions. Rows that have
a reference answer or tests are graded again. The output has one row for each rollout with our verdict and the
findings; --page writes a page with the count, the share with its interval, and examples of each finding. What a dump
does not have, such as log-probs, is named, and what depends on it is not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from magcli.config import opt
from magcli.stages.shared import options

INPUTS = "The dumps, one after the other: rollouts with prompt and completion; - is stdin."
RESUMES = True
NEEDS_ALL = True
EXAMPLE = "magcli audit examples/completions.jsonl -o audited.arrow --page audit.html"


@dataclass(frozen=True)
class Config(options.GraderOptions):
    """Options of `magcli audit`."""

    page: Path | None = opt(None, "Page of the findings to write: a file that ends in .html.", affects_rows=False)
    rewards: tuple[str, ...] = opt(
        (), "Columns whose sum is the trainer's reward (default: that of the dump's layout; of TRL, all its rewards)."
    )
    right_from: float | None = opt(
        None,
        "The trainer's reward from which it took an answer for right (default: halfway between the lowest and the "
        "highest of the dump).",
    )
    thoughts: str = options.thoughts(options.REWARD, "from the table's history, else that of most completions")


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    return ("id", "prompt", "completion")


def check(config: Config) -> None:
    """Refuse a page that is not one."""
    options.check_thoughts("audit", config.thoughts)
    options.check_page("audit: --page", config.page)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The page."""
    return (config.page,) if config.page else ()


def unshardable_reason(config: Config) -> str:
    """Groups and repeated completions are found by comparing all rollouts."""
    return "audit compares all rollouts with each other"

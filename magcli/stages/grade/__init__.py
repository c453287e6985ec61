"""Compute the rewards of completions, with each part and a reason.

Completions may come from any tool: each row needs a problem, its answer (or tests) and a completion, under any of the
common column names. Problems whose ground truth cannot be parsed have the reason bad-gold. Programs run in a sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared import cluster, options
from magcli.stages.shared.environment_check import check_environment

INPUTS = "Completions: columns prompt, answer or tests, completion; num_tokens for the length penalty; - is stdin."
RESUMES = True
EXAMPLE = "magcli grade examples/completions.jsonl -o graded.arrow"


@dataclass(frozen=True)
class Config(options.EnvironmentOptions, options.RewardOptions, cluster.ClusterOptions):
    """Options of `magcli grade`."""

    opening: str = opt(
        "", "Text that the prompt ended with and completions lack, such as '<think>'; it is put before them."
    )
    thoughts: str = options.thoughts(options.REWARD, "from the table's history, else that of most completions")


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    if config.reward or config.environment:
        return ("id", "completion")
    return ("id", "prompt", "answer|tests", "completion", *(("num_tokens",) if config.penalty_end else ()))


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    options.check_reward("grade", config)
    options.check_thoughts("grade", config.thoughts)
    check_environment("grade", config, config.environment, config.reward)
    judges = options.environment_judges(config.environment)
    usage(judges or not config.environment, f"grade: --environment {config.environment} has no reward of its own")
    usage(config.penalty_end > 0 or config.penalty_width == 0, "grade: --penalty-width requires --penalty-end")

"""Sample completions of problems from any model: a folder, a hub id, or a server.

The output has one row per sample, with the columns of its problem. The same command resumes an interrupted run.
"""

from __future__ import annotations

from dataclasses import dataclass

from magcli.stages.shared import options
from magcli.stages.shared.environment_check import check_environment

INPUTS = "Problems: columns prompt, optional id; - is stdin."
RESUMES = True
EXAMPLE = (
    "magcli generate examples/problems.jsonl --model examples/model --system none "
    "--samples 4 --max-tokens 48 -o completions.arrow"
)
IN_RECIPE = options.ENGINE_IN_RECIPE


ENVIRONMENT = options.GraderOptions(workers=4)
"""How an environment runs."""


@dataclass(frozen=True)
class Config(options.EnvironmentOptions, options.SamplingOptions, options.EngineOptions, options.ClusterOptions):
    """Options of `magcli generate`."""


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    return ("id", "prompt")


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    options.check_engine("generate", config)
    check_environment("generate", ENVIRONMENT, config.environment)

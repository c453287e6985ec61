"""Filter math problems by difficulty: sample each problem and keep those within a range of pass rates.

Never-solved and too-easy problems are dropped; with --drop-suspect also those where most samples agree on an answer
that differs from the ground truth, which is then probably wrong. The recipe's two passes are this stage run twice, with
two models. For a model that has not yet learnt the format (thoughts and a box), --anywhere counts correct answers
in any format.

--adaptive samples each problem in rounds and stops when the remaining samples cannot change the decision: the same
problems are kept, for the same reasons, with fewer tokens. Columns pass_rate and majority are then computed from fewer
samples (num_samples); leave --adaptive out if you need them over all --samples.

--from takes the samples from the rollouts of an `rl` run instead of a model: what the policy has solved, never solved,
or answers by majority against the ground truth flows back into the table at no cost. Problems that the run did not
sample stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from magcli.config import opt
from magcli.curate.math.difficulty import band
from magcli.errors import usage
from magcli.stages.shared import options
from magcli.stages.shared.environment_check import check_environment

INPUTS = "Problems: columns prompt, answer, optional id; - is stdin."
RESUMES = True
EXAMPLE = (
    "magcli filter-math examples/problems.jsonl --model examples/model --system none --samples 4 --max-tokens 48 "
    "--keep 0..0.9 -o kept.arrow --dropped dropped.jsonl"
)
IN_RECIPE = (*options.ENGINE_IN_RECIPE, "verify_deadline")


@dataclass(frozen=True)
class Config(
    options.GraderOptions,
    options.EnvironmentOptions,
    options.SamplingOptions,
    options.EngineOptions,
    options.ClusterOptions,
):
    """Options of `magcli filter-math`."""

    REMOVED: ClassVar[Mapping[str, str]] = {"majority": "a majority is more than half of the samples"}

    samples: int = options.samples(16)
    from_: Path | None = opt(
        None,
        "Folder of an rl run whose rollouts are the samples, instead of --model: the last groups of each problem, at "
        "least --samples completions.",
    )
    keep: str = opt(
        "0.01..0.9",
        "Range of pass rates to keep, LOW..HIGH, both inclusive; a LOW of 0.01 drops only never-solved problems.",
    )
    drop_suspect: bool = opt(False, "Drop problems on whose answer most samples agree, against the ground truth.")
    anywhere: bool = opt(False, "Ignore the format: count correct answers without thoughts and a box.")
    adaptive: bool = opt(False, "Stop sampling a problem once more samples cannot change the decision.")


def reads(config: Config) -> tuple[str, ...]:
    """The required columns."""
    judges = options.environment_judges(config.environment)
    return ("id", "prompt") if judges else ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    if config.from_ is None:
        options.check_engine("filter-math", config)
    else:
        usage(not config.model, "filter-math: --from has the samples of a run already; omit --model")
        usage(not config.environment, "filter-math: --from samples nothing; omit --environment")
        usage(not config.adaptive, "filter-math: --adaptive decides what to sample, and --from samples nothing")
    check_environment("filter-math", config, config.environment)
    judges = options.environment_judges(config.environment)
    usage(not (judges and config.drop_suspect), "filter-math: an --environment's own reward has no --drop-suspect")
    band(config.keep)

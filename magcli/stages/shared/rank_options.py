"""Several trainer ranks, for `sft` and `rl`: their options and checks."""

from __future__ import annotations

import os
from dataclasses import dataclass

from magcli.cluster.open import require_ray
from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared.options import CLUSTER, TrainingOptions


@dataclass(frozen=True)
class RankOptions(TrainingOptions):
    """A model that is trained on one or several ranks."""

    trainers: int = opt(
        1,
        "Number of trainer ranks, which share weights and optimizer by FSDP2; more than 1 are processes under Ray.",
        panel=CLUSTER,
        affects_rows=False,
        ge=1,
    )
    fsdp_size: int = opt(
        0,
        "Number of ranks that share one copy of weights and optimizer state, such as the GPUs of a node (hybrid "
        "sharding); default: all --trainers.",
        panel=CLUSTER,
        affects_rows=False,
    )
    min_trainers: int = opt(
        0,
        "Fewest trainer ranks to go on with if no node replaces a lost one within two minutes; the number of "
        "--trainers waits for one; default: 2, or --fsdp-size.",
        panel=CLUSTER,
        affects_rows=False,
    )
    cluster: str = opt(
        "",
        "Where processes under Ray run: local (default) starts one on this machine; auto or HOST:PORT joins a cluster.",
        panel=CLUSTER,
        affects_rows=False,
    )


def check(stage: str, config: RankOptions, *, others: int = 0) -> None:
    """Refuse numbers and places of processes that contradict each other; ``others`` of the run are under Ray too.

    Raises:
        EnvironmentFault: Ray is needed and not installed.
    """
    _refuse_torchrun(stage)
    size = config.fsdp_size
    usage(
        size == 0 or (size > 1 and config.trainers % size == 0),
        f"{stage}.fsdp_size: {size} must be 2 or more and divide the {config.trainers} ranks of --trainers",
    )
    least = config.min_trainers
    usage(
        least == 0 or 2 <= least <= config.trainers,
        f"{stage}.min_trainers: {least} must be 2 or more and at most the {config.trainers} ranks of --trainers",
    )
    needs_ray = others > 0 or config.trainers > 1
    usage(needs_ray or not config.cluster, f"{stage}: --cluster has nothing to place; add --trainers 2 or more")
    alone = config.trainers == 1
    usage(alone or not config.lora, f"{stage}: --lora trains in one process; use --trainers 1, or leave --lora out")
    usage(
        alone or config.offload == "none",
        f"{stage}: --offload needs a single process; with --trainers, more ranks divide the moments instead",
    )
    if needs_ray:
        require_ray()


def _refuse_torchrun(stage: str) -> None:
    """Refuse to be one of several processes that torchrun has started: they would all be the same run."""
    size = os.environ.get("WORLD_SIZE", "")
    is_one_of_several = "RANK" in os.environ and size.isdigit() and int(size) > 1
    text = f"{stage}: magcli starts its trainer ranks itself: leave torchrun out and give --trainers {size}"
    usage(not is_one_of_several, text)

"""The sizes of an RL run: options that `magcli rl` and `magcli simulate` share, and their checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from magcli.config import opt
from magcli.errors import usage
from magcli.rl.training_stages import STAGE_OPTIONS, StageOptions, min_updates
from magcli.stages.shared import options
from magcli.stages.shared.options import BATCH


@dataclass(frozen=True)
class RunSizes:
    """How much a run generates and trains, and when."""

    updates: int = opt(100, "Number of policy updates, each on n-batch completions.", panel=BATCH, gt=0)
    group_size: int = opt(16, "Group size G: completions per problem.", panel=BATCH, former="group")
    n_batch: int = opt(256, "Batch size: completions per update.", panel=BATCH)
    n_mini: int = opt(256, "Mini-batch size: completions per optimizer step; without it n-batch.", panel=BATCH)
    n_async: int = opt(512, "Maximum number of concurrent completions; without it twice n-batch.", panel=BATCH)
    schedule: Literal["async", "sync"] = opt(
        "async", "async overlaps generation and training; sync is the deterministic baseline.", panel=BATCH
    )
    staleness: int = opt(
        8, "Maximum staleness S: a group trains at most this many updates after it started.", panel=BATCH, ge=0
    )
    stage: tuple[StageOptions, ...] = opt(
        (), "Stages of the run, one [[rl.stage]] table of the recipe each.", panel=BATCH
    )
    max_tokens: int = options.max_tokens()
    seed: int = options.seed()


Sizes = TypeVar("Sizes", bound=RunSizes)


def defaults(config: RunSizes) -> dict[str, Any]:
    """The sizes that follow from the batch: an update is one optimizer step, and twice its completions run at once."""
    return {"n_mini": config.n_batch, "n_async": 2 * config.n_batch}


def options_in(stage: StageOptions, config: Sizes) -> Sizes:
    """The run's options as they are in a stage."""
    # `simulate` has only some of the options of `rl`.
    values = {name: getattr(stage, name) for name in STAGE_OPTIONS if hasattr(config, name)}
    overrides = {name: value for name, value in values.items() if value is not None}
    return dataclasses.replace(config, **overrides)


def check(prefix: str, config: RunSizes) -> None:
    """Refuse invalid batches and lengths; messages begin with ``prefix``.

    Raises:
        UsageError: which option and why.
    """
    size = config.group_size
    usage(size > 1, f"{prefix}.group_size: {size} completions have nothing to compare; give at least 2")
    # Groups are never divided among batches.
    for name in ("n_async", "n_batch", "n_mini"):
        completions = getattr(config, name)
        whole = completions > 0 and completions % size == 0
        usage(whole, f"{prefix}.{name}: {completions} is not a multiple of group_size {size}")
    # An update is a whole number of optimizer steps.
    divides = config.n_batch % config.n_mini == 0
    usage(divides, f"{prefix}.n_mini: {config.n_mini} does not divide n_batch {config.n_batch}")


def check_ends(stages: Sequence[StageOptions], updates: int) -> None:
    """Refuse stages without an end, except the last, and more stages than the run has updates for.

    Raises:
        UsageError: which table, counted from 1, and why.
    """
    if not stages:
        return
    # The last stage ends with the run.
    *before, last = stages
    for number, stage in enumerate(before, 1):
        prefix = f"rl.stage {number}"
        usage(stage.updates is None or stage.updates > 0, f"{prefix}.updates: {stage.updates} is not positive")
        usage(stage.updates is not None or stage.until is not None, f"{prefix} has no end; give updates or until")
    usage(
        last.updates is None,
        f"rl.stage {len(stages)} is the last and ends with the run: omit its updates; rl.updates counts those of all "
        "stages",
    )
    # A rule looks at several updates before it can end a stage.
    earliest = sum(map(min_updates, before))
    usage(
        earliest < updates,
        f"rl.updates: {updates} ends the run before its last stage, which starts after at least {earliest}",
    )

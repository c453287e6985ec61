"""The schedule of a run: its stages, what of the options changes in them, and when the next one begins.

The recipe trains in stages to keep three things true: the data do not become easy, completions do not stop growing
longer, and the KV cache fits (recipe, section 5). Each ``[[rl.stage]]`` table of a recipe is a stage; what a table
leaves out is as the run's own options say, whatever an earlier table said; only the problems are those of the stage
before. A run without tables has one stage.

The stage that a run is in follows from its lines of metrics alone, so a resumed run is in the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from magcli.generate.types import Sampling
    from magcli.rl.objective import Objective
    from magcli.verify.reward import RewardRule

LENGTH_WINDOW = 20
"""Updates whose mean lengths are averaged by ``length-stalled``."""

GROWTH = 0.02
"""Growth of the length from one such window to the next that still counts as growing.

With 15% noise in an update's mean (16 groups whose lengths differ as much as they do), constant lengths are noticed
within 60 updates in 98% of simulated runs; lengths that double in 100 updates count as stalled in 5%.
"""

EASY_WINDOW = 10
"""Updates whose groups are counted by ``data-easy``."""

EASY_SHARE = 0.5
"""Share of all-correct groups above which the data are easy: every group that trains costs two."""

Line = Mapping[str, Any]
"""The metrics of one update."""


@dataclass(frozen=True)
class StageOptions:
    """One ``[[rl.stage]]`` table; None is as the run's options say.

    Args:
        penalty_end: l_max of the length penalty, in tokens.
        penalty_width: l_cache: tokens before l_max over which the penalty grows.
        max_tokens: longest completion.
        n_async: completions being generated at once.
        n_batch: completions of one update.
        n_mini: completions of one optimizer step.
        temperature: of sampling, and of the log-probs of training.
        clip_high: upper clip of the ratio.
        data: table of problems; None goes on with the table of the stage before, the run's input in the first.
        band: lowest and highest pass rate of the problems to take.
        updates: updates after which the stage ends.
        until: what ends it, after ``updates`` at the latest.
    """

    penalty_end: int | None = None
    penalty_width: int | None = None
    max_tokens: int | None = None
    n_async: int | None = None
    n_batch: int | None = None
    n_mini: int | None = None
    temperature: float | None = None
    clip_high: float | None = None
    data: Path | None = None
    band: tuple[float, ...] | None = None
    updates: int | None = None
    until: Literal["length-stalled", "data-easy"] | None = None


STAGE_OPTIONS = (
    "penalty_end", "penalty_width", "max_tokens", "n_async", "n_batch", "n_mini", "temperature", "clip_high"
)  # fmt: skip
"""The run's options that a stage can change; ``updates`` of a run counts those of all its stages."""


@dataclass(frozen=True, slots=True)
class StageSettings:
    """What one stage of a run generates and trains with. Batches are counted in groups.

    Attributes:
        objective: of its updates.
        groups_per_step: groups of one optimizer step.
        batch_groups: groups of one update.
        async_groups: groups that are generated concurrently.
        sampling: how completions are sampled.
        rule: how they are rewarded.
    """

    objective: Objective
    groups_per_step: int
    batch_groups: int
    async_groups: int
    sampling: Sampling
    rule: RewardRule


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run's stages in order; one without ``[[rl.stage]]`` tables has a single one."""

    stages: Sequence[StageOptions]
    settings: Sequence[StageSettings]

    def stage_at(self, lines: Sequence[Line]) -> int:
        """The index of the stage that makes the update after ``lines``, the metrics of all updates so far."""
        return len(starts(self.stages, lines)) - 1


def starts(stages: Sequence[StageOptions], lines: Sequence[Line]) -> list[int]:
    """How many updates were done when each stage that has begun did so. The last stage never ends."""
    begun = [0]
    for done in range(1, len(lines) + 1):
        if len(begun) < len(stages) and has_ended(stages[len(begun) - 1], lines[begun[-1] : done]):
            begun.append(done)
    return begun


def has_ended(stage: StageOptions, lines: Sequence[Line]) -> bool:
    """Whether a stage ends after ``lines``, the metrics of its own updates."""
    if stage.updates is not None and len(lines) >= stage.updates:
        return True
    rules = {"length-stalled": length_stalled, "data-easy": data_easy}
    return stage.until is not None and rules[stage.until](lines)


def length_stalled(lines: Sequence[Line]) -> bool:
    """Whether completions have stopped growing: the mean length of the last 20 updates is less than 2% above that of
    the 20 before them. Lengths are those of all that was sampled, not of what trained alone.
    """
    recent = [line["length_mean"] for line in lines[-2 * LENGTH_WINDOW :]]
    if len(recent) < 2 * LENGTH_WINDOW:
        return False
    return fmean(recent[LENGTH_WINDOW:]) < (1 + GROWTH) * fmean(recent[:LENGTH_WINDOW])


def data_easy(lines: Sequence[Line]) -> bool:
    """Whether more than half of the groups of the last 10 updates were all correct, so that they had zero advantage."""
    if len(lines) < EASY_WINDOW:
        return False
    recent = lines[-EASY_WINDOW:]
    right = sum(line["groups_dropped"].get("all-right", 0) for line in recent)
    generated = sum(line["groups_trained"] + sum(line["groups_dropped"].values()) for line in recent)
    return bool(right > EASY_SHARE * generated)


def min_updates(stage: StageOptions) -> int:
    """The fewest updates that a stage can have."""
    least = {None: stage.updates or 0, "length-stalled": 2 * LENGTH_WINDOW, "data-easy": EASY_WINDOW}[stage.until]
    return least if stage.updates is None else min(least, stage.updates)

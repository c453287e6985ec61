"""The stages of a run as the loop sees them: what each trains with, how much it generates, and which is on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magcli.generate.types import Sampling
from magcli.rl.objective import Objective
from magcli.rl.phase import Phase, phase_at
from magcli.verify.reward import RewardRule


@dataclass(frozen=True, slots=True)
class Leg:
    """What one stage of a run is made with. Batches are counted in groups.

    Args:
        objective: of its updates.
        groups_per_step: groups of one optimizer step.
        batch_groups: groups of one update.
        async_groups: groups that are generated at once.
        sampling: how its completions are drawn.
        rule: how they are rewarded.
    """

    objective: Objective
    groups_per_step: int
    batch_groups: int
    async_groups: int
    sampling: Sampling
    rule: RewardRule


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's stages in order; one without ``[[rl.stage]]`` tables has a single one."""

    phases: Sequence[Phase]
    legs: Sequence[Leg]

    def stage(self, lines: Sequence[Mapping[str, Any]]) -> int:
        """The stage that makes the update after ``lines``, the metrics of all updates so far."""
        return phase_at(self.phases, lines)

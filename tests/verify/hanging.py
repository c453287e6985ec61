"""A reward that never returns for the answer ``hang``, and is the recipe's otherwise."""

from collections.abc import Mapping
from typing import Any

from magcli.verify.reward import Reward, RewardRule, reward

RULE = RewardRule(penalty_end=1000, use_language=False)


def endless(completion: str, row: Mapping[str, Any]) -> Reward:
    """Endless on ``hang``."""
    while "{hang}" in completion:
        pass
    return reward(completion, 10, row, RULE)

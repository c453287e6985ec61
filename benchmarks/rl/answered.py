"""The reward of the race, for both sides: ``magcli.verify.Grader`` calls it in its worker processes.

SmolLM2-135M-Instruct does not know the recipe's format, whose reward would be 0 for all: here the recipe's verifier
says whether the answer is right anywhere in the text. Brevity spreads the rewards of every group, so no group is ever
without two rewards, and whether such groups are removed makes no difference to the race.
"""

import time
from collections.abc import Mapping
from typing import Any

from magcli.verify.reward import RewardRule, reward

LATE_SECONDS = 0.1

LONG = 1000.0
"""Characters at which brevity earns half of what it can."""


def answered(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """0.9 for the right answer, and up to 0.1 for few characters."""
    found = reward(completion, 0, row, RewardRule())
    right = found.correct_anywhere
    return {"total": 0.9 * right + 0.1 / (1 + len(completion) / LONG), "correct": right, "extracted": found.extracted}


def answered_late(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The same after ``LATE_SECONDS``: a slow verifier."""
    time.sleep(LATE_SECONDS)
    return answered(completion, row)

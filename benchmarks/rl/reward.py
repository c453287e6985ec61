"""The reward function of both sides, called by the worker processes of ``magcli.verify.Grader``.

SmolLM2-135M-Instruct does not know the recipe's format and would get a reward of 0: here an answer counts that is
correct anywhere in the text. A small bonus for brevity gives every group different rewards, so that neither side
removes groups or trains on groups without a signal.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from magcli.verify.reward import RewardRule, reward

DELAY_SECONDS = 0.1
HALF_BONUS_LENGTH = 1000.0
"""Characters."""


def correct_anywhere(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """0.9 for a correct answer and up to 0.1 for brevity."""
    graded = reward(completion, 0, row, RewardRule())
    correct = graded.correct_anywhere
    total = 0.9 * correct + 0.1 / (1 + len(completion) / HALF_BONUS_LENGTH)
    return {"total": total, "correct": correct, "extracted": graded.extracted}


def delayed(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The same after ``DELAY_SECONDS``."""
    time.sleep(DELAY_SECONDS)
    return correct_anywhere(completion, row)


class OneTurn:
    """Ends after the model's first turn, and gives the reward of the other side."""

    def reply(self, row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> None:
        """Nothing: the episode has ended."""

    def reward(self, row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The reward of the turn."""
        return correct_anywhere(messages[-1]["content"], row)

"""Rewards that can be verified: format, answers, programs, language, and the processes that grade.

    from magcli.verify import Grader

    with Grader(workers=2) as grader:
        rewards = grader.grade(completions, rows)

Names are imported lazily, so that a worker loads no more than it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magcli.verify.grader import Grader
    from magcli.verify.math import equal
    from magcli.verify.reward import Reward, RewardRule

__all__ = ["Grader", "Reward", "RewardRule", "equal"]

_PLACES = {
    "Grader": "magcli.verify.grader",
    "Reward": "magcli.verify.reward",
    "RewardRule": "magcli.verify.reward",
    "equal": "magcli.verify.math",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)

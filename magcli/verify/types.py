"""A verdict: what a verifier says of one completion, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal[
    "correct",
    "wrong",
    "no-think",
    "no-box",
    "no-code",
    "bad-gold",
    "timeout",
    "infra-error",
]
"""Why a completion was or was not right. ``bad-gold``, ``infra-error`` and ``timeout`` blame the grading, not
the completion."""

UNGRADED: tuple[Literal["bad-gold", "timeout", "infra-error"], ...] = ("bad-gold", "timeout", "infra-error")
"""Verdicts that do not tell right from wrong: such a completion never trains."""

UNCOUNTED: tuple[Literal["bad-gold", "infra-error"], ...] = ("bad-gold", "infra-error")
"""Of these, those that count in no accuracy; an answer that cannot be graded in time counts as wrong."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``score`` is 1.0 (right) or 0.0; ``answer`` the answer found; ``detail`` which path decided."""

    score: float
    reason: Reason
    answer: str = ""
    detail: str = ""


Verifier = Callable[[str, Mapping[str, Any]], Verdict]
"""(completion text, problem row) -> verdict; pure, run in killable workers."""

"""A verdict: what a verifier says of one completion, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

FormatReason = Literal[
    "no-think",
    "repeated-think",
    "unclosed-think",
    "no-box",
    "unclosed-box",
    "empty-box",
    "no-code",
    "unclosed-code",
    "unnamed-code",
]
"""The first rule of the format gate that a completion broke; see ``magcli.verify.format``."""

CodeReason = Literal[
    "accepted",
    "wrong-answer",
    "time-limit",
    "memory-limit",
    "runtime-error",
    "output-limit",
    "compile-error",
    "compile-timeout",
    "no-code",
    "infra-error",
]
"""What became of a program on its tests."""

Reason = Literal["correct", "wrong", "bad-gold", "timeout", "reward-error"] | FormatReason | CodeReason
"""Why a completion was or was not right. ``bad-gold``, ``infra-error``, ``timeout`` and ``reward-error`` (a user's own
reward function failed) blame the grading, not the completion."""

RIGHT: tuple[Reason, ...] = ("correct", "accepted")
"""Verdicts of a right completion."""

UNGRADED: tuple[Literal["bad-gold", "timeout", "infra-error", "reward-error"], ...] = (
    "bad-gold",
    "timeout",
    "infra-error",
    "reward-error",
)
"""Verdicts that say nothing about correctness: such a completion never trains."""

UNCOUNTED: tuple[Literal["bad-gold", "infra-error", "reward-error"], ...] = ("bad-gold", "infra-error", "reward-error")
"""Of these, those that count in no accuracy; an answer that cannot be graded in time counts as wrong."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    ``score`` is 1.0 (right) or 0.0; for a program, where asked for, the fraction of tests it passed. ``answer`` is the
    answer found, of a program its language. ``detail`` is the path that decided, or which test failed and how.
    ``passed`` of ``total`` tests were passed.
    """

    score: float
    reason: Reason
    answer: str = ""
    detail: str = ""
    passed: int = 0
    total: int = 0


Verifier = Callable[[str, Mapping[str, Any]], Verdict]
"""(completion text, problem row) -> verdict; pure, run in killable workers."""

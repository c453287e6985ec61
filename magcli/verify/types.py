"""Verdicts: whether a completion is right, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

FormatReason = Literal[
    "no-think", "repeated-think", "unclosed-think", "no-box", "unclosed-box", "empty-box", "no-code", "unclosed-code",
    "unnamed-code",
]  # fmt: skip
"""The first rule of the format that a completion violates; see ``magcli.verify.format``."""

CodeReason = Literal[
    "accepted", "wrong-answer", "time-limit", "memory-limit", "runtime-error", "output-limit", "compile-error",
    "compile-timeout", "no-code", "infra-error",
]  # fmt: skip
"""The result of a program on its tests."""

Reason = Literal["correct", "wrong", "bad-gold", "timeout", "reward-error"] | FormatReason | CodeReason
"""Why a completion was right or not. ``bad-gold``, ``infra-error``, ``timeout`` and ``reward-error`` (a custom reward
function failed) are failures of the grading, not of the completion."""

RIGHT: tuple[Reason, ...] = ("correct", "accepted")
"""Reasons of right completions."""

UNGRADED: tuple[Literal["bad-gold", "timeout", "infra-error", "reward-error"], ...] = (
    "bad-gold",
    "timeout",
    "infra-error",
    "reward-error",
)
"""Reasons that say nothing about correctness: such a completion is never trained on."""

UNCOUNTED: tuple[Literal["bad-gold", "infra-error", "reward-error"], ...] = ("bad-gold", "infra-error", "reward-error")
"""Those of them that count in no accuracy; an answer that cannot be graded in time counts as wrong."""


class Fault(NamedTuple):
    """Why a program is not accepted, with details."""

    reason: CodeReason
    detail: str


class AnswerPair(NamedTuple):
    """An answer, and the one that it is compared with, as with a ground truth."""

    answer: str
    gold: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verifier.

    ``score`` is 1.0 (right) or 0.0, or the fraction of tests passed if requested. ``answer`` is the answer found, of
    a program its language. ``detail`` is the comparison that decided, or the first failed test. ``passed`` and
    ``total`` count tests.
    """

    score: float
    reason: Reason
    answer: str = ""
    detail: str = ""
    passed: int = 0
    total: int = 0


Verifier = Callable[[str, Mapping[str, Any]], Verdict]
"""(completion text, problem row) -> verdict; pure, run in killable workers."""

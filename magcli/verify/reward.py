"""The reward of one completion and its parts, exactly as in section 2 of the recipe.

If the format fails, the total is 0, without length or language terms, and only the format-free metric
``correct_anywhere`` is computed. A ground truth that cannot be parsed (``bad-gold``), a time-out and a failure of the
grading are not the completion's fault: the total is 0, and ``trainable`` is False.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from magcli.errors import DataError
from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.run.limits import exhausted
from magcli.verify import language, math
from magcli.verify.format import Parts, boxed_answer, gate
from magcli.verify.types import RIGHT, UNGRADED, AnswerPair, Reason, Verdict, Verifier

NO_LIMIT = 1 << 40
"""A length that no completion reaches: no penalty."""
ALL_TESTS = 1 << 40
"""More tests than any problem has."""
MAX_EXTRACTED = 1_000
"""Stored answers are truncated to this many characters; grading uses all of them."""


@dataclass(frozen=True, slots=True)
class RewardRule:
    """Weights of the parts, the length penalty in tokens, and how programs are tested.

    ``penalty_end`` is the recipe's l_max, ``penalty_width`` its l_cache. ``num_tests`` tests of a program are sampled,
    the same for equal ``test_seed`` and problem, that is for a whole group. ``partial`` rewards the fraction of tests
    passed (the ablation that the recipe reports as failed) instead of all or nothing. ``thoughts`` is the form in which
    completions have their thoughts.
    """

    penalty_end: int = NO_LIMIT
    penalty_width: int = 0
    format: float = 0.1
    correctness: float = 0.9
    length: float = 0.1
    language: float = 0.1
    use_language: bool = True
    num_tests: int = 20
    test_seed: int = 0
    partial: bool = False
    thoughts: ThoughtForm = THINK


@dataclass(frozen=True, slots=True)
class Reward:
    """The total, its parts (the length part is 0 or negative), and why.

    ``extracted`` is the answer (of a program its language), ``detail`` the comparison that decided, the failed test or
    the error. ``correct_anywhere`` ignores the format: whether the last box, or without a box the last number, is
    right; of programs, the first block with a language name. ``languages`` are those of question, thoughts and answer,
    such as ``en en ?``: ``?`` is undecided, ``mixed`` several in one part; empty if not checked. ``parts`` are what a
    custom reward is made of, by name.
    """

    total: float
    format: float
    correctness: float
    length: float
    language: float
    correct: bool
    correct_anywhere: bool
    reason: Reason
    extracted: str = ""
    detail: str = ""
    languages: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def trainable(self) -> bool:
        """Whether the verdict is about the completion; otherwise it must never be trained on."""
        return self.reason not in UNGRADED


def ungraded(reason: Reason, detail: str = "") -> Reward:
    """A reward of 0 for a failure of the grading."""
    return Reward(0.0, 0.0, 0.0, 0.0, 0.0, False, False, reason, "", printable(detail))


def failed(error: Exception) -> Reward:
    """The reward after an unexpected exception of a verifier: an ``infra-error`` with its location.

    Raises EnvironmentFault if descriptors or processes ran out, since that would end the next verdicts too.
    """
    if fault := exhausted(error):
        raise fault from error
    return ungraded("infra-error", describe_error(error))


def describe_error(error: Exception) -> str:
    """An unexpected exception of a verifier and its location: the detail of an ``infra-error``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    try:
        text = str(error)
    except Exception:  # of a class with a failing __str__
        text = ""
    return f"{type(error).__name__}{where}: {text[:200]}"


def length_penalty(num_tokens: int, penalty_end: int, penalty_width: int, weight: float = 0.1) -> float:
    """0 up to ``penalty_end - penalty_width`` tokens, then linear, ``-weight`` from ``penalty_end`` on.

    With ``penalty_width`` 0 it is a step: ``penalty_end`` tokens cost nothing, one more costs all.
    """
    over = num_tokens - (penalty_end - penalty_width)
    if over <= 0:
        return 0.0
    if over >= penalty_width:
        return -weight
    return -weight * over / penalty_width


def reward(
    text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule, verify: Verifier | None = None
) -> Reward:
    """Grade one completion. Pure; hostile text may take long or much memory, so it runs in a worker of the pool.

    Args:
        text: The completion, from the opening tag of its thoughts on.
        num_tokens: Its length in tokens.
        row: The problem: ``prompt``, ``answer`` or ``tests``, and ``kind`` (default ``math``).
        rule: Weights and lengths.
        verify: Judges the answer part; ``verify_math`` by default. Required for ``code`` problems.

    Raises:
        DataError: the problem is of an unknown kind, or a code problem without a verifier of programs.
    """
    kind = problem_kind(row)
    if kind == "code" and verify is None:
        raise DataError("a code problem cannot be graded without a sandbox; use magcli.verify.Grader")
    # Before the format: whatever the completion looks like, the row is at fault.
    if kind == "math" and not math.parsable(gold_answer(row)):
        return ungraded("bad-gold", gold_answer(row))
    verify = verify or verify_math
    parts = gate(text, kind, rule.thoughts)
    # Where the format failed, only the format-free metric is computed, from the whole text.
    if isinstance(parts, str):
        free = verify(text, row)
        right = free.reason in RIGHT
        return Reward(0.0, 0.0, 0.0, 0.0, 0.0, False, right, parts, printable(free.answer), "format")
    verdict = verify(parts.answer, row)
    if verdict.reason in UNGRADED:
        return ungraded(verdict.reason, verdict.detail)
    return _combined_reward(verdict, parts, num_tokens, row, rule)


def problem_kind(row: Mapping[str, Any]) -> Literal["math", "code"]:
    """Whether a problem asks for an answer or a program. Raises DataError if its kind is unknown."""
    kind = row.get("kind") or "math"
    if kind not in ("math", "code"):
        raise DataError(
            f"problem {row.get('id', '?')}: kind {kind!r} cannot be graded, only math and code; leave such rows out"
        )
    return "code" if kind == "code" else "math"


def gold_answer(row: Mapping[str, Any]) -> str:
    """The ground truth of a math problem as text; empty if there is none."""
    answer = row.get("answer")
    return "" if answer is None else str(answer)


def verify_math(answer: str, row: Mapping[str, Any]) -> Verdict:
    """Whether the boxed answer of an answer part equals the ground truth; format-free, perhaps its last number."""
    boxed = (boxed_answer(answer, ("boxed",)) or "").strip()
    gold = gold_answer(row)
    if boxed:
        correct, path = math.compare(boxed, gold, str(row.get("prompt") or ""))
    else:
        correct, path = math.correct_anywhere(answer, gold), "format"
    return Verdict(float(correct), "correct" if correct else "wrong", boxed, path)


def verify_pair(pair: AnswerPair) -> Verdict:
    """Whether two answers without boxes are equal; ``bad-gold`` if the second cannot be parsed."""
    if not math.parsable(pair.gold):
        return Verdict(0.0, "bad-gold", pair.answer)
    correct, path = math.compare(pair.answer, pair.gold)
    return Verdict(float(correct), "correct" if correct else "wrong", pair.answer, path)


def _combined_reward(
    verdict: Verdict, parts: Parts, num_tokens: int, row: Mapping[str, Any], rule: RewardRule
) -> Reward:
    # With ``partial`` a wrong program has a score, too.
    correct = verdict.reason in RIGHT
    correctness = rule.correctness * verdict.score
    length = length_penalty(num_tokens, rule.penalty_end, rule.penalty_width, rule.length)
    texts = (str(row.get("prompt") or ""), parts.thoughts, parts.answer)
    # Undecided, which is None, earns no bonus either.
    detections = [language.detect(part) for part in texts] if rule.use_language else []
    spoken = rule.language if detections and language.agree(detections) else 0.0
    return Reward(
        total=rule.format + correctness + length + spoken,
        format=rule.format,
        correctness=correctness,
        length=length,
        language=spoken,
        correct=correct,
        correct_anywhere=correct,
        reason=verdict.reason,
        extracted=printable(verdict.answer),
        detail=printable(verdict.detail),
        languages=" ".join(detection.label for detection in detections),
    )


def printable(text: str) -> str:
    """Truncated and without lone surrogates, for a table."""
    # A lone surrogate cannot be encoded, and becomes "?".
    return text[:MAX_EXTRACTED].encode("utf-8", "replace").decode()

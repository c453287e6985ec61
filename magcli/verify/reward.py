"""The reward of one completion and its parts, exactly as in section 2 of the recipe.

Format is a gate: where it fails the total is 0, with no length or language term, and nothing further is graded but
the format-free metric ``correct_anywhere``. A ground truth that cannot be read (``bad-gold``), a time-out and a
failure of the grading blame nobody: total 0, and ``trainable`` is False.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.verify import language, math
from magcli.verify.format import Parts, gate
from magcli.verify.types import UNGRADED, Reason

if TYPE_CHECKING:
    import pyarrow as pa

MAX_EXTRACTED = 1_000
"""Longer answers are kept cut to this many characters; they are graded whole."""


@dataclass(frozen=True, slots=True)
class RewardRule:
    """Weights of the parts and the lengths, in tokens, between which the penalty grows.

    ``max_length`` is the recipe's l_max, ``cache_length`` its l_cache.
    """

    max_length: int
    cache_length: int = 0
    format: float = 0.1
    correctness: float = 0.9
    length: float = 0.1
    language: float = 0.1
    use_language: bool = True


@dataclass(frozen=True, slots=True)
class Reward:
    """The total, its parts (the length part is 0 or negative), and why.

    ``extracted`` is the answer found, ``detail`` the path that decided or what went wrong. ``correct_anywhere``
    ignores the format: the last box, or without a box the last number, is right.
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

    @property
    def trainable(self) -> bool:
        """Whether the verdict says something of the completion; if not, it must never train."""
        return self.reason not in UNGRADED


def undecided(reason: Reason, detail: str = "") -> Reward:
    """A reward of 0 that blames the grading."""
    return Reward(0.0, 0.0, 0.0, 0.0, 0.0, False, False, reason, "", detail)


def length_penalty(num_tokens: int, max_length: int, cache_length: int, weight: float = 0.1) -> float:
    """0 up to ``max_length - cache_length`` tokens, then linear, ``-weight`` from ``max_length`` on.

    With ``cache_length`` 0 it is a step: ``max_length`` tokens cost nothing, one more costs all.
    """
    over = num_tokens - (max_length - cache_length)
    if over <= 0:
        return 0.0
    return -weight if over >= cache_length else -weight * over / cache_length


def reward(text: str, num_tokens: int, row: Mapping[str, Any], rule: RewardRule) -> Reward:
    """Grade one completion. Pure; may run long or grow on hostile text, so it belongs in a worker of the pool.

    Args:
        text: The completion, from ``<think>`` on.
        num_tokens: Its length in tokens.
        row: The problem: ``prompt``, ``answer``, and ``kind`` (``math`` where absent).
        rule: Weights and lengths.

    Raises:
        DataError: the problem is not a math problem.
    """
    gold = gold_of(row)
    if not math.parsable(gold):
        return undecided("bad-gold", _printable(gold))
    parts, broken = gate(text)
    if parts is None:
        return _ungraded(broken or "no-think", text, gold)
    answer = math.extract(parts.answer) or ""
    correct, path = math.compare(answer, gold)
    formatted = rule.format
    correctness = rule.correctness if correct else 0.0
    length = length_penalty(num_tokens, rule.max_length, rule.cache_length, rule.length)
    spoken = rule.language if rule.use_language and _one_language(row, parts) else 0.0
    return Reward(
        total=formatted + correctness + length + spoken,
        format=formatted,
        correctness=correctness,
        length=length,
        language=spoken,
        correct=correct,
        correct_anywhere=correct,
        reason="correct" if correct else "wrong",
        extracted=_printable(answer.strip()),
        detail=path,
    )


def gold_of(row: Mapping[str, Any]) -> str:
    """The ground truth as text; empty where there is none.

    Raises:
        DataError: the problem is not a math problem.
    """
    kind = row.get("kind") or "math"
    if kind != "math":
        raise DataError(
            f"problem {row.get('id', '?')}: kind {kind!r} cannot be graded by this version, which grades math only; "
            f"leave such rows out"
        )
    answer = row.get("answer")
    return "" if answer is None else str(answer)


def _ungraded(broken: Reason, text: str, gold: str) -> Reward:
    """The format failed: all parts 0; the format-free metric alone is worked out."""
    found = math.extract(text) or ""
    return Reward(
        0.0, 0.0, 0.0, 0.0, 0.0, False, math.anywhere(text, gold), broken, _printable(found.strip()), "format"
    )


def _one_language(row: Mapping[str, Any], parts: Parts) -> bool:
    return language.consistent(str(row.get("prompt") or ""), parts.thoughts, parts.answer) is True


def _printable(text: str) -> str:
    """Cut to size and free of lone surrogates, which no table can hold."""
    return text[:MAX_EXTRACTED].encode("utf-8", "replace").decode()


def columns(rewards: Sequence[Reward]) -> "pa.RecordBatch":
    """The rewards as the columns of ``magcli.data.schema.REWARD``, in order."""
    import pyarrow as pa  # here and not above: workers grade without it

    from magcli.data.schema import REWARD

    arrays = [
        pa.array([getattr(reward, part.name) for reward in rewards], field.type)
        for part, field in zip(fields(Reward), REWARD, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=REWARD)

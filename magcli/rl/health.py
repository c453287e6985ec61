"""When a run cannot learn any more, and why: rules over its lines of metrics.

A fault is one line of text with the numbers that decided; the loop ends the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]

NON_DIVERSE = ("all-right", "all-wrong", "same-reward")
"""The reasons for dropping a graded group that has zero advantage (``magcli.rl.algorithm``)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond these a run does not learn.

    Attributes:
        mismatch_p50, mismatch_p99: of the size of the log-ratio of trainer and engine at equal weights. Measured with
            SmolLM2-135M before and after SFT: a bf16 engine has up to 0.016 and 0.17; tokens drawn at temperature 1
            and scored at 0.7 have a 99th percentile of 0.9 to 3.6, tokens drawn at top-p 0.8 a median of 0.16 where
            the model is unsure. Beyond these limits the tokens come from another distribution, and the clipping of
            their ratios is noise.
        mismatch_tokens: fewer tokens give no 99th percentile.
        mismatch_updates: how many updates in a row must be beyond these.
        cut_share: completions ended by the token limit, which hardly ever get a reward. Runs at 0.97 to 0.99 do not
            improve.
        non_diverse_share: groups without two outcomes among those graded. From here on each group that trains costs
            fifty.
        updates: how many updates in a row must be beyond these shares.
    """

    mismatch_p50: float = 0.1
    mismatch_p99: float = 0.5
    mismatch_tokens: int = 500
    mismatch_updates: int = 3
    cut_share: float = 0.97
    non_diverse_share: float = 0.98
    updates: int = 10


LIMITS = Limits()


def fault(lines: Sequence[Line], limits: Limits = LIMITS) -> str | None:
    """Why a run should stop after the last of these lines of metrics (the oldest first), or None."""
    rules = (
        (mismatch_fault, limits.mismatch_updates),
        (cut_fault, limits.updates),
        (non_diverse_fault, limits.updates),
    )
    for rule, updates in rules:
        found = [rule(line, limits) for line in lines[-updates:]]
        if len(found) == updates and all(found):
            return f"{updates} updates in a row: {found[-1]}"
    return None


def mismatch_fault(line: Line, limits: Limits = LIMITS) -> str | None:
    """Whether one ``mismatch_summary`` shows that the engine samples from another distribution.

    Before the first update this alone is reason to stop: training cannot explain it.
    """
    if line["mismatch_tokens"] < limits.mismatch_tokens:
        return None
    median, tail = line["mismatch_p50"], line["mismatch_p99"]
    if not _beyond(median, limits.mismatch_p50) and not _beyond(tail, limits.mismatch_p99):
        return None
    return (
        f"engine and trainer give {line['mismatch_tokens']:,} tokens log-probs that differ by {_shown(median)} in the "
        f"median (limit {limits.mismatch_p50:g}) and by {_shown(tail)} at the 99th percentile (limit "
        f"{limits.mismatch_p99:g}), at equal weights; check the engine, or give it --dtype fp32 (with --restart)"
    )


def comparison(line: Line) -> str:
    """One ``mismatch_summary`` in a sentence."""
    if not line["mismatch_tokens"]:
        return "no token was sampled from the weights that train; engine and trainer cannot be compared"
    return (
        f"engine and trainer at equal weights: the log-probs of {line['mismatch_tokens']:,} tokens differ by "
        f"{_shown(line['mismatch_p50'])} in the median, {_shown(line['mismatch_p99'])} at the 99th percentile, "
        f"{_shown(line['mismatch_max'])} at most"
    )


def cut_fault(line: Line, limits: Limits = LIMITS) -> str | None:
    """Whether hardly any completion of an update ended by itself."""
    share = line["cut_share"]
    if share is None or share < limits.cut_share:
        return None
    return f"{100 * share:.1f} % of the completions reach the token limit; give more --max-tokens, or SFT first"


def non_diverse_fault(line: Line, limits: Limits = LIMITS) -> str | None:
    """Whether nearly all groups of an update had zero advantage."""
    dropped: Mapping[str, int] = line["groups_dropped"]
    same = {reason: count for reason, count in dropped.items() if reason in NON_DIVERSE}
    graded = line["groups_trained"] + sum(same.values())
    if not graded or sum(same.values()) < limits.non_diverse_share * graded:
        return None
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(same.items(), key=lambda item: -item[1]))
    return f"of {graded:,} groups {sum(same.values()):,} had zero advantage ({reasons}); use other problems"


def _beyond(value: float | None, limit: float) -> bool:
    """Whether a value exceeds a limit; a number that is not finite is None in a line of metrics."""
    return value is None or not value <= limit


def _shown(value: float | None) -> str:
    return "a non-finite number" if value is None else f"{value:.3g}"

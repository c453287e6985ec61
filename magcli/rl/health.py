"""Rules over a run's metrics that end it when it cannot learn any more.

Each rule returns a line of text with the numbers that it is based on, or None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from magcli.run.rundir import Line

NON_DIVERSE = ("all-right", "all-wrong", "same-reward")
"""The reasons for dropping a graded group that has zero advantage (``magcli.rl.algorithm``)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits beyond which a run does not learn.

    Attributes:
        mismatch_p50, mismatch_p99: of the absolute log-ratio of trainer and engine at equal weights. Measured with
            SmolLM2-135M before and after SFT: a bf16 engine has up to 0.016 and 0.17; tokens sampled at temperature 1
            and scored at 0.7 have a 99th percentile of 0.9 to 3.6, tokens sampled at top-p 0.8 a median of 0.16 where
            the model is uncertain. Beyond these limits the tokens come from another distribution, and the clipping of
            their ratios is noise.
        mismatch_tokens: minimum number of tokens for a 99th percentile.
        mismatch_updates: number of consecutive updates that must exceed these.
        cut_share: share of completions that reach the token limit, which hardly ever get a reward. Runs at 0.97 to
            0.99 do not improve.
        non_diverse_share: share of graded groups with zero advantage. At this limit fifty groups are generated
            for each one that trains.
        updates: number of consecutive updates that must exceed these shares.
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
    """Why a run should stop after the last of these lines, oldest first, or None."""
    rules = (
        (mismatch_fault, limits.mismatch_updates),
        (cut_fault, limits.updates),
        (non_diverse_fault, limits.updates),
    )
    for rule, updates in rules:
        found = [rule(line, limits) for line in lines[-updates:]]
        if len(found) == updates and all(found):
            return f"in {updates} consecutive updates: {found[-1]}"
    return None


def mismatch_fault(line: Line, limits: Limits = LIMITS) -> str | None:
    """Why a ``mismatch_summary`` shows that the engine samples from another distribution, or None.

    Before the first update this alone is a reason to stop, because training cannot have caused it.
    """
    if line["mismatch_tokens"] < limits.mismatch_tokens:
        return None
    median, tail = line["mismatch_p50"], line["mismatch_p99"]
    if not _exceeds(median, limits.mismatch_p50) and not _exceeds(tail, limits.mismatch_p99):
        return None
    return (
        f"engine and trainer at equal weights: the log-probs of {line['mismatch_tokens']:,} tokens differ by "
        f"{_text(median)} in the median (limit {limits.mismatch_p50:g}), {_text(tail)} at the 99th percentile (limit "
        f"{limits.mismatch_p99:g}); check the engine, or use --dtype fp32 (with --restart)"
    )


def comparison(line: Line) -> str:
    """A ``mismatch_summary`` as a sentence."""
    if not line["mismatch_tokens"]:
        return "no token was sampled from the current weights, so engine and trainer cannot be compared"
    return (
        f"engine and trainer at equal weights: the log-probs of {line['mismatch_tokens']:,} tokens differ by "
        f"{_text(line['mismatch_p50'])} in the median, {_text(line['mismatch_p99'])} at the 99th percentile, "
        f"{_text(line['mismatch_max'])} at most"
    )


def cut_fault(line: Line, limits: Limits = LIMITS) -> str | None:
    """Why an update shows that hardly any completion ends by itself, or None."""
    share = line["cut_share"]
    if share is None or share < limits.cut_share:
        return None
    return f"{100 * share:.1f} % of completions reach the token limit; increase --max-tokens, or run SFT first"


def non_diverse_fault(line: Line, limits: Limits = LIMITS) -> str | None:
    """Why an update shows that nearly all groups have zero advantage, or None."""
    dropped: Mapping[str, int] = line["groups_dropped"]
    same = {reason: count for reason, count in dropped.items() if reason in NON_DIVERSE}
    graded = line["groups_trained"] + sum(same.values())
    if not graded or sum(same.values()) < limits.non_diverse_share * graded:
        return None
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(same.items(), key=lambda item: -item[1]))
    return f"{sum(same.values()):,} of {graded:,} groups had zero advantage ({reasons}); use other problems"


def _exceeds(value: float | None, limit: float) -> bool:
    """Whether a value exceeds a limit; a number that is not finite is None in a line of metrics."""
    return value is None or not value <= limit


def _text(value: float | None) -> str:
    return "a non-finite number" if value is None else f"{value:.3g}"

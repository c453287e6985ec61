"""The findings as counts with intervals: for the terminal, and with examples for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magcli.data.values import to_rows
from magcli.report import audit as page
from magcli.stages.audit.findings import MAX_FACTOR, MAX_MEAN_FACTOR, Basis, Rollout, grouped
from magcli.stages.shared.verdicts import accuracy_interval

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from magcli.console import Console

TITLES: Mapping[str, tuple[str, str]] = {
    "rewarded_wrong": (
        "Rewarded, and wrong by our verdict",
        "The trainer took the answer for right; compared with the reference answer it is wrong.",
    ),
    "unrewarded_right": (
        "Right by our verdict, and not rewarded",
        "The trainer took the answer for wrong; compared with the reference answer, in any format, it is right.",
    ),
    "no_answer": (
        "Rewarded without an answer",
        "The trainer took it for right, but there is no box, no number and no closed block of code to grade.",
    ),
    "equal_answers": (
        "Equal answers, different rewards",
        "Another rollout of the same group has an equal answer in the same form, and the trainer's other verdict.",
    ),
    "truncated": ("Truncated", "The completion was cut off before the model ended it."),
    "no_spread": (
        "In a group without spread",
        "All rewards of the group are equal, so its advantages are zero and it teaches nothing.",
    ),
    "ratio_outlier": (
        "Ratio outliers",
        f"Sampler and trainer give a token probabilities that differ by a factor over {MAX_FACTOR:g}, or over "
        f"{MAX_MEAN_FACTOR:g} on average.",
    ),
    "language_drift": (
        "Language drift",
        "The completion is in another language than the prompt, or in several.",
    ),
    "repeated": ("Repeated completions", "Another rollout of the dump has exactly the same text."),
    "looping": ("Loops", "At least half of the completion's 8-word sequences occurred in it before."),
}
"""Title and meaning of each finding."""
NAMES = tuple(TITLES)
MAX_SHOWN = 3
"""Rollouts that the page shows of each finding, each of another group."""


@dataclass(frozen=True)
class Finding:
    """A finding: how often it was made among rollouts, of groups without spread among groups.

    ``examples`` are numbers of rollouts.
    """

    name: str
    among: page.Share
    examples: Sequence[int]

    @property
    def text(self) -> str:
        """The finding for the terminal."""
        name = self.name.replace("_", " ")
        return f"{name} {self.among.count:,} of {self.among.checked:,} ({100 * self.among.share:.1f} %)"


@dataclass(frozen=True)
class Summary:
    """All findings; ``group_numbers`` are those of the groups' keys."""

    rollouts: Sequence[Rollout]
    findings: Sequence[Finding]
    group_numbers: dict[tuple[Any, ...], int]
    basis: Basis

    @property
    def facts(self) -> list[str]:
        """What was read, a sentence each."""
        # The first part of a group's key is its step.
        steps = len({rollout.group[0] for rollout in self.rollouts})
        counts = {"rollout": len(self.rollouts), "group": len(self.group_numbers), "step": steps}
        sizes = []
        for unit, count in counts.items():
            plural = "" if count == 1 else "s"
            sizes.append(f"{count:,} {unit}{plural}")
        facts = [", ".join(sizes)]
        limit = self.basis.right_from
        if limit is not None:
            facts.append(f"a reward from {limit:.4g} on is the trainer's verdict of right")
        return facts

    def say(self, console: Console) -> None:
        """The findings in lines: what was read, what was found, what could not be checked."""
        console.say(f"audit: {'; '.join(self.facts)}", event="audited", rollouts=len(self.rollouts))
        texts = [finding.text for finding in self.findings if finding.among.count]
        counts = {finding.name: finding.among.count for finding in self.findings}
        console.result(f"audit: {'; '.join(texts) or 'nothing found'}", event="findings", findings=counts)
        for sentence in self.basis.lacking:
            console.say(f"audit: {sentence}", event="lacking", what=sentence)


def of(rollouts: Sequence[Rollout], basis: Basis) -> Summary:
    """The summary of rollouts whose findings are known."""
    # Numbered in the order of the dump.
    numbers = {members[0].group: number for number, members in enumerate(grouped(rollouts))}
    return Summary(rollouts, [_finding(name, rollouts) for name in NAMES], numbers, basis)


def _finding(name: str, rollouts: Sequence[Rollout]) -> Finding:
    checked: Counter[Any] = Counter()  # by group
    affected: Counter[Any] = Counter()
    examples: dict[Any, int] = {}
    for number, rollout in enumerate(rollouts):
        group = rollout.group
        is_affected = rollout.findings.get(name)
        if is_affected is None:
            continue
        if name == "no_spread" and checked[group]:  # of which a group counts once
            continue
        checked[group] += 1
        if is_affected:
            affected[group] += 1
            # One of each group, so that a single bad problem does not fill the page.
            examples.setdefault(group, number)
    shown = list(examples.values())[:MAX_SHOWN]
    interval = accuracy_interval(affected, checked) if checked else (0.0, 0.0, 0.0)
    return Finding(name, page.Share(affected.total(), checked.total(), *interval), shown)


def write_page(
    path: Path, summary: Summary, dumps: Sequence[str], batches: Sequence[pa.RecordBatch], console: Console
) -> None:
    """Write the page, and say where it is."""
    wanted = sorted({number for finding in summary.findings for number in finding.examples})
    rows = _rows_at(batches, wanted)
    sections = [_section(finding, summary.rollouts, rows) for finding in summary.findings]
    size = page.write(path, page.Contents(list(dumps), summary.facts, sections, summary.basis.lacking))
    console.result(f"audit: {path} ({size / 1e3:.0f} kB)", event="page", path=str(path), bytes=size)


def _rows_at(batches: Sequence[pa.RecordBatch], wanted: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The rows of these numbers."""
    rows: dict[int, dict[str, Any]] = {}
    start = 0
    for batch in batches:
        for number in wanted:
            if start <= number < start + batch.num_rows:
                # Only these rows become Python values, not whole batches.
                (rows[number],) = to_rows(batch.slice(number - start, 1))
        start += batch.num_rows
    return rows


def _section(finding: Finding, rollouts: Sequence[Rollout], rows: Mapping[int, Mapping[str, Any]]) -> page.Section:
    title, meaning = TITLES[finding.name]
    # Only this finding is of groups.
    unit = "groups" if finding.name == "no_spread" else "rollouts"
    examples = [_example(finding.name, rollouts[number], rows[number]) for number in finding.examples]
    return page.Section(finding.name, title, meaning, unit, finding.among, examples)


def _example(name: str, rollout: Rollout, row: Mapping[str, Any]) -> page.Example:
    step, id = rollout.group[0], str(row.get("id") or "")
    return page.Example(
        where=id if step is None else f"{id}, step {step}",
        prompt=str(row.get("prompt") or ""),
        completion=str(row.get("completion") or ""),
        reward=rollout.reward,
        verdict=_verdict(rollout),
        found=rollout.answer.text if rollout.answer else "",
        why=rollout.why.get(name) or _why(name, row),
    )


def _verdict(rollout: Rollout) -> str:
    """Our verdict in words."""
    if rollout.is_right is None:
        return "not graded"
    return "right" if rollout.is_right else "wrong"


def _why(name: str, row: Mapping[str, Any]) -> str:
    if name in ("rewarded_wrong", "unrewarded_right"):
        answer = row.get("answer")
        return f"the reference answer is {answer}" if answer is not None else ""
    if name == "language_drift":
        return f"prompt {row.get('prompt_language')}, completion {row.get('completion_language')}"
    return ""

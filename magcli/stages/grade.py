"""Rewards of completions, with every part and a reason.

Any table with a problem, its answer and a completion will do; rows may come from other tools. Problems whose
ground truth cannot be read are reported as bad-gold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magcli.run import options
from magcli.stages import setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "Completions: columns prompt, answer, completion; num_tokens for the length penalty; - is stdin."
OUTPUT = "file, folder or -."
DEFAULT_OUTPUT = "-"
RESUMES = True
EXAMPLE = "magcli grade examples/completions.jsonl -o graded.arrow"
UNIT = 64
"""Rows that are graded and recorded together."""


@dataclass(frozen=True)
class Config:
    """Options of `magcli grade`."""

    max_length: int = options.max_length()
    cache_length: int = options.cache_length()
    language: bool = options.language()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()


PLACES = ("workers",)
"""Options that do not change the rows."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt", "answer", "completion", *(("num_tokens",) if config.max_length else ()))


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    setup.check_reward("grade", config)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The given columns and those of a reward."""
    from magcli.data.columns import extended
    from magcli.data.schema import REWARD

    return extended(given, REWARD)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Grade in worker processes, in the order of the rows; reports accuracy and reasons at the end."""
    import asyncio

    from magcli.data.columns import attach
    from magcli.run.journal import Result
    from magcli.run.units import resumable
    from magcli.verify.reward import columns

    pool, rule = setup.open_pool(config), setup.reward_rule(config)
    tally = Tally()

    async def compute(part: pa.RecordBatch) -> Result:
        given = part.to_pylist()
        verdicts = (pool.reward(row["completion"], row.get("num_tokens") or 0, row, rule) for row in given)
        return Result(attach(part, columns(await asyncio.gather(*verdicts))))

    window = 4 * config.workers
    for batch in resumable(rows, job, compute, pool.close, size=UNIT, window=window, unit="completions"):
        tally.add(batch)
        yield batch
    tally.report(job)


class Tally:
    """Counts verdicts as they go by."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch of graded rows."""
        for reason in batch.column("reason").to_pylist():
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def report(self, job: Job) -> None:
        """One line: accuracy of what could be graded, and the reasons."""
        from magcli.verify.types import UNCOUNTED

        total = sum(self.reasons.values())
        correct = self.reasons.get("correct", 0)
        gradable = total - sum(self.reasons.get(reason, 0) for reason in UNCOUNTED)
        ranked = sorted(self.reasons.items(), key=lambda pair: -pair[1])
        told = ", ".join(f"{reason} {count:,}" for reason, count in ranked)
        share = f"{100 * correct / gradable:.1f}% correct of {gradable:,} gradable; " if gradable else ""
        job.console.say(f"grade: {share}{told or 'no rows'}", event="verdicts", reasons=self.reasons)

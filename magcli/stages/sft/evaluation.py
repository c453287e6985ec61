"""Accuracy of an SFT run's checkpoints on a table of problems, with the metrics of ``magcli evaluate``.

Sampling is deterministic and uses the same seeds each time: checkpoints differ by their weights alone, and a resumed
run selects the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.shared import tables

if TYPE_CHECKING:
    from magcli.curate.sampling import Sample, SamplingPlan
    from magcli.evaluation.metrics import Problem
    from magcli.verify.grader import Grader

    Row = dict[str, Any]

COLUMNS = ("prompt", "answer|tests")


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The problems, how they are sampled and graded, and the device of the model."""

    problems: Sequence[Row]
    ask: SamplingPlan
    grader: Grader
    slots: int
    device: str

    def __call__(self, folder: Path) -> dict[str, float]:
        """Accuracy of the model in a folder with its 95% interval, and the mean completion length in tokens."""
        from magcli.evaluation import metrics

        estimates = {each.metric: each for each in metrics.estimate(self._graded(folder), (), self.ask.seed)}
        accuracy = estimates["avg@n"]
        return {
            "accuracy": accuracy.value,
            "accuracy_low": accuracy.low,
            "accuracy_high": accuracy.high,
            "answer_tokens": estimates["tokens"].value,
        }

    def _graded(self, folder: Path) -> list[Problem]:
        from magcli.evaluation import metrics
        from magcli.verify.reward import ALL_TESTS, RewardRule

        sampled = asyncio.run(self._sampled(folder))
        pairs = [(row, s) for row, samples in zip(self.problems, sampled, strict=True) for s in samples]
        rewards = self.grader.grade(
            [sample.completion.text for _, sample in pairs],
            [row for row, _ in pairs],
            RewardRule(use_language=False, num_tests=ALL_TESTS),
        )
        return metrics.gather(
            {
                "id": row["id"],
                "prompt": row["prompt"],
                "correct": reward.correct,
                "correct_anywhere": reward.correct_anywhere,
                "extracted": reward.extracted,
                "num_tokens": sample.completion.num_tokens,
            }
            for (row, sample), reward in zip(pairs, rewards, strict=True)
        )

    async def _sampled(self, folder: Path) -> list[list[Sample]]:
        from magcli.curate.sampling import sample_problem
        from magcli.generate.open import open_generator

        generator = open_generator(
            str(folder), engine="torch", slots=self.slots, deterministic=True, device=self.device
        )
        try:
            return await asyncio.gather(*(sample_problem(generator, row, self.ask) for row in self.problems))
        finally:
            await generator.close()


def problems_of(path: Path, grader: Grader) -> list[Row]:
    """The problems of a table.

    Raises:
        DataError: a column is missing, or a problem has no prompt or no gradable ground truth.
    """
    import pyarrow as pa

    from magcli.data import table
    from magcli.data.schema import require, resolve_aliases

    source = table.read(str(path))
    named = resolve_aliases(source.schema, COLUMNS, tables.ALIASES)
    schema = pa.schema([field.with_name(named.get(field.name, field.name)) for field in source.schema])
    require(schema, COLUMNS, stage="sft", where=str(path))
    rows = [row for batch in source.rows for row in batch.rename_columns(schema.names).to_pylist()]
    if not rows:
        raise DataError(f"sft: {path} holds no problems")
    return [_checked(row, number, path, grader) for number, row in enumerate(rows)]


def _checked(row: Mapping[str, Any], number: int, path: Path, grader: Grader) -> Row:
    named = {**row, "id": str(row.get("id") or number)}
    if not row.get("prompt"):
        raise DataError(f"sft: problem {named['id']} of {path} has no prompt")
    grader.check(named)
    if not grader.gradable(named):
        raise DataError(f"sft: the answer of problem {named['id']} of {path} cannot be parsed; remove the row")
    return named

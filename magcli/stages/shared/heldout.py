"""Held-out problems of ``--eval-table``, which `sft` and `rl` sample and grade at intervals during training."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magcli.curate.sampling import SamplingPlan, grade_samples, sample_problem
from magcli.data.json_columns import finite
from magcli.data.schema import require, resolve_aliases
from magcli.data.values import all_rows
from magcli.errors import DataError
from magcli.evaluation import metrics
from magcli.generate.types import Sampling
from magcli.run.validation import UNREAD
from magcli.stages.shared import engines, environments, tables
from magcli.verify.reward import ALL_TESTS, RewardRule

if TYPE_CHECKING:
    from magcli.environments.environment import Environment
    from magcli.generate.types import Generator
    from magcli.model.model import Model
    from magcli.plan.engines import Expected
    from magcli.stages.shared.options import EvaluationOptions
    from magcli.verify.grader import CompletionGrader, Grader

    Row = dict[str, Any]

PROBLEM_COLUMNS = ("prompt", "answer|tests")
"""The columns of the table where the recipe's reward grades; a custom reward needs only the prompt."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The accuracy of a model on a table of problems, with the metrics of ``magcli evaluate``.

    The seeds are the same each time: models differ by their weights alone. At most ``slots`` samples are asked of the
    engine at once.
    """

    problems: Sequence[Row]
    plan: SamplingPlan
    grader: CompletionGrader
    slots: int

    @property
    def expected(self) -> Expected:
        """The number of completions, and the most tokens of each."""
        return len(self.problems) * self.plan.samples, self.plan.sampling.max_tokens

    async def accuracy(self, generator: Generator) -> dict[str, float | None]:
        """The metrics ``magcli.run.rundir.HELD_OUT`` of the model that a generator samples from.

        A single problem has no interval: its bounds are None.
        """
        graded = await self._graded(generator)
        problems = metrics.gather(chain.from_iterable(graded))
        estimates = {estimate.metric: estimate for estimate in metrics.estimate(problems, (), self.plan.seed)}
        # The share of right samples, averaged over problems.
        accuracy = estimates["avg@n"]
        return {
            "accuracy": accuracy.value,
            "accuracy_low": finite(accuracy.low),
            "accuracy_high": finite(accuracy.high),
            "answer_tokens": estimates["tokens"].value,
        }

    async def _graded(self, generator: Generator) -> list[list[Row]]:
        """The graded samples of each problem; several problems are sampled at once."""
        # Each problem that enters ``room`` samples this many at once, so that together they fill the slots.
        samples_at_once = min(self.plan.samples, self.slots)
        room = asyncio.Semaphore(self.slots // samples_at_once)
        work = [asyncio.create_task(self._graded_problem(generator, row, room)) for row in self.problems]
        try:
            # After the first error the others go on, so they are cancelled below.
            return await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()

    async def _graded_problem(self, generator: Generator, row: Row, room: asyncio.Semaphore) -> list[Row]:
        samples = []
        for first in range(0, self.plan.samples, self.slots):
            indices = range(first, min(first + self.slots, self.plan.samples))
            async with room:
                samples += await sample_problem(generator, row, self.plan, indices)
        # Accuracy counts right answers alone, by all tests of a program.
        rule = RewardRule(use_language=False, num_tests=ALL_TESTS, thoughts=generator.thoughts)
        rewards = await grade_samples(self.grader, row, samples, rule)
        return [
            {
                "id": row["id"],
                "prompt": row["prompt"],
                "correct": reward.correct,
                "correct_anywhere": reward.correct_anywhere,
                "extracted": reward.extracted,
                "num_tokens": sample.completion.num_tokens,
            }
            for sample, reward in zip(samples, rewards, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class HeldOutSpec:
    """The held-out problems that a training run asks for, and how they are sampled; ``stage`` begins messages."""

    stage: str
    table: Path
    sampling: Sampling
    samples: int
    slots: int
    seed: int
    system: Path | None

    @classmethod
    def of(cls, stage: str, config: EvaluationOptions, *, seed: int, system: Path | None) -> HeldOutSpec | None:
        """Those of a stage's options; None without --eval-table."""
        if config.eval_table is None:
            return None
        sampling = Sampling(config.eval_max_tokens, config.eval_temperature, 1.0)
        return cls(stage, config.eval_table, sampling, config.eval_samples, config.eval_slots, seed, system)

    def open(self, model: Model, grader: Grader, environment: Environment | None = None) -> HeldOut:
        """The problems, checked before any work, and how a model samples them, perhaps in an environment.

        Raises:
            DataError: as ``check``.
        """
        episodes = None
        if environment is not None:
            episodes = environments.text_episodes(environment, model, self.system)
        system = engines.system_text(self.system, model.thoughts)
        plan = SamplingPlan(system, self.sampling, self.samples, self.seed, episodes)
        return HeldOut(self.check(model, grader), plan, grader, self.slots)

    def check(self, model: Model | None, grader: Grader) -> list[Row]:
        """The problems, all of which can be sampled and graded; without a model lengths are not checked.

        Raises:
            DataError: as ``read_problems``, or a prompt does not fit into the model's context.
        """
        problems = read_problems(self.stage, self.table, grader)
        if model is not None:
            text = engines.system_text(self.system, model.thoughts)
            for row in problems:
                _check_length(row, text, model, f"{self.stage}: problem {row['id']} of {self.table}")
        return problems


def _check_length(row: Row, system: str | None, model: Model, problem: str) -> None:
    tokens = engines.prompt_length(row, model, system)
    if tokens >= model.context:
        raise DataError(f"{problem} has {tokens:,} tokens, which do not fit the model's context of {model.context:,}")


def read_problems(stage: str, path: Path, grader: Grader) -> list[Row]:
    """The problems of a table.

    Raises:
        DataError: a column is missing, there is no problem, two have the same id, or one has no prompt or no gradable
            ground truth.
    """
    columns = PROBLEM_COLUMNS[:1] if grader.is_custom else PROBLEM_COLUMNS
    source = tables.read_table(str(path), tables.PROBLEM_ROLES)
    # Names of other tools become ours before the columns are required.
    new_of = resolve_aliases(source.schema, PROBLEM_COLUMNS, tables.ALIASES)
    names = [new_of.get(name, name) for name in source.schema.names]
    fields = [field.with_name(name) for field, name in zip(source.schema, names, strict=True)]
    require(pa.schema(fields), columns, stage=stage, where=str(path))
    rows = all_rows(batch.rename_columns(names) for batch in source.rows)
    if not rows:
        raise DataError(f"{stage}: {path} holds no problems")
    problems = [_checked(stage, row, number, path, grader) for number, row in enumerate(rows)]
    _check_ids(stage, problems, path)
    return problems


def _checked(stage: str, row: Mapping[str, Any], number: int, path: Path, grader: Grader) -> Row:
    # Row numbers serve where a table has no ids.
    problem = {**row, "id": str(row.get("id") or number)}
    unread = problem.pop(UNREAD, None) or ""
    fault = str(unread).partition("\t")[2]  # after the reason of a row that could not be read
    if not fault:
        if not problem.get("prompt"):
            raise DataError(f"{stage}: problem {problem['id']} of {path} has no prompt")
        grader.check(problem)
        fault = grader.fault(problem)
    if fault:
        raise DataError(f"{stage}: problem {problem['id']} of {path} cannot be graded: {fault}; remove the row")
    return problem


def _check_ids(stage: str, problems: Sequence[Row], path: Path) -> None:
    seen: set[str] = set()
    for row in problems:
        if row["id"] in seen:
            raise DataError(f"{stage}: two problems of {path} have the id {row['id']}; make the ids unique")
        seen.add(row["id"])

"""The points of a landscape: load the weights of each, sample and grade the problems."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from magcli.curate.sampling import Sample, completion_columns, grade_samples, sample_problem
from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.landscape.components import coordinates, perturbed
from magcli.landscape.visits import VISIT, JournalledVisits, Measure, Survey, SurveyPlan, Visit, survey
from magcli.run.async_runner import AsyncRunner
from magcli.run.journal import Journal
from magcli.stages.shared import engines, grading
from magcli.stages.shared.options import DType
from magcli.verify import reward
from magcli.verify.types import UNCOUNTED

if TYPE_CHECKING:
    from magcli.landscape.kernels import Array
    from magcli.landscape.pca import Plane
    from magcli.run.job import Job
    from magcli.stages.landscape.config import Config

Close = Callable[[], Coroutine[Any, Any, None]]


def survey_points(
    config: Config, grid: Array, problems: Sequence[dict[str, Any]], plane: Plane, out: Path, journal: Journal, job: Job
) -> Survey:
    """Visit the points with one engine whose weights are replaced; the journal holds finished visits."""
    plan = SurveyPlan(config.samples, config.refine, config.more_samples)
    dtype = engines.sampling_format(str(plane.folders[-1]), config, job, [journal])
    make, close = _open(config, dtype, problems, plane.folders[-1], out / "components")
    total = None if config.more_samples else len(grid) + config.refine + 1
    with job.console.progress(total, "points", job.stage) as bar, AsyncRunner() as loop:
        visits = JournalledVisits(journal, make, lambda reused: bar.advance(reused=reused))
        try:
            return loop.run(survey(grid, plane.trajectory, plan, visits.measure))
        finally:
            loop.run(close())


def _open(
    config: Config, dtype: DType, problems: Sequence[dict[str, Any]], last: Path, components: Path
) -> tuple[Measure, Close]:
    """The function that visits a point, and the one that closes its engine and grader."""
    assert config.engine != "server"
    policy = open_policy(
        str(last),
        engine=config.engine,
        dtype=dtype,
        slots=config.slots,
        deterministic=config.deterministic,
        device=config.device,
    )
    grader, rule, plan = (
        grading.open_grader(config, config.reward),
        grading.reward_rule(config),
        engines.sampling_plan(config),
    )
    rounding, versions = _rounding(config, dtype), count(1)

    async def visit(where: Visit) -> pa.RecordBatch:
        weights = dict(perturbed(last, components, where.a1, where.a2, round=rounding))
        real = coordinates(weights.items(), last, components)
        await policy.load(weights, next(versions))

        async def one(number: int, row: Mapping[str, Any]) -> pa.RecordBatch:
            samples = await sample_problem(policy, row, plan, range(where.first, where.last))
            rewards = await grade_samples(grader, row, samples, rule)
            _require_verdicts(row["id"], rewards)
            with_text = number < config.texts and where.first == 0
            return _rows((real.a1, real.a2, real.off_plane), row, samples, reward.columns(rewards), with_text=with_text)

        parts = await asyncio.gather(*(one(number, row) for number, row in enumerate(problems)))
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]

    async def close() -> None:
        await policy.close()
        await grader.close()

    return visit, close


def _require_verdicts(problem: str, verdicts: Sequence[reward.Reward]) -> None:
    """A point needs a verdict on every completion: a reward of 0 for one that cannot be graded would bias its mean.

    Raises:
        EnvironmentFault: a completion cannot be graded.
    """
    for verdict in verdicts:
        if verdict.reason in UNCOUNTED:
            again = " with --restart, as points of different rewards are not comparable"
            raise EnvironmentFault(
                f"landscape: a completion of problem {problem} cannot be graded ({verdict.reason}: {verdict.detail}); "
                "finished points are stored; fix this and repeat the command"
                + (again if verdict.reason == "reward-error" else "")
            )


def _rows(
    where: tuple[float, float, float],
    row: Mapping[str, Any],
    samples: Sequence[Sample],
    rewards: pa.RecordBatch,
    *,
    with_text: bool,
) -> pa.RecordBatch:
    """The completions of one problem as rows of ``VISIT``; ``with_text``: the first one has its text."""
    columns = completion_columns(samples)
    texts = columns.column("completion").to_pylist()
    shown = [text if with_text and not number else None for number, text in enumerate(texts)]
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] for text in texts]
    repeated = [[value] * len(samples) for value in (*where, row["id"], row["prompt"])]
    found = dict(zip(VISIT.names, repeated, strict=False))
    found |= dict(zip(columns.schema.names, columns.columns, strict=True)) | {"completion": shown, "digest": digests}
    found |= dict(zip(rewards.schema.names, rewards.columns, strict=True))
    values = ((found[each.name], each.type) for each in VISIT)
    arrays = [column.cast(kind) if isinstance(column, pa.Array) else pa.array(column, kind) for column, kind in values]
    return pa.RecordBatch.from_arrays(arrays, schema=VISIT)


def _rounding(config: Config, dtype: DType) -> Literal["none", "nearest", "dither"]:
    if config.round != "auto":
        return config.round
    return "none" if dtype == "fp32" else "dither"

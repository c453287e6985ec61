"""Engines that visit points of the plane: one in this process, or several on a cluster.

An engine has the weights of one point at a time. It computes them itself, from the last checkpoint and the two
components on disk, so that engines on a cluster need nothing but the coordinates. Grading is this process's work.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import torch

from magcli.curate.sampling import completion_columns, grade_samples, sample_problem
from magcli.data.seal import hash_text
from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.generate.remote.service import Opened
from magcli.landscape.components import coordinates, perturbed
from magcli.landscape.visits import VISIT
from magcli.run.units import WorkThread
from magcli.stages.landscape.config import Config
from magcli.stages.shared import engines, graders
from magcli.stages.shared.cluster_engines import ClusterEngines, job_in_engine
from magcli.verify.reward_columns import columns
from magcli.verify.types import UNCOUNTED

if TYPE_CHECKING:
    from magcli.choices import AskedFormat
    from magcli.console import Console
    from magcli.curate.sampling import Sample
    from magcli.generate.types import Weights
    from magcli.landscape.components import Coordinates
    from magcli.landscape.visits import Visit
    from magcli.model.model import Model
    from magcli.run.job import Job
    from magcli.run.journal import Journal
    from magcli.verify.reward import Reward


@dataclass(frozen=True, slots=True)
class Work:
    """What is sampled: the model of the last checkpoint, the problems, and the folder of the plane's components."""

    config: Config
    model: Model
    problems: Sequence[Mapping[str, Any]]
    components: Path


@dataclass(frozen=True, slots=True)
class SampledPoint:
    """A visit before it is graded: where the weights were, and the samples of each problem."""

    where: Coordinates
    samples: Sequence[Sequence[Sample]]


class Points(Protocol):
    """Visits points; several visits may wait for it."""

    @property
    def at_once(self) -> int:
        """Number of visits to begin before the first has ended."""

    async def visit(self, visit: Visit) -> pa.RecordBatch:
        """The graded rows of a visit, of schema ``VISIT``."""

    async def close(self) -> None:
        """End engines and grader."""


def open_points(work: Work, job: Job, journal: Journal) -> Points:
    """The engine of this process, or those of --cluster; the journal keeps what options left to ``auto`` resolve to.

    Raises:
        EnvironmentFault: an engine cannot be opened.
    """
    if work.config.cluster:
        return ClusterPoints(work, job, journal)
    dtype = engines.sampling_format(work.model, work.config, job, [journal])
    return LocalPoints(work, PointEngine(work, dtype, job.console))


class PointEngine:
    """An engine in this process."""

    def __init__(self, work: Work, dtype: AskedFormat, console: Console | None = None) -> None:
        self._work = work
        config = work.config
        # One request of this size for each point.
        expected = [(len(work.problems) * config.samples, config.max_tokens)] * config.points
        self._policy = open_policy(engines.spec_of(work.model, config, dtype, expected), console)
        self._plan = engines.sampling_plan(config, work.model.thoughts)
        self._bf16 = dtype != "fp32"
        # Engines keep no cache of another version of the weights.
        self._versions = count(1)

    @property
    def num_finished(self) -> int:
        """Completions finished so far."""
        return self._policy.num_finished

    def weights_at(self, visit: Visit) -> tuple[Weights, Coordinates]:
        """The weights of a point, and where they are after rounding."""
        last = self._work.model.folder
        components = self._work.components
        weights = dict(perturbed(last, components, visit.a1, visit.a2, bf16=self._bf16))
        # Rounding to bf16 moves a point a little, also off the plane.
        return weights, coordinates(weights.items(), last, components)

    async def load(self, weights: Weights) -> None:
        """Replace the engine's weights."""
        await self._policy.load(self._work.model.parameters_of(weights), next(self._versions))

    async def sample(self, problem: Mapping[str, Any], visit: Visit) -> list[Sample]:
        """The samples of a problem that belong to a visit."""
        return await sample_problem(self._policy, problem, self._plan, range(visit.first, visit.last))

    async def close(self) -> None:
        """End the engine."""
        await self._policy.close()


class LocalPoints:
    """One engine in this process; a problem is graded while others are sampled."""

    at_once = 1

    def __init__(self, work: Work, engine: PointEngine) -> None:
        self._problems = work.problems
        self._engine = engine
        self._grading = Grading(work)

    async def visit(self, visit: Visit) -> pa.RecordBatch:
        """The graded rows of a visit."""
        weights, where = self._engine.weights_at(visit)
        await self._engine.load(weights)

        async def rows_of(number: int) -> pa.RecordBatch:
            samples = await self._engine.sample(self._problems[number], visit)
            return await self._grading.rows(number, samples, where, visit)

        numbers = range(len(self._problems))
        return _joined(await asyncio.gather(*map(rows_of, numbers)))

    async def close(self) -> None:
        """End engine and grader."""
        await self._engine.close()
        await self._grading.close()


class ClusterPoints:
    """Engines on a cluster, each of which visits one point at a time.

    While the samples of some points are graded here, the engines visit others.
    """

    def __init__(self, work: Work, job: Job, journal: Journal) -> None:
        self._grading = Grading(work)
        self._engines = ClusterEngines(work.config, job, [journal], partial(open_point_server, work))
        self._client = self._engines.client()
        self._free_engines = asyncio.Semaphore(self._engines.number)

    @property
    def at_once(self) -> int:
        """One visit to sample and one to grade for each engine."""
        return 2 * self._engines.number

    async def visit(self, visit: Visit) -> pa.RecordBatch:
        """The graded rows of a visit; a point that a lost engine has not finished is visited by another."""
        # Held while a point is sampled, not while it is graded.
        async with self._free_engines:
            sampled: SampledPoint = await self._client.call(visit)
        graded = [
            self._grading.rows(number, samples, sampled.where, visit) for number, samples in enumerate(sampled.samples)
        ]
        return _joined(await asyncio.gather(*graded))

    async def close(self) -> None:
        """End engines and grader."""
        await self._client.close()
        self._engines.close()
        await self._grading.close()


class PointServer:
    """Visits points with the engine of its own process. Its status is the number of finished completions."""

    def __init__(self, work: Work, engine: PointEngine, opened: Opened) -> None:
        self._problems = work.problems
        self._engine = engine
        # The weights belong to one visit until its last sample is drawn.
        self._one_point = asyncio.Lock()
        self._thread = WorkThread()
        self._num_threads = torch.get_num_threads()
        self.opened = opened

    @property
    def status(self) -> int:
        """Completions finished so far."""
        return self._engine.num_finished

    async def answer(self, visit: Visit) -> SampledPoint:
        """Visit a point, after those that were asked for before."""
        async with self._one_point:
            # The files of a large model take minutes, in which this process must still give signs of life.
            weights, where = await self._thread.run(partial(self._weights_at, visit))
            await self._engine.load(weights)
            # Samples take long, and the weights are in the engine by now.
            del weights
            samples = await asyncio.gather(*(self._engine.sample(problem, visit) for problem in self._problems))
            return SampledPoint(where, samples)

    def _weights_at(self, visit: Visit) -> tuple[Weights, Coordinates]:
        """The weights of a point, computed in another thread with as many threads as in this one: sums depend on it."""
        # OpenMP keeps this number for each thread that starts others.
        torch.set_num_threads(self._num_threads)
        return self._engine.weights_at(visit)


def open_point_server(work: Work, stage: str, config: Config, chosen: Mapping[str, str]) -> PointServer:
    """Open an engine in its process; ``config`` has its own device, ``chosen`` what ``auto`` resolved to, if known.

    Raises:
        EnvironmentFault: this node does not have the components, or the engine cannot be opened.
    """
    if not work.components.is_dir():
        text = f"{stage}: {socket.gethostname()} has no folder {work.components}"
        raise EnvironmentFault(f"{text}; --run and --out must be on storage that all nodes share")
    own = replace(work, config=config)
    job, messages = job_in_engine(stage, chosen)
    dtype = engines.sampling_format(own.model, config, job)
    return PointServer(own, PointEngine(own, dtype), Opened(job.chosen, messages, reads_images=False))


class Grading:
    """Grades the samples of a visit, in the worker processes of this machine."""

    def __init__(self, work: Work) -> None:
        self._problems = work.problems
        self._texts = work.config.texts
        self._grader = graders.open_grader(work.config, work.config.reward)
        self._rule = graders.reward_rule(work.config, work.model.thoughts)

    async def rows(self, number: int, samples: Sequence[Sample], where: Coordinates, visit: Visit) -> pa.RecordBatch:
        """The samples of the problem with this number as rows of ``VISIT``.

        Raises:
            EnvironmentFault: a completion cannot be graded.
        """
        problem = self._problems[number]
        rewards = await grade_samples(self._grader, problem, samples, self._rule)
        _require_verdicts(problem["id"], rewards)
        # Of the first sample alone; a visit with more samples begins later.
        with_text = number < self._texts and visit.first == 0
        return _rows((where.a1, where.a2, where.off_plane), problem, samples, columns(rewards), with_text=with_text)

    async def close(self) -> None:
        """End the workers."""
        await self._grader.close()


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all problems, in their order."""
    # One batch, as a journal has one for each visit.
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _require_verdicts(problem: str, verdicts: Sequence[Reward]) -> None:
    """A point needs a verdict on every completion: a reward of 0 for one that cannot be graded would bias its mean.

    Raises:
        EnvironmentFault: a completion cannot be graded.
    """
    for verdict in verdicts:
        if verdict.reason in UNCOUNTED:
            again = ""
            if verdict.reason == "reward-error":
                # A repaired function gives other rewards than the finished points have.
                again = " with --restart, as points of different rewards are not comparable"
            raise EnvironmentFault(
                f"landscape: a completion of problem {problem} cannot be graded ({verdict.reason}: {verdict.detail}); "
                f"finished points are stored; fix this and repeat the command{again}"
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
    completions = completion_columns(samples)
    texts = completions.column("completion").to_pylist()
    shown = [None] * len(texts)
    if with_text:
        shown[:1] = texts[:1]
    # Of all texts, as most of them are not stored.
    digests = [hash_text(text)[:16] for text in texts]
    of_point = (*where, row["id"], row["prompt"])
    repeated = [[value] * len(samples) for value in of_point]
    columns = dict(zip(VISIT.names, repeated, strict=False))  # the first names of VISIT are those of the point
    columns |= dict(zip(completions.schema.names, completions.columns, strict=True))
    columns |= {"completion": shown, "digest": digests}
    columns |= dict(zip(rewards.schema.names, rewards.columns, strict=True))
    arrays = []
    for field in VISIT:
        column = columns[field.name]
        is_array = isinstance(column, pa.Array)
        arrays.append(column.cast(field.type) if is_array else pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=VISIT)

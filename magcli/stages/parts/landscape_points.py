"""What `magcli landscape` does at a point: loads its weights, samples and grades the problems."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from magcli.curate.sampling import Sample, completion_columns, rewards_of, samples_of
from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.landscape.perturb import coordinates, perturbed
from magcli.landscape.visits import VISIT, Logbook, Measure, Survey, Visit, Wishes, survey
from magcli.run.journal import Journal
from magcli.run.loop import Loop
from magcli.run.options import DType
from magcli.stages.parts import setup
from magcli.verify import reward
from magcli.verify.types import UNCOUNTED

if TYPE_CHECKING:
    from magcli.landscape.pca import Plane
    from magcli.landscape.principal import Array
    from magcli.run.job import Job
    from magcli.stages.landscape import Config

Close = Callable[[], Coroutine[Any, Any, None]]


def surveyed(
    config: Config, grid: Array, problems: Sequence[dict[str, Any]], plane: Plane, out: Path, journal: Journal, job: Job
) -> Survey:
    """Visit the points, with one engine whose weights are replaced; the journal keeps what is finished."""
    wishes = Wishes(config.samples, config.refine, config.more_samples)
    found = setup.sampling_format(str(plane.folders[-1]), config, job, [journal])
    make, close = _open(config, found, problems, plane.folders[-1], out / "components")
    known = None if config.more_samples else len(grid) + config.refine + 1
    with job.console.progress(known, "points", job.stage) as bar, Loop() as loop:
        logbook = Logbook(journal, make, lambda reused: bar.advance(reused=reused))
        try:
            return loop.run(survey(grid, plane.trajectory, wishes, logbook.measure))
        finally:
            loop.run(close())


def _open(
    config: Config, found: DType, problems: Sequence[dict[str, Any]], last: Path, components: Path
) -> tuple[Measure, Close]:
    """What a visit does, and how to end."""
    assert config.engine != "server"
    policy = open_policy(
        str(last),
        engine=config.engine,
        dtype=found,
        slots=config.slots,
        deterministic=config.deterministic,
        device=config.device,
    )
    grader, rule, asking = setup.open_grader(config, config.reward), setup.reward_rule(config), setup.ask(config)
    rounding, versions = _rounding(config, found), count(1)

    async def visit(where: Visit) -> pa.RecordBatch:
        weights = dict(perturbed(last, components, where.a1, where.a2, round=rounding))
        real = coordinates(weights.items(), last, components)
        await policy.load(weights, next(versions))

        async def one(number: int, row: Mapping[str, Any]) -> pa.RecordBatch:
            made = await samples_of(policy, row, asking, range(where.first, where.last))
            rewards = await rewards_of(grader, row, made, rule)
            _require_verdicts(row["id"], rewards)
            kept = number < config.texts and where.first == 0
            return _rows((real.a1, real.a2, real.off_plane), row, made, reward.columns(rewards), kept=kept)

        parts = await asyncio.gather(*(one(number, row) for number, row in enumerate(problems)))
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]

    async def close() -> None:
        await policy.close()
        await grader.close()

    return visit, close


def _require_verdicts(problem: str, verdicts: Sequence[reward.Reward]) -> None:
    """A point counts all problems, so that a reward of 0 for what could not be graded would pass for a low one.

    Raises:
        EnvironmentFault: nothing can be said of a completion.
    """
    for verdict in verdicts:
        if verdict.reason in UNCOUNTED:
            again = " with --restart, since points of another reward do not compare"
            raise EnvironmentFault(
                f"landscape: a completion of problem {problem} cannot be graded ({verdict.reason}: {verdict.detail}); "
                "points that are done are kept, so mend that and repeat the command"
                + (again if verdict.reason == "reward-error" else "")
            )


def _rows(
    where: tuple[float, float, float],
    row: Mapping[str, Any],
    made: Sequence[Sample],
    rewards: pa.RecordBatch,
    *,
    kept: bool,
) -> pa.RecordBatch:
    """The completions of one problem as rows of ``VISIT``; of kept ones the first has its text."""
    columns = completion_columns(made)
    texts = columns.column("completion").to_pylist()
    shown = [text if kept and not number else None for number, text in enumerate(texts)]
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] for text in texts]
    repeated = [[value] * len(made) for value in (*where, row["id"], row["prompt"])]
    found = dict(zip(VISIT.names, repeated, strict=False))
    found |= dict(zip(columns.schema.names, columns.columns, strict=True)) | {"completion": shown, "digest": digests}
    found |= dict(zip(rewards.schema.names, rewards.columns, strict=True))
    return pa.RecordBatch.from_arrays([_cast(found[each.name], each.type) for each in VISIT], schema=VISIT)


def _cast(values: Any, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _rounding(config: Config, found: DType) -> Literal["none", "nearest", "dither"]:
    if config.round != "auto":
        return config.round
    return "none" if found == "fp32" else "dither"

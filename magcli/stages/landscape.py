"""PCA of a run's checkpoints, and the reward and length of the weights around the last one.

The plane is that of the two principal components of the float32 weights that `magcli rl --trajectory-every` kept.
At each point of a grid on it the weights w* + a1 c1 + a2 c2 are loaded into the running engine and the problems are
sampled and graded; plots, a table of points and the regression of reward on length go into the output folder.
Interrupted, the same command goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.run import options
from magcli.stages import checks, setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from magcli.curate.sampling import Sample
    from magcli.data.source import Rows
    from magcli.landscape.pca import Plane
    from magcli.landscape.results import Graded
    from magcli.run.job import Job
    from magcli.run.units import Compute
    from magcli.verify.reward import Reward

INPUTS = "The problems to sample at each point: columns prompt, answer; - is stdin."
OUTPUT = "the points, one row each: file, folder or -; they are in the output folder anyway."
DEFAULT_OUTPUT = None
EXAMPLE = "magcli landscape examples/problems.jsonl --run runs/rl --out runs/rl/landscape --points 19 --samples 4"

GRID = "Plane and grid"


@dataclass(frozen=True)
class Config:
    """Options of `magcli landscape`."""

    run: Path = opt(Path("runs/rl"), "Folder of an RL run whose trajectory was kept.")
    out: Path | None = opt(None, "Folder for plots and points (default: landscape in the run's folder).")
    points: int = opt(61, "Grid points, at least; the grid may need a few more.", panel=GRID)
    pad: float = opt(0.35, "How far the grid reaches past the path, as a share of its extent.", panel=GRID)
    shortest: float = opt(0.0, "Points with a smaller mean length do not enter the regression.", panel=GRID)
    longest: float = opt(
        0.0, "Points with a larger mean length do not enter the regression; 0 is no limit.", panel=GRID
    )
    round: Literal["auto", "none", "nearest", "dither"] = opt(
        "auto", "Rounding of perturbed weights to bf16: none for fp32 engines, else dither.", panel=GRID
    )
    samples: int = options.samples(4)
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature()
    top_p: float = options.top_p()
    system: Path | None = options.system()
    seed: int = options.seed()
    engine: Literal["auto", "torch", "vllm", "server"] = options.engine()
    dtype: Literal["auto", "bf16", "fp32"] = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    max_length: int = options.max_length()
    cache_length: int = options.cache_length()
    language: bool = options.language()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: Literal["full", "restricted", "auto", "dangerously-none"] = options.sandbox()
    reward: str = options.reward()
    num_tests: int = options.num_tests()
    partial: bool = options.partial()


PLACES = ("run", "out", "workers", "device")
"""Options that do not change the rows."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    return ("id", "prompt") if config.reward else ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    from magcli.run.job import usage

    usage(config.points >= 4, f"landscape.points: {config.points} points make no surface; give at least 4")
    usage(config.pad > 0, f"landscape.pad: {config.pad} is not positive")
    usage(config.slots > 0, f"landscape.slots: {config.slots} is not positive")
    usage(not (config.deterministic and config.dtype == "bf16"), "landscape: --deterministic needs --dtype fp32")
    usage(config.engine != "server", "landscape: --engine server cannot take each point's weights; use torch or vllm")
    checks.vllm("landscape", config.engine, deterministic=config.deterministic)
    checks.ask("landscape", config)
    checks.reward("landscape", config)


def beside(config: Config) -> tuple[Path, ...]:
    """The figures."""
    return ((config.out or config.run / "landscape") / "landscape.json",)


def settings(config: Config) -> dict[str, Any]:
    """What else decides the rows: the run that is looked at, by its configuration and its last weights."""
    from magcli.model.load import fingerprint
    from magcli.run.rundir import RunDir

    kept = sorted(RunDir(config.run).trajectory.glob("step-*"))
    weights = {"checkpoints": [folder.name for folder in kept], "last": fingerprint(kept[-1])} if kept else {}
    return setup.model_bits("", config.system) | setup.grader_bits(config, config.reward) | weights


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a point: where it lies, means with intervals, and the means of each problem."""
    from magcli.landscape.results import POINT

    return POINT


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Find the plane, sample every point, draw."""
    import pyarrow as pa

    from magcli.data import durable
    from magcli.landscape import pca
    from magcli.landscape.results import POINT

    given = [row for batch in rows for row in batch.to_pylist()]
    out = config.out or config.run / "landscape"
    with durable.owned(out):
        plane = _plane(config, job)
        problems = _problems(config, given, plane, job)
        components = out / "components"
        components.mkdir(parents=True, exist_ok=True)
        pca.write_components(plane, components)
        batches = list(_sampled(config, _grid(config, plane), problems, plane, out, job))
        table = pa.Table.from_batches(batches, POINT)
        _results(config, table, plane, out, job)
        yield from table.to_batches()


def _problems(config: Config, given: list[dict[str, Any]], plane: Plane, job: Job) -> list[dict[str, Any]]:
    """The problems that can be put to the model and graded, at every point the same."""
    from magcli.run.job import usage

    kept = []
    with setup.open_grader(config, config.reward) as grader:
        for row in setup.answerable(given, str(plane.folders[-1]), setup.system_text(config.system), grader, job):
            if grader.gradable(row):
                kept.append(row)
            else:
                job.drops.row(row["id"], "bad-gold", row)
    usage(len(kept) > 1, "landscape: at least 2 usable problems are needed")
    return kept


def _grid(config: Config, plane: Plane) -> pa.RecordBatch:
    import pyarrow as pa

    from magcli.landscape import surface

    places = surface.grid(plane.trajectory, points=config.points, pad=config.pad)
    return pa.RecordBatch.from_pydict(
        {"point": list(range(len(places))), "a1": places[:, 0].tolist(), "a2": places[:, 1].tolist()}
    )


def _plane(config: Config, job: Job) -> Plane:
    from magcli.errors import DataError
    from magcli.landscape import pca
    from magcli.run.rundir import RunDir

    folder = RunDir(config.run)
    checkpoints = sorted(folder.trajectory.glob("step-*"))
    if len(checkpoints) < 3:
        raise DataError(
            f"landscape: {folder.trajectory} holds {len(checkpoints)} checkpoints and a plane needs 3; "
            "run magcli rl with --trajectory-every"
        )
    plane = pca.plane(checkpoints)
    job.console.say(pca.summary(plane), event="plane", explained=plane.explained.tolist())
    for text in pca.warnings(plane):
        job.console.warn(text)
    return plane


def _sampled(
    config: Config,
    grid: pa.RecordBatch,
    problems: list[dict[str, Any]],
    plane: Plane,
    out: Path,
    job: Job,
) -> Rows:
    """The grid's points with what was sampled there; finished ones come from the journal beside the plots."""
    from magcli.config import as_json
    from magcli.landscape.results import POINT
    from magcli.model.load import fingerprint
    from magcli.run.journal import Journal
    from magcli.run.units import resumable

    settings = {key: value for key, value in as_json(config).items() if key not in PLACES}
    for name in ("shortest", "longest"):
        settings.pop(name)
    identity = settings | setup.model_bits("", config.system)
    identity["weights"] = [fingerprint(folder) for folder in plane.folders]
    identity["problems"] = [source.sha256 for source in job.sources]
    path = out / "points.journal"
    if job.restart:
        path.unlink(missing_ok=True)
    job.journal, job.total = Journal.open(path, POINT, identity), grid.num_rows
    compute, close = _sampler(config, problems, plane.folders[-1], out / "components")
    try:
        yield from resumable(iter([grid]), job, compute, close, size=1, window=1, unit="points")
    finally:
        job.journal.close()
        job.journal = None


def _sampler(config: Config, problems: list[dict[str, Any]], last: Path, components: Path) -> tuple[Compute, Any]:
    """What is done at one point, and how to end: one engine serves all points, its weights are replaced."""
    import pyarrow as pa

    from magcli.curate.sampling import rewards_of, samples_of
    from magcli.generate.open import open_policy
    from magcli.landscape.perturb import coordinates, perturbed
    from magcli.landscape.results import POINT, summary
    from magcli.run.journal import Result

    assert config.engine != "server"
    policy = open_policy(
        str(last),
        engine=config.engine,
        dtype="fp32" if config.deterministic else config.dtype,
        slots=config.slots,
        deterministic=config.deterministic,
        device=config.device,
    )
    grader, rule, asking = setup.open_grader(config, config.reward), setup.reward_rule(config), setup.ask(config)
    rounding = _rounding(config)

    async def compute(part: pa.RecordBatch) -> Result:
        import asyncio

        place = part.to_pylist()[0]
        weights = dict(perturbed(last, components, place["a1"], place["a2"], round=rounding))
        real = coordinates(weights.items(), last, components)
        await policy.load(weights, place["point"])

        async def one(row: dict[str, Any]) -> tuple[list[Sample], list[Reward]]:
            samples = await samples_of(policy, row, asking)
            return samples, await rewards_of(grader, row, samples, rule)

        sampled = await asyncio.gather(*(one(row) for row in problems))
        where = {"point": place["point"], "a1": real.a1, "a2": real.a2, "off_plane": real.off_plane}
        row = where | summary(_graded(sampled))
        return Result(pa.RecordBatch.from_pylist([row], POINT))

    async def close() -> None:
        await policy.close()
        await grader.close()

    return compute, close


def _rounding(config: Config) -> Literal["none", "nearest", "dither"]:
    if config.round != "auto":
        return config.round
    import torch

    from magcli.generate.open import engine_dtype

    exact = config.deterministic or engine_dtype(config.dtype, config.device) == torch.float32
    return "none" if exact else "dither"


def _graded(sampled: Sequence[tuple[list[Sample], list[Reward]]]) -> Graded:
    import numpy as np

    from magcli.landscape.results import Graded

    found = [rewards for _, rewards in sampled]
    return Graded(
        np.array([[reward.total for reward in rewards] for rewards in found]),
        np.array([[reward.total - reward.length for reward in rewards] for rewards in found]),
        np.array([[sample.completion.num_tokens for sample in samples] for samples, _ in sampled], float),
        np.array([[reward.correct for reward in rewards] for rewards in found], float),
    )


def _results(config: Config, points: pa.Table, plane: Plane, out: Path, job: Job) -> None:
    """Plots, figures, the table of points, and one line for people."""
    import numpy as np

    from magcli.data import table
    from magcli.landscape import results

    fit = results.regression(points, shortest=config.shortest, longest=config.longest)
    results.draw(points, plane, fit, out)
    means = points.drop_columns(list(results.PER_PROBLEM))
    with table.write(str(out / "points.csv"), means.schema, "") as sink:
        for batch in means.to_batches():
            sink.write(batch)
        sink.finish(job.history(points.num_rows))
    reward = results.mean(points, "reward")
    a1, a2 = results.places(points)[int(np.argmax(reward))]
    job.console.say(
        f"landscape: {len(reward)} points, reward {reward.min():.3f} to {reward.max():.3f} "
        f"(best at a1 {a1:+.3g}, a2 {a2:+.3g}); plots in {out}",
        event="landscape",
        out=str(out),
    )

"""PCA of a run's checkpoints, and the reward and length of the weights around the last one.

The plane is spanned by the two principal components of the float32 weights that `magcli rl --trajectory-every` stored.
At each point of a grid on it the weights w* + a1 c1 + a2 c2 are loaded into the running engine, and the problems are
sampled and graded. The final weights w* are evaluated a second time at the end, to check that results repeat. Figures,
an interactive page, points, samples and the regression of reward on length are written to the output folder.

Reward, maximum length, system prompt, temperature and chat template are those of the run, unless options or the recipe
give others; what differs is reported.

If it is interrupted, the same command resumes; a command with more points or samples adds to the existing ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import as_json, opt
from magcli.errors import DataError, EnvironmentFault, usage
from magcli.stages.shared import engines, forms, options, run_options, tables, templates, training

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.curate.sampling import Sample
    from magcli.data.source import Rows
    from magcli.landscape.gram import Array
    from magcli.landscape.pca import Plane
    from magcli.landscape.visits import Measure, Survey, Visit
    from magcli.model.model import Model
    from magcli.run.job import Job
    from magcli.run.journal import Journal
    from magcli.verify.reward import Reward

    Close = Callable[[], Coroutine[Any, Any, None]]

INPUTS = "The problems to sample at each point: columns prompt, answer; - is stdin."
OUTPUT = "the points (also in the output folder)"
EXAMPLE = "magcli landscape examples/problems.jsonl --run runs/rl --out runs/rl/landscape --points 19 --samples 4"
ALIASES = tables.ALIASES
GRID = "Plane and grid"


@dataclass(frozen=True)
class Config(options.RewardOptions, options.SamplingOptions, options.TemplateOptions, options.LocalEngineOptions):
    """Options of `magcli landscape`."""

    run: Path = opt(Path("runs/rl"), "Folder of an RL run with a stored trajectory.", affects_rows=False)
    out: Path | None = opt(
        None, "Folder for plots and points (default: landscape in the run's folder).", affects_rows=False
    )
    points: int = opt(61, "Minimum number of grid points.", panel=GRID)
    pad: float = opt(0.35, "Margin of the grid around the trajectory, as a fraction of its extent.", panel=GRID)
    range: str = opt("", "Rectangle of the grid, instead of --pad: a1lo:a1hi,a2lo:a2hi.", panel=GRID)
    refine: int = opt(
        0,
        "Number of additional points, at the centres of the triangles where another point is most informative.",
        panel=GRID,
    )
    more_samples: int = opt(
        0, "Additional samples per problem at the points nearest to the trajectory and to the best point.", panel=GRID
    )
    texts: int = opt(
        4, "Number of problems whose completions are stored at each point, the same everywhere.", panel=GRID
    )
    shortest: float = opt(0.0, "Minimum mean length of points in the regression.", panel=GRID)
    longest: float = opt(0.0, "Maximum mean length of points in the regression; 0 is no limit.", panel=GRID)
    method: Literal["gram", "lanczos"] = opt(
        "gram",
        "Algorithm for the plane: gram reads the weights once; lanczos, an independent check, about ten times.",
        panel=GRID,
    )
    plane_only: bool = opt(False, "Only compute the plane and write its components; sample nothing.", panel=GRID)
    cost: bool = opt(
        False, "With --dry-run: report the I/O and memory needed for the plane.", panel=GRID, preview_only=True
    )
    round: Literal["auto", "none", "nearest", "dither"] = opt(
        "auto", "Rounding of perturbed weights to bf16; auto: none for an fp32 engine, else dither.", panel=GRID
    )
    samples: int = options.samples(4)
    device: str = options.device(affects_rows=False)


EXTENT = ("points", "pad", "range", "refine", "samples", "more_samples", "shortest", "longest", "plane_only", "cost")
"""Options that change how much is sampled, but no result at a point: existing points and samples are reused."""


def reads(config: Config) -> tuple[str, ...] | None:
    """The required columns; the plane alone, or its cost, needs no problems."""
    if config.plane_only or config.cost:
        return None
    return ("id", "prompt") if config.reward else ("id", "prompt", "answer|tests")


layouts = tables.problem_layouts(reads)


def defaults(config: Config) -> dict[str, Any]:
    """How the run samples and grades."""
    return run_options.options_of_run(config.run)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    usage(config.points >= 4, f"landscape.points: {config.points} points are too few for a surface; give at least 4")
    options.check_positive("landscape", config, ("pad",))
    options.check_not_negative("landscape", config, ("refine", "more_samples", "texts"))
    if config.range:
        from magcli.landscape.surface import parse_box

        parse_box(config.range)
    usage(config.engine != "server", "landscape: --engine server cannot load each point's weights; use torch or vllm")
    options.check_template("landscape", config)
    options.check_local_engine("landscape", config)
    options.check_sampling("landscape", config)
    options.check_reward("landscape", config)


def output_folder(config: Config) -> Path:
    """The folder for plots and points."""
    return config.out or config.run / "landscape"


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The figures."""
    return (output_folder(config) / "landscape.json",)


def settings(config: Config) -> dict[str, Any]:
    """Digests of the system prompt, of the grader and of the run's checkpoints."""
    if reads(config) is None:
        return {}
    from magcli.model.model import Model
    from magcli.run.rundir import RunDir

    stored = RunDir(config.run).stored_weights()
    if not stored:
        return _sampling_identity(config)
    weights = {"checkpoints": [folder.name for folder in stored], "last": Model.open(stored[-1]).digest}
    return _sampling_identity(config) | weights


def _sampling_identity(config: Config) -> dict[str, Any]:
    prompts = engines.model_identity(templates.open_model("", config), config.system)
    return prompts | engines.grader_identity(config, config.reward)


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a point: its coordinates, means with intervals, and the means of each problem."""
    from magcli.landscape.results import POINT

    return POINT


def trial(config: Config) -> Callable[[Mapping[str, Any]], None] | None:
    """Tries a custom reward function on the first problem."""
    return None if config.plane_only or config.cost else engines.reward_trial(config)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Compute the plane, sample every point, write the figures."""
    from magcli.data import durable
    from magcli.landscape import components, results

    checkpoints = _checkpoints(config)
    if config.cost:
        job.console.result(_cost(checkpoints), event="cost")
        return
    given = [row for batch in rows for row in batch.to_pylist()]
    out = output_folder(config)
    with durable.locked(out):
        plane = _plane(config, checkpoints, out, job)
        components.write_components(plane, out / "components")
        results.write_plane(out, plane, job)
        if config.plane_only:
            return
        _warn_of_differences(config, job)
        model = _model(plane.folders[-1], config, job)
        problems = _problems(config, given, model, job)
        usage(len(problems) > 1, "landscape: at least 2 usable problems are needed")
        with _journal(config, plane, out, job) as journal:
            found = survey_points(config, model, _grid(config, plane), problems, plane, out, journal, job)
        points = results.point_table(found)
        fit = results.fit_length(points, shortest=config.shortest, longest=config.longest)
        results.write(out, found, points, plane, fit, job)
        yield from points.to_batches()


def _warn_of_differences(config: Config, job: Job) -> None:
    """Say what makes rewards and lengths differ from those of the run's own completions."""
    different = run_options.differences_from_run(config.run, as_json(config), _sampling_identity(config))
    if different:
        job.console.warn(f"landscape: not as in the run: {different}", event="differs")


def _problems(config: Config, given: list[dict[str, Any]], model: Model, job: Job) -> list[dict[str, Any]]:
    """The problems that fit into the context and can be graded, the same at every point."""
    system = engines.system_text(config.system, model.thoughts)
    with engines.open_grader(config, config.reward) as grader:
        return engines.answerable(given, model, system, grader, job)


def _grid(config: Config, plane: Plane) -> Array:
    from magcli.landscape.surface import grid, parse_box

    box = parse_box(config.range) if config.range else None
    return grid(plane.trajectory, points=config.points, pad=config.pad, box=box)


def _checkpoints(config: Config) -> list[Path]:
    """The run's stored weights, in training order."""
    from magcli.run.rundir import RunDir

    folder = RunDir(config.run)
    if not config.run.is_dir():
        raise DataError(f"landscape: run folder {config.run} does not exist")
    stored = folder.stored_weights()
    if len(stored) < 3:
        raise DataError(
            f"landscape: {folder.trajectory} holds {len(stored)} checkpoints, but a plane needs at least 3; "
            f"{_advice_for_more(config.run)}"
        )
    return stored


def _advice_for_more(run: Path) -> str:
    """How a run stores more weights: by the option for that, or if it has that already, by more updates."""
    every = run_options.record(run).get("trajectory_every")
    if not every:
        return "run magcli rl with --trajectory-every"
    more = "prolong the run by --updates"
    return more if every == 1 else f"{more}, or run another one with a --trajectory-every below {every}"


def _cost(checkpoints: Sequence[Path]) -> str:
    from magcli.landscape.checkpoints import open_checkpoint
    from magcli.landscape.pca import cost

    return cost([open_checkpoint(folder) for folder in checkpoints])


def _plane(config: Config, checkpoints: list[Path], out: Path, job: Job) -> Plane:
    from magcli.landscape import pca

    job.console.result(_cost(checkpoints), event="cost")
    plane = pca.plane(checkpoints, method=config.method, cache=out / "grams.npz")
    job.console.result(pca.summary(plane), event="plane", explained=plane.explained.tolist())
    for text in pca.details(plane):
        job.console.say(text, event="plane-detail")
    for text in pca.warnings(plane):
        job.console.warn(text)
    return plane


def _journal(config: Config, plane: Plane, out: Path, job: Job) -> AbstractContextManager[Journal]:
    """The finished visits of these weights and problems with these options of sampling and grading."""
    from magcli.config import row_options
    from magcli.landscape.visits import VISIT
    from magcli.run.journal import Journal

    options = {key: value for key, value in row_options(config).items() if key not in EXTENT}
    identity = options | _sampling_identity(config)
    identity["plane"] = plane.digest
    identity["problems"] = [source.sha256 for source in job.sources]
    path = out / "points.journal"
    if job.restart:
        path.unlink(missing_ok=True)
    return closing(Journal.open(path, VISIT, identity))


def survey_points(
    config: Config,
    model: Model,
    grid: Array,
    problems: Sequence[dict[str, Any]],
    plane: Plane,
    out: Path,
    journal: Journal,
    job: Job,
) -> Survey:
    """Visit the points with one engine whose weights are replaced; the journal holds finished visits."""
    from magcli.landscape.visits import JournalledVisits, SurveyPlan, survey
    from magcli.run.units import AsyncRunner

    plan = SurveyPlan(config.samples, config.refine, config.more_samples)
    dtype = engines.sampling_format(model, config, job, [journal])
    make, close = _open(config, model, dtype, problems, out / "components")
    total = None if config.more_samples else len(grid) + config.refine + 1
    with job.console.progress(total, "points", job.stage) as bar, AsyncRunner() as loop:
        visits = JournalledVisits(journal, make, lambda reused: bar.advance(reused=reused))
        try:
            return loop.run(survey(grid, plane.trajectory, plan, visits.measure))
        finally:
            loop.run(close())


def _model(folder: Path, config: Config, job: Job) -> Model:
    """A model of the run, which renders prompts with the date of the run's own, and has its form of thoughts."""
    recorded = training.recorded(config.run, forms.THOUGHTS)
    if config.thoughts == options.AUTO and recorded:
        config = replace(config, thoughts=recorded)
    model = templates.open_model(folder, config)
    forms.record(model.thoughts, job, [])
    return templates.with_date(model, job, [], date=training.recorded(config.run, "date"))


def _open(
    config: Config, model: Model, dtype: options.DType, problems: Sequence[dict[str, Any]], components: Path
) -> tuple[Measure, Close]:
    """The function that visits a point, and the one that closes its engine and grader."""
    import asyncio

    import pyarrow as pa

    from magcli.curate.sampling import grade_samples, sample_problem
    from magcli.generate.open import open_policy
    from magcli.generate.wire import Spec
    from magcli.landscape.components import coordinates, perturbed
    from magcli.verify.reward import columns

    assert config.engine != "server"
    spec = Spec(
        model,
        config.engine,
        dtype,
        config.num_slots,
        config.deterministic,
        config.device,
        gpu_memory=config.gpu_memory or engines.ALONE,
        tensor_parallel=config.tensor_parallel,
    )
    policy = open_policy(spec)
    grader, rule, plan = (
        engines.open_grader(config, config.reward),
        engines.reward_rule(config, model.thoughts),
        engines.sampling_plan(config, model.thoughts),
    )
    last, rounding, versions = model.folder, _rounding(config, dtype), count(1)

    async def visit(where: Visit) -> pa.RecordBatch:
        stored = dict(perturbed(last, components, where.a1, where.a2, round=rounding))
        real = coordinates(stored.items(), last, components)
        await policy.load(model.parameters_of(stored), next(versions))

        async def one(number: int, row: Mapping[str, Any]) -> pa.RecordBatch:
            samples = await sample_problem(policy, row, plan, range(where.first, where.last))
            rewards = await grade_samples(grader, row, samples, rule)
            _require_verdicts(row["id"], rewards)
            with_text = number < config.texts and where.first == 0
            return _rows((real.a1, real.a2, real.off_plane), row, samples, columns(rewards), with_text=with_text)

        parts = await asyncio.gather(*(one(number, row) for number, row in enumerate(problems)))
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]

    async def close() -> None:
        await policy.close()
        await grader.close()

    return visit, close


def _require_verdicts(problem: str, verdicts: Sequence[Reward]) -> None:
    """A point needs a verdict on every completion: a reward of 0 for one that cannot be graded would bias its mean.

    Raises:
        EnvironmentFault: a completion cannot be graded.
    """
    from magcli.verify.types import UNCOUNTED

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
    import pyarrow as pa

    from magcli.curate.sampling import completion_columns
    from magcli.landscape.visits import VISIT

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


def _rounding(config: Config, dtype: options.DType) -> Literal["none", "nearest", "dither"]:
    if config.round != "auto":
        return config.round
    return "none" if dtype == "fp32" else "dither"

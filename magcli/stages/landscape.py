"""PCA of a run's checkpoints, and the reward and length of the weights around the last one.

The plane is spanned by the two principal components of the float32 weights that `magcli rl --trajectory-every` stored.
At each point of a grid on it the weights w* + a1 c1 + a2 c2 are loaded into the running engine and the problems are
sampled and graded; the final weights once more at the end. Figures, an interactive page, points, samples and the
regression of reward on length are written to the output folder.

If it is interrupted, the same command resumes; a command with more points or samples adds to the existing ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from magcli.config import opt
from magcli.errors import DataError, usage
from magcli.run import options
from magcli.stages.parts import checks, setup

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.landscape.pca import Plane
    from magcli.landscape.principal import Array
    from magcli.run.job import Job
    from magcli.run.journal import Journal

INPUTS = "The problems to sample at each point: columns prompt, answer; - is stdin."
OUTPUT = "the points (also in the output folder)"
DEFAULT_OUTPUT = None
ALIASES = setup.ALIASES
EXAMPLE = "magcli landscape examples/problems.jsonl --run runs/rl --out runs/rl/landscape --points 19 --samples 4"

GRID = "Plane and grid"


@dataclass(frozen=True)
class Config:
    """Options of `magcli landscape`."""

    run: Path = opt(Path("runs/rl"), "Folder of an RL run with a stored trajectory.")
    out: Path | None = opt(None, "Folder for plots and points (default: landscape in the run's folder).")
    points: int = opt(61, "Minimum number of grid points.", panel=GRID)
    pad: float = opt(0.35, "How far the grid reaches past the path, as a share of its extent.", panel=GRID)
    range: str = opt("", "Rectangle of the grid instead of the padded one: a1lo:a1hi,a2lo:a2hi.", panel=GRID)
    refine: int = opt(
        0,
        "Further points: centres of the triangles with the most difference of corners x area / standard error.",
        panel=GRID,
    )
    more_samples: int = opt(
        0,
        "Further samples at some points: the corners of the triangles that hold a checkpoint or touch the best point.",
        panel=GRID,
    )
    texts: int = opt(
        4, "Number of problems whose completions are stored at each point, the same everywhere.", panel=GRID
    )
    shortest: float = opt(0.0, "Minimum mean length of points in the regression.", panel=GRID)
    longest: float = opt(0.0, "Maximum mean length of points in the regression; 0 is no limit.", panel=GRID)
    method: Literal["gram", "lanczos"] = opt(
        "gram",
        "Method for the plane: gram reads the weights once; lanczos, for verification, about ten times.",
        panel=GRID,
    )
    plane_only: bool = opt(False, "Only find the plane and write its components; sample nothing.", panel=GRID)
    cost: bool = opt(False, "With --dry-run: report bytes read and written and memory of the plane.", panel=GRID)
    round: Literal["auto", "none", "nearest", "dither"] = opt(
        "auto", "Rounding of perturbed weights to bf16: none for fp32 engines, else dither.", panel=GRID
    )
    samples: int = options.samples(4)
    max_tokens: int = options.max_tokens()
    temperature: float = options.temperature()
    top_p: float = options.top_p()
    system: Path | None = options.system()
    seed: int = options.seed()
    engine: options.Engine = options.engine()
    dtype: options.DType = options.dtype()
    slots: int = options.slots()
    deterministic: bool = options.deterministic()
    device: str = options.device()
    max_length: int = options.max_length()
    cache_length: int = options.cache_length()
    language: bool = options.language()
    workers: int = options.workers()
    verify_deadline: float = options.verify_deadline()
    sandbox: options.Sandbox = options.sandbox()
    reward: str = options.reward()
    num_tests: int = options.num_tests()
    partial: bool = options.partial()


RUNTIME = ("run", "out", "workers", "device")
"""Options that do not change the rows."""
EXTENT = ("points", "pad", "range", "refine", "samples", "more_samples", "shortest", "longest", "plane_only", "cost")
"""Options that say how much is sampled, not what is found at a point: points and samples that are there serve on."""


def reads(config: Config) -> tuple[str, ...]:
    """The columns that must be there."""
    if not takes_rows(config):
        return ()
    return ("id", "prompt") if config.reward else ("id", "prompt", "answer|tests")


def takes_rows(config: Config) -> bool:
    """The plane alone, or its cost, needs no problems."""
    return not (config.plane_only or config.cost)


def looks(config: Config) -> bool:
    """Whether only the cost is asked for."""
    return config.cost


def check(config: Config) -> None:
    """Refuse options that contradict themselves."""
    usage(config.points >= 4, f"landscape.points: {config.points} points make no surface; give at least 4")
    usage(config.pad > 0, f"landscape.pad: {config.pad} is not positive")
    usage(config.refine >= 0, f"landscape.refine: {config.refine} is negative")
    usage(config.more_samples >= 0, f"landscape.more_samples: {config.more_samples} is negative")
    usage(config.texts >= 0, f"landscape.texts: {config.texts} is negative")
    if config.range:
        from magcli.landscape.surface import parse_box

        parse_box(config.range)
    checks.device("landscape", config.device)
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
    if not takes_rows(config):
        return {}
    from magcli.model.load import fingerprint
    from magcli.run.rundir import RunDir

    kept = RunDir(config.run).kept_weights()
    weights = {"checkpoints": [folder.name for folder in kept], "last": fingerprint(kept[-1])} if kept else {}
    return setup.model_identity("", config.system) | setup.grader_identity(config, config.reward) | weights


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """One row a point: where it lies, means with intervals, and the means of each problem."""
    from magcli.landscape.results import POINT

    return POINT


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Find the plane, sample every point, draw."""
    from magcli.data import durable
    from magcli.landscape import components, output, results

    kept = _kept(config)
    if config.cost:
        job.console.say(_cost(kept), event="cost")
        return
    given = [row for batch in rows for row in batch.to_pylist()]
    out = config.out or config.run / "landscape"
    with durable.locked(out):
        plane = _plane(config, kept, out, job)
        components.write_components(plane, out / "components")
        output.write_plane(out, plane, job)
        if config.plane_only:
            return
        problems = _problems(config, given, plane, job)
        usage(len(problems) > 1, "landscape: at least 2 usable problems are needed")
        from magcli.stages.parts.landscape_points import surveyed

        with _journal(config, plane, out, job) as journal:
            found = surveyed(config, _grid(config, plane), problems, plane, out, journal, job)
        points = results.points(found)
        fit = results.regression(points, shortest=config.shortest, longest=config.longest)
        output.write(out, found, points, plane, fit, job)
        yield from points.to_batches()


def _problems(config: Config, given: list[dict[str, Any]], plane: Plane, job: Job) -> list[dict[str, Any]]:
    """The problems that can be put to the model and graded, at every point the same."""
    kept = []
    with setup.open_grader(config, config.reward) as grader:
        for row in setup.answerable(given, str(plane.folders[-1]), setup.system_text(config.system), grader, job):
            if grader.gradable(row):
                kept.append(row)
            else:
                job.drops.row(row["id"], "bad-gold", row)
    return kept


def _grid(config: Config, plane: Plane) -> Array:
    from magcli.landscape.surface import grid, parse_box

    box = parse_box(config.range) if config.range else None
    return grid(plane.trajectory, points=config.points, pad=config.pad, box=box)


def _kept(config: Config) -> list[Path]:
    """The checkpoints of the run, in training order."""
    from magcli.run.rundir import RunDir

    folder = RunDir(config.run)
    kept = folder.kept_weights()
    if len(kept) < 3:
        raise DataError(
            f"landscape: {folder.trajectory} holds {len(kept)} checkpoints and a plane needs 3; "
            "run magcli rl with --trajectory-every"
        )
    return kept


def _cost(kept: list[Path]) -> str:
    from magcli.landscape.checkpoints import open_checkpoint
    from magcli.landscape.diagnosis import cost

    return cost([open_checkpoint(folder) for folder in kept])


def _plane(config: Config, kept: list[Path], out: Path, job: Job) -> Plane:
    from magcli.landscape import diagnosis, pca

    job.console.say(_cost(kept), event="cost")
    plane = pca.plane(kept, method=config.method, kept=out / "grams.npz")
    job.console.say(diagnosis.summary(plane), event="plane", explained=plane.explained.tolist())
    for text in diagnosis.details(plane):
        job.console.say(text, event="plane-detail")
    for text in diagnosis.warnings(plane):
        job.console.warn(text)
    return plane


def _journal(config: Config, plane: Plane, out: Path, job: Job) -> AbstractContextManager[Journal]:
    """The finished visits, which belong to these weights, problems and ways to ask and grade."""
    from magcli.config import as_json
    from magcli.landscape.visits import VISIT
    from magcli.run.journal import Journal

    settings = {key: value for key, value in as_json(config).items() if key not in (*RUNTIME, *EXTENT)}
    identity = settings | setup.model_identity("", config.system) | setup.grader_identity(config, config.reward)
    identity["plane"] = plane.digest
    identity["problems"] = [source.sha256 for source in job.sources]
    path = out / "points.journal"
    if job.restart:
        path.unlink(missing_ok=True)
    return closing(Journal.open(path, VISIT, identity))

"""Options of `magcli landscape` and their checks; what determines its points besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from magcli.config import opt
from magcli.errors import usage
from magcli.landscape.box import parse_box
from magcli.stages.shared import options, run_options

GRID = "Plane and grid"


@dataclass(frozen=True)
class Config(
    options.RewardOptions,
    options.SamplingOptions,
    options.TemplateOptions,
    options.LocalEngineOptions,
    options.ClusterEngineOptions,
):
    """Options of `magcli landscape`."""

    REMOVED: ClassVar[Mapping[str, str]] = {
        "method": "the plane follows from the Gram matrix",
        "pad": "range chooses the rectangle",
        "round": "weights are dithered for an engine in bf16, and exact for one in fp32",
    }

    run: Path = opt(Path("runs/rl"), "Folder of an RL run with a stored trajectory.", affects_rows=False)
    out: Path | None = opt(
        None, "Folder for plots and points (default: landscape in the run's folder).", affects_rows=False
    )
    points: int = opt(61, "Minimum number of grid points.", panel=GRID, ge=4)
    range: str = opt(
        "",
        "Rectangle of the grid, as a1lo:a1hi,a2lo:a2hi; default: the trajectory with 35% of its extent on every side.",
        panel=GRID,
    )
    refine: int = opt(
        0,
        "Number of additional points, at the centres of the triangles where another point is most informative.",
        panel=GRID,
        ge=0,
    )
    more_samples: int = opt(
        0,
        "Additional samples per problem at the points nearest to the trajectory and to the best point.",
        panel=GRID,
        ge=0,
    )
    texts: int = opt(
        4, "Number of problems whose completions are stored at each point, the same everywhere.", panel=GRID, ge=0
    )
    shortest: float = opt(0.0, "Minimum mean length of points in the regression.", panel=GRID)
    longest: float = opt(0.0, "Maximum mean length of points in the regression; 0 is no limit.", panel=GRID)
    plane_only: bool = opt(False, "Only compute the plane and write its components; sample nothing.", panel=GRID)
    cost: bool = opt(
        False, "With --dry-run: report the I/O and memory needed for the plane.", panel=GRID, preview_only=True
    )
    samples: int = options.samples(4)
    device: str = options.device(affects_rows=False)


EXTENT = ("points", "range", "refine", "samples", "more_samples", "shortest", "longest", "plane_only", "cost")
"""Options that change how much is sampled, but no result at a point: existing points and samples are reused."""


def reads(config: Config) -> tuple[str, ...] | None:
    """The required columns; the plane alone, or its cost, needs no problems."""
    if config.plane_only or config.cost:
        return None
    return ("id", "prompt") if config.reward else ("id", "prompt", "answer|tests")


def defaults(config: Config) -> dict[str, Any]:
    """How the run samples and grades."""
    # Flags and the recipe take precedence over these.
    return run_options.options_of_run(config.run)


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    if config.range:
        parse_box(config.range)
    samples_nothing = config.plane_only or config.cost
    text = f"landscape: --cluster {config.cluster} samples at points, and --plane-only and --cost do not; omit it"
    usage(not (config.cluster and samples_nothing), text)
    usage(config.engine != "server", "landscape: --engine server cannot load each point's weights; use torch or vllm")
    options.check_template("landscape", config)
    options.check_local_engine("landscape", config)
    options.check_reward("landscape", config)


def output_folder(config: Config) -> Path:
    """The folder for plots and points."""
    return config.out or config.run / "landscape"


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The figures."""
    return (output_folder(config) / "landscape.json",)

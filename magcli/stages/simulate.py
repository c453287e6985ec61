"""Predict an RL run: throughput, idle time and staleness, without a model or a GPU.

MACHINE is a TOML file that describes the hardware, or the folder of a finished `magcli rl` run, whose measured speeds
and completion lengths are used to predict runs of other sizes. The options are those of `magcli rl`; with --recipe they
are read from its table `rl`. Each stage of the run is predicted separately.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from magcli.config import opt
from magcli.errors import usage
from magcli.stages.shared import run_sizes
from magcli.stages.shared.run_sizes import RunSizes

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.rl.simulate.simulation import SimulationSettings
    from magcli.run.job import Job

OUTPUT = ""
RECIPE_TABLE = "rl"
EXAMPLE = "magcli simulate runs/rl --updates 20 --group 4 --n-async 32 --n-batch 16 --n-mini 16 --max-tokens 48"
MAX_UPDATES_BY_RULE = 40
"""Updates to simulate of a stage that ends by a rule: enough for its figures to settle."""


@dataclass(frozen=True)
class Config(RunSizes):
    """Options of `magcli simulate`."""

    machine: Path | None = opt(
        None, "TOML file that describes the machine, or the folder of a finished run.", positional=True
    )
    workers: int = opt(1, "Number of verifier workers that the finished run used.")


def check(config: Config) -> None:
    """Refuse sizes that contradict each other."""
    usage(config.machine is not None, "simulate: --machine is missing: a TOML file or the folder of a finished run")
    run_sizes.check("simulate", config)
    for number, stage in enumerate(config.stage, 1):
        run_sizes.check(f"rl.stage {number}", run_sizes.options_in(stage, config))
    run_sizes.check_ends(config.stage, config.updates)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Print the prediction of each stage."""
    from magcli.rl.simulate.predict import report, simulate

    assert config.machine is not None
    for number, (sizes, updates) in enumerate(_stages(config), 1):
        prediction = simulate(config.machine, _settings(sizes, updates), seed=config.seed, workers=config.workers)
        title = f"stage {number}\n" if config.stage else ""
        job.console.print(title + report(prediction), event="prediction", stage=number, **asdict(prediction))
    return iter(())


def _stages(config: Config) -> list[tuple[Config, int | None]]:
    """The sizes of each stage, and its number of updates if that is fixed."""
    if not config.stage:
        return [(config, config.updates)]
    return [(run_sizes.options_in(stage, config), stage.updates) for stage in config.stage]


def _settings(config: Config, updates: int | None) -> SimulationSettings:
    from magcli.rl.simulate.simulation import SimulationSettings

    return SimulationSettings(
        updates=min(updates or MAX_UPDATES_BY_RULE, config.updates),
        group=config.group,
        n_async=config.n_async,
        n_batch=config.n_batch,
        staleness=config.staleness,
        max_tokens=config.max_tokens,
        schedule=config.schedule,
    )

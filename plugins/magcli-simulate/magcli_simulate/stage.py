"""Predict an RL run: throughput, idle time and staleness, without a model or a GPU.

MACHINE is a TOML file that describes the hardware, or the folder of a finished `magcli rl` run, whose measured speeds
and completion lengths are used to predict runs of other sizes. The options are those of `magcli rl`; with --recipe they
are read from its table `rl`. Each stage of the run is predicted separately.

`--trainers`, `--fsdp-size`, `--generators` and `--tensor-parallel` give the machine another layout, whose speed
follows from its own: ranks divide the tokens, and the devices of an engine the time of a step. With `--link` the
collectives of the model take time, by their counted bytes. What is assumed is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from magcli.config import opt
from magcli.errors import EnvironmentFault, usage
from magcli.stages.shared import run_sizes
from magcli.stages.shared.options import CLUSTER
from magcli.stages.shared.run_sizes import RunSizes

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.run.job import Job
    from magcli_simulate.collectives import Costs
    from magcli_simulate.machine import Machine
    from magcli_simulate.placement import Layout
    from magcli_simulate.simulation import SimulationSettings

OUTPUT = ""
RECIPE_TABLE = "rl"
EXAMPLE = "magcli simulate runs/rl --updates 20 --group-size 4 --n-async 32 --n-batch 16 --n-mini 16 --max-tokens 48"
MAX_UPDATES_BY_RULE = 40
"""Updates to simulate of a stage that ends by a rule: enough for its figures to settle."""

GB, MICROSECOND = 1e9, 1e-6


@dataclass(frozen=True)
class Config(RunSizes):
    """Options of `magcli simulate`."""

    machine: Path | None = opt(
        None, "TOML file that describes the machine, or the folder of a finished run.", positional=True
    )
    workers: int = opt(1, "Number of verifier workers that the finished run used.")
    trainers: int | None = opt(None, "Number of trainer ranks; default: as the machine has.", panel=CLUSTER, ge=1)
    fsdp_size: int | None = opt(
        None,
        "Number of trainer ranks that share one copy of the weights, such as the GPUs of a node; 0: all; default: as "
        "the machine has.",
        panel=CLUSTER,
        ge=0,
    )
    generators: int | None = opt(
        None,
        "Number of generators; 0: trainer and engine take turns on the same devices; default: as the machine has.",
        panel=CLUSTER,
        ge=0,
    )
    tensor_parallel: int | None = opt(
        None, "Number of devices over which each engine is split; default: as the machine has.", panel=CLUSTER, ge=1
    )
    link: float = opt(
        0.0,
        "GB per second between two devices, with which collectives of another layout are timed; 0: they take no time.",
        panel=CLUSTER,
        ge=0,
    )
    node_link: float = opt(
        0.0,
        "GB per second between two nodes, over which copies of --fsdp-size add up their gradients; default: --link.",
        panel=CLUSTER,
        ge=0,
    )
    latency: float = opt(0.0, "Microseconds that each collective takes besides.", panel=CLUSTER, ge=0)
    model: str = opt("", "Model whose collectives are counted, by its config.json; default: the run's.", panel=CLUSTER)


defaults = run_sizes.defaults


def check(config: Config) -> None:
    """Refuse sizes that contradict each other."""
    usage(config.machine is not None, "simulate: --machine is missing: a TOML file or the folder of a finished run")
    run_sizes.check("simulate", config)
    for number, stage in enumerate(config.stage, 1):
        run_sizes.check(f"rl.stage {number}", run_sizes.options_in(stage, config))
    run_sizes.check_ends(config.stage, config.updates)
    usage(config.link > 0 or not config.latency, "simulate: --latency needs --link, the speed of the same link")
    usage(config.link > 0 or not config.node_link, "simulate: --node-link needs --link, the speed inside a node")


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Print the prediction of each stage."""
    from magcli_simulate.predict import report, simulate

    assert config.machine is not None
    relayout = _relayout(config, job)
    for number, (sizes, updates) in enumerate(_stages(config), 1):
        prediction = simulate(
            config.machine,
            _settings(sizes, updates),
            seed=config.seed,
            workers=config.workers,
            relayout=relayout and partial(relayout, sizes.n_batch // sizes.n_mini),
        )
        title = f"stage {number}\n" if config.stage else ""
        job.console.print(title + report(prediction), event="prediction", stage=number, **asdict(prediction))
    return iter(())


def _relayout(config: Config, job: Job) -> Callable[[int, Machine], Machine] | None:
    """What gives the machine the layout of the options, and says what it assumes; None if they have none.

    Its first argument is the number of optimizer steps of an update.
    """
    from magcli_simulate.placement import Layout

    layout = Layout(
        trainers=config.trainers,
        fsdp_size=config.fsdp_size,
        generators=config.generators,
        tensor_parallel=config.tensor_parallel,
    )
    if layout == Layout():
        return None
    costs = _costs(config) if config.link else None
    said: set[str] = set()
    return partial(_placed, layout, costs, job, said)


def _placed(
    layout: Layout, costs: Costs | None, job: Job, said: set[str], optimizer_steps: int, machine: Machine
) -> Machine:
    """The machine with a layout; assumptions that were not ``said`` for an earlier stage are."""
    from magcli_simulate.placement import assumptions, placed

    other = placed(machine, layout, costs, optimizer_steps=optimizer_steps)
    for text in assumptions(machine, other, costs):
        if text not in said:
            job.console.say(f"simulate: {text}", event="assumption")
            said.add(text)
    return other


def _costs(config: Config) -> Costs:
    """The collectives of the model on the link.

    Raises:
        EnvironmentFault: the model has no readable configuration.
    """
    from magcli.model.model import Model
    from magcli.model.shape import shape_of
    from magcli.rl.layout import noted_model
    from magcli_simulate.collectives import Costs, Link

    assert config.machine is not None
    name, bf16 = noted_model(config.machine) if config.machine.is_dir() else ("", True)
    name = config.model or name
    usage(bool(name), "simulate: --link needs --model, whose collectives are counted: a folder with config.json")
    try:
        shape = shape_of(Model.open(name))
    except EnvironmentFault as error:
        text = f"simulate: collectives cannot be counted: {error}"
        raise EnvironmentFault(f"{text}; give a folder with config.json by --model") from error
    latency = config.latency * MICROSECOND
    node_link = config.node_link or config.link
    return Costs(shape, bf16, Link(config.link * GB, latency), Link(node_link * GB, latency))


def _stages(config: Config) -> list[tuple[Config, int | None]]:
    """The sizes of each stage, and its number of updates if that is fixed."""
    if not config.stage:
        return [(config, config.updates)]
    return [(run_sizes.options_in(stage, config), stage.updates) for stage in config.stage]


def _settings(config: Config, updates: int | None) -> SimulationSettings:
    from magcli_simulate.simulation import SimulationSettings

    return SimulationSettings(
        updates=min(updates or MAX_UPDATES_BY_RULE, config.updates),
        group_size=config.group_size,
        n_async=config.n_async,
        n_batch=config.n_batch,
        staleness=config.staleness,
        max_tokens=config.max_tokens,
        schedule=config.schedule,
    )

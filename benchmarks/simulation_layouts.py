"""``magcli simulate`` with another layout against real RL runs: two trainer ranks, two generators, from one of each.

A run calibrates the machine, and another with twice as many ranks or engines is predicted from it and measured. Trainer
and generators work in turn in all of them, so that two cores suffice: with ``--generators 0``, or with ``--schedule
sync``. Runs are repeated and alternate, so that other load falls on all. The model has 3M parameters, so that an update
is mostly computation; the speed of gloo between two processes is measured. A prediction may be off by 15 %.
"""

import tempfile
import time
from collections.abc import Mapping
from multiprocessing import Manager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from benchmarks.pairs import SHORT, Result
from benchmarks.simulation import (
    COMMON,
    SEEDS,
    TOLERANCE,
    WORKERS,
    Figures,
    mean_of,
    of_run,
    of_updates,
    run_rl,
    write_inputs,
)
from magcli.model.model import Model
from magcli.model.shape import shape_of
from magcli_simulate.collectives import Costs, Link
from magcli_simulate.placement import Layout, assumptions, placed
from magcli_simulate.predict import calibrate, read_run
from magcli_simulate.simulation import Simulation
from magcli_simulate.workload import resampled_source

SIZES = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}
RUN = {"updates": 5 if SHORT else 8, "n_async": 32, "n_batch": 32, "n_mini": 32, "staleness": 1, "micro_tokens": 1024}
CASES: Mapping[str, tuple[Mapping[str, object], Mapping[str, object], Layout]] = {
    "two trainer ranks": ({}, {"trainers": 2}, Layout(trainers=2)),
    "two generators": (
        {"schedule": "sync", "generators": 1}, {"schedule": "sync", "generators": 2}, Layout(generators=2),
    ),
}  # fmt: skip
"""The options of the measured run, those of the predicted one, and its layout."""
REPEATS = 1 if SHORT else 2
MESSAGE = 4 << 20
"""Numbers that each of two processes sends to the other."""
TIMES = 10
PORT = 29_517


def run() -> Result:
    """Predicted over measured throughput of each layout."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_inputs(folder, **SIZES)
        costs = Costs(shape_of(Model.open(str(folder / "model"))), False, measured_link())
        print(f"  two gloo processes: {costs.link.bytes_per_s / 1e9:.2f} GB/s, {costs.link.latency * 1e6:.0f} us")
        _measure(folder)
        ratios = [_predict(name, folder, costs) for name in CASES]
    return Result("simulation-layouts", tuple(ratios), within=TOLERANCE)


def _measure(folder: Path) -> None:
    """All runs, ``REPEATS`` times in turn."""
    for repeat in range(REPEATS):
        for name, (before, after, _) in CASES.items():
            for side, options in (("before", before), ("after", after)):
                run_rl(folder / f"{name} {side} {repeat}", {**COMMON, **RUN, **options})


def _predict(name: str, folder: Path, costs: Costs) -> float:
    layout = CASES[name][2]
    before = [read_run(folder / f"{name} before {repeat}") for repeat in range(REPEATS)]
    machine = calibrate(before, workers=WORKERS)
    other = placed(machine, layout, costs)
    for text in assumptions(machine, other, costs):
        print(f"  {name}: {text}")
    simulated = []
    settings = before[0].settings
    for seed in SEEDS:
        groups = [group for run in before for group in run.groups.values()]
        source = resampled_source(groups, group=settings.group_size, max_tokens=settings.max_tokens, seed=seed)
        simulated.append(of_updates(Simulation(settings, other, source).run().updates, other))
    predicted = mean_of(simulated)
    after = _figures(folder, name, "after")
    base = _figures(folder, name, "before")
    print(
        f"  {name}: {base.tokens_per_s:.0f} tokens/s measured before, {predicted.tokens_per_s:.0f} predicted, "
        f"{after.tokens_per_s:.0f} measured",
        flush=True,
    )
    return predicted.tokens_per_s / after.tokens_per_s


def _figures(folder: Path, name: str, side: str) -> Figures:
    """The mean of the measured runs."""
    paths = [folder / f"{name} {side} {repeat}" for repeat in range(REPEATS)]
    return mean_of([of_run(read_run(path), path) for path in paths])


def measured_link() -> Link:
    """The speed of all-gathers between two gloo processes of this machine."""
    with Manager() as manager:
        seconds: Any = manager.dict()
        spawn(_gather, args=(seconds,), nprocs=2)
        latency = seconds[1]
        return Link(4 * MESSAGE / max(1e-9, seconds[MESSAGE] - latency), latency)


def _gather(rank: int, seconds: "dict[int, float]") -> None:
    """Rank 0 notes the seconds of an all-gather of each size."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=2)
    for size in (1, MESSAGE):
        part, parts = torch.ones(size), [torch.empty(size), torch.empty(size)]
        dist.all_gather(parts, part)
        started = time.perf_counter()
        for _ in range(TIMES):
            dist.all_gather(parts, part)
        if rank == 0:
            seconds[size] = (time.perf_counter() - started) / TIMES
    dist.destroy_process_group()

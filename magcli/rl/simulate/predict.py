"""Predict a run: the figures of a simulation, and the table that shows them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from magcli.rl.simulate.calibrate import calibrate, read_run
from magcli.rl.simulate.machine import Machine, read_machine
from magcli.rl.simulate.simulation import Simulation, SimulationSettings
from magcli.rl.simulate.workload import GroupSource, group_source


@dataclass(frozen=True, slots=True)
class Prediction:
    """The figures of a run from its start to its last update.

    Shares are of wall time: ``generator_idle`` of engines in which no sequence runs or which wait for trainer or
    weights, ``trainer_idle`` of the trainer. ``sequences_running_mean`` is per decode step of one engine. ``staleness``
    is per completion, in updates; ``mixed_versions`` is the share of completions from more than one version of the
    weights. Queues: ``groups_ready`` wait to train, ``completions_ungraded`` for a verdict, ``sequences_queued`` for a
    slot (counted at updates). ``cache_peak`` is the largest number of tokens in the KV cache of one engine,
    ``preemptions`` counts sequences that were preempted because it was full.
    """

    updates: int
    hours: float
    updates_per_hour: float
    generated_tokens_per_s: float
    trained_tokens_per_s: float
    generator_idle: float
    trainer_idle: float
    sequences_running_mean: float
    staleness_mean: float
    staleness_p95: float
    staleness_max: int
    mixed_versions: float
    groups_dropped: int
    groups_ready_mean: float
    groups_ready_max: int
    completions_ungraded_mean: float
    completions_ungraded_max: int
    sequences_queued_mean: float
    cache_peak: int
    preemptions: int


def simulate(path: Path, settings: SimulationSettings, *, seed: int, workers: int = 1) -> Prediction:
    """Predict a run on the machine of a TOML file, or on that of a finished run, given by its folder, with its lengths.

    The same seed gives the same figures. The placement is that of the machine, not of ``settings``. ``workers`` is the
    number of verifier workers of the finished run.

    Raises:
        UsageError: the description is invalid.
        DataError: its rollouts, or the finished run, cannot be used.
        Stopped: too many consecutive groups had zero advantage.
    """
    if path.is_dir():
        run = read_run(path)
        machine, groups = calibrate([run], workers=workers), run.resampled(seed, settings)
    else:
        machine = read_machine(path)
        groups = group_source(machine.lengths, group=settings.group, max_tokens=settings.max_tokens, seed=seed)
    placement: Literal["shared", "split"] = "shared" if machine.trainer.shared else "split"
    return predict(replace(settings, placement=placement), machine, groups)


def predict(settings: SimulationSettings, machine: Machine, groups: GroupSource) -> Prediction:
    """The figures of one simulated run."""
    simulation = Simulation(settings, machine, groups)
    result = simulation.run()
    last, engines = result.updates[-1], simulation.engines
    seconds = last.time
    staleness = np.array([stale for update in result.updates for stale in update.staleness])
    return Prediction(
        updates=len(result.updates),
        hours=seconds / 3600,
        updates_per_hour=len(result.updates) / seconds * 3600,
        generated_tokens_per_s=last.work.generated / seconds,
        trained_tokens_per_s=last.trained_tokens / seconds,
        generator_idle=max(0.0, 1 - last.work.seconds / (seconds * len(engines))),
        trainer_idle=1 - last.training / seconds,
        sequences_running_mean=last.work.generated / last.work.steps,
        staleness_mean=float(staleness.mean()),
        staleness_p95=float(np.quantile(staleness, 0.95)),
        staleness_max=int(staleness.max()),
        mixed_versions=sum(update.mixed for update in result.updates) / len(staleness),
        groups_dropped=last.dropped,
        groups_ready_mean=last.ready_seconds / seconds,
        groups_ready_max=result.most_ready,
        completions_ungraded_mean=last.ungraded_seconds / seconds,
        completions_ungraded_max=result.most_ungraded,
        sequences_queued_mean=float(np.mean([update.queued for update in result.updates])),
        cache_peak=max(engine.peak for engine in engines),
        preemptions=sum(engine.preemptions for engine in engines),
    )


def report(prediction: Prediction) -> str:
    """The figures as a table of names and values."""
    p = prediction
    lines = {
        f"{p.updates} updates": f"{p.hours:,.2f} h, {p.updates_per_hour:,.1f} per hour",
        "generated": f"{p.generated_tokens_per_s:,.0f} tokens/s, {p.sequences_running_mean:,.1f} sequences per engine",
        "trained": f"{p.trained_tokens_per_s:,.0f} tokens/s",
        "generators idle": f"{p.generator_idle:.1%}",
        "trainer idle": f"{p.trainer_idle:.1%}",
        "staleness": f"mean {p.staleness_mean:.2f}, p95 {p.staleness_p95:.0f}, max {p.staleness_max} updates",
        "mixed versions": f"{p.mixed_versions:.1%} of completions",
        "groups dropped": f"{p.groups_dropped:,}",
        "groups ready": f"mean {p.groups_ready_mean:,.1f}, max {p.groups_ready_max:,}",
        "completions ungraded": f"mean {p.completions_ungraded_mean:,.1f}, max {p.completions_ungraded_max:,}",
        "sequences queued": f"mean {p.sequences_queued_mean:,.1f}",
        "KV cache": f"at most {p.cache_peak:,} tokens per engine; {p.preemptions:,} preemptions",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())

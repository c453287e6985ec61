"""What a simulated run comes to, and the table of it that a person reads."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from magcli.rl.simulate.calibrate import calibrate, read_run
from magcli.rl.simulate.draw import Draw, draws
from magcli.rl.simulate.events import Settings, Simulation
from magcli.rl.simulate.machine import Machine, read_machine


@dataclass(frozen=True, slots=True)
class Prediction:
    """A run's figures from its first to its last update.

    Shares are of wall time: ``generator_idle`` of engines in which no sequence runs or which wait for trainer or
    weights, ``trainer_idle`` of the trainer. ``running`` is the mean of sequences in the steps of one engine.
    ``staleness`` counts updates between the version that began a completion and the one that it trained, by
    completion; ``mixed_versions`` is the share of completions that several versions made. Queues: ``groups_ready``
    wait to train, ``completions_ungraded`` for a verdict, ``sequences_queued`` for a slot (at updates).
    ``cache_peak`` is the most tokens that one engine held, ``gave_way`` how often one of its sequences had to give
    its place up because the cache was full.
    """

    updates: int
    hours: float
    updates_per_hour: float
    generated_tokens_per_s: float
    trained_tokens_per_s: float
    generator_idle: float
    trainer_idle: float
    running: float
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
    gave_way: int


def simulate(path: Path, settings: Settings, *, seed: int, workers: int = 1) -> Prediction:
    """Predict a run on the machine that a TOML file describes, or on that of a finished run by its folder, with its
    lengths; the same seed gives the same figures. ``workers`` are those that graded the finished run.

    The placement is that of the machine, not of ``settings``.

    Raises:
        UsageError: the description is wrong.
        DataError: its rollouts, or the run, cannot be used.
        Stopped: too many consecutive groups had zero advantage.
    """
    if path.is_dir():
        run = read_run(path)
        machine, draw = calibrate([run], workers=workers), run.like(seed, settings)
    else:
        machine = read_machine(path)
        draw = draws(machine.lengths, group=settings.group, max_tokens=settings.max_tokens, seed=seed)
    placement: Literal["shared", "split"] = "shared" if machine.trainer.shared else "split"
    return predict(replace(settings, placement=placement), machine, draw)


def predict(settings: Settings, machine: Machine, draw: Draw) -> Prediction:
    """The figures of one simulated run."""
    simulation = Simulation(settings, machine, draw)
    tally = simulation.run()
    last, engines = tally.updates[-1], simulation.engines
    seconds = last.time
    staleness = np.array([stale for update in tally.updates for stale in update.staleness])
    return Prediction(
        updates=len(tally.updates),
        hours=seconds / 3600,
        updates_per_hour=len(tally.updates) / seconds * 3600,
        generated_tokens_per_s=last.work.made / seconds,
        trained_tokens_per_s=last.trained_tokens / seconds,
        generator_idle=max(0.0, 1 - last.work.seconds / (seconds * len(engines))),
        trainer_idle=1 - last.training / seconds,
        running=last.work.made / last.work.steps,
        staleness_mean=float(staleness.mean()),
        staleness_p95=float(np.quantile(staleness, 0.95)),
        staleness_max=int(staleness.max()),
        mixed_versions=sum(update.mixed for update in tally.updates) / len(staleness),
        groups_dropped=last.dropped,
        groups_ready_mean=last.ready_seconds / seconds,
        groups_ready_max=tally.most_ready,
        completions_ungraded_mean=last.ungraded_seconds / seconds,
        completions_ungraded_max=tally.most_ungraded,
        sequences_queued_mean=float(np.mean([update.queued for update in tally.updates])),
        cache_peak=max(engine.peak for engine in engines),
        gave_way=sum(engine.gave_way for engine in engines),
    )


def event(prediction: Prediction) -> dict[str, Any]:
    """The figures by name, for ``--json``."""
    return asdict(prediction)


def report(prediction: Prediction) -> str:
    """The figures as lines ``what  value``."""
    p = prediction
    lines = {
        f"{p.updates} updates": f"{p.hours:,.2f} h, {p.updates_per_hour:,.1f} an hour",
        "generated": f"{p.generated_tokens_per_s:,.0f} tokens/s, {p.running:,.1f} sequences in an engine's step",
        "trained": f"{p.trained_tokens_per_s:,.0f} tokens/s",
        "generators idle": f"{p.generator_idle:.1%}",
        "trainer idle": f"{p.trainer_idle:.1%}",
        "staleness": f"mean {p.staleness_mean:.2f}, 95% {p.staleness_p95:.0f}, max {p.staleness_max} updates",
        "several versions": f"{p.mixed_versions:.1%} of the completions",
        "groups dropped": f"{p.groups_dropped:,}",
        "groups ready": f"mean {p.groups_ready_mean:,.1f}, max {p.groups_ready_max:,}",
        "completions ungraded": f"mean {p.completions_ungraded_mean:,.1f}, max {p.completions_ungraded_max:,}",
        "sequences without a slot": f"mean {p.sequences_queued_mean:,.1f}",
        "cache of an engine": f"at most {p.cache_peak:,} tokens; {p.gave_way:,} sequences gave way",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())

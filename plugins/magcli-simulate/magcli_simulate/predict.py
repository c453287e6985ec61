"""Predict a run: the figures of a simulation, and the table that shows them.

The speeds of the machine are described, or fitted to real runs on it, so that they predict runs of other sizes.
Training: the seconds of each update against its tokens. Generation: the run is replayed group by group, which gives the
steps, tokens and cached tokens of each update's decoding, to which the measured seconds are fitted. Since a replay
needs the speeds that it is to find, this is iterated, at the end with half steps: full steps can oscillate if the times
of a run are noisy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from magcli.data import checksum
from magcli.errors import DataError
from magcli.rl.layout import NotedLayout, noted_layout
from magcli.rl.ledger import read as read_ledger
from magcli.run.rundir import RunDir
from magcli.run.settings import CHOSEN
from magcli_simulate.machine import GeneratorSpec, Machine, TrainerSpec, VerifierSpec, read_machine
from magcli_simulate.simulation import Simulation, SimulationResult, SimulationSettings
from magcli_simulate.workload import (
    GroupShape,
    GroupSource,
    fit_lengths,
    group_source,
    read_groups,
    resampled_source,
)

Floats = NDArray[np.float64]
FULL_STEPS, HALF_STEPS = 6, 12
"""Iterations of the fit; more change nothing visible."""
MIN_UPDATES = 3
"""Updates that a run must have; the first, in which processes start, is not fitted."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The figures of a run from its start to its last update.

    Shares are of wall time, and ``idle_causes`` splits them (``magcli.rl.utilization``): ``generator_idle`` of the
    slots, ``trainer_idle`` of the trainer. ``sequences_running_mean`` is per decode step of one engine. ``staleness``
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
    idle_causes: Mapping[str, float]
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


def simulate(
    path: Path,
    settings: SimulationSettings,
    *,
    seed: int,
    workers: int = 1,
    relayout: Callable[[Machine], Machine] | None = None,
) -> Prediction:
    """Predict a run on the machine of a TOML file, or on that of a finished run, given by its folder, with its lengths.

    The same seed gives the same figures. The placement is that of the machine, not of ``settings``. ``workers`` is the
    number of verifier workers of the finished run. ``relayout`` gives the machine another layout.

    Raises:
        UsageError: the description is invalid.
        DataError: its rollouts, or the finished run, cannot be used.
        Stopped: too many consecutive groups had zero advantage.
    """
    if path.is_dir():
        run = read_run(path)
        machine = calibrate([run], workers=workers)
        groups = run.resampled(seed, settings)
    else:
        machine = read_machine(path)
        groups = group_source(machine.lengths, group=settings.group_size, max_tokens=settings.max_tokens, seed=seed)
    machine = relayout(machine) if relayout else machine
    placement: Literal["shared", "split"] = "shared" if machine.trainer.shared else "split"
    return predict(replace(settings, placement=placement), machine, groups)


def predict(settings: SimulationSettings, machine: Machine, groups: GroupSource) -> Prediction:
    """The figures of one simulated run."""
    simulation = Simulation(settings, machine, groups)
    result = simulation.run()
    last, engines = result.updates[-1], simulation.engines
    seconds = last.time
    idle = simulation.utilization.metrics(seconds)
    staleness = np.array([stale for update in result.updates for stale in update.staleness])
    return Prediction(
        updates=len(result.updates),
        hours=seconds / 3600,
        updates_per_hour=len(result.updates) / seconds * 3600,
        generated_tokens_per_s=last.work.generated / seconds,
        trained_tokens_per_s=last.trained_tokens / seconds,
        generator_idle=idle.pop("generator_idle"),
        trainer_idle=idle.pop("trainer_idle"),
        idle_causes=idle,
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
        "generators idle": f"{p.generator_idle:.1%} of slots{_causes(p.idle_causes, 'generator_idle_')}",
        "trainer idle": f"{p.trainer_idle:.1%}{_causes(p.idle_causes, 'trainer_idle_')}",
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


def _causes(shares: Mapping[str, float], prefix: str) -> str:
    """The causes of idle time in words, largest first; those below 0.05 % are left out."""
    by_cause = {name.removeprefix(prefix): share for name, share in shares.items() if name.startswith(prefix)}
    largest_first = sorted(by_cause.items(), key=lambda item: -item[1])
    parts = [f"{cause} {share:.1%}" for cause, share in largest_first if share >= 0.0005]
    return f" ({', '.join(parts)})" if parts else ""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A real run, with its ``groups`` by number.

    The arrays have one value for each update: ``seconds`` since the update before, ``training`` in which the trainer
    worked, ``transfer`` from then to the end of the update, ``generating`` in which the engines worked (their mean);
    ``tokens`` trained, prompts included. ``verdict`` is the median of the seconds from a group's last token to its
    reward. ``padded``: the engine is the embedded one. ``micro_tokens`` is the limit of the ranks' micro-batches.
    """

    settings: SimulationSettings
    engines: int
    padded: bool
    groups: Mapping[int, GroupShape]
    seconds: Floats
    training: Floats
    transfer: Floats
    generating: Floats
    tokens: Floats
    verdict: float
    layout: NotedLayout = NotedLayout()
    micro_tokens: int = 0

    def group(self, number: int) -> GroupShape:
        """The run's group with this number; another one of the run if a replay needs more groups."""
        return self.groups[number] if number in self.groups else self.resampled(0, self.settings)(number)

    def resampled(self, seed: int, settings: SimulationSettings) -> GroupSource:
        """Groups like those of the run, for a run with other settings."""
        groups = list(self.groups.values())
        return resampled_source(groups, group=settings.group_size, max_tokens=settings.max_tokens, seed=seed)


def read_run(folder: Path) -> MeasuredRun:
    """A finished run from its folder; without generator processes, trainer and engine took turns.

    Raises:
        DataError: it is not a run of `magcli rl`, has too few updates, or has stages.
    """
    run = RunDir(folder)
    problem = f"{folder} is not a magcli rl run that can calibrate the simulation"
    for path in (run.note_path, run.metrics_path, run.ledger):
        if not path.is_file():
            raise DataError(f"{problem}: it has no {path.name}")
    try:
        config = _with_present_names(checksum.read_object(run.note_path))
        lines = [line for line in run.metrics() if line.get("step") != 0]
        events = read_ledger(run.ledger)
    except (OSError, ValueError, DataError) as error:
        raise DataError(f"{problem}: {error}") from None
    if not {field.name for field in fields(SimulationSettings)} - {"placement"} <= set(config):
        raise DataError(f"{problem}: its run.json lacks options")
    if any("generate_seconds" not in line for line in lines):
        raise DataError(f"{problem}: its metrics lack generate_seconds; an older version of magcli made them")
    if len(lines) < MIN_UPDATES:
        raise DataError(f"{problem}: it has fewer than {MIN_UPDATES} updates")
    if len({line.get("stage") for line in lines}) > 1:
        raise DataError(f"{folder}: a run with stages has no single size to calibrate with")
    try:
        layout = noted_layout(config)
    except DataError as error:
        raise DataError(f"{problem}: {error}") from None
    rollouts = [read_groups(run.rollouts_of(line["step"])) for line in lines]
    return _measured(config, lines, events, rollouts, layout)


def _with_present_names(record: dict[str, Any]) -> dict[str, Any]:
    """The options of a run; an earlier version recorded the group size as ``group``."""
    return {"group_size": record["group"], **record} if "group" in record else record


def _measured(
    config: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Mapping[int, GroupShape]],
    layout: NotedLayout,
) -> MeasuredRun:
    generators = int(config.get("generators", 0))
    settings = {field.name: config[field.name] for field in fields(SimulationSettings) if field.name in config}
    settings |= {"updates": len(lines), "placement": "split" if generators else "shared"}
    started, trained = _times(events, "taken"), _times(events, "trained")
    training = _column(lines, "trained_tokens") / _column(lines, "train_tokens_per_s")
    trained_groups = [[group for group in step.values() if not group.dropped] for step in rollouts]
    return MeasuredRun(
        SimulationSettings(**settings),
        max(1, generators),
        config.get("engine", "torch") == "torch",
        {number: group for step in rollouts for number, group in step.items()},
        seconds=np.diff(trained, prepend=events[0]["time"]),
        training=training,
        transfer=np.maximum(0.0, trained - started - training),
        generating=_column(lines, "generate_seconds"),
        tokens=np.array([sum(sum(g.lengths) + g.prompt * len(g.lengths) for g in step) for step in trained_groups]),
        verdict=_verdict_seconds(events),
        layout=layout,
        micro_tokens=int(config.get(CHOSEN, {}).get("micro_tokens") or config.get("micro_tokens", 0)),
    )


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([line[name] for line in lines], dtype=float)


def _times(events: Sequence[Mapping[str, Any]], kind: str) -> Floats:
    """The time of each update's event of a kind."""
    times = {event["step"]: event["time"] for event in events if event["event"] == kind}
    return np.array([times[step] for step in sorted(times)])


def _verdict_seconds(events: Sequence[Mapping[str, Any]]) -> float:
    generated = {event["group"]: event["time"] for event in events if event["event"] == "generated"}
    graded = {event["group"]: event["time"] for event in events if event["event"] in ("admitted", "dropped")}
    return float(np.median([graded[group] - generated[group] for group in graded]))


def calibrate(runs: Sequence[MeasuredRun], *, workers: int) -> Machine:
    """The machine on which a simulation of these runs takes as long as they did, with a device for each rank of the
    trainer and of an engine.

    Runs with different ``n_async`` separate the fixed time of a step from that of each sequence. The runs must have the
    same layout and the same engine. ``workers`` is their number of verifier workers.
    """
    machine = _first_guess(runs, workers)
    for _ in range(FULL_STEPS):
        machine = _refit(machine, _replay(machine, runs))
    tried = []
    for _ in range(HALF_STEPS):
        replays = _replay(machine, runs)
        tried.append((_error(replays), machine))
        machine = _midpoint(machine, _refit(machine, replays))
    return min(tried, key=lambda pair: pair[0])[1]


Replays = Sequence[tuple[MeasuredRun, SimulationResult]]


def _replay(machine: Machine, runs: Sequence[MeasuredRun]) -> Replays:
    return [(run, Simulation(run.settings, machine, run.group).run()) for run in runs]


def _error(replays: Replays) -> float:
    """The largest absolute log-ratio of a replay's and its run's seconds from the first update to the last."""
    spans = [(replay.updates[-1].time - replay.updates[0].time, run.seconds[1:].sum()) for run, replay in replays]
    return float(max(abs(np.log(replayed / real)) for replayed, real in spans))


def _midpoint(one: Machine, other: Machine) -> Machine:
    fitted = ("step_seconds", "sequence_seconds", "token_seconds", "gap_seconds")
    means = {name: (getattr(one.generators, name) + getattr(other.generators, name)) / 2 for name in fitted}
    verdict = float(np.sqrt(one.verifiers.seconds * other.verifiers.seconds))
    verifiers = replace(one.verifiers, seconds=verdict)
    return replace(one, generators=replace(one.generators, **means), verifiers=verifiers)


def _first_guess(runs: Sequence[MeasuredRun], workers: int) -> Machine:
    """The trainer, whose fit is final, and engines and verifiers with roughly the right speed."""
    fixed, per_token = nonnegative_least_squares(
        np.concatenate([np.column_stack([np.ones_like(run.tokens), run.tokens])[1:] for run in runs]),
        np.concatenate([run.training[1:] for run in runs]),
    )
    transfer = float(np.mean(np.concatenate([run.transfer[1:] for run in runs])))
    groups = [group for run in runs for group in run.groups.values()]
    decoding = sum(run.generating.sum() * run.engines for run in runs)
    verdict = np.median([run.verdict / run.settings.group_size for run in runs])
    first = runs[0]
    layout = first.layout
    return Machine(
        fit_lengths(groups),
        GeneratorSpec(
            first.engines * layout.tensor_parallel,
            decoding / sum(sum(group.lengths) for group in groups),
            devices_per_engine=layout.tensor_parallel,
            padded=first.padded,
        ),
        TrainerSpec(
            layout.trainers,
            1 / (max(per_token, 1e-12) * layout.trainers),
            fixed,
            transfer,
            fsdp_size=layout.fsdp_size,
            micro_tokens=first.micro_tokens,
            shared=first.settings.placement == "shared",
        ),
        VerifierSpec(workers, float(verdict)),
    )


def _refit(machine: Machine, replays: Replays) -> Machine:
    """The machine whose engines and verifiers need the measured seconds for the work of the replays."""
    parts = [_decoding(run, replay) for run, replay in replays]
    step, sequence, token = nonnegative_least_squares(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    generators = replace(
        machine.generators,
        step_seconds=max(step, 1e-9),
        sequence_seconds=sequence,
        token_seconds=token,
        gap_seconds=_gap(machine, replays) if replays[0][0].settings.placement == "shared" else 0.0,
    )
    verdicts = [(run.verdict, float(np.median(replay.verdicts))) for run, replay in replays]
    slowdown = float(np.median([real / replayed for real, replayed in verdicts if replayed > 0] or [1.0]))
    verifiers = replace(machine.verifiers, seconds=machine.verifiers.seconds * slowdown)
    return replace(machine, generators=generators, verifiers=verifiers)


def _decoding(run: MeasuredRun, replay: SimulationResult) -> tuple[Floats, Floats]:
    """Steps, tokens generated and tokens attended to, up to each update, and the measured seconds for them.

    Both are divided by the run's seconds, so that short and long runs have equal weight.
    """
    seconds = (run.generating[1:] * run.engines).cumsum()
    return _work(replay)[:, :3].cumsum(axis=0) / seconds[-1], seconds / seconds[-1]


def _gap(machine: Machine, replays: Replays) -> float:
    """Seconds between two steps where trainer and engine take turns: what is left of the measured time without
    training, transfer, decoding, and the time in which the replay too waits for verdicts.
    """
    left, steps = 0.0, 0.0
    for run, replay in replays:
        work = _work(replay).sum(axis=0)
        first, last = replay.updates[0], replay.updates[-1]
        trained = last.training - first.training + machine.trainer.transfer_seconds * (len(replay.updates) - 1)
        waits = last.time - first.time - trained - work[3] - machine.generators.gap_seconds * work[0]
        rest = run.seconds - run.training - run.transfer - run.generating
        left += float(rest[1:].sum()) - max(0.0, float(waits))
        steps += float(work[0])
    return max(0.0, left / steps)


def _work(replay: SimulationResult) -> Floats:
    """Steps, tokens generated, tokens attended to, and seconds of decoding, of each update from the second on."""
    works = [update.work for update in replay.updates]
    total = [[work.steps, work.generated, work.attended, work.seconds] for work in works]
    return np.diff(np.array(total, dtype=np.float64), axis=0)


def nonnegative_least_squares(columns: Floats, values: Floats) -> list[float]:
    """The x >= 0 that minimizes |columns @ x - values|; columns with negative coefficients are removed, worst first."""
    scale = np.linalg.norm(columns, axis=0)
    kept = [int(index) for index in np.flatnonzero(scale)]
    solution = np.zeros(columns.shape[1])
    while kept:
        solved = np.linalg.lstsq(columns[:, kept] / scale[kept], values, rcond=1e-9)[0]
        if solved.min() >= 0:
            solution[kept] = solved / scale[kept]
            break
        kept.pop(int(solved.argmin()))
    return [float(value) for value in solution]

"""The speeds of a machine, fitted to real runs on it: what some runs measured predicts others with other sizes.

Training: seconds of each update against its tokens. Generation: the run is replayed, group by group, which tells how
many steps, tokens and cached tokens each update's decoding came to; the seconds that decoding took are fitted to
these. As the replay needs the speeds that it is to find, it is done again with those found.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from magcli.errors import DataError
from magcli.rl.ledger import read as read_ledger
from magcli.rl.simulate.draw import Draw, Drawn, read_groups, resampled
from magcli.rl.simulate.events import Settings, Simulation, Update
from magcli.rl.simulate.machine import Generators, Lengths, Machine, Trainer, Verifiers

Floats = NDArray[np.float64]
ROUNDS = 4
"""Replays: the first from a guess, the others from what was found; more change nothing that can be seen."""
LEAST = 3
"""Updates that a run must have; its first, in which everything happens for the first time, is not fitted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A real run.

    ``groups`` are its groups by number; the arrays have one figure an update: ``seconds`` from update to update,
    ``training`` that the trainer worked, ``transfer`` until the update was over after that, ``generating`` that the
    engines worked, on average; ``tokens`` trained, prompts included. ``verdict`` is the seconds from a group's last
    token to its reward, a median. ``completions`` and ``idle`` (generators, trainer) are to compare with.
    """

    settings: Settings
    engines: int
    groups: Mapping[int, Drawn]
    seconds: Floats
    training: Floats
    transfer: Floats
    generating: Floats
    tokens: Floats
    completions: Floats
    idle: tuple[float, float]
    verdict: float

    def own(self, number: int) -> Drawn:
        """The run's group of a number; where a replay asks for one more, some other group of the run."""
        return self.groups[number] if number in self.groups else self.like(0)(number)

    def like(self, seed: int) -> Draw:
        """Groups such as the run's."""
        settings, known = self.settings, list(self.groups.values())
        return resampled(known, group=settings.group, max_tokens=settings.max_tokens, seed=seed)


def read_run(folder: Path, *, generators: int = 0) -> Measured:
    """A finished run from its folder; ``generators`` is how many processes generated, 0 that trainer and engine took
    turns on one device.

    Raises:
        DataError: it is no run of `magcli rl`, or has too few updates.
    """
    try:
        config = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        events = read_ledger(folder / "ledger.jsonl")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: no run of magcli rl to calibrate with: {error}") from None
    if config.get("stage") != "rl" or len(lines) < LEAST:
        raise DataError(f"{folder}: {len(lines)} updates of stage {config.get('stage')}; wants {LEAST} of rl")
    return _measured(config, lines, events, _rollouts(folder, lines), generators)


def _rollouts(folder: Path, lines: Sequence[Mapping[str, Any]]) -> list[Mapping[int, Drawn]]:
    return [read_groups(folder / "rollouts" / f"step-{line['step']:06d}.arrow") for line in lines]


def _measured(
    config: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Mapping[int, Drawn]],
    generators: int,
) -> Measured:
    names = {field.name for field in fields(Settings)} & set(config)
    placement = "split" if generators else "shared"
    given = {**{name: config[name] for name in names}, "updates": len(lines), "placement": placement}
    taken, trained = _times(events, "taken"), _times(events, "trained")
    wall, generator_idle, trainer_idle = (_column(lines, n) for n in ("seconds", "generator_idle", "trainer_idle"))
    training = _column(lines, "trained_tokens") / _column(lines, "train_tokens_per_s")
    trained_groups = [[group for group in step.values() if not group.dropped] for step in rollouts]
    return Measured(
        Settings(**given),
        max(1, generators),
        {number: group for step in rollouts for number, group in step.items()},
        seconds=np.diff(trained, prepend=events[0]["time"]),
        training=training,
        transfer=np.maximum(0.0, trained - taken - training),
        generating=(1 - generator_idle) * wall,
        tokens=np.array([sum(sum(g.lengths) + g.prompt * len(g.lengths) for g in step) for step in trained_groups]),
        completions=_column(lines, "trained_tokens"),
        idle=(_mean(generator_idle, wall), _mean(trainer_idle, wall)),
        verdict=_verdict(events),
    )


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([line[name] for line in lines], dtype=float)


def _mean(values: Floats, weights: Floats) -> float:
    return float(np.average(values, weights=weights))


def _times(events: Sequence[Mapping[str, Any]], kind: str) -> Floats:
    """When each update's groups were taken, or trained."""
    times = {event["step"]: event["time"] for event in events if event["event"] == kind}
    return np.array([times[step] for step in sorted(times)])


def _verdict(events: Sequence[Mapping[str, Any]]) -> float:
    generated = {event["group"]: event["time"] for event in events if event["event"] == "generated"}
    graded = {event["group"]: event["time"] for event in events if event["event"] in ("admitted", "dropped")}
    return float(np.median([graded[group] - generated[group] for group in graded]))


def calibrate(runs: Sequence[Measured], *, workers: int) -> Machine:
    """The machine on which these runs took as long as they did: one device that trains, one a generator.

    Runs with different ``n_async`` tell what a step takes from what a sequence adds to it. The runs must have the same
    placement.

    Args:
        runs: the runs to fit.
        workers: verdicts that were worked out at once.
    """
    engines = runs[0].engines
    fixed, each = not_negative(
        np.concatenate([np.column_stack([np.ones_like(run.tokens), run.tokens])[1:] for run in runs]),
        np.concatenate([run.training[1:] for run in runs]),
    )
    transfer = float(np.mean(np.concatenate([run.transfer[1:] for run in runs])))
    trainer = Trainer(1, 1 / max(each, 1e-12), update_seconds=fixed, transfer_seconds=transfer)
    verifiers = Verifiers(workers, float(np.median([run.verdict for run in runs])))
    made = sum(sum(group.lengths) for run in runs for group in run.groups.values())
    generators = Generators(engines, sum(run.generating.sum() for run in runs) * engines / made)
    for _ in range(ROUNDS):
        machine = Machine(Lengths(median=1.0), generators, trainer, verifiers)
        generators = _generators(runs, [_replay(run, machine) for run in runs])
    return Machine(Lengths(median=1.0), generators, trainer, verifiers)


def _replay(run: Measured, machine: Machine) -> list[Update]:
    return Simulation(run.settings, machine, run.own).run().updates


def _generators(runs: Sequence[Measured], replays: Sequence[list[Update]]) -> Generators:
    """The speeds of an engine with which the replays' work takes the seconds that decoding took."""
    pairs = list(zip(runs, replays, strict=True))
    columns = np.concatenate([_work(updates)[1:, :4] for updates in replays])
    seconds = np.concatenate([_decoding(run, updates)[1:] for run, updates in pairs])
    step, made, attended, prefilled = not_negative(columns, seconds)
    return Generators(
        runs[0].engines,
        max(step, 1e-9),
        sequence_seconds=made,
        token_seconds=attended,
        prefill_tokens_per_s=1 / prefilled if prefilled else float("inf"),
    )


def _work(updates: Sequence[Update]) -> Floats:
    """Each update's steps, tokens made, attended and prefilled, and seconds of decoding: ``[updates, 5]``."""
    works = [update.work for update in updates]
    total = [[work.steps, work.made, work.attended, work.prefilled, work.seconds] for work in works]
    return np.diff(np.array(total, dtype=np.float64), axis=0, prepend=0.0)


def _decoding(run: Measured, updates: Sequence[Update]) -> Floats:
    """Seconds that decoding took, all engines together, by update.

    Where trainer and engine take turns it is what is left of the time, without that in which both waited for verdicts:
    so it holds what the loop itself takes for each step and completion.
    """
    if run.settings.placement == "split":
        return run.generating * run.engines
    elapsed = np.diff([update.time for update in updates], prepend=0.0)
    training = np.diff([update.training for update in updates], prepend=0.0)
    waits = elapsed - training - _work(updates)[:, 4] - float(np.mean(run.transfer[1:]))
    decoding: Floats = run.seconds - run.training - run.transfer - np.maximum(0.0, waits)
    return decoding


def not_negative(columns: Floats, values: Floats) -> list[float]:
    """Least squares of ``columns @ found = values`` with nothing found below 0: what is, is left out, worst first."""
    scale = np.linalg.norm(columns, axis=0)
    kept = [int(place) for place in np.flatnonzero(scale)]
    found = np.zeros(columns.shape[1])
    while kept:
        solved = np.linalg.lstsq(columns[:, kept] / scale[kept], values, rcond=1e-9)[0]
        if solved.min() >= 0:
            found[kept] = solved / scale[kept]
            break
        kept.pop(int(solved.argmin()))
    return [float(value) for value in found]

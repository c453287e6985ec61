"""The speeds of a machine, fitted to real runs on it: what some runs measured predicts others with other sizes.

Training: seconds of each update against its tokens. Generation: the run is replayed, group by group, which tells how
many steps, tokens and cached tokens each update's decoding came to; the seconds that decoding took are fitted to
these. As the replay needs the speeds that it is to find, it is done again with those found; and then with speeds half
way to those found, as going all the way can swing for ever between two answers where a run's times are noisy.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from magcli.errors import DataError
from magcli.rl.ledger import read as read_ledger
from magcli.rl.simulate.draw import Draw, Drawn, described, read_groups, resampled
from magcli.rl.simulate.events import Settings, Simulation, Tally, Update
from magcli.rl.simulate.machine import Generators, Machine, Trainer, Verifiers
from magcli.run.rundir import RunDir

Floats = NDArray[np.float64]
ROUNDS, DAMPED = 6, 12
"""Replays: the first from a guess, the others from what was found, the last ones half way to it; more change nothing
that can be seen."""
LEAST = 3
"""Updates that a run must have; its first, in which everything happens for the first time, is not fitted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A real run.

    ``groups`` are its groups by number; the arrays have one figure an update: ``seconds`` from update to update,
    ``training`` that the trainer worked, ``transfer`` until the update was over after that, ``generating`` that the
    engines worked, on average; ``tokens`` trained, and ``completions``, those without prompts. ``verdict`` is the
    seconds from a group's last token to its reward, a median. ``padded``: the engine is the embedded one.
    """

    settings: Settings
    engines: int
    padded: bool
    groups: Mapping[int, Drawn]
    seconds: Floats
    training: Floats
    transfer: Floats
    generating: Floats
    tokens: Floats
    completions: Floats
    verdict: float

    def own(self, number: int) -> Drawn:
        """The run's group of a number; where a replay asks for one more, some other group of the run."""
        return self.groups[number] if number in self.groups else self.like(0, self.settings)(number)

    def like(self, seed: int, settings: Settings) -> Draw:
        """Groups such as the run's, as a run of these settings would have them."""
        return resampled(list(self.groups.values()), group=settings.group, max_tokens=settings.max_tokens, seed=seed)


def read_run(folder: Path) -> Measured:
    """A finished run from its folder; where no processes of their own generated, trainer and engine took turns.

    Raises:
        DataError: it is no run of `magcli rl`, has too few updates, or stages of different sizes.
    """
    run = RunDir(folder)
    try:
        config = json.loads(run.note_path.read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in run.metrics_path.read_text(encoding="utf-8").splitlines()]
        events = read_ledger(run.ledger)
    except FileNotFoundError as error:
        raise DataError(
            f"{folder}: no run of magcli rl to calibrate with: it has no {Path(error.filename).name}"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: no run of magcli rl to calibrate with: {error}") from None
    sizes = {field.name for field in fields(Settings)} - {"placement"}
    if not sizes <= set(config) or len(lines) < LEAST:
        raise DataError(f"{folder}: no run of magcli rl with {LEAST} updates or more to calibrate with")
    if len({line.get("stage") for line in lines}) > 1:
        raise DataError(f"{folder}: a run of several stages has no one size to calibrate with")
    return _measured(config, lines, events, _rollouts(folder, lines))


def _rollouts(folder: Path, lines: Sequence[Mapping[str, Any]]) -> list[Mapping[int, Drawn]]:
    return [read_groups(RunDir(folder).rollouts_of(line["step"])) for line in lines]


def _measured(
    config: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Mapping[int, Drawn]],
) -> Measured:
    generators = int(config.get("generators", 0))
    names = {field.name for field in fields(Settings)} & set(config)
    given = {name: config[name] for name in names} | {"updates": len(lines)}
    given["placement"] = "split" if generators else "shared"
    taken, trained = _times(events, "taken"), _times(events, "trained")
    training = _column(lines, "trained_tokens") / _column(lines, "train_tokens_per_s")
    trained_groups = [[group for group in step.values() if not group.dropped] for step in rollouts]
    return Measured(
        Settings(**given),
        max(1, generators),
        config.get("engine", "torch") == "torch",
        {number: group for step in rollouts for number, group in step.items()},
        seconds=np.diff(trained, prepend=events[0]["time"]),
        training=training,
        transfer=np.maximum(0.0, trained - taken - training),
        generating=_column(lines, "generated_tokens") / _column(lines, "generate_tokens_per_s"),
        tokens=np.array([sum(sum(g.lengths) + g.prompt * len(g.lengths) for g in step) for step in trained_groups]),
        completions=_column(lines, "trained_tokens"),
        verdict=_verdict(events),
    )


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([line[name] for line in lines], dtype=float)


def _times(events: Sequence[Mapping[str, Any]], kind: str) -> Floats:
    """When each update's groups were taken, or trained."""
    times = {event["step"]: event["time"] for event in events if event["event"] == kind}
    return np.array([times[step] for step in sorted(times)])


def _verdict(events: Sequence[Mapping[str, Any]]) -> float:
    generated = {event["group"]: event["time"] for event in events if event["event"] == "generated"}
    graded = {event["group"]: event["time"] for event in events if event["event"] in ("admitted", "dropped")}
    return float(np.median([graded[group] - generated[group] for group in graded]))


def calibrate(runs: Sequence[Measured], *, workers: int) -> Machine:
    """The machine on which these runs took as long as they did, with their lengths: one device that trains, one a
    generator.

    Runs with different ``n_async`` tell what a step takes from what a sequence adds to it. The runs must have the same
    placement and the same engine.

    Args:
        runs: the runs to fit.
        workers: verdicts that were worked out at once.
    """
    machine = _first_guess(runs, workers)
    for _ in range(ROUNDS):
        machine = _refined(machine, _replayed(machine, runs))
    tried = []
    for _ in range(DAMPED):
        pairs = _replayed(machine, runs)
        tried.append((_apart(pairs), machine))
        machine = _half_way(machine, _refined(machine, pairs))
    return min(tried, key=lambda one: one[0])[1]


def _replayed(machine: Machine, runs: Sequence[Measured]) -> list[tuple[Measured, Tally]]:
    return [(run, Simulation(run.settings, machine, run.own).run()) for run in runs]


def _apart(pairs: Sequence[tuple[Measured, Tally]]) -> float:
    """How far the replays' seconds from the first update to the last are from the runs', at worst, as a log-ratio."""
    spans = [(replay.updates[-1].time - replay.updates[0].time, run.seconds[1:].sum()) for run, replay in pairs]
    return float(max(abs(np.log(replayed / real)) for replayed, real in spans))


def _half_way(one: Machine, other: Machine) -> Machine:
    fitted = ("step_seconds", "sequence_seconds", "token_seconds", "gap_seconds")
    ours, theirs = one.generators, other.generators
    means = {name: (getattr(ours, name) + getattr(theirs, name)) / 2 for name in fitted}
    verdict = float(np.sqrt(one.verifiers.seconds * other.verifiers.seconds))
    verifiers = replace(one.verifiers, seconds=verdict)
    return replace(one, generators=replace(ours, **means), verifiers=verifiers)


def _first_guess(runs: Sequence[Measured], workers: int) -> Machine:
    """The trainer, which is fitted at once, and engines and verifiers of about the right speed."""
    fixed, each = not_negative(
        np.concatenate([np.column_stack([np.ones_like(run.tokens), run.tokens])[1:] for run in runs]),
        np.concatenate([run.training[1:] for run in runs]),
    )
    transfer = float(np.mean(np.concatenate([run.transfer[1:] for run in runs])))
    engines, decoding = runs[0].engines, sum(run.generating.sum() * run.engines for run in runs)
    made = sum(sum(group.lengths) for run in runs for group in run.groups.values())
    verdict = np.median([run.verdict / run.settings.group for run in runs])
    return Machine(
        described([group for run in runs for group in run.groups.values()]),
        Generators(engines, decoding / made, padded=runs[0].padded),
        Trainer(1, 1 / max(each, 1e-12), fixed, transfer, shared=runs[0].settings.placement == "shared"),
        Verifiers(workers, float(verdict)),
    )


def _refined(machine: Machine, pairs: Sequence[tuple[Measured, Tally]]) -> Machine:
    """The machine whose engines and verifiers take for the replays' work what the runs took."""
    rows = [_decoding(run, replay) for run, replay in pairs]
    step, made, attended = not_negative(*(np.concatenate(part) for part in zip(*rows, strict=True)))
    gap = _gap(machine, pairs) if pairs[0][0].settings.placement == "shared" else 0.0
    waits = [(run.verdict, float(np.median(replay.verdicts))) for run, replay in pairs]
    slower = float(np.median([real / replayed for real, replayed in waits if replayed > 0] or [1.0]))
    verifiers = replace(machine.verifiers, seconds=machine.verifiers.seconds * slower)
    generators = replace(
        machine.generators,
        step_seconds=max(step, 1e-9),
        sequence_seconds=made,
        token_seconds=attended,
        gap_seconds=gap,
    )
    return replace(machine, generators=generators, verifiers=verifiers)


def _decoding(run: Measured, replay: Tally) -> tuple[Floats, Floats]:
    """Steps, tokens made and tokens attended to, up to each update, and the seconds that they took.

    As shares of the run's seconds, so that a run counts as much as one that took longer.
    """
    seconds = (run.generating[1:] * run.engines).cumsum()
    return _work(replay.updates)[:, :3].cumsum(axis=0) / seconds[-1], seconds / seconds[-1]


def _gap(machine: Machine, pairs: Sequence[tuple[Measured, Tally]]) -> float:
    """Seconds between two steps where trainer and engine take turns: what is left when all else is taken away.

    Besides training, transfer and decoding, that is the time in which the replay too waits for verdicts.
    """
    left, steps = 0.0, 0.0
    for run, replay in pairs:
        work = _work(replay.updates).sum(axis=0)
        first, last = replay.updates[0], replay.updates[-1]
        trained = last.training - first.training + machine.trainer.transfer_seconds * (len(replay.updates) - 1)
        waits = last.time - first.time - trained - work[3] - machine.generators.gap_seconds * work[0]
        rest = run.seconds - run.training - run.transfer - run.generating
        left += float(rest[1:].sum()) - max(0.0, float(waits))
        steps += float(work[0])
    return max(0.0, left / steps)


def _work(updates: Sequence[Update]) -> Floats:
    """Steps, tokens made, tokens attended to, and seconds of decoding, by update from the second on."""
    total = [[u.work.steps, u.work.made, u.work.attended, u.work.seconds] for u in updates]
    return np.diff(np.array(total, dtype=np.float64), axis=0)


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

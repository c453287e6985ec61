"""Training runs on the page: curves by update, where the groups went, what the run was told and how it ended."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from magcli.report import plans, rollouts
from magcli.report.chart import Chart, Mark, Series
from magcli.report.funnel import Part
from magcli.report.plans import Plan
from magcli.report.thin import Line, thinned
from magcli.report.wording import duration, tail
from magcli.rl import ledger
from magcli.run import lineage
from magcli.run.lineage import Trained
from magcli.run.rundir import RunDir

GROUPS_AFTER = 3
"""Charts of a run that stand before the one of its groups."""
FAULTS = 3
"""Groups that break the ledger's identity, of which each is told."""
VARIANCE = "reward_variance"
"""What the squared standard error of the mean reward is called among an update's metrics here."""


@dataclass(frozen=True, slots=True)
class Run:
    """A training run: facts of how it went, charts, all verdicts by reason, samples, and the run in one figure."""

    name: str
    trained: Trained
    facts: Sequence[str]
    charts: Sequence[Chart]
    verdicts: Sequence[Part]
    samples: Sequence[rollouts.Update]
    headline: str


def read(folder: Path, name: str, *, samples_at: Sequence[str], groups: int) -> Run:
    """What a run's folder tells, whether the run has ended or not.

    Raises:
        DataError: it is no run of magcli, or its records are damaged.
    """
    trained, run = lineage.read(folder), RunDir(folder)
    lines, of_rl = run.metrics(), trained.stage == "rl"
    unit = "update" if of_rl else "step"
    errors = rollouts.reward_errors(folder) if of_rl else {}
    points, every = thinned([_with_variance(line, errors) for line in lines])
    sizes = [min(every, len(lines) - first) for first in range(0, len(lines), every)]
    charts = _charts(points, sizes, unit, _stages(lines), of_rl)
    facts = [_progress(trained, lines, run.finished, unit), *_start(trained)]
    facts += _of_groups(folder) if of_rl else []
    if every > 1:
        facts.append(f"Each point of the charts is the mean of {every} {unit}s")
    shown = rollouts.samples(folder, samples_at, groups) if of_rl else []
    return Run(name, trained, facts, charts, _verdicts(lines), shown, _headline(lines, "reward" if of_rl else "loss"))


def _verdicts(lines: Sequence[Line]) -> list[Part]:
    counts: Counter[str] = sum((Counter(line.get("reasons") or {}) for line in lines), Counter())
    return [Part(reason, count, count / counts.total()) for reason, count in counts.most_common()]


def _with_variance(line: Line, errors: Mapping[int, float]) -> Line:
    error = errors.get(line["step"])
    return {**line, VARIANCE: None if error is None else error**2}


def _headline(lines: Sequence[Line], key: str) -> str:
    """Where reward or loss began and ended."""
    known = [line[key] for line in lines if line.get(key) is not None]
    return f"{key} {known[0]:.3g} to {known[-1]:.3g}" if known else "nothing trained yet"


def _progress(trained: Trained, lines: Sequence[Line], finished: bool, unit: str) -> str:
    planned = trained.options.get("updates")
    of = f" of {planned:,}" if planned else ""
    state = "finished" if finished else "not finished: the same command goes on"
    took = f" in {duration(_seconds(lines))}" if lines else ""
    return f"{len(lines):,}{of} {unit}s{took}, {state}"


def _start(trained: Trained) -> list[str]:
    return [f"Begun from {tail(trained.begun_from)}"] if trained.begun_from else []


def _seconds(lines: Sequence[Line]) -> float:
    return float(sum(line.get("seconds") or 0 for line in lines))


def _of_groups(folder: Path) -> list[str]:
    """Where the groups went, by the run's ledger; a killed run's torn last line is left out."""
    path = RunDir(folder).ledger
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        account = ledger.account(ledger.parse((line for line in file if line.endswith("\n")), path))
    faults, more = account.faults[:FAULTS], len(account.faults) - FAULTS
    return [str(account), *faults, *([f"{more:,} more faults like these"] if more > 0 else [])]


def _stages(lines: Sequence[Line]) -> list[Mark]:
    """The updates with which stages of the run began, the first one apart."""
    marks = []
    for before, after in pairwise(lines):
        stage = after.get("stage")
        if stage is not None and stage != before.get("stage"):
            marks.append(Mark(after["step"], f"stage {stage + 1}"))
    return marks


def _charts(points: Sequence[Line], sizes: Sequence[int], unit: str, marks: Sequence[Mark], of_rl: bool) -> list[Chart]:
    """The charts for which there is something to draw; ``sizes`` are how many updates each point stands for."""
    x = [point["step"] for point in points]
    found = []
    for plan in plans.RL if of_rl else plans.SFT:
        series = [_series(name, key, points, sizes) for key, name in plan.keys.items()]
        found.append(_chart(plan, unit, x, series, marks))
    if of_rl:
        found.insert(GROUPS_AFTER, _groups_chart(points, x, unit, marks))
    return [chart for chart in found if chart.series]


def _chart(plan: Plan, unit: str, x: Sequence[float], series: Sequence[Series], marks: Sequence[Mark]) -> Chart:
    known = [each for each in series if any(value is not None for value in each.values)]
    return Chart(plan.title, plan.told, unit, x, known, "lines", plan.unit, marks)


def _series(name: str, key: str, points: Sequence[Line], sizes: Sequence[int]) -> Series:
    """A metric by update; the mean reward with the ends of its interval."""
    values = [point.get(key) for point in points]
    if key != "reward":
        return Series(name, values)
    ends = [_interval(point, size) for point, size in zip(points, sizes, strict=True)]
    return Series(name, values, [low for low, _ in ends], [high for _, high in ends])


def _interval(point: Line, size: int) -> tuple[float | None, float | None]:
    """The 95 % interval of the reward; a mean over ``size`` updates varies less than theirs do."""
    mean, variance = point.get("reward"), point.get(VARIANCE)
    if mean is None or variance is None:
        return None, None
    half = rollouts.Z * (variance / size) ** 0.5
    return mean - half, mean + half


def _groups_chart(points: Sequence[Line], x: Sequence[float], unit: str, marks: Sequence[Mark]) -> Chart:
    reasons: Counter[str] = sum((Counter(point.get("groups_dropped") or {}) for point in points), Counter())
    dropped = [
        Series(reason, [(point.get("groups_dropped") or {}).get(reason, 0) for point in points])
        for reason, _ in reasons.most_common()
    ]
    trained = Series("trained", [point.get("groups_trained") for point in points])
    told = "Groups of completions that an update trained on, and those dropped before it, by reason."
    return Chart("Groups", told, unit, x, [trained, *dropped] if points else [], "stack", "number", marks)

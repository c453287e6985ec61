"""Training runs in the report: metrics by update, what became of the groups, sample completions, a summary."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from magcli.console import duration
from magcli.data import table
from magcli.data.schema import REWARD_PARTS
from magcli.model.chat.thoughts import form_named
from magcli.report.chart import Chart, Mark, Series
from magcli.report.formatting import sanitize, short_path
from magcli.report.history import Part
from magcli.report.training_charts import ACCURACY, REWARDS, SFT, ChartSpec, chart_of, parts, specs_of_rl
from magcli.rl import ledger
from magcli.rl.store import read_columns
from magcli.run.rundir import HELD_OUT, Line, RunDir, Trained, read_run
from magcli.verify.types import UNGRADED

MAX_POINTS = 240
"""Maximum number of points of a chart."""
MAX_FAULTS = 3
"""How many violations of the ledger's identity are listed."""
ACCURACY_CHART = 1
"""Index of the chart of the accuracy on held-out problems, if there is one."""
LAST = ("step", "stage")
"""Metrics of which the last value of an interval is taken instead of the mean."""
VARIANCE = "reward_variance"
"""Key under which the squared standard error of the mean reward is added to the metrics."""
NOT_SHOWN = ("prompt_tokens", "tokens", "logprobs")
Z = 1.96
"""Half-width of a 95 % interval in standard errors."""


@dataclass(frozen=True, slots=True)
class SampleView:
    """One completion as shown on the page."""

    completion: str
    reward: float
    parts: Sequence[tuple[str, float]]
    reason: str
    extracted: str
    detail: str
    tokens: int
    ended: str
    advantage: float | None
    versions: Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupView:
    """The best and the worst completion of a group; ``dropped`` is the reason if the group was not trained."""

    number: int
    id: str
    prompt: str
    answer: str
    size: int
    dropped: str
    samples: Sequence[SampleView]


@dataclass(frozen=True, slots=True)
class UpdateView:
    """Some groups of one update."""

    step: int
    groups: Sequence[GroupView]


@dataclass(frozen=True, slots=True)
class RunView:
    """A training run: facts, charts, verdicts by reason, sample completions, and a one-line summary."""

    name: str
    trained: Trained
    facts: Sequence[str]
    charts: Sequence[Chart]
    verdicts: Sequence[Part]
    samples: Sequence[UpdateView]
    headline: str

    @property
    def title(self) -> str:
        """The stage and the name, which are often the same."""
        return self.name if self.name == self.trained.stage else f"{self.trained.stage}: {self.name}"


def read(folder: Path, name: str, *, samples_at: Sequence[str], groups: int) -> RunView:
    """Read the folder of a finished or unfinished run.

    Raises:
        DataError: it is not a run of magcli, or its records are damaged.
    """
    trained = read_run(folder)
    run = RunDir(folder)
    of_rl = trained.stage == "rl"
    logged = run.metrics()
    lines = [line for line in logged if line["step"]]
    unit = "update" if of_rl else "step"
    # Variances rather than errors, because they are averaged where several updates are one point.
    errors = reward_errors(folder) if of_rl else {}
    variances = {step: error**2 for step, error in errors.items()}
    detailed = [{**line, VARIANCE: variances.get(line["step"]), **parts(line)} for line in lines]
    points, every = downsample(detailed)
    # The number of lines behind each point; the last one may have fewer.
    sizes = [min(every, len(lines) - first) for first in range(0, len(lines), every)]
    specs: Sequence[ChartSpec] = SFT
    if of_rl:
        specs = specs_of_rl(points, has_own_reward=bool(trained.options.get("reward")))
    marks = _stages(lines)
    charts = _charts(points, sizes, unit, marks, specs, of_rl)
    accuracy = _accuracy_chart(logged, unit, marks)
    if accuracy is not None:
        # Charts without data are left out, so there may be fewer before it.
        charts.insert(min(ACCURACY_CHART, len(charts)), accuracy)
    facts = [_progress(trained, lines, unit)]
    if trained.started_from:
        facts.append(f"Started from {short_path(trained.started_from)}")
    facts += _of_replay(trained)
    if of_rl:
        facts += _group_account(folder)
    if trained.thoughts:
        facts.append(f"Thoughts in the form {form_named(trained.thoughts)}")
    if every > 1:
        facts.append(f"Each point in the charts is the mean of {every} {unit}s")
    shown = read_samples(folder, samples_at, groups) if of_rl else []
    headline = _headline(lines, "reward" if of_rl else "loss")
    return RunView(name, trained, facts, charts, _verdicts(lines), shown, headline)


def downsample(lines: Sequence[Line], limit: int = MAX_POINTS) -> tuple[list[dict[str, Any]], int]:
    """At most ``limit`` lines of metrics, and how many updates each stands for (the last may stand for fewer).

    Neighbouring updates are averaged: numbers, and counts by name; of metrics called ``_max`` the maximum is taken.
    Missing values are ignored.
    """
    every = max(1, math.ceil(len(lines) / limit))
    return averaged(lines, every), every


def averaged(lines: Sequence[Line], every: int) -> list[dict[str, Any]]:
    """Lines of metrics, each the mean of ``every`` neighbours (the last may be of fewer)."""
    if every == 1:
        return [dict(line) for line in lines]
    points = []
    for first in range(0, len(lines), every):
        chunk = lines[first : first + every]
        point = {}
        for name in dict.fromkeys(name for line in chunk for name in line):
            values = [line[name] for line in chunk if line.get(name) is not None]
            point[name] = _aggregate(name, values)
        points.append(point)
    return points


def _aggregate(name: str, values: Sequence[Any]) -> Any:
    if not values:
        return None
    if name in LAST:
        return values[-1]
    if isinstance(values[0], Mapping):
        # Counts by name, of which a line leaves out those that are 0.
        totals: dict[str, float] = {}
        for counts in values:
            for key, count in counts.items():
                totals[key] = totals.get(key, 0) + count
        return {key: total / len(values) for key, total in totals.items()}
    # Texts have no mean; the last one is the newest.
    if not all(isinstance(value, int | float) for value in values):
        return values[-1]
    if name.endswith("_max"):
        return max(values)
    return sum(values) / len(values)


def _verdicts(lines: Sequence[Line]) -> list[Part]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts += Counter(line.get("reasons") or {})
    return [Part(reason, count, count / counts.total()) for reason, count in counts.most_common()]


def _headline(lines: Sequence[Line], key: str) -> str:
    """The first and last value of reward or loss."""
    values = [line[key] for line in lines if line.get(key) is not None]
    if not values:
        return "no update yet"
    prefix = "replay, off-policy: " if lines[-1].get("off_policy") else ""
    return f"{prefix}{key} {values[0]:.3g} to {values[-1]:.3g}"


def _of_replay(trained: Trained) -> list[str]:
    """What a replay trained on, which its rewards and lengths are those of."""
    replayed = trained.options.get("replay")
    if not replayed:
        return []
    return [
        f"Replay, off-policy: trained on the stored rollouts of {short_path(replayed)}; rewards and lengths are those "
        "of its rollouts, not of this model"
    ]


def _progress(trained: Trained, lines: Sequence[Line], unit: str) -> str:
    done = f"{len(lines):,}"
    planned = trained.options.get("updates")
    if planned:
        done += f" of {planned:,}"
    took = ""
    if lines:
        seconds = float(sum(line.get("seconds") or 0 for line in lines))
        took = f" in {duration(seconds)}"
    return f"{done} {unit}s{took}, {_state(RunDir(trained.folder))}"


def _state(run: RunDir) -> str:
    if run.goes_on:
        return "goes on"
    return "finished" if run.finished else "not finished (run the same command to resume)"


def _group_account(folder: Path) -> list[str]:
    """What became of the groups, from the run's ledger; an incomplete last line is ignored."""
    path = RunDir(folder).ledger
    if not path.exists():
        return []
    account = ledger.account(ledger.read(path))
    texts = [str(account), *account.faults[:MAX_FAULTS]]
    num_hidden = len(account.faults) - MAX_FAULTS
    if num_hidden > 0:
        texts.append(f"{num_hidden:,} more violations")
    return texts


def _stages(lines: Sequence[Line]) -> list[Mark]:
    """The first update of each stage but the first."""
    marks = []
    for before, after in pairwise(lines):
        stage = after.get("stage")
        if stage is not None and stage != before.get("stage"):
            marks.append(Mark(after["step"], f"stage {stage + 1}"))
    return marks


def _charts(
    points: Sequence[Line],
    sizes: Sequence[int],
    unit: str,
    marks: Sequence[Mark],
    specs: Sequence[ChartSpec],
    of_rl: bool,
) -> list[Chart]:
    """All charts that have data; ``sizes`` is the number of updates behind each point."""
    x = [point["step"] for point in points]
    charts = []
    for spec in specs:
        series = [_series(name, key, points, sizes) for key, name in spec.keys.items()]
        # A legend names only what this run has measured.
        with_values = [curve for curve in series if any(value is not None for value in curve.values)]
        charts.append(chart_of(spec, unit, x, with_values, marks))
    if of_rl:
        charts.append(_groups_chart(points, x, unit, marks))
    return [chart for chart in charts if chart.series]


def _accuracy_chart(lines: Sequence[Line], unit: str, marks: Sequence[Mark]) -> Chart | None:
    """The accuracy on held-out problems at the steps whose weights were evaluated; None if none was.

    Of more than ``MAX_POINTS`` evaluations neighbours are averaged, the ends of their intervals too.
    """
    evaluated = [line for line in lines if line.get(HELD_OUT[0]) is not None]
    if not evaluated:
        return None
    points, _ = downsample([{name: line.get(name) for name in ("step", *HELD_OUT)} for line in evaluated])
    steps = [point["step"] for point in points]
    accuracy, low, high = ([point[name] for point in points] for name in HELD_OUT[:3])
    return chart_of(ACCURACY, unit, steps, [Series("accuracy", accuracy, low, high)], marks)


def _series(name: str, key: str, points: Sequence[Line], sizes: Sequence[int]) -> Series:
    """A metric by update; the mean reward with its interval."""
    values = [point.get(key) for point in points]
    if key != "reward":
        return Series(name, values)
    ends = [_interval(point, size) for point, size in zip(points, sizes, strict=True)]
    return Series(name, values, [low for low, _ in ends], [high for _, high in ends])


def _interval(point: Line, size: int) -> tuple[float | None, float | None]:
    """The 95 % interval of the reward, averaged over ``size`` updates."""
    mean, variance = point.get("reward"), point.get(VARIANCE)
    if mean is None or variance is None:
        return None, None
    # The variance of a mean of so many independent means, each of about this variance.
    half_width = Z * (variance / size) ** 0.5
    return mean - half_width, mean + half_width


def _groups_chart(points: Sequence[Line], x: Sequence[float], unit: str, marks: Sequence[Mark]) -> Chart:
    by_point = [Counter(point.get("groups_dropped") or {}) for point in points]
    in_total: Counter[str] = sum(by_point, Counter())
    series = []
    if points:
        # At the bottom what trains, above it the reasons, the most frequent first.
        series.append(Series("trained", [point.get("groups_trained") for point in points]))
        for reason, _ in in_total.most_common():
            series.append(Series(reason, [counts[reason] for counts in by_point]))
    description = "Groups trained in each update, and groups dropped before it by reason."
    return Chart("Groups", description, unit, x, series, "stack", marks=marks, group=REWARDS, is_large=False)


def updates(run: Path) -> list[int]:
    """The updates that have rollouts, ascending."""
    return sorted(int(path.stem.removeprefix("step-")) for path in RunDir(run).rollouts.glob("step-*.arrow"))


def reward_errors(run: Path) -> dict[int, float]:
    """The standard error of each update's mean reward, clustered by group."""
    paths = {step: RunDir(run).rollouts_of(step) for step in updates(run)}
    errors = {step: _reward_error(path, path.stat().st_mtime_ns) for step, path in paths.items()}
    return {step: error for step, error in errors.items() if error is not None}


# The time of writing is part of the key, so a table that a resumed run has written again is read again.
@cache
def _reward_error(path: Path, written_at: int) -> float | None:
    """That of one update; a page that follows a run reads each table once."""
    rows = read_columns(path, ("group", "reward", "reason"))
    is_ungraded = pc.is_in(rows.column("reason"), pa.array(UNGRADED))
    graded = rows.filter(pc.invert(is_ungraded))
    return standard_error(graded.column("group").to_numpy(), graded.column("reward").to_numpy())


def standard_error(groups: npt.NDArray[np.int64], rewards: npt.NDArray[np.float32]) -> float | None:
    """The clustered standard error of the mean of ``rewards`` (N,) by ``groups`` (N,); None for a single group.

    Linearised, as clusters may differ in size.
    """
    distinct, cluster = np.unique(groups, return_inverse=True)  # cluster (N,): the index of each reward's group
    num_clusters = len(distinct)
    if num_clusters < 2:
        return None
    deviations = rewards - rewards.mean(dtype=np.float64)
    sums = np.bincount(cluster, weights=deviations)  # of each cluster
    correction = num_clusters / (num_clusters - 1)  # for few clusters, as in the variance of a sample
    variance_of_sum = correction * np.square(sums).sum()
    return float(math.sqrt(variance_of_sum) / len(rewards))


def select_updates(steps: Sequence[int], at: Sequence[str]) -> list[int]:
    """The updates that ``at`` names: ``50%`` is halfway through the run; a number is the nearest update."""
    if not steps:
        return []
    selected = set()
    for update in at:
        if update.endswith("%"):
            # Of the updates that have rollouts, which may be fewer than those of the run.
            share = float(update[:-1]) / 100
            index = round(share * (len(steps) - 1))
            selected.add(steps[index])
        else:
            wanted = int(update)
            selected.add(min(steps, key=lambda step: abs(step - wanted)))
    return sorted(selected)


def read_samples(run: Path, at: Sequence[str], groups: int) -> list[UpdateView]:
    """Completions of ``groups`` groups at each update: one dropped group, if any, and trained ones."""
    steps = select_updates(updates(run), at) if groups else []
    return [UpdateView(step, _groups(RunDir(run).rollouts_of(step), groups)) for step in steps]


def _groups(path: Path, wanted: int) -> list[GroupView]:
    """Some groups of an update, from its table of rollouts."""
    columns = read_columns(path, ("group", "dropped"))
    numbers = columns.column("group").to_pylist()
    reasons = columns.column("dropped").to_pylist()
    selected = _select_groups(dict(zip(numbers, reasons, strict=True)), wanted)
    rows_by_group: dict[int, list[dict[str, Any]]] = {number: [] for number in selected}
    selected_numbers = pa.array(selected, pa.int64())
    for batch in table.read(str(path)).rows:
        shown_names = [name for name in batch.schema.names if name not in NOT_SHOWN]
        # Filtered before the conversion to Python: most rows are of other groups.
        is_selected = pc.is_in(batch.column("group"), selected_numbers)
        for row in batch.select(shown_names).filter(is_selected).to_pylist():
            rows_by_group[row["group"]].append(row)
    return [_group(rows) for rows in rows_by_group.values()]


def _select_groups(fates: dict[int, str | None], wanted: int) -> list[int]:
    """Trained groups evenly spaced over the update, and one dropped group if there is any.

    Where too few groups were trained, dropped ones take their places.
    """
    trained = sorted(number for number, reason in fates.items() if reason is None)
    dropped = sorted(number for number, reason in fates.items() if reason is not None)
    keeps_place = bool(dropped) and wanted > 1
    shown = _spread(trained, wanted - 1 if keeps_place else wanted)
    return shown + dropped[: wanted - len(shown)]


def _spread(numbers: Sequence[int], wanted: int) -> list[int]:
    """At most ``wanted`` of the numbers, evenly spaced from the first to the last."""
    count = min(wanted, len(numbers))
    # As many places from the first to the last; with one it is the first.
    indices = np.linspace(0, len(numbers) - 1, count)
    return [numbers[round(index)] for index in indices]


def _group(rows: Sequence[dict[str, Any]]) -> GroupView:
    first = rows[0]
    best_first = sorted(rows, key=lambda row: -row["reward"])
    best, worst = best_first[0], best_first[-1]
    # All completions of a group may be equal, and a group may have only one.
    shown = [best] if best["completion"] == worst["completion"] else [best, worst]
    return GroupView(
        number=first["group"],
        id=sanitize(first["id"] or ""),
        prompt=sanitize(first["prompt"] or ""),
        answer=sanitize(first["answer"] or ""),
        size=len(rows),
        dropped=first["dropped"] or "",
        samples=[_sample(row) for row in shown],
    )


def _sample(row: dict[str, Any]) -> SampleView:
    # A custom reward has parts of its own in place of the recipe's.
    own_parts = row.get(REWARD_PARTS)
    if own_parts:
        named = [(sanitize(name), value) for name, value in json.loads(own_parts).items()]
    else:
        named = [(name, row[f"reward_{name}"]) for name in ("format", "correct", "length", "language")]
    return SampleView(
        completion=sanitize(row["completion"]),
        reward=row["reward"],
        parts=named,
        reason=row["reason"],
        extracted=sanitize(row["extracted"] or ""),
        detail=sanitize(row["detail"] or ""),
        tokens=row["num_tokens"],
        ended="truncated" if row["finish"] == "length" else "ended with EOS",
        advantage=row["advantage"],
        versions=[span["version"] for span in row["versions"] or ()],
    )

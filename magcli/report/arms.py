"""Several runs on one set of axes: what differs between them, their curves, and which is better on held-out problems.

Runs that differ in nothing but their seed are one arm: its curve is the mean of its runs, its band their range.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from magcli.evaluation import metrics
from magcli.evaluation.metrics import Problem, Side, distinct
from magcli.report.chart import Chart, Series
from magcli.report.comparison import ENDS, HEADLINE, differing, end_of, figure, in_percent, options_of, short, verdict
from magcli.report.training import ACCURACY_CHART, MAX_POINTS, averaged
from magcli.report.training_charts import ACCURACY, RL, SFT, ChartSpec, chart_of, parts
from magcli.run.rundir import HELD_OUT, Line, RunDir, Trained, read_run

SEED = "seed"
MAX_NAME = 48
"""An arm whose differing options are longer than this is called by the names of its runs."""

Problems = Mapping[Path, Mapping[str, Sequence[Problem]]]
"""The graded problems of the models of runs, by folder of the run and suite."""


class Logged(NamedTuple):
    """A run's record and its lines of metrics, with the parts of a custom reward."""

    trained: Trained
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs that differ in nothing but their seed; ``colour`` is that of its curves, rows and bars."""

    name: str
    colour: int
    runs: Sequence[Logged]


@dataclass(frozen=True, slots=True)
class Standing:
    """The accuracy of an arm in one suite, and its paired difference to the best arm; texts in percent."""

    arm: Arm
    accuracy: str
    by_seed: str
    difference: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """The arms on one suite, best first, and what their differences say."""

    suite: str
    size: str
    standings: Sequence[Standing]
    verdicts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of one stage side by side: ``rows`` are options that differ, then the ends of the curves, by arm."""

    stage: str
    arms: Sequence[Arm]
    rows: Sequence[tuple[str, Sequence[str]]]
    rankings: Sequence[Ranking]
    charts: Sequence[Chart]
    flat: Sequence[str]
    advice: str

    @property
    def has_seeds(self) -> bool:
        """Whether an arm has several runs."""
        return any(len(arm.runs) > 1 for arm in self.arms)


def comparisons(folders: Sequence[Path], names: Mapping[Path, str], problems: Problems) -> list[Comparison]:
    """The runs of each stage that has several.

    Raises:
        DataError: the records of a run are damaged.
    """
    logged = {folder: _read(folder) for folder in folders}
    folders_by_stage: dict[str, list[Path]] = {}
    for folder in folders:
        stage = logged[folder].trained.stage
        folders_by_stage.setdefault(stage, []).append(folder)
    compared = []
    for of_stage in folders_by_stage.values():
        if len(of_stage) > 1:
            runs = [logged[folder] for folder in of_stage]
            compared.append(_compare(runs, [names[folder] for folder in of_stage], problems))
    return compared


def _read(folder: Path) -> Logged:
    lines = [{**line, **parts(line)} for line in RunDir(folder).metrics()]
    return Logged(read_run(folder), lines)


def _compare(runs: Sequence[Logged], names: Sequence[str], problems: Problems) -> Comparison:
    differ = differing([options_of(run.trained) for run in runs])
    arms = arms_of(runs, names, differ)
    stage = runs[0].trained.stage
    specs, unit = (RL, "update") if stage == "rl" else (SFT, "step")
    charts, flat = _charts(arms, specs, unit)
    rankings = _rankings(arms, problems)
    rows = _option_rows(arms, list(differ)) + _end_rows(arms)
    advice = "" if rankings else _advice(arms)
    return Comparison(stage, arms, rows, rankings, charts, flat, advice)


def arms_of(runs: Sequence[Logged], names: Sequence[str], differ: Mapping[str, Sequence[Any]]) -> list[Arm]:
    """Runs grouped by the options that differ, but for the seed, and named by them where that is short."""
    # For each option its value in every run.
    options = {name: [short(value) for value in values] for name, values in differ.items() if name != SEED}
    # The indices of the runs of each arm, by the values of its options.
    indices_by_values: dict[tuple[str, ...], list[int]] = {}
    for index in range(len(runs)):
        values_of_run = tuple(values[index] for values in options.values())
        indices_by_values.setdefault(values_of_run, []).append(index)
    arm_names = []
    for values_of_arm, indices in indices_by_values.items():
        options_of_arm = dict(zip(options, values_of_arm, strict=True))
        arm_names.append(_name(options_of_arm, [names[index] for index in indices]))
    arms: list[Arm] = []
    for name, indices in zip(distinct(arm_names), indices_by_values.values(), strict=True):
        colour = len(arms)
        arms.append(Arm(name, colour, [runs[index] for index in indices]))
    return arms


def _name(options: Mapping[str, str], names: Sequence[str]) -> str:
    """The options of an arm, or the names of its runs if these are shorter than too many options."""
    by_options = ", ".join(f"{name} {value}" for name, value in options.items())
    if by_options and len(by_options) <= MAX_NAME:
        return by_options
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _option_rows(arms: Sequence[Arm], differ: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The options that differ, and their values in each arm; of several seeds all."""
    options = [[options_of(run.trained) for run in arm.runs] for arm in arms]
    rows = []
    for name in differ:
        values = []
        for of_arm in options:
            distinct_values = dict.fromkeys(short(of_run.get(name)) for of_run in of_arm)
            values.append(", ".join(distinct_values))
        rows.append((name, values))
    return rows


def _end_rows(arms: Sequence[Arm]) -> list[tuple[str, list[str]]]:
    """The ends of the curves; of several seeds the mean, and the smallest and the largest."""
    ends_by_arm = [[end_of(run.lines) for run in arm.runs] for arm in arms]
    rows: list[tuple[str, list[str]]] = []
    for name in ("steps", *ENDS, HELD_OUT[0]):
        values_by_arm = []
        for ends in ends_by_arm:
            values_by_arm.append([end[name] for end in ends if end.get(name) is not None])
        if any(values_by_arm):
            title = f"{name.replace('_', ' ')}, end"
            rows.append((title, [_range_text(values) for values in values_by_arm]))
    return rows


def _range_text(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    if low == high:
        return figure(values[0])
    mean = sum(values) / len(values)
    return f"{figure(mean)} ({figure(low)} to {figure(high)})"


def _charts(arms: Sequence[Arm], specs: Sequence[ChartSpec], unit: str) -> tuple[list[Chart], list[str]]:
    """A chart of the first metric of each specification, and a line of text for each that is one constant in all."""
    most = max(len(run.lines) for arm in arms for run in arm.runs)
    every = max(1, math.ceil(most / MAX_POINTS))
    charts: list[Chart] = []
    flat: list[str] = []
    for spec in (*specs[:ACCURACY_CHART], ACCURACY, *specs[ACCURACY_CHART:]):
        # Colours tell the arms apart, so only the first metric is drawn.
        key, metric_name = next(iter(spec.keys.items()))
        title = spec.title if len(spec.keys) == 1 else f"{spec.title}: {metric_name}"
        steps, curves = _curves(arms, key, every)
        chart = chart_of(spec._replace(description=""), unit, steps, curves)
        values = {value for series in chart.series for value in series.values if value is not None}
        if len(values) > 1:
            charts.append(replace(chart, title=title))
        elif values:
            constant = values.pop()
            flat.append(f"{title}: {chart.format(constant)}")
    return charts, flat


def _curves(arms: Sequence[Arm], key: str, every: int) -> tuple[list[int], list[Series]]:
    """The steps at which any run has a metric, and the curve of each arm over them.

    An arm without the metric has a curve without values, so it keeps its colour and its place in the legend.
    """
    runs_by_arm: list[list[dict[int, float]]] = []
    steps: set[int] = set()
    for arm in arms:
        runs = [_points(run.lines, key, every) for run in arm.runs]
        runs_by_arm.append(runs)
        # Runs may have logged at other steps, so the axis has those of all.
        steps.update(*runs)
    ascending = sorted(steps)
    curves = [_series(arm.name, runs, ascending) for arm, runs in zip(arms, runs_by_arm, strict=True)]
    return ascending, curves


def _points(lines: Sequence[Line], key: str, every: int) -> dict[int, float]:
    """A metric of a run by step: means over ``every`` steps, or what was measured at intervals as it is."""
    measured: Sequence[Line] = [line for line in lines if line.get(key) is not None]
    if len(measured) > MAX_POINTS:
        # Without the line of step 0, which has only an evaluation, so that means are of updates.
        measured = averaged([line for line in lines if line["step"]], every)
    return {line["step"]: line[key] for line in measured if line.get(key) is not None}


def _series(name: str, runs: Sequence[Mapping[int, float]], steps: Sequence[int]) -> Series:
    """The mean of an arm's runs where all have a value, and their range."""
    means: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    for step in steps:
        values = [run[step] for run in runs if step in run]
        # A mean of other runs than at the step before would jump.
        if len(values) < len(runs):
            for curve in (means, low, high):
                curve.append(None)
            continue
        means.append(sum(values) / len(values))
        low.append(min(values))
        high.append(max(values))
    if len(runs) == 1:
        return Series(name, means)
    return Series(f"{name} ({len(runs)} seeds)", means, low, high)


def _rankings(arms: Sequence[Arm], problems: Problems) -> list[Ranking]:
    """The arms on each suite on which at least two were evaluated."""
    # For each arm, by its colour, the graded problems of its runs by suite.
    by_arm = {arm.colour: [problems.get(run.trained.folder, {}) for run in arm.runs] for arm in arms}
    suites: dict[str, None] = {}
    for runs in by_arm.values():
        for by_suite in runs:
            suites.update(dict.fromkeys(by_suite))
    rankings = []
    for suite in suites:
        evaluated: dict[int, list[Sequence[Problem]]] = {}
        for colour, runs in by_arm.items():
            evaluated[colour] = [by_suite[suite] for by_suite in runs if by_suite.get(suite)]
        ranked = [arm for arm in arms if evaluated[arm.colour]]
        if len(ranked) > 1:
            rankings.append(_ranking(suite, ranked, evaluated))
    return rankings


def _ranking(suite: str, arms: Sequence[Arm], evaluated: Mapping[int, Sequence[Sequence[Problem]]]) -> Ranking:
    """The best arm by its mean accuracy, and the difference of each other arm to it, paired by problem."""
    sides = []
    for arm in arms:
        # Runs of several seeds answer a problem together, with the samples of all.
        pooled = pool(evaluated[arm.colour])
        estimates = {(suite, estimate.metric): estimate for estimate in metrics.estimate(pooled, ())}
        sides.append(Side(arm.name, estimates, {suite: pooled}))
    # Every other side is compared with the first one.
    best_first = sorted(sides, key=lambda side: -side.estimates[suite, HEADLINE].value)
    rows = [row for row in metrics.compare(best_first, ()) if row["metric"] == HEADLINE]
    by_name = {arm.name: arm for arm in arms}
    standings = []
    for row in rows:
        arm = by_name[row["model"]]
        standings.append(_standing(arm, row, evaluated[arm.colour]))
    best, *others = rows
    verdicts = [verdict({**row, "suite": ""}, best["model"]) for row in others]
    size = f"{best['num_problems']:,} problems, {best['num_samples']:,} samples of the best"
    return Ranking(suite, size, standings, [_winner(rows), *verdicts])


def pool(runs: Sequence[Sequence[Problem]]) -> list[Problem]:
    """The problems that all runs of an arm answered, each with the samples of all."""
    runs_by_id = [{problem.id: problem for problem in of_run} for of_run in runs]
    pooled = []
    for id in runs_by_id[0]:
        of_all_runs = [by_id[id] for by_id in runs_by_id if id in by_id]
        if len(of_all_runs) == len(runs):
            pooled.append(_merged(of_all_runs))
    return pooled


def _merged(problems: Sequence[Problem]) -> Problem:
    return replace(
        problems[0],
        answers=tuple(answer for problem in problems for answer in problem.answers),
        correct=tuple(verdict for problem in problems for verdict in problem.correct),
        correct_anywhere=tuple(verdict for problem in problems for verdict in problem.correct_anywhere),
        # A ranking is by accuracy alone, so the other figures of the samples are left out.
        lengths=(),
        one_language=(),
        truncated=(),
        has_format=(),
    )


def _standing(arm: Arm, row: Mapping[str, Any], runs: Sequence[Sequence[Problem]]) -> Standing:
    accuracy = _accuracy(row)
    difference = in_percent(row.get("difference"), row.get("difference_low"), row.get("difference_high"), "+")
    by_seed = ", ".join(f"{100 * _mean_accuracy(of_run):.1f}" for of_run in runs) if len(runs) > 1 else ""
    return Standing(arm, accuracy, by_seed, difference)


def _mean_accuracy(problems: Sequence[Problem]) -> float:
    """avg@n: the mean over problems of the share of correct samples."""
    shares = [sum(problem.correct) / len(problem.correct) for problem in problems]
    return sum(shares) / len(shares)


def _accuracy(row: Mapping[str, Any]) -> str:
    return in_percent(row.get("value"), row.get("low"), row.get("high"))


def _winner(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether the best arm is better than every other one with certainty."""
    best, *others = rows
    # Certainly worse is what has the whole interval of its difference to the best below 0.
    upper_ends = [row.get("difference_high") for row in others]
    all_are_worse = all(end is not None and end < 0 for end in upper_ends)
    name = best["model"]
    accuracy = _accuracy(best)
    if all_are_worse:
        return f"{name} is best: {accuracy} %, better than every other one with certainty"
    return f"{name} has the highest accuracy, {accuracy} %, but is not better than every other one with certainty"


def _advice(arms: Sequence[Arm]) -> str:
    """How the runs are compared problem by problem, where no evaluation of two of them is there."""
    model = arms[0].runs[0].trained.folder / "model"
    return f"magcli evaluate HELD-OUT --model {model} --completions FOLDER/completions.arrow -o FOLDER/metrics.arrow"

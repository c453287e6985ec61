"""Several runs on one set of axes: arms, their curves and colours, and which is better on held-out problems."""

import json
import re
import shutil
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data.checksum import read_object
from magcli.evaluation.metrics import Problem
from magcli.report.arms import comparisons, pool
from magcli.report.chart import draw, legend
from magcli.run.rundir import RunDir


def made_run(path, rewards, stage="rl", accuracy=None, **options):
    """A folder of a run with a line of metrics for each reward."""
    identity = {"lr": 1e-6, "seed": 0, "updates": len(rewards), "inputs": []} | options
    with RunDir.open(path, stage, identity, restart=False) as folder:
        for step, reward in enumerate(rewards, 1):
            last = {"accuracy": accuracy} if accuracy is not None and step == len(rewards) else {}
            folder.log({"step": step, "reward": reward, "loss": reward, "cut_share": 0.0, **last})
    return path


def problems(shares, samples=8):
    """Problems of which so many of the samples are right."""
    return [
        Problem(
            f"p{number}", ("1",) * samples, tuple(index < right for index in range(samples)), (False,) * samples, ()
        )
        for number, right in enumerate(shares)
    ]


@pytest.fixture
def sweep(tmp_path):
    """Two learning rates, the second with two seeds."""
    return [
        made_run(tmp_path / "slow", [0.1, 0.2, 0.3]),
        made_run(tmp_path / "fast-0", [0.2, 0.4, 0.6], lr=4e-6),
        made_run(tmp_path / "fast-1", [0.4, 0.6, 0.8], lr=4e-6, seed=1),
    ]


def compared(folders, graded=None):
    (comparison,) = comparisons(folders, {folder: folder.name for folder in folders}, graded or {})
    return comparison


def test_runs_that_differ_in_their_seed_are_one_arm_named_by_its_options(sweep):
    arms = compared(sweep).arms
    assert [(arm.name, arm.colour, len(arm.runs)) for arm in arms] == [("lr 1e-06", 0, 1), ("lr 4e-06", 1, 2)]


def test_seeds_that_ran_on_several_devices_are_one_arm(tmp_path):
    folders = [made_run(tmp_path / f"seed-{seed}", [0.1], seed=seed) for seed in range(2)]
    for number, path in enumerate(folders):
        with RunDir.open(path, "rl", read_object(path / "run.json"), restart=False) as folder:
            folder.note("plan", f"the run trains on cuda:{number}")
    assert [len(arm.runs) for arm in compared(folders).arms] == [2]


def test_options_that_differ_and_ends_are_rows_with_the_range_of_the_seeds(sweep):
    rows = dict(compared(sweep).rows)
    assert rows["lr"] == ["1e-06", "4e-06"]
    assert rows["seed"] == ["0", "0, 1"]
    assert rows["reward, end"] == ["0.3", "0.7 (0.6 to 0.8)"]
    assert "updates" not in rows


def test_a_curve_is_the_mean_of_its_seeds_and_the_band_their_range(sweep):
    reward = next(chart for chart in compared(sweep).charts if chart.title == "Reward")
    slow, fast = reward.series
    assert slow.values == [0.1, 0.2, 0.3]
    assert not slow.low
    assert fast.values == pytest.approx([0.3, 0.5, 0.7])
    assert (list(fast.low), list(fast.high)) == ([0.2, 0.4, 0.6], [0.4, 0.6, 0.8])
    assert fast.name == "lr 4e-06 (2 seeds)"


def test_what_is_one_constant_in_all_is_a_line_of_text(sweep):
    comparison = compared(sweep)
    assert comparison.flat == ["Truncated: 0.0 %"]
    assert "Truncated" not in [chart.title for chart in comparison.charts]


def test_an_arm_without_a_metric_keeps_its_colour_and_draws_nothing(tmp_path):
    folders = [
        made_run(tmp_path / "a", [0.1, 0.2]),
        made_run(tmp_path / "b", [0.1, 0.2], lr=2e-6, accuracy=0.4),
        made_run(tmp_path / "c", [0.1, 0.2], lr=4e-6, accuracy=0.5),
    ]
    chart = next(chart for chart in compared(folders).charts if chart.title == "Held-out accuracy")
    assert [(entry.colour, entry.last) for entry in legend(chart)] == [(0, "-"), (1, "40.0 %"), (2, "50.0 %")]
    assert 'd="M"' not in draw(chart)


def test_runs_of_different_lengths_share_their_axis(tmp_path):
    folders = [made_run(tmp_path / "a", [0.1] * 3 + [0.2]), made_run(tmp_path / "b", [0.3] * 600 + [0.4])]
    (reward, *_) = compared(folders).charts
    short, long = reward.series
    assert [value for value in short.values if value is not None] == pytest.approx([0.1, 0.1, 0.1, 0.2])
    assert len([value for value in long.values if value is not None]) <= 240
    assert max(reward.x) == 601


def test_each_stage_with_several_runs_is_compared(tmp_path):
    folders = [made_run(tmp_path / "sft", [0.1], stage="sft"), made_run(tmp_path / "rl", [0.1])]
    assert comparisons(folders, {folder: folder.name for folder in folders}, {}) == []


def test_the_best_arm_is_named_with_its_paired_interval(sweep):
    slow, fast = [number % 5 for number in range(40)], [number % 5 + 3 for number in range(40)]
    graded = dict(zip(sweep, [{"": problems(slow)}, {"": problems(fast)}, {"": problems(fast)}], strict=True))
    (ranking,) = compared(sweep, graded).rankings
    assert [standing.arm.name for standing in ranking.standings] == ["lr 4e-06", "lr 1e-06"]
    assert [standing.by_seed for standing in ranking.standings] == ["62.5, 62.5", ""]
    assert re.fullmatch(r"-37\.5 \[-\d\d\.\d, -\d\d\.\d\]", ranking.standings[1].difference)
    assert ranking.verdicts[0].startswith("lr 4e-06 is best: 62.5 [")
    assert ranking.verdicts[1].endswith("on 40 problems, worse")


def test_a_difference_within_its_interval_has_no_winner(sweep):
    one = problems([4 + number % 3 for number in range(12)])
    other = problems([4 + (number + 1) % 3 for number in range(12)])
    graded = {sweep[0]: {"": one}, sweep[1]: {"": other}}
    (ranking,) = compared(sweep, graded).rankings
    assert "is not better than every other one with certainty" in ranking.verdicts[0]


def test_without_two_evaluations_the_page_says_how_to_get_them(sweep):
    comparison = compared(sweep, {sweep[0]: {"": problems([1, 2])}})
    assert comparison.rankings == []
    assert comparison.advice.startswith(f"magcli evaluate HELD-OUT --model {sweep[0]}/model --completions ")


def test_seeds_are_pooled_by_problem_on_those_that_all_answered():
    pooled = pool([problems([1, 2, 3]), problems([4, 5])])
    assert [(problem.id, sum(problem.correct), len(problem.correct)) for problem in pooled] == [
        ("p0", 5, 16),
        ("p1", 7, 16),
    ]


def test_the_page_ranks_runs_by_the_evaluations_of_their_models(sweep, guesser, tmp_path):
    asked = tmp_path / "asked.jsonl"
    asked.write_text("".join(json.dumps({"prompt": f"{letter}?", "answer": "3"}) + "\n" for letter in "abcdef"))
    metrics = []
    for folder in sweep[:2]:
        shutil.copytree(guesser, folder / "model")
        metrics.append(tmp_path / f"{folder.name}.arrow")
        call_stage(
            "evaluate", asked, model=str(folder / "model"), samples=2, max_tokens=24, system=Path("none"), dtype="fp32",
            completions=tmp_path / f"{folder.name}-completions.arrow", output=metrics[-1],
        )  # fmt: skip
    call_stage("report", paths=tuple(map(str, [*sweep, *metrics])), out=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert 'id="side-by-side-1"' in page
    assert "is not better than every other one with certainty" in page, "both are the same model"
    assert "lr 1e-06 against lr 4e-06: +0.0 points" in page or "lr 4e-06 against lr 1e-06: +0.0 points" in page
    assert "on 6 problems" in page
    call_stage("report", paths=tuple(map(str, sweep)), out=tmp_path / "page.html", overwrite=True)
    assert "nothing ranks them" in (tmp_path / "page.html").read_text()

"""Runs as they are found: finished, killed in the middle of a line, begun and no more."""

import shutil

import pytest

from magcli.data.checksum import encode_lines
from magcli.errors import DataError
from magcli.report import training
from magcli.report.training import MAX_POINTS, downsample
from magcli.report.training_charts import parts, specs_of_rl
from magcli.rl import ledger
from magcli.run.rundir import RunDir


def read(folder):
    return training.read(folder, "rl", samples_at=["0%", "100%"], groups=2)


@pytest.fixture
def run(pipeline, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(pipeline / "rl", tmp_path / "rl")


def chart(run, title):
    return next(each for each in run.charts if each.title == title)


def test_a_finished_run_has_its_charts_facts_and_samples(pipeline):
    run = read(pipeline / "rl")
    titles = [each.title for each in run.charts]
    assert titles[:4] == ["Reward", "Reward components", "Correct answers", "Length"]
    assert [chart.title for chart in run.charts if chart.is_large] == ["Reward", "Correct answers", "Length"]
    assert (run.charts[-1].title, run.charts[-1].group) == ("Groups", "Rewards and groups")
    assert {
        "Length",
        "Truncated",
        "Staleness",
        "Throughput",
        "Idle time",
        "Entropy",
        "Clipped tokens",
        "Gradient norm",
    } <= set(titles)
    assert "Log-prob mismatch" in titles
    assert run.facts[0].startswith("6 of 6 updates in ")
    assert run.facts[0].endswith(", finished")
    assert "Started from run/model" in run.facts
    assert any("groups reserved = 24 trained + " in fact for fact in run.facts)
    assert [update.step for update in run.samples] == [1, 6]
    assert sum(part.rows for part in run.verdicts) == 4 * int(run.facts[2].split()[0])


def test_the_reward_has_an_interval_around_its_mean(pipeline):
    (reward,) = chart(read(pipeline / "rl"), "Reward").series
    logged = [line["reward"] for line in RunDir(pipeline / "rl").metrics()]
    assert reward.values == logged
    assert any(low < high for low, high in zip(reward.low, reward.high, strict=True))
    assert all(low <= value <= high for low, value, high in zip(reward.low, logged, reward.high, strict=True))


def test_groups_trained_and_dropped_are_those_of_the_metrics(pipeline):
    groups = chart(read(pipeline / "rl"), "Groups")
    lines = RunDir(pipeline / "rl").metrics()
    assert groups.kind == "stack"
    assert list(groups.series[0].values) == [line["groups_trained"] for line in lines]
    dropped = [sum(column) for column in zip(*[series.values for series in groups.series[1:]], strict=True)]
    assert dropped == [sum(line["groups_dropped"].values()) for line in lines]


def test_the_accuracy_on_held_out_problems_has_its_own_steps_and_interval(run):
    folder = RunDir(run)
    before = {"step": 0, "accuracy": 0.1, "accuracy_low": 0.0, "accuracy_high": 0.2, "answer_tokens": 9.0}
    folder.metrics_path.write_bytes(encode_lines([before, *folder.metrics()]))
    for step, accuracy in ((3, 0.4), (6, 0.5)):
        folder.amend(step, {"accuracy": accuracy, "accuracy_low": accuracy - 0.1, "accuracy_high": accuracy + 0.2})
    found = read(run)
    assert [each.title for each in found.charts][:2] == ["Reward", "Held-out accuracy"]
    shown = chart(found, "Held-out accuracy")
    (accuracy,) = shown.series
    assert (list(shown.x), list(accuracy.values)) == ([0, 3, 6], [0.1, 0.4, 0.5])
    assert list(accuracy.low) == pytest.approx([0.0, 0.3, 0.4])
    assert list(accuracy.high) == pytest.approx([0.2, 0.6, 0.7])
    assert list(chart(found, "Reward").x) == [1, 2, 3, 4, 5, 6], "step 0 is no update"
    assert found.facts[0].startswith("6 of 6 updates in ")
    assert [line["step"] for line in folder.metrics()] == [0, 1, 2, 3, 4, 5, 6]


def test_stages_of_the_run_are_marked(pipeline):
    assert [(mark.x, mark.name) for mark in chart(read(pipeline / "rl"), "Length").marks] == [(3, "stage 2")]


def test_the_loss_of_sft_is_shown(guesser):
    run = training.read(guesser.parent, "sft", samples_at=["0%"], groups=2)
    assert [each.title for each in run.charts] == ["Loss", "Gradient norm", "Learning rate"]
    assert run.headline.startswith("loss ")
    assert run.samples == []


def test_a_killed_run_is_shown_as_far_as_it_got(run):
    shutil.rmtree(run / "model")
    for name in ("ledger.jsonl", "metrics.jsonl"):
        lines = (run / name).read_bytes().splitlines(keepends=True)
        (run / name).write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:10])
    found = read(run)
    assert found.facts[0].startswith("3 of 6 updates in ")
    assert found.facts[0].endswith("not finished (run the same command to resume)")
    assert list(chart(found, "Reward").x) == [1, 2, 3]
    assert any(" outstanding" in fact for fact in found.facts)


def test_a_run_of_one_update_has_charts_of_one_point(run):
    first = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (run / "metrics.jsonl").write_text(first)
    assert all(list(each.x) == [1] for each in read(run).charts)


def test_a_run_that_has_only_begun_has_no_charts(run):
    for path in run.iterdir():
        if path.name != "run.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = read(run)
    assert (found.charts, found.samples, found.verdicts) == ([], [], [])
    assert found.headline == "no update yet"
    assert found.facts[0] == "0 of 6 updates, not finished (run the same command to resume)"


def test_a_long_run_is_thinned_and_says_so(run):
    line = RunDir(run).metrics()[0]
    lines = [{**line, "step": step} for step in range(1, 1001)]
    (run / "metrics.jsonl").write_bytes(encode_lines(lines))
    found = read(run)
    assert len(chart(found, "Reward").x) == 200
    assert found.facts[-1] == "Each point in the charts is the mean of 5 updates"


def test_the_interval_of_a_mean_is_that_of_the_updates_in_it(run):
    line = RunDir(run).metrics()[0]
    lines = [{**line, "step": step} for step in range(1, 997)]
    (run / "metrics.jsonl").write_bytes(encode_lines(lines))
    for step in (2, 3, 4, 5, 996):
        shutil.copy(run / "rollouts" / "step-000001.arrow", run / "rollouts" / f"step-{step:06d}.arrow")
    (reward,) = chart(read(run), "Reward").series
    of_five, of_one = (reward.high[at] - reward.low[at] for at in (0, -1))
    assert of_five > 0
    assert of_one == pytest.approx(5**0.5 * of_five)


def test_a_few_of_many_ledger_faults_are_listed(run):
    events = ledger.read(run / "ledger.jsonl")
    (run / "ledger.jsonl").write_bytes(encode_lines([*events, *events]))
    listed = [fact for fact in read(run).facts if "reserved 2 times" in fact or "more violations" in fact]
    assert len(listed) == 4
    assert listed[-1].endswith("more violations")


@pytest.mark.parametrize("name", ["ledger.jsonl", "run.json"])
def test_damaged_records_are_named(run, name):
    (run / name).write_text("{damaged\n{}\n")
    with pytest.raises(DataError, match=r"ledger\.jsonl: line 1|records of this run are damaged"):
        read(run)


def line(step, **more):
    return {"step": step, "reward": step / 10, **more}


def test_a_short_run_is_not_averaged():
    lines = [line(step) for step in range(1, MAX_POINTS + 1)]
    assert downsample(lines) == (lines, 1)
    assert downsample([]) == ([], 1)


def test_a_long_run_is_averaged_over_neighbours():
    lines = [line(step, staleness_max=step % 7, groups_dropped={"all-right": step}) for step in range(1, 11)]
    lines[0]["groups_dropped"] = {"all-wrong": 2}
    points, every = downsample(lines, 4)
    assert every == 3
    assert [point["step"] for point in points] == [3, 6, 9, 10]
    assert points[0]["reward"] == pytest.approx(0.2)
    assert points[1]["staleness_max"] == 6
    assert points[0]["groups_dropped"] == pytest.approx({"all-right": 5 / 3, "all-wrong": 2 / 3})


def test_missing_values_are_left_out_of_a_mean():
    points, _ = downsample([line(1, entropy=None), line(2, entropy=0.5), line(3), line(4)], 2)
    assert [point["entropy"] for point in points if "entropy" in point] == [0.5]
    assert downsample([line(1, entropy=None), line(2, entropy=None)], 1)[0][0]["entropy"] is None


def test_a_text_column_keeps_its_last_value():
    assert downsample([line(1, note="a"), line(2, note="b")], 1)[0][0]["note"] == "b"


@pytest.mark.parametrize("count", [241, 1000, 100_000])
def test_there_are_never_more_points_than_wanted(count):
    points, every = downsample([line(step) for step in range(count)])
    assert len(points) <= MAX_POINTS < len(points) * 2
    assert every == -(-count // MAX_POINTS)


def test_parts_of_a_custom_reward_have_a_chart():
    lines = [{"step": step, "correct": 0.5, "reward_parts": {"brevity": step / 10}} for step in (1, 2)]
    lines[1]["reward_parts"]["late"] = 1.0
    points, _ = training.downsample([{**line, **parts(line)} for line in lines])
    specs = {spec.title: spec for spec in specs_of_rl(points, has_own_reward=True)}
    keys = specs["Reward components"].keys
    assert list(keys.values()) == ["brevity", "late"]
    assert [[point.get(key) for point in points] for key in keys] == [[0.1, 0.2], [None, 1.0]]
    assert list(specs["Correct answers"].keys) == ["correct"]
    assert {spec.title for spec in specs_of_rl(points, has_own_reward=False)} == specs.keys()

import pyarrow as pa
import pytest

from magcli.data import table
from magcli.evaluation import metrics
from magcli.report.discovery import discover, open_table
from magcli.report.evaluation import suites


def written(path, rows, schema=metrics.METRICS):
    with table.write(str(path), schema, "") as sink:
        sink.write(pa.RecordBatch.from_pylist(rows, schema))
        sink.finish(())
    return open_table(path)


def metric(name, value, low=None, high=None, suite="", **more):
    row = {"suite": suite, "metric": name, "value": value, "low": low, "high": high}
    return {**row, "num_problems": 30, "num_samples": 120, **more}


def test_models_stand_side_by_side_with_intervals(pipeline):
    (suite,) = suites([each for each in discover([pipeline]).tables if each.of_metrics])
    assert suite.models == ["eval-start", "eval-rl"]
    assert suite.name == "kept.parquet", "what was asked, as there is no name of a suite"
    assert suite.size == "6 problems, 24 samples"
    rows = dict(suite.rows)
    assert {"avg@n", "avg@n anywhere", "tokens", "pass@1"} <= set(rows)
    assert all("[" in str(score) for score in rows["avg@n"])
    assert len(suite.bars) == 2
    assert all(0 <= bar.low <= bar.at <= bar.high <= 100 for bar in suite.bars)


def test_shares_are_in_percent_and_tokens_are_not(tmp_path):
    rows = [metric("avg@n", 0.517, 0.477, 0.557), metric("tokens", 19.6, 19.2, 20.1), metric("avg@n difference", 0.1)]
    (suite,) = suites([written(tmp_path / "a.arrow", rows)])
    assert [str(score) for _, (score,) in suite.rows] == ["51.7 [47.7, 55.7]", "19.6 [19.2, 20.1]", "+10.0"]


def test_suites_are_separate_and_a_model_may_lack_one(tmp_path):
    one = written(
        tmp_path / "one.arrow", [metric("avg@n", 0.02, 0.0, 0.04, "aime24"), metric("avg@n", 0.5, 0.4, 0.6, "math500")]
    )
    two = written(tmp_path / "two.arrow", [metric("avg@n", 0.7, 0.6, 0.8, "math500")])
    aime, math = suites([one, two])
    assert (aime.name, aime.models, aime.top) == ("aime24", ["one"], 5.0)
    assert (math.name, math.models, math.top) == ("math500", ["one", "two"], 100.0)
    assert aime.bars[0].high == pytest.approx(80)


def test_a_comparison_shows_its_models_and_differences(tmp_path):
    rows = [
        metric("avg@n", 0.5, 0.4, 0.6, model="sft"),
        metric(
            "avg@n", 0.7, 0.6, 0.8, model="rl", difference=0.2, difference_low=0.1, difference_high=0.3, num_paired=9
        ),
        metric("avg@n", None, model="broken"),
    ]
    (suite,) = suites([written(tmp_path / "c.arrow", rows, metrics.COMPARISON)])
    assert suite.models == ["sft", "rl"]
    assert [str(score or "") for score in dict(suite.rows)["avg@n difference"]] == ["", "+20.0 [+10.0, +30.0]"]


def test_without_tables_there_are_no_suites():
    assert suites([]) == []


def test_two_tables_of_one_model_and_suite_are_shown_side_by_side(tmp_path):
    first, second = (
        written(tmp_path / name, [metric("avg@n", value, suite="gsm8k", model="m")], metrics.COMPARISON)
        for name, value in (("a.arrow", 0.1), ("b.arrow", 0.2))
    )
    (suite,) = suites([first, second])
    assert suite.models == ["m (a)", "m (b)"]
    assert [str(score) for _, found in suite.rows for score in found] == ["10.0", "20.0"]


def test_tables_that_differ_only_in_their_suffix_are_both_shown(tmp_path):
    tables = [
        written(tmp_path / f"a.{ending}", [metric("avg@n", value, suite="gsm8k", model="m")], metrics.COMPARISON)
        for ending, value in (("arrow", 0.1), ("parquet", 0.2))
    ]
    (suite,) = suites(tables)
    assert suite.models == ["m (a.arrow)", "m (a.parquet)"]

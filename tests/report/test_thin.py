import pytest

from magcli.report.thin import POINTS, thinned


def line(step, **more):
    return {"step": step, "reward": step / 10, **more}


def test_a_short_run_stays_as_it_is():
    lines = [line(step) for step in range(1, POINTS + 1)]
    assert thinned(lines) == (lines, 1)
    assert thinned([]) == ([], 1)


def test_a_long_run_is_told_by_means_of_neighbours():
    lines = [line(step, staleness_max=step % 7, groups_dropped={"all-right": step}) for step in range(1, 11)]
    lines[0]["groups_dropped"] = {"all-wrong": 2}
    points, every = thinned(lines, 4)
    assert every == 3
    assert [point["step"] for point in points] == [3, 6, 9, 10]
    assert points[0]["reward"] == pytest.approx(0.2)
    assert points[1]["staleness_max"] == 6
    assert points[0]["groups_dropped"] == pytest.approx({"all-right": 5 / 3, "all-wrong": 2 / 3})


def test_what_is_missing_is_left_out_of_a_mean():
    points, _ = thinned([line(1, entropy=None), line(2, entropy=0.5), line(3), line(4)], 2)
    assert [point["entropy"] for point in points if "entropy" in point] == [0.5]
    assert thinned([line(1, entropy=None), line(2, entropy=None)], 1)[0][0]["entropy"] is None


def test_words_are_told_as_they_were_last():
    assert thinned([line(1, note="a"), line(2, note="b")], 1)[0][0]["note"] == "b"


@pytest.mark.parametrize("count", [241, 1000, 100_000])
def test_there_are_never_more_points_than_wanted(count):
    points, every = thinned([line(step) for step in range(count)])
    assert len(points) <= POINTS < len(points) * 2
    assert every == -(-count // POINTS)

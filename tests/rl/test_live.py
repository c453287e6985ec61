import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.rl import live

VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=600)


def line(step, **more):
    """The part of an update's line of metrics that curves show."""
    return {
        "step": step,
        "reward": 0.1 * step,
        "length_mean": 10.0,
        "groups_dropped": {"all-wrong": 1, "all-right": 2},
        "groups_trained": 4,
        "staleness_mean": 0.5,
        "generate_tokens_per_s": 1234.5,
        "train_tokens_per_s": 100.0,
        **more,
    }


def dots(drawn):
    """The positions of the dots: columns from the left, rows from the bottom."""
    return {
        (2 * x + side, 4 * (len(drawn) - y) - 1 - row)
        for y, text in enumerate(drawn)
        for x, letter in enumerate(text)
        for side in (0, 1)
        for row in range(4)
        if ord(letter) - 0x2800 & live.DOTS[side][row]
    }


def test_a_straight_line_is_drawn_straight() -> None:
    assert dots(live.braille([0.0, 1.0], 4, 2)) == {(x, x) for x in range(8)}
    assert dots(live.braille([1.0, 0.0], 4, 2)) == {(x, 7 - x) for x in range(8)}
    assert dots(live.braille([3.0, 3.0, 3.0], 2, 1)) == {(x, 1) for x in range(4)}


def test_a_step_is_connected() -> None:
    assert dots(live.braille([0.0, 0.0, 1.0, 1.0], 2, 1)) == {(0, 0), (1, 0), (2, 1), (2, 2), (2, 3), (3, 3)}


@given(VALUES, st.integers(1, 60), st.integers(1, 6))
def test_a_curve_spans_all_rows_and_columns(values, width, height) -> None:
    drawn = live.braille(values, width, height)
    assert [len(text) for text in drawn] == [width] * height
    found, places = dots(drawn), live.resample(values, 2 * width)
    assert {x for x, _ in found} == {x for x, value in enumerate(places) if value is not None}
    known = [value for value in places if value is not None]
    if known and min(known) < max(known):
        assert {y for _, y in found} >= {0, 4 * height - 1}


@given(VALUES, st.integers(1, 400))
def test_resampling_stays_between_the_extremes(values, size) -> None:
    known = [value for value in values if value is not None]
    places = [value for value in live.resample(values, size) if value is not None]
    assert len(live.resample(values, size)) == size
    for value in places:
        assert min(known) <= value or math.isclose(min(known), value, rel_tol=1e-9, abs_tol=1e-9)
        assert value <= max(known) or math.isclose(max(known), value, rel_tol=1e-9, abs_tol=1e-9)


@given(st.integers(0, 5000))
def test_points_of_a_long_run_are_means_of_equally_many_updates(count) -> None:
    curve = live.Curve()
    for value in range(count):
        curve.add(float(value))
    points = curve.points()
    assert len(points) <= live.POINTS
    spans = [list(range(start, min(start + curve.span, count))) for start in range(0, count, curve.span)]
    assert points == pytest.approx([sum(span) / len(span) for span in spans])


def test_unknown_values_leave_a_gap() -> None:
    curve = live.Curve()
    for value in (1.0, None, math.nan, 2.0):
        curve.add(value)
    assert curve.points() == [1.0, None, None, 2.0]
    found = dots(live.braille(curve.points(), 10, 1))
    assert {x for x, _ in found} != set(range(20))


@pytest.mark.parametrize("width", [40, 60, 80, 89, 90, 120, 200, 300])
def test_curves_fit_the_terminal(width) -> None:
    choose = random.Random(0)
    curves = live.Curves(line(step, reward=choose.random(), length_mean=1e5 * choose.random()) for step in range(1, 99))
    rows = [row.plain for row in curves.draw(width, 50)]
    assert max(map(len, rows)) < width
    assert max(map(len, rows)) > 0.8 * width
    assert len(rows) <= 9
    text = "\n".join(rows)
    for part in ("reward 0.", "length ", "dropped groups 3", "staleness 0.5", "generated 1,234", "trained 100"):
        assert part in text
    assert [row.plain for row in curves.draw(width, len(rows) + 4)] == rows
    assert curves.draw(width, len(rows) + 3) == []


def test_nothing_is_drawn_on_a_narrow_terminal_or_before_the_first_update() -> None:
    assert live.Curves().draw(100, 50) == []
    assert live.Curves([line(1)]).draw(39, 50) == []
    assert live.Curves([line(1)]).draw(40, 50) != []


def test_the_drawing_changes_with_updates_and_size() -> None:
    curves = live.Curves([line(1)])
    first = curves.draw(100, 50)
    assert curves.draw(100, 50) is first
    curves.add(line(2))
    assert [row.plain for row in curves.draw(100, 50)] != [row.plain for row in first]
    assert "0.1 to 0.2" in curves.draw(130, 50)[0].plain


def test_an_unknown_reward_is_shown_as_unknown() -> None:
    assert "reward unknown" in live.Curves([line(1, reward=None)]).draw(100, 50)[0].plain


def test_the_accuracy_of_evaluations_is_a_curve_of_its_own() -> None:
    curves = live.Curves([{"step": 0, "accuracy": 0.1}, line(1), line(2, accuracy=0.3), line(3)])
    shown = "\n".join(text.plain for text in curves.draw(100, 40))
    assert "held-out accuracy 30.0%" in " ".join(shown.split())
    curves.add_evaluation({"accuracy": 0.5})
    assert "held-out accuracy 50.0%" in " ".join("\n".join(text.plain for text in curves.draw(100, 40)).split())
    plain = live.Curves([line(1), line(2)])
    assert "accuracy" not in "\n".join(text.plain for text in plain.draw(100, 40))

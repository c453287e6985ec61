import json
import re
from html import unescape
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from magcli.report.chart import (
    LARGE,
    SMALL,
    Chart,
    Mark,
    Scale,
    Series,
    bounds,
    draw,
    grouped,
    is_flat,
    legend,
    ticks,
)

VALUES = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=20)
BROKEN = '"/></svg><script>'


def chart(*series, **more):
    x = range(1, len(series[0].values) + 1)
    return Chart("Reward", "Mean reward.", "update", list(x), series, **more)


def parsed(drawing):
    return ElementTree.fromstring(str(drawing))


def tooltips(drawing):
    return json.loads(parsed(drawing).attrib["data-points"])


def points(drawing, kind="line"):
    paths = [node.attrib["d"] for node in parsed(drawing).iter("path") if kind in node.attrib["class"]]
    return [[tuple(map(float, pair.split(","))) for pair in path[1:].split()] for path in paths]


def test_a_line_goes_from_end_to_end_and_rises_with_its_values():
    ((first, *_, last),) = points(draw(chart(Series("reward", [0.0, 0.4, 1.0]))))
    assert LARGE.left < first[0] < last[0] < LARGE.right
    assert LARGE.top < last[1] < first[1] <= LARGE.bottom


def test_hovering_shows_every_series_with_its_interval():
    drawing = draw(chart(Series("reward", [0.5, 0.6], [0.4, 0.5], [0.6, 0.7]), Series("format", [None, 0.1])))
    (_, first), (_, second) = tooltips(drawing)
    assert first == ["update 1", "reward 0.5 [0.4, 0.6]"]
    assert second == ["update 2", "reward 0.6 [0.5, 0.7]", "format 0.1"]
    assert len([n for n in parsed(drawing).iter("polygon") if "band" in n.attrib["class"]]) == 1


def test_shares_are_shown_in_percent():
    drawing = draw(chart(Series("right", [0.25, 0.5]), unit="percent"))
    assert tooltips(drawing)[0][1][1] == "right 25.0 %"
    assert legend(chart(Series("right", [0.25, 0.5]), unit="percent"))[0][1:] == ("right", "25.0 %", "50.0 %")


def test_stacked_columns_fill_their_height():
    drawing = draw(chart(Series("trained", [32, 32]), Series("all-right", [0, 32]), kind="stack"))
    boxes = [{k: float(v) for k, v in n.attrib.items() if k != "class"} for n in parsed(drawing).iter("rect")]
    below, upper = boxes[1:]
    assert len(boxes) == 3, "no box for a count of none"
    assert below["x"] == upper["x"]
    assert abs(upper["y"] + upper["height"] - below["y"]) < 0.2
    assert abs(upper["y"] - LARGE.top) < 0.2
    assert all(box["x"] >= LARGE.left and box["x"] + box["width"] <= LARGE.right for box in boxes)


def test_a_single_update_and_missing_values_can_be_drawn():
    single = draw(chart(Series("reward", [0.5], [0.4], [0.6])))
    assert len(list(parsed(single).iter("circle"))) == 1
    gaps = draw(chart(Series("accuracy", [None, 0.5, None, 0.7, None])))
    assert len(points(gaps)[0]) == 2
    assert legend(chart(Series("empty", [None])))[0][2:] == ("-", "-")


def test_a_stage_is_marked_where_it_begins():
    drawing = parsed(draw(chart(Series("reward", [0.1] * 9), marks=[Mark(5, "stage 2"), Mark(9, "stage 3")])))
    lines = [float(n.attrib["x1"]) for n in drawing.iter("line") if n.attrib["class"] == "mark"]
    names = [n for n in drawing.iter("text") if (n.text or "").startswith("stage")]
    assert len(lines) == len(names) == 2
    assert abs(lines[0] - (LARGE.left + LARGE.right) / 2) < 1
    assert "end" in names[1].attrib["class"], "a name at the edge goes to the left"
    assert all(float(n.attrib["x"]) < LARGE.width for n in names)


def test_names_are_escaped_in_the_drawing():
    drawing = draw(chart(Series(BROKEN, [1.0, 2.0]), marks=[Mark(2, BROKEN)]))
    assert "<script" not in drawing
    assert tooltips(drawing)[0][1][1] == f"{BROKEN} 1"
    assert BROKEN in unescape(re.search('aria-label="(.*?)"', str(drawing))[1])


def test_a_scale_is_linear():
    scale = Scale(0, 10, 100, 200)
    assert [scale.at(value) for value in (0, 5, 10)] == [100, 150, 200]
    assert Scale(3, 3, 100, 200).at(3) == 150


@given(VALUES)
def test_all_values_lie_within_their_bounds(values):
    low, high = bounds(values)
    assert low <= min(values) <= max(values) <= high
    assert low < high


def test_zero_is_shown_if_values_are_near_it():
    assert bounds([1.0, 10.0])[0] == 0
    assert bounds([9.0, 10.0])[0] > 8
    assert bounds([-0.1, 0.0])[1] == 0
    assert bounds([]) == (0, 1)
    assert bounds([5.0]) == (0, 5)


@given(st.floats(-1e5, 1e5), st.floats(1e-6, 1e6))
def test_ticks_are_a_few_even_values_within_the_axis(low, size):
    found = ticks(low, low + size, 5)
    assert 2 <= len(found) <= 10
    step = found[1] - found[0]
    assert low - step * 1e-3 <= found[0]
    assert found[-1] <= low + size + step * 1e-3


def test_ticks_are_round():
    assert ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0.13, 0.71, 5) == [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert ticks(7, 7, 5) == [7]


def test_a_chart_whose_lines_never_change_is_flat():
    same = Series("rate", [1e-3, 1e-3 + 1e-12, None])
    assert is_flat(chart(same, Series("other", [2.0, 2.0, 2.0])))
    assert not is_flat(chart(same, Series("other", [2.0, 2.5, 2.0])))
    assert not is_flat(chart(Series("rate", [1.0]))), "one point is no constant"
    assert not is_flat(chart(same, kind="stack"))


def test_charts_of_a_group_stand_together_in_the_order_of_the_first():
    names = ["Learning", "Speed", "Learning", "Policy"]
    charts = [chart(Series(str(index), [1.0, 2.0]), group=name) for index, name in enumerate(names)]
    found = [(name, [each.series[0].name for each in members]) for name, members in grouped(charts)]
    assert found == [("Learning", ["0", "2"]), ("Speed", ["1"]), ("Policy", ["3"])]


def test_small_charts_share_their_size_and_axis():
    small = [chart(Series("a", values), is_large=False) for values in ([0.1, 0.2, 0.3], [1e6, 2e6, 3e6])]
    boxes = {parsed(draw(each)).attrib["viewBox"] for each in small}
    assert boxes == {f"0 0 {SMALL.width} {SMALL.height}"}
    first, second = (points(draw(each))[0] for each in small)
    assert [x for x, _ in first] == [x for x, _ in second]
    assert all(SMALL.left < x < SMALL.right and SMALL.top <= y <= SMALL.bottom for x, y in first)

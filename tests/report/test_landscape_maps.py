"""The drawings of a landscape: surfaces whose levels add up to the triangles, the path, and reward by length."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.report.landscape_maps import FRAME, Corner, by_length, clipped, surface

COORDINATE = st.floats(-100, 100)
CORNER = st.builds(Corner, COORDINATE, COORDINATE, st.floats(-1, 1))
PLACES = [(-1, -1), (1, -1), (-1, 1), (1, 1), (0, 0)]
FIGURES = {
    "triangles": [[0, 1, 4], [1, 3, 4], [3, 2, 4], [2, 0, 4]],
    "trajectory": [[-0.8, 0.5], [-0.4, 0.1], [0, 0]],
    "explained": [0.7, 0.2],
}
FIT = {
    "band": [[10, 0.1, 0.3], [20, 0.3, 0.5], [40, 0.5, 0.7]],
    "slope": [0.2885, 0.1443, 0.4328],
    "slope_per_doubling": [0.2, 0.1, 0.3],
    "intercept": -0.4643,
    "r2": 0.9,
}


def points(rewards):
    interval = {f"{name}_{end}": 0.5 for name in ("reward", "length", "difference") for end in ("low", "high")}
    return [
        {"a1": a1, "a2": a2, "reward": reward, "raw_reward": reward, "length": 10 * 2**index}
        | {"difference": reward - 0.5, "truncated": 0.25}
        | interval
        for index, ((a1, a2), reward) in enumerate(zip(PLACES, rewards, strict=True))
    ]


def area(polygon):
    return abs(sum(a.x * b.y - b.x * a.y for a, b in pairwise([*polygon, *polygon[:1]]))) / 2


@given(st.tuples(CORNER, CORNER, CORNER), st.floats(-1, 1))
def test_a_level_splits_a_triangle_into_two_parts(triangle, limit):
    below, above = clipped(triangle, limit, -1), clipped(triangle, limit, 1)
    assert all(corner.value >= limit - 1e-9 for corner in above)
    assert all(corner.value <= limit + 1e-9 for corner in below)
    if len({corner.value for corner in triangle}) > 1:
        assert area(below) + area(above) == pytest.approx(area(triangle), abs=1e-6)


def parsed(drawing):
    return ElementTree.fromstring(str(drawing.svg))


def levels(drawing):
    return [node for node in parsed(drawing).iter("path") if node.attrib["class"] == "level"]


def covered(path):
    """The area of the polygons of a path."""
    polygons = re.findall(r"M([^Z]+)Z", path)
    corners = [[Corner(*map(float, pair.split(",")), 0.0) for pair in polygon.split("L")] for polygon in polygons]
    return sum(map(area, corners))


def test_the_levels_cover_the_triangles_and_grow_in_colour():
    drawing = surface("Mean reward", "reward", points([0.0, 0.4, 0.5, 1.0, 0.7]), FIGURES)
    nodes = levels(drawing)
    assert len(nodes) == len(drawing.levels) > 4
    shares = [float(node.attrib["style"].removeprefix("--share:").removesuffix("%")) for node in nodes]
    assert (shares[0], shares[-1]) == (0, 100)
    assert shares == sorted(shares)
    side = (FRAME.right - FRAME.left, FRAME.bottom - FRAME.top)
    whole = side[0] * side[1] / 1.08**2  # without the margins
    assert sum(covered(node.attrib["d"]) for node in nodes) == pytest.approx(whole, rel=0.01)
    assert (drawing.levels[0].low, drawing.levels[-1].high) == ("0", "1")
    assert "0 to 1 over 5 points" in parsed(drawing).attrib["aria-label"]


def test_a_surface_without_differences_has_one_level():
    drawing = surface("Mean reward", "reward", points([0.5] * 5), FIGURES)
    assert len(levels(drawing)) == len(drawing.levels) == 1


def test_every_point_says_its_figures_and_the_path_ends_at_the_star():
    drawing = parsed(surface("Mean reward", "reward", points([0.0, 0.4, 0.5, 1.0, 0.7]), FIGURES))
    spots = [node for node in drawing.iter("circle") if node.attrib["class"] == "spot"]
    assert len(spots) == 5
    assert spots[3].attrib["data-tip"].split("\n")[:2] == ["a1 1, a2 1", "reward 1 [0.5, 0.5]"]
    way = next(node for node in drawing.iter("polyline") if node.attrib["class"] == "way")
    end = [float(value) for value in way.attrib["points"].split()[-1].split(",")]
    star = next(node for node in drawing.iter("polygon") if node.attrib["class"] == "star")
    tip = [float(value) for value in star.attrib["points"].split()[0].split(",")]
    assert end[0] == pytest.approx(tip[0], abs=0.2)
    assert end[1] - tip[1] == pytest.approx(8, abs=0.2)


def test_reward_by_length_has_the_line_within_its_band():
    drawing = by_length(points([0.1, 0.3, 0.5, 0.6, 0.8]), FIT)
    nodes = parsed(drawing)
    line = [tuple(map(float, pair.split(","))) for pair in next(nodes.iter("path")).attrib["d"][1:].split()]
    band = [tuple(map(float, pair.split(","))) for pair in next(nodes.iter("polygon")).attrib["points"].split()]
    upper, lower = band[:3], band[3:][::-1]
    for (x, y), high, low in zip(line, upper, lower, strict=True):
        assert x == high[0] == low[0]
        assert high[1] < y < low[1]
    gaps = [after[0] - before[0] for before, after in pairwise(line)]
    assert gaps[0] == pytest.approx(gaps[1], abs=0.3), "the axis is logarithmic"
    assert drawing.caption == "+0.200 [+0.100, +0.300] per doubling of the length, R² 0.90."


def test_without_a_fit_only_points_are_drawn():
    drawing = by_length(points([0.1, 0.3, 0.5, 0.6, 0.8]), {})
    assert "too few lengths" in drawing.caption
    assert not list(parsed(drawing).iter("polygon"))
    assert math.isclose(len(list(parsed(drawing).iter("circle"))), 5)

from hypothesis import given
from hypothesis import strategies as st

from magcli.report.axis import Scale, bounds, ticks

VALUES = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=20)


def test_a_scale_maps_its_ends_and_what_is_between():
    scale = Scale(0, 10, 100, 200)
    assert [scale.at(value) for value in (0, 5, 10)] == [100, 150, 200]
    assert Scale(3, 3, 100, 200).at(3) == 150


@given(VALUES)
def test_all_values_lie_within_their_bounds(values):
    low, high = bounds(values)
    assert low <= min(values) <= max(values) <= high
    assert low < high


def test_zero_is_shown_where_values_come_near_it():
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

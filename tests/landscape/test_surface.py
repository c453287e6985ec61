"""The grid, the bootstrap's coverage, and the length regression on planted truths."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.errors import DataError, UsageError
from magcli.landscape.box import parse_box
from magcli.landscape.surface import (
    confidence_band,
    grid,
    length_regression,
    mean_interval,
    paired_difference,
)

coordinate = st.floats(-1e3, 1e3).filter(lambda value: value == 0 or abs(value) > 1e-3)
paths = st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=12).filter(
    lambda path: all(np.ptp([*axis, 0]) > 1e-3 for axis in zip(*path, strict=True))
)


@given(paths, st.integers(4, 80), st.floats(0.05, 1))
def test_the_grid_fills_the_padded_rectangle_and_contains_the_origin(path, points, pad):
    found = grid(path, points=points, pad=pad)
    everything = np.vstack([path, [0, 0]])
    extent = np.ptp(everything, axis=0)
    low, high = everything.min(0) - pad * extent, everything.max(0) + pad * extent
    assert points <= len(found) <= 1.6 * points + 6
    assert (found == 0).all(1).sum() == 1
    assert len(np.unique(found, axis=0)) == len(found)
    corners = {(x, y) for x in (low[0], high[0]) for y in (low[1], high[1])}
    assert corners <= set(map(tuple, found.tolist()))
    assert ((found >= low) & (found <= high)).all()


@given(paths, st.floats(1e-3, 1e3))
def test_the_grid_scales_each_axis_with_the_path(path, scale):
    wide = np.array(path) * [scale, 1]
    assert grid(wide, points=19) == pytest.approx(grid(path, points=19) * [scale, 1], rel=1e-9, abs=1e-9 * scale)


def test_rows_are_staggered_by_half_a_step():
    found = grid([(1.0, 1.0)], points=61)
    rows = [found[found[:, 1] == y, 0] for y in np.unique(found[:, 1])]
    assert len(rows) >= 5
    for one, other in pairwise(rows[1:-1]):
        even, odd = (one, other) if len(one) > len(other) else (other, one)
        assert odd == pytest.approx((even[1:] + even[:-1]) / 2)


def test_a_range_replaces_the_padded_rectangle():
    found = grid([(1.0, 1.0)], points=19, box=parse_box("-2:4,-0.5:1e-1"))
    assert (found.min(0).tolist(), found.max(0).tolist()) == ([-2, -0.5], [4, 0.1])
    assert (found == 0).all(1).sum() == 1
    assert len(np.unique(found, axis=0)) == len(found) >= 19


@pytest.mark.parametrize("text", ["", "1:2", "-1:1,-1", "a:b,c:d", "-1:1,-1:1,-1:1"])
def test_an_invalid_range_is_refused(text):
    with pytest.raises(UsageError, match="is not of the form a1lo:a1hi,a2lo:a2hi"):
        parse_box(text)


@pytest.mark.parametrize("text", ["0:1,-1:1", "-1:1,1:-1", "nan:1,-1:1", "-inf:1,-1:1"])
def test_a_range_must_contain_the_final_weights(text):
    with pytest.raises(UsageError, match="must contain the final weights"):
        parse_box(text)


@pytest.mark.parametrize(("points", "pad"), [(3, 0.35), (19, 0.0), (19, float("nan"))])
def test_impossible_grids_are_refused(points, pad):
    with pytest.raises(UsageError, match="a grid needs at least 4 points and a positive pad"):
        grid([(1.0, 1.0)], points=points, pad=pad)


@pytest.mark.parametrize("path", [[(1.0, 0.0)], [(0.0, 0.0)], [(float("nan"), 1.0)]])
def test_a_path_without_extent_is_refused(path):
    with pytest.raises(DataError, match="no extent"):
        grid(path, points=19)


def simulate(rng, prompts, samples, shift=0.0):
    """Rewards (prompts, samples) of 0 or 1 with U-shaped difficulty; the expected mean is 0.5 without shift."""
    difficulty = rng.beta(0.4, 0.4, prompts)
    return difficulty, rng.random((prompts, samples)) < np.clip(difficulty + shift, 0, 1)[:, None]


def test_level_intervals_cover_the_truth_in_95_percent_of_runs():
    inside = []
    for seed in range(300):
        _, rewards = simulate(np.random.default_rng(seed), 64, 8)
        found = mean_interval(rewards, resamples=500, seed=seed)
        assert found.low <= found.mean <= found.high
        inside.append(found.low <= 0.5 <= found.high)
    assert 0.91 <= np.mean(inside) <= 0.98


def test_treating_samples_as_independent_would_be_too_narrow():
    _, rewards = simulate(np.random.default_rng(0), 64, 16)
    clustered, naive = mean_interval(rewards), mean_interval(rewards.reshape(-1, 1))
    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)


def test_shared_prompts_make_a_difference_tighter_than_levels():
    rng = np.random.default_rng(0)
    difficulty = rng.beta(0.4, 0.4, 512)
    one, other = (rng.random((512, n)) < difficulty[:, None] for n in (16, 4))
    relative, absolute = paired_difference(one, other), mean_interval(one)
    assert relative.low <= 0 <= relative.high
    assert relative.high - relative.low < 0.7 * (absolute.high - absolute.low)
    assert paired_difference(one, one) == type(relative)(0, 0, 0)


def test_a_difference_needs_the_same_prompts():
    with pytest.raises(DataError, match="3 and 2 prompts cannot be paired"):
        paired_difference(np.ones((3, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("table", [np.ones(3), np.ones((0, 2)), [[1.0, float("nan")]]])
def test_invalid_tables_are_refused(table):
    with pytest.raises(DataError, match="two-dimensional table of finite numbers"):
        mean_interval(table)


def planted(seed, *, points=19, prompts=64, slope=0.1):
    """Lengths and raw rewards (points, prompts) with reward = slope * ln(mean length) and shared prompt effects."""
    rng = np.random.default_rng(seed)
    centre = 1500 * 2 ** rng.uniform(0, 2, points)
    shape = rng.lognormal(0, 0.4, prompts)
    lengths = centre[:, None] * shape / shape.mean()
    rewards = slope * np.log(centre)[:, None] + 0.3 * rng.normal(size=prompts) + 0.2 * rng.normal(size=lengths.shape)
    return lengths, rewards


def test_regression_recovers_the_planted_slope_inside_its_interval():
    inside = []
    for seed in range(200):
        fit = length_regression(*planted(seed), resamples=400, seed=seed)
        inside.append(fit.slope.low <= 0.1 <= fit.slope.high)
        assert fit.slope_per_doubling.mean == pytest.approx(fit.slope.mean * np.log(2))
    assert 0.9 <= np.mean(inside) <= 0.99


def test_regression_without_noise_is_exact():
    lengths = np.array([1500, 2000, 3000, 6000])[:, None] * np.ones(5)
    fit = length_regression(lengths, 0.25 + 0.1 * np.log(lengths))
    assert (fit.slope.mean, fit.intercept.mean, fit.r2) == pytest.approx((0.1, 0.25, 1.0))
    assert (fit.slope.low, fit.slope.high) == pytest.approx((0.1, 0.1))
    line, low, high = confidence_band(fit, [1500.0, 4000.0])
    assert line == pytest.approx(0.25 + 0.1 * np.log([1500, 4000]))
    assert low == pytest.approx(line)
    assert high == pytest.approx(line)


def test_points_outside_the_length_limits_are_dropped_and_limits_are_inclusive():
    lengths = np.array([1000, 1500, 2000, 8000, 9000])[:, None] * np.ones(4)
    rewards = np.log(lengths)
    rewards[[0, -1]] = -50
    fit = length_regression(lengths, rewards, low=1500, high=8000)
    assert (fit.n_used, fit.n_dropped) == (3, 2)
    assert fit.slope.mean == pytest.approx(1)
    assert length_regression(lengths, rewards).n_used == 5


def test_the_regression_uses_the_log_of_the_mean_length():
    lengths = np.array([[1.0, 3.0], [2.0, 6.0], [4.0, 12.0]])
    fit = length_regression(lengths, np.log(lengths.mean(1))[:, None] * np.ones(2))
    assert (fit.slope.mean, fit.intercept.mean) == pytest.approx((1.0, 0.0))


@pytest.mark.parametrize("low", [1500, 5000])
def test_too_few_or_equal_lengths_have_no_line(low):
    lengths = np.array([2000, 2000, 2000, 2000])[:, None] * np.ones(4)
    assert length_regression(lengths, lengths * 0, low=low) is None


def test_regression_refuses_tables_that_do_not_match():
    with pytest.raises(DataError, match="not the same points and prompts"):
        length_regression(np.ones((3, 2)), np.ones((2, 2)))


def test_a_planted_optimum_is_found_within_one_cell():
    path = np.column_stack([np.linspace(4, 0, 7), np.sin(np.linspace(0, 3, 7))])
    points = grid(path, points=61)
    scale = np.ptp(points, axis=0)
    best = np.array([1.1, 0.4])
    values = -(((points - best) / scale) ** 2).sum(1)
    assert (np.abs(points[values.argmax()] - best) / scale < 0.15).all()


def test_resamples_without_any_spread_in_length_are_left_out():
    """One prompt of three has lengths that differ: a resample without it has no slope."""
    lengths, rewards = np.full((4, 3), 100.0), np.tile([0.2, 0.5, 0.7], (4, 1))
    lengths[:, 0], rewards[:, 0] = [50, 100, 200, 400], [0.1, 0.2, 0.3, 0.4]
    fit = length_regression(lengths, rewards)
    assert np.isfinite(fit.draws).all()
    assert 0 < len(fit.draws) < 2000
    assert fit.slope.low <= fit.slope.mean <= fit.slope.high

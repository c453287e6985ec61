"""The share of groups that will carry a gradient, from measured pass rates."""

import random
from statistics import fmean

import pytest

from magcli.rl import pool


def simulated_share(pass_rate, num_samples, group_size, trials=40_000):
    """The share of groups with right and wrong completions, over the pass rates that explain the samples."""
    rng = random.Random(0)
    right = round(pass_rate * num_samples)
    diverse = 0
    for _ in range(trials):
        rate = rng.betavariate(right + pool.PRIOR, num_samples - right + pool.PRIOR)
        solved = sum(rng.random() < rate for _ in range(group_size))
        diverse += 0 < solved < group_size
    return diverse / trials


@pytest.mark.parametrize(("pass_rate", "num_samples", "group_size"), [(0.5, 8, 4), (1.0, 8, 16), (0.125, 16, 8)])
def test_the_probability_is_that_of_sampled_groups(pass_rate, num_samples, group_size):
    expected = simulated_share(pass_rate, num_samples, group_size)
    assert pool.diverse_probability(pass_rate, num_samples, group_size) == pytest.approx(expected, abs=0.01)


def test_the_forecast_is_the_mean_over_the_measured_problems():
    rows = [{"pass_rate": 0.5, "num_samples": 16}, {"pass_rate": 1.0, "num_samples": 16}, {"prompt": "?"}]
    forecast = pool.forecast(rows, 8)
    assert (forecast.problems, forecast.pass_rate) == (2, 0.75)
    expected = fmean(pool.diverse_probability(rate, 16, 8) for rate in (0.5, 1.0))
    assert forecast.gradient_share == pytest.approx(expected)


def test_without_pass_rates_there_is_no_forecast():
    assert pool.forecast([{"prompt": "?"}, {"pass_rate": None}], 8) is None


def test_few_groups_with_a_gradient_are_answered_with_the_way_out():
    solved = [{"pass_rate": 1.0, "num_samples": 16}] * 3
    text = pool.forecast(solved, 4).text(4)
    assert "magcli filter-math --keep" in text
    mixed = [{"pass_rate": 0.5, "num_samples": 16}]
    assert "filter-math" not in pool.forecast(mixed, 4).text(4)

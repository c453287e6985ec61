"""When a reward curve has reached the gain that it is heading for."""

import numpy as np
import pytest

from magcli.rl.saturation import CONFIRMATIONS, MIN_UPDATES, fit, saturated

LIMIT = 250


def rising(time, gain=0.3):
    return lambda update: 0.6 - gain * np.exp(-update / time)


def noisy(curve, seed, noise=0.06):
    rng = np.random.default_rng(seed)
    return [curve(update) + rng.normal(0, noise) for update in range(LIMIT)]


def end_of(rewards):
    """The number of updates after which the run is saturated, None if it never is."""
    return next((updates for updates in range(LIMIT) if saturated(rewards[:updates])), None)


def test_a_fit_finds_the_curve_behind_the_noise():
    curve = fit(noisy(rising(30), seed=0)[:150])
    assert (curve.start, curve.end) == (pytest.approx(0.3, abs=0.05), pytest.approx(0.6, abs=0.03))


def test_the_share_reached_is_that_of_an_exact_curve():
    curve = fit([rising(25)(update) for update in range(101)])
    assert curve.reached == pytest.approx(1 - np.exp(-100 / 25), abs=0.02)


def test_runs_end_near_the_top_of_their_curve():
    ends = [end_of(noisy(rising(30), seed)) for seed in range(12)]
    shares = [1 - np.exp(-updates / 30) for updates in ends]
    assert min(shares) > 0.9


@pytest.mark.parametrize(
    "curve", [lambda _: 0.5, lambda update: 0.2 + 0.002 * update, lambda update: 0.5 - 0.001 * update]
)
def test_a_reward_that_stays_falls_or_still_rises_does_not_end_a_run(curve):
    assert [end_of(noisy(curve, seed, noise=0.03)) for seed in range(6)] == [None] * 6


def test_a_few_updates_do_not_tell():
    rewards = [rising(2)(update) for update in range(MIN_UPDATES + CONFIRMATIONS)]
    assert fit(rewards[: MIN_UPDATES - 1]) is None
    assert not saturated(rewards[:-2])
    assert saturated(rewards[:-1])

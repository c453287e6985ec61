"""How much of the gain that a reward curve is heading for has been reached.

The curve of a run is fitted by reward(t) = end - gain * exp(-t / time), a rise that slows down towards its end. What
counts is the slowest such rise that the noise of the rewards allows, so that a run does not end by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SATURATED = 0.95
"""A run is saturated once it has reached this share of the gain that its curve is heading for."""

MIN_UPDATES = 40
"""Fewer updates do not tell a rise that slows down from noise."""

CONFIRMATIONS = 10
"""So many fits in a row have to agree: one after each update has many chances to follow the noise."""

MIN_F = 5.0
"""Smallest F (of the two parameters besides the level) at which a rise counts as real: significant at 1 % from 40
updates on."""

DEVIANCE = 3.84
"""Times whose fit is worse by less than this, in units of the residual variance, are in the 95 % interval."""


class RewardCurve(NamedTuple):
    """A fitted curve: its reward at the first update, the reward that it is heading for, and the share of that gain
    that the slowest curve in the 95 % interval has reached."""

    start: float
    end: float
    reached: float

    def text(self) -> str:
        """The curve in words."""
        return (
            f"the reward has risen from {self.start:.2f} and reached {self.reached:.0%} of the gain that its curve is "
            f"heading for (to {self.end:.2f})"
        )


def fit(rewards: Sequence[float]) -> RewardCurve | None:
    """The curve of the mean rewards of all updates so far; None if they have not risen beyond their noise."""
    import numpy as np

    if len(rewards) < MIN_UPDATES:
        return None
    values = np.asarray(rewards, dtype=float)  # [T]
    updates = np.arange(len(values))
    # The curve is linear in gain and end, so only its time needs a grid: K times, in updates.
    times = np.geomspace(2, 10 * len(values), 100)
    decays = np.exp(-updates / times[:, None])  # [K, T]
    gains, ends, errors = _fits(values, decays)
    best = int(errors.argmin())
    # Of three parameters: level, gain and time.
    variance = errors[best] / (len(values) - 3)
    error_of_constant = float(((values - values.mean()) ** 2).sum())
    # F is the error that each of the two parameters besides the level explains, over the residual variance.
    explained = (error_of_constant - errors[best]) / 2
    is_rise = gains[best] > 0 and explained >= MIN_F * variance
    if not is_rise:
        return None
    possible = errors - errors[best] <= DEVIANCE * variance
    # The slowest is the furthest from its end, so the share is a lower bound.
    slowest = times[possible].max()
    reached = 1 - np.exp(-updates[-1] / slowest)
    start = ends[best] - gains[best]
    return RewardCurve(float(start), float(ends[best]), float(reached))


def _fits(
    values: NDArray[np.float64], decays: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Gain, end and squared error of the least-squares curve for each row of decays ``[K, T]`` of values ``[T]``."""
    # Linear regression of the values on a row of decays: its slope is -gain, its intercept the end.
    centred_values = values - values.mean()
    centred_decays = decays - decays.mean(axis=1, keepdims=True)
    gains = -(centred_decays @ centred_values) / (centred_decays**2).sum(axis=1)
    ends = values.mean() + gains * decays.mean(axis=1)
    residuals = centred_values + gains[:, None] * centred_decays  # [K, T]
    errors = (residuals**2).sum(axis=1)
    return gains, ends, errors


def saturated(rewards: Sequence[float]) -> bool:
    """Whether nearly the whole gain has been reached, by the fits after each of the last updates."""
    if len(rewards) < MIN_UPDATES:
        return False
    # The newest fit first: for a run that still rises it is the only one.
    for length in range(len(rewards), len(rewards) - CONFIRMATIONS, -1):
        curve = fit(rewards[:length])
        if curve is None or curve.reached < SATURATED:
            return False
    return True

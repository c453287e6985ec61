"""What a pool of problems promises before the first update, by the pass rates that ``filter-math`` measured."""

from collections.abc import Mapping, Sequence
from math import exp, lgamma
from statistics import fmean
from typing import Any, NamedTuple

PRIOR = 0.5
"""Both parameters of Jeffreys' prior of a pass rate: 8 of 8 right samples do not mean that the ninth is certain."""

FEW = 0.3
"""Below this share of groups with a gradient, sampling costs more than three times what training uses."""


class PoolForecast(NamedTuple):
    """The problems of a pool whose pass rate is known, its mean, and the share of groups that will carry a gradient."""

    problems: int
    pass_rate: float
    gradient_share: float

    def text(self, group_size: int) -> str:
        """The forecast as a sentence."""
        said = (
            f"pass rates of {self.problems:,} problems are {self.pass_rate:.0%} on average: about "
            f"{self.gradient_share:.0%} of groups of {group_size} will have right and wrong completions and carry a "
            "gradient"
        )
        if self.gradient_share >= FEW:
            return said
        return f"{said}; a larger --group-size, or problems of magcli filter-math --keep 0.05..0.9, give more"


def forecast(problems: Sequence[Mapping[str, Any]], group_size: int) -> PoolForecast | None:
    """The forecast for a policy that solves problems as the filter's model did; None if no pass rate is known."""
    measured = [row for row in problems if row.get("pass_rate") is not None]
    if not measured:
        return None
    rates: list[float] = []
    shares: list[float] = []
    for row in measured:
        rate = float(row["pass_rate"])
        num_samples = int(row.get("num_samples") or 1)
        rates.append(rate)
        shares.append(diverse_probability(rate, num_samples, group_size))
    return PoolForecast(len(measured), fmean(rates), fmean(shares))


def diverse_probability(pass_rate: float, num_samples: int, group_size: int) -> float:
    """The probability that a group has right and wrong completions, of a problem with this measured pass rate.

    The unknown pass rate p has a Beta distribution after ``num_samples`` samples; the probability is the mean of
    1 - p^G - (1 - p)^G over it.
    """
    # The parameters of the posterior: the counts plus the prior.
    right = pass_rate * num_samples + PRIOR
    wrong = (1 - pass_rate) * num_samples + PRIOR
    return 1 - _mean_power(right, wrong, group_size) - _mean_power(wrong, right, group_size)


def _mean_power(a: float, b: float, power: int) -> float:
    """The mean of p^power for p from the Beta distribution with parameters a and b."""
    # B(a + power, b) / B(a, b), as logarithms because the gamma function of large numbers overflows.
    return exp(lgamma(a + power) - lgamma(a) + lgamma(a + b) - lgamma(a + b + power))

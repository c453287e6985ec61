"""Padding after greedy collation against micro-batches in random order, computed from lengths without a model.

Lengths are log-normal, truncated at the limit. Micro-batches hold at most ``budget`` tokens; in random order one is
closed when the next sequence does not fit. Padding is counted up to the budget, and up to the longest sequence of the
micro-batch. magcli itself packs sequences and pads neither way.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pairs import Result
from magcli.train.packing import greedy_collate, padding_share

SEQUENCES = 2048
ORDERS = range(5)
"""Seeds of random orders; each gives one ratio."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths and the budget of a micro-batch, in tokens."""

    median: int
    sigma: float
    limit: int
    budget: int

    def draw(self, seed: int) -> list[int]:
        """``SEQUENCES`` lengths."""
        choose = random.Random(seed)
        return [
            min(self.limit, max(1, round(self.median * math.exp(choose.gauss(0, self.sigma)))))
            for _ in range(SEQUENCES)
        ]


SMALL = Lengths(median=67, sigma=1.0, limit=256, budget=4096)
REASONING = Lengths(median=4000, sigma=0.9, limit=16_384, budget=32_768)
LATE = Lengths(median=6000, sigma=0.9, limit=24_576, budget=32_768)
"""Late in a run: the limit of the recipe's second stage, completions half as long again."""


def against_random_order() -> Result:
    """Ratio of positions when micro-batches are padded to the budget; the paper reports 19 % less padding."""
    print("median  limit  budget   to budget: random  greedy   to longest:     random  greedy   (padding, %)")
    ratios = [ratio for lengths in (SMALL, REASONING, LATE) for ratio in _print_shares(lengths)]
    return Result("collation-vs-random-order", tuple(ratios[-len(ORDERS) :]))


def _print_shares(kind: Lengths) -> list[float]:
    """Print the medians over random orders; returns the ratio for each order."""
    rows = [_shares(kind.draw(seed), kind.budget) for seed in ORDERS]
    middle = [100 * sorted(column)[len(rows) // 2] for column in zip(*rows, strict=True)]
    print(
        f"{kind.median:6} {kind.limit:6} {kind.budget:7}   {middle[0]:17.1f} {middle[1]:7.1f}   "
        f"{middle[2]:22.1f} {middle[3]:7.1f}",
        flush=True,
    )
    return [(1 - greedy) / (1 - in_order) for in_order, greedy, _, _ in rows]


def _shares(lengths: Sequence[int], budget: int) -> tuple[float, float, float, float]:
    """Padding as a share of all positions: to the budget in random order and greedily, then to the longest."""
    in_order, greedy = _in_order(lengths, budget), greedy_collate(lengths, budget)
    return (
        _padding_to_budget(lengths, in_order, budget),
        _padding_to_budget(lengths, greedy, budget),
        padding_share(lengths, in_order),
        padding_share(lengths, greedy),
    )


def _padding_to_budget(lengths: Sequence[int], batches: Sequence[Sequence[int]], budget: int) -> float:
    return 1 - sum(lengths) / (len(batches) * budget)


def _in_order(lengths: Sequence[int], budget: int) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    tokens_left = budget
    for index, length in enumerate(lengths):
        if length > tokens_left and batches[-1]:
            batches.append([])
            tokens_left = budget
        batches[-1].append(index)
        tokens_left -= length
    return batches

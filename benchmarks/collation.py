"""Padding after greedy collation beside micro-batches in random order: arithmetic on lengths, no model.

Lengths are log-normal, cut at the limit. Micro-batches hold at most ``budget`` tokens; in random order one is closed
when the next sequence does not fit. Two ways to pad are counted: every micro-batch filled up to the budget, and every
sequence to the longest beside it. magcli itself packs and computes neither.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pairs import Result
from magcli.train.packing import greedy_collate, padding_share

SEQUENCES = 2048
ORDERS = range(5)
"""Random orders; each gives one ratio."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths, in tokens, and the budget of a micro-batch."""

    median: int
    sigma: float
    limit: int
    budget: int

    def draw(self, seed: int) -> list[int]:
        """So many lengths, in random order."""
        choose = random.Random(seed)
        return [
            min(self.limit, max(1, round(self.median * math.exp(choose.gauss(0, self.sigma)))))
            for _ in range(SEQUENCES)
        ]


SMALL = Lengths(median=67, sigma=1.0, limit=256, budget=4096)
REASONING = Lengths(median=4000, sigma=0.9, limit=16_384, budget=32_768)
LATE = Lengths(median=6000, sigma=0.9, limit=24_576, budget=32_768)
"""Late in a run: the limit of the recipe's second stage, answers half as long again."""


def against_random_order() -> Result:
    """Positions of micro-batches filled up to the budget, in random order over greedy; the recipe says 19 % less."""
    print("median  limit  budget   filled up: random  greedy   to the longest: random  greedy   (padding, %)")
    ratios = [ratio for lengths in (SMALL, REASONING, LATE) for ratio in _told(lengths)]
    return Result("collation-vs-random-order", tuple(ratios[-len(ORDERS) :]))


def _told(kind: Lengths) -> list[float]:
    """Print the medians' line; returns the ratio for each random order."""
    rows = [_shares(kind.draw(seed), kind.budget) for seed in ORDERS]
    middle = [100 * sorted(column)[len(rows) // 2] for column in zip(*rows, strict=True)]
    print(
        f"{kind.median:6} {kind.limit:6} {kind.budget:7}   {middle[0]:17.1f} {middle[1]:7.1f}   "
        f"{middle[2]:22.1f} {middle[3]:7.1f}",
        flush=True,
    )
    return [(1 - greedy) / (1 - in_order) for in_order, greedy, _, _ in rows]


def _shares(lengths: Sequence[int], budget: int) -> tuple[float, float, float, float]:
    """Padding as a share of all positions: filled up in random order and greedily, to the longest likewise."""
    in_order, greedy = _in_order(lengths, budget), greedy_collate(lengths, budget)
    return (
        _empty(lengths, in_order, budget),
        _empty(lengths, greedy, budget),
        padding_share(lengths, in_order),
        padding_share(lengths, greedy),
    )


def _empty(lengths: Sequence[int], batches: Sequence[Sequence[int]], budget: int) -> float:
    return 1 - sum(lengths) / (len(batches) * budget)


def _in_order(lengths: Sequence[int], budget: int) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    room = budget
    for index, length in enumerate(lengths):
        if length > room and batches[-1]:
            batches.append([])
            room = budget
        batches[-1].append(index)
        room -= length
    return batches

"""Near-identical texts: how much of their five-word pieces two texts share.

Traces of one problem are few, so their pieces are compared as they are; no sketch stands in for them.
"""

import re
from collections.abc import Callable
from functools import lru_cache

WORD = re.compile(r"\w+|[^\w\s]")
PIECE = 5
"""Words and signs of one piece."""
REMEMBERED = 4096
"""Texts whose pieces are kept at hand."""


def pieces(text: str) -> frozenset[int]:
    """Hashes of all runs of ``PIECE`` words and signs, letter case and spaces aside; of a shorter text, itself."""
    words = WORD.findall(text.lower())
    return frozenset(hash(tuple(words[i : i + PIECE])) for i in range(max(1, len(words) - PIECE + 1)))


def overlap(one: frozenset[int], other: frozenset[int]) -> float:
    """Jaccard similarity, 0 to 1: the pieces that both have over those that either has."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def nearness(text_of: Callable[[int], str], least: float) -> Callable[[int, int], bool]:
    """Whether two texts, by their keys, share at least the part ``least`` of their pieces."""

    @lru_cache(maxsize=REMEMBERED)
    def of(key: int) -> frozenset[int]:
        return pieces(text_of(key))

    return lambda one, other: overlap(of(one), of(other)) >= least

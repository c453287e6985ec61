r"""Permutations as products of disjoint cycles: ``(1\ 2\ 3)(4\ 5)``."""

import re
from itertools import chain

_GAP = r"(?:\s|\\[,;: ]|~)"
_CYCLE = rf"\({_GAP}*\d{{1,2}}(?:{_GAP}+\d{{1,2}})+{_GAP}*\)"
# At most 21 cycles, next to each other or with a sign of composition between them.
_CYCLES = re.compile(rf"{_CYCLE}(?:(?:{_GAP}|\\circ|\\cdot)*{_CYCLE}){{0,20}}")
_ONE_CYCLE = re.compile(r"\(([^()]*)\)")
_NUMBER = re.compile(r"\d+")


def parse_cycles(text: str) -> str:
    r"""The cycles with their smallest element first, in order of it; empty for anything else.

    ``(2\ 3\ 1)`` is ``(1\ 2\ 3)``. Products of cycles with a common element are not multiplied out, as authors
    differ in the direction.
    """
    if not _CYCLES.fullmatch(text):
        return ""
    cycles = [[int(element) for element in _NUMBER.findall(cycle)] for cycle in _ONE_CYCLE.findall(text)]
    elements = list(chain.from_iterable(cycles))
    if len(set(elements)) < len(elements):
        return ""
    # Disjoint cycles commute, so that their order is free.
    ordered = sorted(map(_smallest_first, cycles))
    return "".join(f"({' '.join(map(str, cycle))})" for cycle in ordered)


def _smallest_first(cycle: list[int]) -> list[int]:
    start = cycle.index(min(cycle))
    return cycle[start:] + cycle[:start]

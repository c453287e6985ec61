"""Which reasoning traces go into the cold start, and how often (recipe, section 5, "Small").

From the graded rollouts of an RL run: correct ones, without those of early steps and short chains of thought, a
bounded number a problem, harder problems up-sampled by pass rate; then worked solutions, and general instructions
as a fraction of the whole. Choices are made by hash of a row's key and the seed, so they depend neither on the order
of rows nor on how many there are of other problems.

The functions see only small facts of each row and answer with row numbers: a stage reads its tables twice (once to
choose, once to copy) and never holds the texts.
"""

import hashlib
import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

LeftOut = Literal["early-step", "wrong", "short", "surplus"]


class Candidate(NamedTuple):
    """What matters of one graded rollout: its row number, problem, own key (stable between runs), length, verdict."""

    row: int
    problem: str
    key: str
    num_tokens: int
    correct: bool
    step: int = 0


class Selection(NamedTuple):
    """How often each chosen row is used, and why each other row is not."""

    copies: dict[int, int]
    left_out: dict[int, LeftOut]


class Pick(NamedTuple):
    """One row of the mix: a table's name, the row number in it, and which copy of that row this is."""

    source: str
    row: int
    copy: int


def select(
    candidates: Iterable[Candidate],
    *,
    seed: int,
    from_step: int = 0,
    shortest: float = 0.0,
    per_problem: int = 4,
    hardest: float = 1.0,
    pass_rates: Mapping[str, float] | None = None,
) -> Selection:
    """Choose traces among graded rollouts.

    Args:
        candidates: all rollouts, wrong ones too: they make the pass rates.
        seed: other seeds choose other traces of a problem.
        from_step: rollouts of earlier steps are left out (their chains of thought are short).
        shortest: the share of correct rollouts to leave out as too short, 0 to 1; the length at that quantile stays.
        per_problem: at most so many different traces of one problem.
        hardest: mean number of copies of a trace whose problem is almost never solved; see :func:`weight`.
        pass_rates: by problem; without it they are taken from the candidates from ``from_step`` on.
    """
    left_out: dict[int, LeftOut] = {}
    late = _keep(candidates, lambda each: each.step >= from_step, "early-step", left_out)
    rates = pass_rates or measured_pass_rates(late)
    right = _keep(late, lambda each: each.correct, "wrong", left_out)
    enough = quantile([each.num_tokens for each in right], shortest)
    long = _keep(right, lambda each: each.num_tokens >= enough, "short", left_out)
    chosen = bounded(long, per_problem=per_problem, seed=seed)
    left_out |= {each.row: "surplus" for each in long if each.row not in chosen}
    copies = {
        row: num_copies(weight(rates.get(each.problem, 1.0), hardest=hardest), key=each.key, seed=seed)
        for row, each in chosen.items()
    }
    return Selection(copies, left_out)


def _keep(
    candidates: Iterable[Candidate], wanted: Callable[[Candidate], bool], reason: LeftOut, left_out: dict[int, LeftOut]
) -> list[Candidate]:
    """The wanted candidates; the others are noted in ``left_out``."""
    kept = []
    for each in candidates:
        if wanted(each):
            kept.append(each)
        else:
            left_out[each.row] = reason
    return kept


def measured_pass_rates(candidates: Iterable[Candidate]) -> dict[str, float]:
    """The share of correct rollouts of each problem."""
    tally: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in candidates:
        tally[each.problem][0] += each.correct
        tally[each.problem][1] += 1
    return {problem: right / total for problem, (right, total) in tally.items()}


def quantile(lengths: Sequence[int], share: float) -> int:
    """The length such that at most ``share`` of the lengths are shorter; 0 without lengths."""
    if not lengths:
        return 0
    return sorted(lengths)[min(len(lengths) - 1, math.floor(share * len(lengths)))]


def bounded(candidates: Iterable[Candidate], *, per_problem: int, seed: int) -> dict[int, Candidate]:
    """At most ``per_problem`` candidates of each problem, those whose keys have the smallest hashes, by row."""
    by_problem: defaultdict[str, list[Candidate]] = defaultdict(list)
    for each in candidates:
        by_problem[each.problem].append(each)
    chosen: dict[int, Candidate] = {}
    for group in by_problem.values():
        nearest = heapq.nsmallest(per_problem, group, key=lambda each: (unit(seed, "trace", each.key), each.key))
        chosen.update((each.row, each) for each in nearest)
    return chosen


def weight(pass_rate: float, *, hardest: float) -> float:
    """How much a problem counts: 1 when always solved, rising in a straight line to ``hardest`` when never solved."""
    return 1.0 + (hardest - 1.0) * (1.0 - pass_rate)


def num_copies(mean: float, *, key: str, seed: int) -> int:
    """A whole number of copies whose mean over many keys is ``mean``."""
    whole = math.floor(mean)
    return whole + (unit(seed, "copies", key) < mean - whole)


def num_instructions(others: int, fraction: float) -> int:
    """How many instruction rows make up ``fraction`` of the mix beside ``others`` other rows.

    Raises:
        ValueError: the fraction is not in [0, 1).
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"the instructions' fraction of the mix is {fraction}; it must be at least 0 and below 1")
    return round(others * fraction / (1 - fraction))


def sample(keys: Iterable[str], count: int, *, seed: int) -> dict[int, int]:
    """Choose ``count`` rows by the hashes of their keys (all of them when there are fewer), each used once."""
    nearest = heapq.nsmallest(count, enumerate(keys), key=lambda pair: (unit(seed, "sample", pair[1]), pair[0]))
    return {row: 1 for row, _ in nearest}


def mix(copies: Mapping[str, Mapping[int, int]], *, seed: int) -> list[Pick]:
    """All copies of all chosen rows of the named tables, in an order that is mixed but the same for a seed."""
    picks = [
        Pick(source, row, copy)
        for source, chosen in copies.items()
        for row, times in chosen.items()
        for copy in range(times)
    ]
    return sorted(picks, key=lambda pick: (unit(seed, "mix", *map(str, pick)), pick))


def unit(seed: int, *parts: str) -> float:
    """A number in [0, 1) that depends on the seed and the parts only."""
    digest = hashlib.blake2b("\x1f".join((str(seed), *parts)).encode("utf-8", "surrogatepass"), digest_size=8)
    return (int.from_bytes(digest.digest(), "big") >> 11) / (1 << 53)

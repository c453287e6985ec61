"""Which reasoning traces go into the cold start, and how often (recipe, section 5, "Small").

From the graded rollouts of an RL run: correct ones, without those of early steps and short chains of thought, none
near-identical to another of its problem, a bounded number a problem, harder problems up-sampled by pass rate; then
completions without a verdict, and general instructions as a fraction of the whole. Choices are made by hash of a row's
key and the seed, so they depend neither on the order of rows nor on how many there are of other problems.

The functions see only small facts of each row and answer with row numbers; texts are compared by whoever holds them.
"""

import hashlib
import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

LeftOut = Literal["ungradable", "early-step", "wrong", "cut", "short", "near-identical", "surplus"]
Upsample = Literal["repetition", "weight"]
Same = Callable[[int, int], bool]
"""Whether two rows, by their numbers, are too alike to learn both."""


class Candidate(NamedTuple):
    """What matters of one completion: its row number, problem, own key (stable between runs), length, verdict.

    ``correct`` None: nobody graded it. ``gradable`` False: grading failed, which says nothing of the completion.
    ``cut``: it ended at the limit of its length, not by itself.
    """

    row: int
    problem: str
    key: str
    num_tokens: int
    correct: bool | None
    step: int | None = None
    cut: bool = False
    gradable: bool = True


class Selection(NamedTuple):
    """How often each chosen row is used, how much each copy weighs, and why each other row is not used."""

    copies: dict[int, int]
    weights: dict[int, float]
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
    same: Same | None = None,
    upsample: Upsample = "repetition",
    pass_rates: Mapping[str, float] | None = None,
) -> Selection:
    """Choose traces among completions; those without a verdict pass all rules but that against near-identical ones.

    Args:
        candidates: all completions, wrong ones too: they make the pass rates.
        seed: other seeds choose other traces of a problem.
        from_step: rollouts of earlier steps are left out (their chains of thought are short).
        shortest: the share of correct completions to leave out as too short, 0 to 1; the length at that quantile stays.
        per_problem: at most so many different graded traces of one problem.
        hardest: how much a trace whose problem is almost never solved counts; see :func:`weight`.
        same: whether two rows of one problem are near-identical; then only one of them stays.
        upsample: whether harder problems count more by copies of their traces or by weight.
        pass_rates: by problem; without it they are taken from the candidates from ``from_step`` on.
    """
    left_out: dict[int, LeftOut] = {}
    gradable = _keep(candidates, lambda each: each.gradable, "ungradable", left_out)
    late = _keep(gradable, lambda each: each.step is None or each.step >= from_step, "early-step", left_out)
    rates = pass_rates or measured_pass_rates(late)
    right = _keep(late, lambda each: each.correct is not False, "wrong", left_out)
    whole = _keep(right, lambda each: not each.cut, "cut", left_out)
    enough = quantile([each.num_tokens for each in whole if each.correct], shortest)
    long = _keep(whole, lambda each: each.correct is None or each.num_tokens >= enough, "short", left_out)
    chosen = bounded(long, left_out, per_problem=per_problem, seed=seed, same=same)
    means = {
        row: 1.0 if each.correct is None else weight(rates.get(each.problem, 1.0), hardest=hardest)
        for row, each in chosen.items()
    }
    if upsample == "weight":
        return Selection(dict.fromkeys(chosen, 1), means, left_out)
    copies = {row: num_copies(means[row], key=each.key, seed=seed) for row, each in chosen.items()}
    return Selection(copies, dict.fromkeys(chosen, 1.0), left_out)


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
    """The share of correct completions of each problem, of those that have a verdict."""
    tally: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in candidates:
        if each.correct is not None:
            tally[each.problem][0] += each.correct
            tally[each.problem][1] += 1
    return {problem: right / total for problem, (right, total) in tally.items()}


def quantile(lengths: Sequence[int], share: float) -> int:
    """The length such that at most ``share`` of the lengths are shorter; 0 without lengths."""
    if not lengths:
        return 0
    return sorted(lengths)[min(len(lengths) - 1, math.floor(share * len(lengths)))]


def bounded(
    candidates: Iterable[Candidate],
    left_out: dict[int, LeftOut],
    *,
    per_problem: int,
    seed: int,
    same: Same | None = None,
) -> dict[int, Candidate]:
    """At most ``per_problem`` graded candidates of each problem and all others, no two the ``same``, by row.

    Those whose keys have the smallest hashes come first; the others are noted in ``left_out``.
    """
    by_problem: defaultdict[str, list[Candidate]] = defaultdict(list)
    for each in candidates:
        by_problem[each.problem].append(each)
    chosen: dict[int, Candidate] = {}
    for group in by_problem.values():
        group.sort(key=lambda each: (unit(seed, "trace", each.key), each.key))
        chosen.update((each.row, each) for each in _different(group, left_out, per_problem, same))
    return chosen


def _different(
    group: Iterable[Candidate], left_out: dict[int, LeftOut], per_problem: int, same: Same | None
) -> list[Candidate]:
    """The first ``per_problem`` graded candidates and all ungraded ones, each unlike those before it."""
    kept: list[Candidate] = []
    graded = 0
    for each in group:
        if each.correct and graded == per_problem:
            left_out[each.row] = "surplus"
        elif same is not None and any(same(each.row, other.row) for other in kept):
            left_out[each.row] = "near-identical"
        else:
            kept.append(each)
            graded += bool(each.correct)
    return kept


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

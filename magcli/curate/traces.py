"""Reasoning traces for the cold start: select and mix (recipe, section 5, "Small").

Published formats are converted by ``magcli.curate.published``.

Selection from the graded rollouts of an RL run: correct ones, without those of early steps and short chains of thought,
no near-duplicates of the same problem, a bounded number per problem, harder problems up-sampled by pass rate; then
completions without a verdict, and general instructions as a fraction of the mix. The choice is by a hash of the row's
key and the seed, so it depends neither on the order of rows nor on other problems. These functions work on small
records and return row numbers; the caller holds the texts.
"""

import hashlib
import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from magcli.curate.math.words import hashed_ngrams, jaccard

DropReason = Literal["ungradable", "early-step", "wrong", "cut", "short", "near-identical", "surplus"]
Same = Callable[[int, int], bool]
"""Whether two rows, by number, are near-duplicates."""
WORD = re.compile(r"\w+|[^\w\s]")
NGRAM = 5
"""Words and punctuation marks per n-gram."""
CACHE_SIZE = 4096
"""Number of texts whose n-grams are cached."""
MAX_BAR = 40
"""Width of the longest bar of a histogram."""


@dataclass
class Share:
    """The contribution of a source: rows, distinct rows, total length and total weight."""

    rows: int = 0
    distinct: int = 0
    length: int = 0
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class MixedRow:
    """One row of the mix: its source, number of the copy, length and weight."""

    source: str
    copy: int
    length: int
    weight: float


class Candidate(NamedTuple):
    """A completion: row number, problem, key (stable between runs), length, verdict.

    ``correct`` is None if it was not graded; ``gradable`` is False if grading failed; ``cut``: it was truncated.
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
    """Copies of each selected row, and the reason for each dropped row."""

    copies: dict[int, int]
    dropped: dict[int, DropReason]


class Pick(NamedTuple):
    """One row of the mix: the name of the table, the row number in it, and the number of the copy."""

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
) -> Selection:
    """Select traces; those without a verdict are exempt from all rules except near-duplicates.

    Args:
        candidates: All completions, including wrong ones: those from ``from_step`` on determine the pass rates.
        seed: Seed of the selection.
        from_step: Rollouts of earlier steps are dropped (their chains of thought are short).
        shortest: Fraction of correct completions to drop as too short; the length at that quantile is kept.
        per_problem: Maximum number of graded traces per problem.
        hardest: Average copies of a trace whose problem is almost never solved; see :func:`mean_copies`.
        same: Whether two rows of a problem are near-duplicates, of which one is kept.
    """
    dropped: dict[int, DropReason] = {}
    gradable = _filter(candidates, lambda trace: trace.gradable, "ungradable", dropped)
    late = _filter(gradable, lambda trace: trace.step is None or trace.step >= from_step, "early-step", dropped)
    # Before wrong completions are dropped, as they determine the pass rates.
    pass_rates = measured_pass_rates(late)
    right = _filter(late, lambda trace: trace.correct is not False, "wrong", dropped)
    whole = _filter(right, lambda trace: not trace.cut, "cut", dropped)
    # After truncated ones are dropped, whose lengths are the limit's.
    lengths_of_correct = [trace.num_tokens for trace in whole if trace.correct]
    min_tokens = quantile(lengths_of_correct, shortest)
    long = _filter(whole, lambda trace: trace.correct is None or trace.num_tokens >= min_tokens, "short", dropped)
    chosen = bounded(long, dropped, per_problem=per_problem, seed=seed, same=same)
    copies: dict[int, int] = {}
    for row, trace in chosen.items():
        mean = 1.0
        if trace.correct is not None:
            mean = mean_copies(pass_rates[trace.problem], hardest=hardest)
        copies[row] = num_copies(mean, key=trace.key, seed=seed)
    return Selection(copies, dropped)


def _filter(
    candidates: Iterable[Candidate],
    is_wanted: Callable[[Candidate], bool],
    reason: DropReason,
    dropped: dict[int, DropReason],
) -> list[Candidate]:
    """The wanted candidates; the others are recorded in ``dropped``."""
    kept = []
    for candidate in candidates:
        if is_wanted(candidate):
            kept.append(candidate)
        else:
            dropped[candidate.row] = reason
    return kept


def measured_pass_rates(candidates: Iterable[Candidate]) -> dict[str, float]:
    """The fraction of correct completions of each problem among the graded ones."""
    right: Counter[str] = Counter()
    graded: Counter[str] = Counter()
    for candidate in candidates:
        if candidate.correct is not None:
            right[candidate.problem] += candidate.correct
            graded[candidate.problem] += 1
    return {problem: right[problem] / total for problem, total in graded.items()}


def quantile(lengths: Sequence[int], share: float) -> int:
    """The length such that at most the fraction ``share`` of the lengths is shorter; 0 without lengths."""
    if not lengths:
        return 0
    # A share of 1 would index past the end.
    index = min(len(lengths) - 1, math.floor(share * len(lengths)))
    return sorted(lengths)[index]


def bounded(
    candidates: Iterable[Candidate],
    dropped: dict[int, DropReason],
    *,
    per_problem: int,
    seed: int,
    same: Same | None = None,
) -> dict[int, Candidate]:
    """At most ``per_problem`` graded candidates of each problem and all ungraded ones, no two the ``same``, by row.

    Candidates are taken in the order of the hashes of their keys; the others are recorded in ``dropped``.
    """
    by_problem: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_problem[candidate.problem].append(candidate)
    chosen: dict[int, Candidate] = {}
    for group in by_problem.values():
        # Ties of hashes are broken by the key, so that the order of rows never counts.
        group.sort(key=lambda candidate: (unit(seed, "trace", candidate.key), candidate.key))
        for candidate in _distinct(group, dropped, per_problem, same):
            chosen[candidate.row] = candidate
    return chosen


def _distinct(
    group: Iterable[Candidate], dropped: dict[int, DropReason], per_problem: int, same: Same | None
) -> list[Candidate]:
    """The first ``per_problem`` graded candidates and all ungraded ones, without near-duplicates."""
    kept: list[Candidate] = []
    graded = 0
    for candidate in group:
        # Ungraded ones are exempt, as ``correct`` is None.
        if candidate.correct and graded == per_problem:
            dropped[candidate.row] = "surplus"
        elif same is not None and any(same(candidate.row, other.row) for other in kept):
            dropped[candidate.row] = "near-identical"
        else:
            kept.append(candidate)
            graded += bool(candidate.correct)
    return kept


def mean_copies(pass_rate: float, *, hardest: float) -> float:
    """Average copies of a problem's traces: linear from 1 if always solved to ``hardest`` if never solved."""
    return 1.0 + (hardest - 1.0) * (1.0 - pass_rate)


def num_copies(mean: float, *, key: str, seed: int) -> int:
    """An integer number of copies with expectation ``mean`` over keys."""
    whole = math.floor(mean)
    # One more with the probability of the fractional part.
    has_one_more = unit(seed, "copies", key) < mean - whole
    return whole + has_one_more


def num_instructions(others: int, fraction: float) -> int:
    """How many instruction rows make up ``fraction``, in [0, 1), of the mix with ``others`` other rows."""
    # The number n for which n / (n + others) is the fraction.
    return round(others * fraction / (1 - fraction))


def sample(keys: Iterable[str], count: int, *, seed: int) -> dict[int, int]:
    """Select ``count`` rows by the hashes of their keys (or all if there are fewer), each used once."""
    ranks = ((unit(seed, "sample", key), row) for row, key in enumerate(keys))
    chosen = [row for _, row in heapq.nsmallest(count, ranks)]
    return dict.fromkeys(chosen, 1)


def mix(copies: Mapping[str, Mapping[int, int]], *, seed: int) -> list[Pick]:
    """All copies of the selected rows of the named tables, deterministically shuffled."""
    # Copies of a row are apart in the mix, as each has a hash of its own.
    picks = []
    for source, copies_of_rows in copies.items():
        for row, num in copies_of_rows.items():
            picks += [Pick(source, row, copy) for copy in range(num)]
    return sorted(picks, key=lambda pick: (unit(seed, "mix", *map(str, pick)), pick))


def unit(seed: int, *parts: str) -> float:
    """A number in [0, 1) that depends only on the seed and the parts."""
    # A separator that parts do not have, so that others never give the same text.
    text = "\x1f".join((str(seed), *parts))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    # 53 bits are what a float holds exactly; more could round up to 1.
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def ngrams(text: str) -> frozenset[int]:
    """Hashes of all n-grams of words and punctuation, ignoring case and spaces; a shorter text is one n-gram."""
    return hashed_ngrams(WORD.findall(text.lower()), NGRAM)


def near_duplicates(text_of: Callable[[int], str], min_overlap: float) -> Callable[[int, int], bool]:
    """A function that tells whether two texts, by key, have a similarity of at least ``min_overlap``.

    Exact, without MinHash: a problem has few traces.
    """

    @lru_cache(maxsize=CACHE_SIZE)
    def of(key: int) -> frozenset[int]:
        return ngrams(text_of(key))

    return lambda one, other: jaccard(of(one), of(other)) >= min_overlap


def shares(rows: Iterable[MixedRow]) -> dict[str, Share]:
    """The contribution of each source, by name."""
    by_source: dict[str, Share] = {}
    for row in rows:
        share = by_source.setdefault(row.source, Share())
        share.rows += 1
        # Each row has one first copy.
        share.distinct += row.copy == 0
        share.length += row.length
        share.weight += row.weight
    return dict(sorted(by_source.items()))


def mix_table(by_source: dict[str, Share], unit: str) -> list[str]:
    """The mix as lines of a table with a total; lengths are in ``unit``."""
    fields = zip(*map(astuple, by_source.values()), strict=True)
    whole = Share(*(sum(values) for values in fields))
    rows = [("source", "rows", "of rows", "distinct", "weight", unit, f"of {unit}")]
    for name, share in [*by_source.items(), ("all", whole)]:
        cells = (
            name,
            f"{share.rows:,}",
            f"{share.rows / max(whole.rows, 1):.1%}",
            f"{share.distinct:,}",
            f"{share.weight:,.1f}",
            f"{share.length:,}",
            f"{share.length / max(whole.length, 1):.1%}",
        )
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *aligned]))
    return lines


def histogram(lengths: Iterable[int]) -> dict[int, int]:
    """Counts of lengths by power of two (upper bounds), including empty bins in between."""
    # Lengths from 2^(p-1) + 1 to 2^p are in bin p.
    bins = Counter(max(length - 1, 0).bit_length() for length in lengths)
    if not bins:
        return {}
    return {1 << power: bins[power] for power in range(min(bins), max(bins) + 1)}


def histogram_lines(bins: dict[int, int], unit: str) -> list[str]:
    """The histogram with a bar per bin."""
    max_count = max(bins.values(), default=0)
    width = max((len(f"{edge:,}") for edge in bins), default=0)
    return [
        f"to {edge:>{width},} {unit} {count:>9,} {'#' * round(MAX_BAR * count / max_count)}".rstrip()
        for edge, count in bins.items()
    ]

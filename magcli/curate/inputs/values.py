r"""The domains of the values in an input format: kinds, ranges and relations, inferred from samples and statement.

A range is that of the samples, or the statement's (``1 \le n \le 10^5``, ``$0 \leq x_i, y_i < 2^{31}$``,
``1 <= |s| <= 50``; LaTeX, HTML and plain text) if the name can be matched to the slot: both come in the same order,
and the range must contain all samples. Relations that hold in all samples are kept: bounded by another value, of a
certain length, sorted, distinct. A relation that holds by chance excludes some valid inputs, but adds no invalid ones.
"""

import ast
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import Literal, NamedTuple

from magcli.curate.inputs.format import (
    Format,
    Line,
    Mismatch,
    Piece,
    Repeat,
    Size,
    is_int,
    lines_of,
    read,
    size_of,
    slots_of,
)
from magcli.verify.code.cases import constant

UNBOUNDED = 1 << 62
"""The range of a value bounded by another one."""
# Signs of LaTeX, HTML and Unicode as ASCII, without markup. The order matters: a ``\,`` between digits separates
# thousands, any other one is a space.
_SIGNS = (
    (re.compile(r"\\(?:leqslant|leq|le)(?![A-Za-z])|≤|⩽|&le;"), " <= "),
    (re.compile(r"\\lt(?![A-Za-z])|&lt;"), " < "),
    (re.compile(r"\\(?:cdot|times)(?![A-Za-z])|×|·|⋅"), "*"),
    (re.compile(r"\\(?:lvert|rvert|mid|vert)(?![A-Za-z])"), "|"),
    (re.compile(r"\\(?:mathrm|text|textit|mathit|operatorname|num|ensuremath)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"</?[a-z][^<>]*>"), ""),
    (re.compile(r"(?<=\d)(?:\\,|\{,\}|\\ |,(?=\d{3}(?!\d))| (?=\d{3}(?!\d)))"), ""),
    (re.compile(r"\$|\\[,;:! ]|\\left|\\right"), " "),
)
# 100, 1e9, 2*10^5, 2**31 - 1
_NUMBER = (
    r"-?\s*\d+(?:\.\d+)?(?:e\d{1,2})?(?:\s*\*\s*\d+)?(?:\s*(?:\^|\*\*)\s*\{?\s*\d{1,3}\s*\}?)?(?:\s*[-+]\s*1(?![\d.]))?"
)
# n, a_i, a_{i,j}, nums[i], s.length, |s|
_NAME = r"\|?\\?[A-Za-z]\w*(?:\s*_\s*(?:\{[^{}]*\}|\w+))?(?:\.\w+|\[[^\[\]]*\])*\|?"
_RANGE = re.compile(
    rf"(?<![\w.^*])(?P<low>{_NUMBER})\s*(?P<from><=?)\s*"
    rf"(?P<names>{_NAME}(?:\s*(?:,|<=?)\s*{_NAME})*)\s*(?P<to><=?)\s*(?P<high>{_NUMBER})(?![\w^])"
)


class StatedRange(NamedTuple):
    """The name of a value in the statement, and its inclusive range."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of a slot; ``mixed`` ones, such as the parts of a command or YES and NO, are never generated.

    ``low`` and ``high`` bound a number, in units of its last decimal place, or the length of a word. ``ceiling`` and
    ``floor`` are earlier values that bound it; ``reaches``: it sometimes equals its ceiling. ``length`` is the length
    of a word. ``rising`` and ``different`` apply to the values of one tail, or of one slot over a repetition.
    """

    kind: Literal["number", "word", "mixed"]
    low: int
    high: int
    decimals: int = 0
    alphabet: str = ""
    ceiling: Size | None = None
    floor: Size | None = None
    length: Size | None = None
    reaches: bool = False
    rising: bool = False
    different: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether the values are integers, which later values may refer to."""
        return self.kind == "number" and not self.decimals

    def text(self, units: int) -> str:
        """A number as a word."""
        return f"{units / 10**self.decimals:.{self.decimals}f}" if self.decimals else str(units)


@dataclass(frozen=True, slots=True)
class Inputs:
    """A format with its domains. ``counts`` are the slots used as counts; ``trees`` the repetitions of edges, by their
    first slot, that form a tree on the vertices from 1."""

    format: Format
    domains: Mapping[int, Domain]
    counts: frozenset[int]
    trees: frozenset[int] = field(default_factory=frozenset)


class Series(NamedTuple):
    """Values of one slot in a tail, or over a repetition, with the integers that each can refer to, by slot."""

    slot: int
    scopes: list[Mapping[int, int]]
    words: list[str]


def describe(format: Format, texts: Sequence[str], stated: Sequence[StatedRange] = ()) -> Inputs:
    """The domains of a format, from all texts that it parses."""
    readings = list(_readings(format, texts))
    observed: dict[int, list[Series]] = {}
    for pieces in readings:
        for series in series_of(pieces):
            observed.setdefault(series.slot, []).append(series)
    counts = frozenset(_counts(format))
    domains = {slot: _domain(observed[slot]) for slot in slots_of(format) if slot in observed}
    trees = _trees(format, readings)
    # The tree determines which vertices an edge may have, in two slots one after the other.
    for first in trees:
        for slot in (first, first + 1):
            domains[slot] = replace(domains[slot], high=UNBOUNDED, ceiling=None, rising=False, different=False)
    return Inputs(format, _widened(domains, stated, counts), counts, trees)


def _readings(format: Format, texts: Sequence[str]) -> Iterator[list[Piece]]:
    for text in texts:
        try:
            yield read(format, lines_of(text))
        except Mismatch:
            continue


def series_of(pieces: Sequence[Piece]) -> list[Series]:
    """The values of an input, grouped by tail or repetition."""
    tails = []
    for piece in pieces:
        slot, words = piece.line.tail, piece.tail
        if slot is not None and words:
            tails.append(Series(slot, [piece.scope] * len(words), [*words]))
    # By group of lines and slot.
    columns: dict[tuple[int, int], Series] = {}
    for number, piece in enumerate(pieces, 1):
        # A line outside of repetitions is a group of its own.
        group = piece.run or -number
        for slot, word in zip(piece.line.head, piece.head, strict=True):
            column = columns.setdefault((group, slot), Series(slot, [], []))
            column.scopes.append(piece.scope)
            column.words.append(word)
    return [*tails, *columns.values()]


def units_of(word: str, decimals: int) -> int | None:
    """A number in units of a decimal place; None if it is none or has more places."""
    if not decimals:
        return int(word) if is_int(word) else None
    whole, _, places = word.partition(".")
    digits = whole.removeprefix("-") + places
    # Longer ones are texts of digits rather than numbers.
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 40
    if not is_number or len(places) > decimals:
        return None
    return int(whole + places.ljust(decimals, "0"))


def _domain(observed: Sequence[Series]) -> Domain:
    """What the values of a slot have in common: a range of numbers, or letters and lengths of words."""
    words = list(chain.from_iterable(series.words for series in observed))
    scopes = list(chain.from_iterable(series.scopes for series in observed))
    # Of words that are no numbers this means nothing, and ``units_of`` refuses them.
    decimals = max(len(word.partition(".")[2]) for word in words)
    units = [units_of(word, decimals) for word in words]
    numbers = [number for number in units if number is not None]
    if len(numbers) < len(words):
        return _text(words, scopes)
    rows = [[units_of(word, decimals) or 0 for word in series.words] for series in observed]
    # One or two values are often sorted and distinct by chance.
    num_related = sum(len(row) for row in rows if len(row) > 2)
    always_sorted = all(row == sorted(row) for row in rows)
    # Rows of equal values are sorted too.
    sometimes_rising = any(row[0] < row[-1] for row in rows)
    always_distinct = all(len(set(row)) == len(row) for row in rows)
    domain = Domain(
        "number",
        min(numbers),
        max(numbers),
        decimals,
        rising=num_related >= 8 and always_sorted and sometimes_rising,
        different=num_related > 4 and always_distinct,
    )
    return domain if decimals else _bounded(domain, observed[0].slot, numbers, scopes)


def _text(words: Sequence[str], scopes: Sequence[Mapping[int, int]]) -> Domain:
    """The letters and lengths of words, and the earlier integer that is their length, if there is one."""
    lengths = [len(word) for word in words]
    alphabet = "".join(sorted(set("".join(words))))
    shortest, longest = min(lengths), max(lengths)
    # Some integers among words: parts of commands, such as "push 3" and "pop".
    has_integers = any(map(is_int, words)) and not alphabet.isdecimal()
    # Words that recur, such as YES and NO or the names of commands, have meanings that a random word lacks.
    has_keywords = longest > 1 and 3 * len(set(words)) <= len(words)
    kind: Literal["word", "mixed"] = "mixed" if has_integers or has_keywords else "word"
    size = None
    if longest > 1:
        for slot in scopes[0]:
            if all(scope.get(slot) == length for scope, length in zip(scopes, lengths, strict=True)):
                size = Size(slot)
                break
    return Domain(kind, shortest, longest, alphabet=alphabet, length=size)


def _bounded(domain: Domain, slot: int, numbers: Sequence[int], scopes: Sequence[Mapping[int, int]]) -> Domain:
    """The domain with the earlier integers that bound it: the closest above; in a tie, the last one read."""
    earlier = set.intersection(*map(set, scopes)) & set(range(slot))
    ceiling = floor = None
    least_distance = inf
    for other in sorted(earlier, reverse=True):
        gaps = [number - scope[other] for number, scope in zip(numbers, scopes, strict=True)]
        lowest, highest = min(gaps), max(gaps)
        if highest <= 0:
            # At most the other integer or, like indices from 0, less than it.
            plus = max(-1, highest)
            distance = plus - highest
            if distance < least_distance:
                ceiling, least_distance = Size(other, plus), distance
        # At least the other integer, or more than it, as the second vertex of an edge may be.
        if floor is None and lowest in (0, 1):
            floor = Size(other, lowest)
    return replace(domain, ceiling=ceiling, reaches=least_distance == 0, floor=floor)


def _counts(format: Format) -> Iterator[int]:
    for item in format:
        if item.size.slot is not None:
            yield item.size.slot
        if isinstance(item, Repeat):
            yield from _counts(item.body)


def _widened(domains: Mapping[int, Domain], stated: Sequence[StatedRange], counts: frozenset[int]) -> dict[int, Domain]:
    """The domains with the ranges of the statement, each of the first one after the last used that may be its own."""
    widened = {}
    rest = list(stated)
    for slot, domain in domains.items():
        candidates = [number for number, range_ in enumerate(rest) if _may_state(range_, domain)]
        if candidates:
            number = candidates[0]
            # Domains count in units of their last decimal.
            scale = 10**domain.decimals
            low, high = int(rest[number].low * scale), int(rest[number].high * scale)
            if slot in counts:
                low = max(low, 0)
            domain = replace(domain, low=low, high=high)
            # Statements give ranges in the order of the input.
            del rest[: number + 1]
        # Values that reach their ceiling, such as vertices up to n, are bounded by it alone.
        widened[slot] = replace(domain, high=UNBOUNDED) if domain.reaches else domain
    return widened


def _may_state(stated: StatedRange, domain: Domain) -> bool:
    """Whether a stated range may be that of a domain: it contains the samples and, for a word, bounds a length."""
    scale = 10**domain.decimals
    if domain.low < stated.low * scale or domain.high > stated.high * scale:
        return False
    if domain.kind == "number":
        return True
    # |s|, s.length, or n as the length of a string
    names_length = "|" in stated.name or "length" in stated.name or stated.name in ("n", "N")
    return names_length and domain.length is None


def _trees(format: Format, readings: Sequence[Sequence[Piece]]) -> frozenset[int]:
    """The repetitions of edges that form a tree in all samples, at least one with three edges."""
    trees = set()
    for item in format:
        # A tree on n vertices has n - 1 edges: lines that begin with two vertices.
        if not isinstance(item, Repeat) or item.size.plus != -1 or len(item.body) != 1:
            continue
        (line,) = item.body
        if not isinstance(line, Line) or len(line.head) < 2 or line.tail is not None:
            continue
        edges_of_samples = [[piece.head[:2] for piece in pieces if piece.line == line] for pieces in readings]
        max_edges = max(map(len, edges_of_samples), default=0)
        # Any one or two edges may be a tree by chance.
        if max_edges >= 3 and all(map(_is_tree, edges_of_samples)):
            trees.add(line.head[0])
    return frozenset(trees)


def _is_tree(edges: Sequence[Sequence[str]]) -> bool:
    """Whether n edges form a tree on the vertices 1 to n + 1, by union-find."""
    parent = {str(number): str(number) for number in range(1, len(edges) + 2)}

    def root(vertex: str) -> str:
        while parent[vertex] != vertex:
            # Shorten the way for later calls: every vertex passed then points to its grandparent.
            vertex = parent[vertex] = parent[parent[vertex]]
        return vertex

    for one, other in edges:
        if one not in parent or other not in parent or root(one) == root(other):
            return False
        parent[root(one)] = root(other)
    return True


def accepts(inputs: Inputs, text: str) -> bool:
    """Whether an input has the format, with all values in their domains."""
    try:
        pieces = read(inputs.format, lines_of(text))
        fits = all(_fits(inputs.domains[series.slot], series) for series in series_of(pieces))
    except (Mismatch, KeyError):
        return False
    if not fits:
        return False
    for slot in inputs.trees:
        edges = [piece.head[:2] for piece in pieces if piece.line.head[:1] == (slot,)]
        if not _is_tree(edges):
            return False
    return True


def _fits(domain: Domain, series: Series) -> bool:
    """Whether the values of a series are in their domain."""
    pairs = zip(series.words, series.scopes, strict=True)
    if domain.kind != "number":
        return all(_is_word(domain, word, scope) for word, scope in pairs)
    numbers = []
    for word, scope in pairs:
        number = units_of(word, domain.decimals)
        low, high = limits(domain, scope)
        if number is None or not low <= number <= high:
            return False
        numbers.append(number)
    if domain.different and len(set(numbers)) < len(numbers):
        return False
    return not domain.rising or numbers == sorted(numbers)


def _is_word(domain: Domain, word: str, scope: Mapping[int, int]) -> bool:
    low, high = domain.low, domain.high
    if domain.length:
        low = high = size_of(domain.length, scope)
    return low <= len(word) <= high and set(word) <= set(domain.alphabet)


def limits(domain: Domain, scope: Mapping[int, int]) -> tuple[int, int]:
    """The bounds of a number after the integers in ``scope``.

    Raises:
        Mismatch: there is no such number.
    """
    low, high = domain.low, domain.high
    if domain.ceiling:
        high = min(high, size_of(domain.ceiling, scope))
    if domain.floor:
        low = max(low, size_of(domain.floor, scope))
    if low > high:
        raise Mismatch
    return low, high


def constraints(statement: str) -> list[StatedRange]:
    """The ranges in the order of the statement; later ones that contradict the first of a name are ignored."""
    for pattern, sign in _SIGNS:
        statement = pattern.sub(sign, statement)
    first: dict[str, tuple[float, float]] = {}
    ranges: list[StatedRange] = []
    for match in _RANGE.finditer(html.unescape(statement)):
        ends = _bounds(match)
        if ends is None:
            continue
        # Commas within the index of a name, as in a_{i,j}, do not separate names.
        for name in re.split(r"<=?|,(?![^\[{]*[\]}])", match["names"]):
            key = re.sub(r"\s|\\", "", name)
            if key not in ("ldots", "dots") and first.setdefault(key, ends) == ends:
                ranges.append(StatedRange(key, *ends))
    return ranges


def _bounds(match: re.Match[str]) -> tuple[float, float] | None:
    """The inclusive bounds; an open bound of reals is treated as closed."""
    low, high = _value(match["low"]), _value(match["high"])
    if low is None or high is None or low > high:
        return None
    if not (isinstance(low, int) and isinstance(high, int)):
        return low, high
    least = low + 1 if match["from"] == "<" else low
    most = high - 1 if match["to"] == "<" else high
    # No integer lies between, as in 0 < p < 1: reals after all.
    if least > most:
        return low, high
    return least, most


def _value(text: str) -> float | None:
    """Compute a number such as ``10^5``, ``2*10^5``, ``1e9`` or ``10^9 - 1``; integers as int."""
    try:
        value = constant(ast.parse(re.sub(r"[{}\s]", "", text).replace("^", "**"), mode="eval").body)
    except (SyntaxError, ValueError):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | float) else None

r"""The domains of the values in an input format: kinds, ranges and relations, inferred from samples and statement.

A range is that of the samples, or the statement's (``1 \le n \le 10^5``, ``$0 \leq x_i, y_i < 2^{31}$``,
``1 <= |s| <= 50``; LaTeX, HTML and plain text) if the name can be matched to the slot: both come in the same order,
and the range must contain all samples. Relations that hold in all samples are kept: bounded by another value, of a
certain length, sorted, distinct. A relation that holds by chance excludes some valid inputs, but adds no invalid ones.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
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

UNBOUNDED = 1 << 62
"""The range of a value bounded by another one."""
MAX_CHOICES = 8
"""Maximum number of repeated words that are treated as a fixed choice, such as YES and NO."""
Order = Literal["", "rising", "falling"]
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
# 10^5, 2*10^5
_POWER = re.compile(r"(?:(.+?)\*)?\s*(-?[\d.]+)\s*(?:\^|\*\*)\s*\{?\s*(\d+)\s*\}?")
_MAX_EXPONENT = 100


class StatedRange(NamedTuple):
    """The name of a value in the statement, and its inclusive range."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of a slot; ``mixed`` ones, such as the parts of a command, are never generated.

    ``low`` and ``high`` bound the value or the length of a word. ``ceiling`` and ``floor`` are earlier values that
    bound it; ``reaches``: it sometimes equals its ceiling. ``length`` is the length of a word. ``order`` and
    ``different`` apply to the values of one tail, or of one slot over a repetition.
    """

    kind: Literal["int", "float", "word", "mixed"]
    low: float
    high: float
    decimals: int = 0
    alphabet: str = ""
    choice: tuple[str, ...] = ()
    ceiling: Size | None = None
    floor: Size | None = None
    length: Size | None = None
    reaches: bool = False
    order: Order = ""
    different: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """A format with its domains. ``counts`` are the slots used as counts; ``trees`` the repetitions of edges, by their
    first slot, that form a tree on the vertices from 1."""

    format: Format
    domains: Mapping[int, Domain]
    counts: frozenset[int]
    trees: frozenset[int] = field(default_factory=frozenset)


class _Observation(NamedTuple):
    """A value with the integers that it can refer to, by slot."""

    word: str
    scope: Mapping[int, int]


def describe(format: Format, texts: Sequence[str], stated: Sequence[StatedRange] = ()) -> Inputs:
    """The domains of a format, from all texts that it parses."""
    readings = list(_readings(format, texts))
    observed: dict[int, list[_Observation]] = {}
    rows: dict[int, list[list[str]]] = {}
    for pieces in readings:
        for slot, scopes, row in series(pieces):
            observed.setdefault(slot, []).extend(map(_Observation, row, scopes))
            rows.setdefault(slot, []).append(list(row))
    counts = frozenset(_counts(format))
    domains = {slot: _domain(slot, observed[slot], rows[slot]) for slot in slots_of(format) if slot in observed}
    trees = _trees(format, readings)
    # The tree determines which vertices an edge may have.
    for slot in [vertex for first in trees for vertex in (first, first + 1)]:
        domains[slot] = replace(domains[slot], high=UNBOUNDED, ceiling=None, order="", different=False)
    return Inputs(format, _widened(domains, stated, counts), counts, trees)


def _readings(format: Format, texts: Sequence[str]) -> Iterator[list[Piece]]:
    for text in texts:
        try:
            yield read(format, lines_of(text))
        except Mismatch:
            continue


def series(pieces: Sequence[Piece]) -> Iterator[tuple[int, list[Mapping[int, int]], list[str]]]:
    """The slots of an input with the scope and the word of every value, grouped by tail or repetition."""
    columns: dict[tuple[int, int], tuple[list[Mapping[int, int]], list[str]]] = {}
    for number, piece in enumerate(pieces, 1):
        for slot, word in zip(piece.line.head, piece.head, strict=True):
            # A line outside of repetitions is a group of its own.
            scopes, words = columns.setdefault((piece.run or -number, slot), ([], []))
            scopes.append(piece.scope)
            words.append(word)
        if piece.line.tail is not None:
            yield piece.line.tail, [piece.scope] * len(piece.tail), list(piece.tail)
    for (_, slot), (scopes, words) in columns.items():
        yield slot, scopes, words


def _domain(slot: int, observed: Sequence[_Observation], rows: Sequence[Sequence[str]]) -> Domain:
    words = [observation.word for observation in observed]
    if all(map(is_int, words)):
        integers = [int(word) for word in words]
        return _with_relations(slot, Domain("int", min(integers), max(integers)), observed, rows)
    if all(map(_is_float, words)):
        numbers = [float(word) for word in words]
        decimals = max(len(word.partition(".")[2]) for word in words)
        return Domain("float", min(numbers), max(numbers), decimals)
    return _text(words, observed)


def _is_float(word: str) -> bool:
    whole, _, decimals = word.removeprefix("-").partition(".")
    if not (whole.isascii() and whole.isdigit()):
        return False
    return (not decimals or (decimals.isascii() and decimals.isdigit())) and len(word) < 40


def _text(words: Sequence[str], observed: Sequence[_Observation]) -> Domain:
    lengths = [len(word) for word in words]
    alphabet = "".join(sorted(set("".join(words))))
    different = set(words)
    mixed = any(map(is_int, words)) and not alphabet.isdecimal()
    domain = Domain("mixed" if mixed else "word", min(lengths), max(lengths), alphabet=alphabet)
    if max(lengths) <= 1:
        return domain
    if len(different) <= MAX_CHOICES and len(words) >= 3 * len(different):
        return replace(domain, choice=tuple(sorted(different)))
    for slot in observed[0].scope:
        if all(observation.scope.get(slot) == len(observation.word) for observation in observed):
            return replace(domain, length=Size(slot))
    return domain


def _with_relations(
    slot: int, domain: Domain, observed: Sequence[_Observation], rows: Sequence[Sequence[str]]
) -> Domain:
    """Relations of integers to each other in a series and to earlier integers."""
    earlier = {other for observation in observed for other in observation.scope if other < slot}
    gaps = {
        other: [int(observation.word) - observation.scope[other] for observation in observed]
        for other in sorted(earlier, reverse=True)
        if all(other in observation.scope for observation in observed)
    }
    above = [Size(other, -1 if max(gap) < 0 else 0) for other, gap in gaps.items() if max(gap) <= 0]
    below = [Size(other, 1 if min(gap) > 0 else 0) for other, gap in gaps.items() if min(gap) >= 0]
    # The closest bound; in a tie, the last one read.
    ceiling = min(above, key=lambda size: size.plus - max(gaps[size.slot or 0]), default=None)
    numbers = [[int(word) for word in row] for row in rows]
    long = [row for row in numbers if len(row) > 2]
    return replace(
        domain,
        ceiling=ceiling,
        reaches=ceiling is not None and max(gaps[ceiling.slot or 0]) == ceiling.plus,
        floor=next(iter(below), None) if any(min(gaps[size.slot or 0]) <= 1 for size in below) else None,
        order=_order(long),
        different=sum(map(len, long)) > 4 and all(len(set(row)) == len(row) for row in numbers),
    )


def _order(rows: Sequence[Sequence[int]]) -> Order:
    if sum(map(len, rows)) < 8 or all(len(set(row)) == 1 for row in rows):
        return ""
    if all(one <= other for row in rows for one, other in pairwise(row)):
        return "rising"
    return "falling" if all(one >= other for row in rows for one, other in pairwise(row)) else ""


def _counts(format: Format) -> Iterator[int]:
    for item in format:
        if item.size.slot is not None:
            yield item.size.slot
        if isinstance(item, Repeat):
            yield from _counts(item.body)


def _widened(domains: Mapping[int, Domain], stated: Sequence[StatedRange], counts: Iterable[int]) -> dict[int, Domain]:
    """The domains with the ranges of the statement where they can be matched; for a word, of its length."""
    widened = dict(domains)
    for slot, number in _aligned(list(domains.items()), tuple(stated)).items():
        domain = domains[slot]
        low, high = stated[number].low, stated[number].high
        if domain.kind != "float":
            low, high = int(low), int(high)
        widened[slot] = replace(domain, low=max(low, 0) if slot in counts else low, high=high)
    # Values that reach their ceiling, such as vertices up to n, extend to its range.
    for slot, domain in widened.items():
        if domain.ceiling and domain.reaches:
            bound = widened[domain.ceiling.slot or 0]
            widened[slot] = replace(domain, high=max(domain.high, bound.high + domain.ceiling.plus))
    return widened


def _aligned(domains: Sequence[tuple[int, Domain]], stated: Sequence[StatedRange]) -> dict[int, int]:
    """Match slots to the numbers of stated ranges: the most matches that preserve the order, each range used once."""

    @cache
    def best(first_domain: int, first_range: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The number of matches, and the matches, among the rest of the domains and ranges."""
        if first_domain == len(domains) or first_range == len(stated):
            return 0, ()
        options = [best(first_domain + 1, first_range), best(first_domain, first_range + 1)]
        slot, domain = domains[first_domain]
        if _may_state(stated[first_range], domain):
            count, pairs = best(first_domain + 1, first_range + 1)
            # First, so that it wins a tie.
            options.insert(0, (count + 1, ((slot, first_range), *pairs)))
        return max(options, key=lambda option: option[0])

    return dict(best(0, 0)[1]) if len(domains) * len(stated) < 400 else {}


def _may_state(stated: StatedRange, domain: Domain) -> bool:
    """Whether a stated range may be that of a domain: it contains the samples and, for a word, bounds a length."""
    sized = "|" in stated.name or "length" in stated.name or stated.name in ("n", "N")
    fits = stated.low <= domain.low and domain.high <= stated.high
    return fits and not domain.choice and (domain.kind != "word" or (sized and domain.length is None))


def _trees(format: Format, readings: Sequence[Sequence[Piece]]) -> frozenset[int]:
    """The repetitions of edges that form a tree in all samples, at least one with three edges."""
    edges = {
        item.body[0].head[0]: item.body[0]
        for item in format
        if isinstance(item, Repeat) and item.size.plus == -1 and len(item.body) == 1
        if isinstance(item.body[0], Line) and len(item.body[0].head) >= 2 and item.body[0].tail is None
    }
    trees = set()
    for slot, line in edges.items():
        graphs = [[piece.head[:2] for piece in pieces if piece.line == line] for pieces in readings]
        if max(map(len, graphs), default=0) >= 3 and all(map(_is_tree, graphs)):
            trees.add(slot)
    return frozenset(trees)


def _is_tree(edges: Sequence[Sequence[str]]) -> bool:
    """Whether n edges form a tree on the vertices 1 to n + 1, by union-find."""
    parent = {str(number): str(number) for number in range(1, len(edges) + 2)}

    def root(vertex: str) -> str:
        while parent[vertex] != vertex:
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
        fits = all(_fits(inputs.domains.get(slot), scopes, row) for slot, scopes, row in series(pieces))
    except Mismatch:
        return False
    graphs = ([piece.head[:2] for piece in pieces if piece.line.head[:1] == (slot,)] for slot in inputs.trees)
    return fits and all(map(_is_tree, graphs))


def _fits(domain: Domain | None, scopes: Sequence[Mapping[int, int]], row: Sequence[str]) -> bool:
    """Whether the values of a series are in their domain."""
    if domain is None or not all(_within(domain, word, scope) for word, scope in zip(row, scopes, strict=True)):
        return False
    if domain.different and len(set(row)) < len(row):
        return False
    return not domain.order or [*row] == sorted(row, key=int, reverse=domain.order == "falling")


def _within(domain: Domain, word: str, scope: Mapping[int, int]) -> bool:
    if domain.kind in ("word", "mixed"):
        if domain.choice:
            return word in domain.choice
        long = domain.length is None or size_of(domain.length, scope) == len(word)
        inside = domain.length is not None or domain.low <= len(word) <= domain.high
        return long and inside and set(word) <= set(domain.alphabet)
    if domain.kind == "float":
        fits = _is_float(word) and len(word.partition(".")[2]) <= domain.decimals
        return fits and domain.low <= float(word) <= domain.high
    low, high = limits(domain, scope)
    return is_int(word) and low <= int(word) <= high


def limits(domain: Domain, scope: Mapping[int, int]) -> tuple[float, float]:
    """The bounds of a number after the integers in ``scope``; low > high if there is none."""
    low, high = domain.low, domain.high
    if domain.ceiling:
        high = min(high, size_of(domain.ceiling, scope))
    if domain.floor:
        low = max(low, size_of(domain.floor, scope))
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
    least, most = low + (match["from"] == "<"), high - (match["to"] == "<")
    return (least, most) if least <= most else (low, high)


def _value(text: str) -> float | None:
    """Parse a number such as ``10^5``, ``2*10^5``, ``1e9`` or ``10^9 - 1``; integers as int."""
    text = text.replace(" ", "")
    plus_one = re.search(r"(?<=[\d}])[-+]1$", text)  # or minus one
    text = text[: plus_one.start()] if plus_one else text
    positive = text.lstrip("-")
    power = _POWER.fullmatch(positive)
    try:
        if power:
            value = _number(power[1] or "1") * _number(power[2]) ** min(int(power[3]), _MAX_EXPONENT)
        else:
            factor, _, other = positive.partition("*")
            value = _number(factor) * _number(other or "1")
    except (ValueError, OverflowError):
        return None
    value = (-value if text.startswith("-") else value) + (int(plus_one[0]) if plus_one else 0)
    return int(value) if float(value).is_integer() else value


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)

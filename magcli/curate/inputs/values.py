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
    # The tree determines which vertices an edge may have.
    for slot in [vertex for first in trees for vertex in (first, first + 1)]:
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
    tails = [
        Series(slot, [piece.scope] * len(piece.tail), [*piece.tail])
        for piece in pieces
        if (slot := piece.line.tail) is not None and piece.tail
    ]
    columns: dict[tuple[int, int], Series] = {}
    for number, piece in enumerate(pieces, 1):
        for slot, word in zip(piece.line.head, piece.head, strict=True):
            # A line outside of repetitions is a group of its own.
            column = columns.setdefault((piece.run or -number, slot), Series(slot, [], []))
            column.scopes.append(piece.scope)
            column.words.append(word)
    return [*tails, *columns.values()]


def units_of(word: str, decimals: int) -> int | None:
    """A number in units of a decimal place; None if it is none or has more places."""
    if not decimals:
        return int(word) if is_int(word) else None
    whole, _, places = word.partition(".")
    digits = whole.removeprefix("-") + places
    fits = digits.isascii() and digits.isdigit() and len(digits) < 40 and len(places) <= decimals
    return int(whole + places.ljust(decimals, "0")) if fits else None


def _domain(observed: Sequence[Series]) -> Domain:
    words = [word for series in observed for word in series.words]
    scopes = [scope for series in observed for scope in series.scopes]
    decimals = max(len(word.partition(".")[2]) for word in words)
    numbers = [units_of(word, decimals) for word in words]
    known = [number for number in numbers if number is not None]
    if len(known) < len(words):
        return _text(words, scopes)
    domain = Domain("number", min(known), max(known), decimals)
    rows = [[units_of(word, decimals) or 0 for word in series.words] for series in observed]
    num_related = sum(len(row) for row in rows if len(row) > 2)
    domain = replace(
        domain,
        rising=num_related >= 8 and all(row == sorted(row) for row in rows) and any(row[0] < row[-1] for row in rows),
        different=num_related > 4 and all(len(set(row)) == len(row) for row in rows),
    )
    return domain if decimals else _bounded(domain, observed[0].slot, known, scopes)


def _text(words: Sequence[str], scopes: Sequence[Mapping[int, int]]) -> Domain:
    lengths = [len(word) for word in words]
    alphabet = "".join(sorted(set("".join(words))))
    mixed = any(map(is_int, words)) and not alphabet.isdecimal()
    chosen = max(lengths) > 1 and 3 * len(set(words)) <= len(words)
    equal = (
        Size(slot)
        for slot in scopes[0]
        if all(scope.get(slot) == length for scope, length in zip(scopes, lengths, strict=True))
    )
    return Domain(
        "mixed" if mixed or chosen else "word",
        min(lengths),
        max(lengths),
        alphabet=alphabet,
        length=next(equal, None) if max(lengths) > 1 else None,
    )


def _bounded(domain: Domain, slot: int, numbers: Sequence[int], scopes: Sequence[Mapping[int, int]]) -> Domain:
    """The domain with the earlier integers that bound it: the closest above; in a tie, the last one read."""
    earlier = set.intersection(*map(set, scopes)) & set(range(slot))
    gaps = {
        other: [number - scope[other] for number, scope in zip(numbers, scopes, strict=True)]
        for other in sorted(earlier, reverse=True)
    }
    above = [(Size(other, max(-1, max(gap))), max(gap)) for other, gap in gaps.items() if max(gap) <= 0]
    below = [Size(other, min(gap)) for other, gap in gaps.items() if 0 <= min(gap) <= 1]
    ceiling, gap = min(above, key=lambda bound: bound[0].plus - bound[1], default=(None, 0))
    reaches = ceiling is not None and ceiling.plus == gap
    return replace(domain, ceiling=ceiling, reaches=reaches, floor=next(iter(below), None))


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
        number = next((number for number, range_ in enumerate(rest) if _may_state(range_, domain)), None)
        if number is not None:
            low, high = (int(end * 10**domain.decimals) for end in rest[number][1:])
            domain = replace(domain, low=max(low, 0) if slot in counts else low, high=high)
            del rest[: number + 1]
        # Values that reach their ceiling, such as vertices up to n, are bounded by it alone.
        widened[slot] = replace(domain, high=UNBOUNDED) if domain.reaches else domain
    return widened


def _may_state(stated: StatedRange, domain: Domain) -> bool:
    """Whether a stated range may be that of a domain: it contains the samples and, for a word, bounds a length."""
    sized = "|" in stated.name or "length" in stated.name or stated.name in ("n", "N")
    scale = 10**domain.decimals
    fits = stated.low * scale <= domain.low and domain.high <= stated.high * scale
    return fits and (domain.kind == "number" or (sized and domain.length is None))


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
        fits = all(_fits(inputs.domains[series.slot], series) for series in series_of(pieces))
    except (Mismatch, KeyError):
        return False
    graphs = ([piece.head[:2] for piece in pieces if piece.line.head[:1] == (slot,)] for slot in inputs.trees)
    return fits and all(map(_is_tree, graphs))


def _fits(domain: Domain, series: Series) -> bool:
    """Whether the values of a series are in their domain."""
    words = series.words
    if domain.kind != "number":
        return all(_is_word(domain, word, scope) for word, scope in zip(words, series.scopes, strict=True))
    numbers = [number for word in words if (number := units_of(word, domain.decimals)) is not None]
    ranges = [limits(domain, scope) for scope in series.scopes]
    return (
        len(numbers) == len(words)
        and all(low <= number <= high for number, (low, high) in zip(numbers, ranges, strict=True))
        and not (domain.different and len(set(numbers)) < len(numbers))
        and not (domain.rising and numbers != sorted(numbers))
    )


def _is_word(domain: Domain, word: str, scope: Mapping[int, int]) -> bool:
    low, high = [size_of(domain.length, scope)] * 2 if domain.length else (domain.low, domain.high)
    return low <= len(word) <= high and set(word) <= set(domain.alphabet)


def limits(domain: Domain, scope: Mapping[int, int]) -> tuple[int, int]:
    """The bounds of a number after the integers in ``scope``.

    Raises:
        Mismatch: there is no such number.
    """
    high = min(domain.high, size_of(domain.ceiling, scope)) if domain.ceiling else domain.high
    low = max(domain.low, size_of(domain.floor, scope)) if domain.floor else domain.low
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
    least, most = low + (match["from"] == "<"), high - (match["to"] == "<")
    return (least, most) if least <= most else (low, high)


def _value(text: str) -> float | None:
    """Compute a number such as ``10^5``, ``2*10^5``, ``1e9`` or ``10^9 - 1``; integers as int."""
    try:
        value = constant(ast.parse(re.sub(r"[{}\s]", "", text).replace("^", "**"), mode="eval").body)
    except (SyntaxError, ValueError):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | float) else None

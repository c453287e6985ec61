"""Generate inputs in the format of given ones: of all sizes, with random, extreme, equal or sorted values.

An input is either drawn from the format or mutated from a sample, changing some values but not its structure. Every
generated input has the format (``magcli.curate.inputs.values.accepts``).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Literal

from magcli.curate.inputs.format import Format, Line, Mismatch, Repeat, Size, lines_of, read, size_of
from magcli.curate.inputs.values import Domain, Inputs, accepts, limits

Values = Literal["any", "few", "low", "high", "ends", "equal", "rising", "falling"]

MAX_WORDS, MAX_BYTES = 100_000, 1 << 20
"""Limits of a new input."""

_FEW, _MAX_FAILURES = 4, 60
_PLAN: tuple[tuple[float, Values], ...] = (
    (0.0, "low"), (0.25, "any"), (0.25, "few"), (0.0, "high"), (0.35, "few"), (0.25, "equal"), (0.5, "any"),
    (0.15, "any"), (0.35, "ends"), (0.5, "few"), (0.25, "rising"), (1.0, "any"), (0.35, "falling"), (0.15, "few"),
    (0.75, "any"), (0.35, "any"), (0.25, "ends"), (0.15, "any"), (0.15, "equal"), (0.5, "high"), (0.0, "any"),
    (0.5, "ends"), (0.35, "low"), (1.0, "few"), (0.25, "low"), (0.25, "any"), (0.35, "equal"), (0.15, "ends"),
)  # fmt: skip
"""Sizes and value styles of drawn inputs, cycled through; for size s, a count bounded by h is about h^s."""


class TooLarge(Exception):
    """A drawn input exceeds ``MAX_WORDS``."""


def mutations(inputs: Inputs, samples: Sequence[str], seed: str) -> Iterator[str]:
    """New distinct inputs in the format; ends after ``_MAX_FAILURES`` consecutive failures."""
    found = set(samples)
    failures = 0
    for number in count():
        random = Random(f"{seed}\0{number}")
        size, values = _PLAN[(number // 2) % len(_PLAN)]
        text = draw(inputs, random, size, values) if number % 2 else mutate(inputs, random.choice(samples), random)
        if text is not None and text not in found and accepts(inputs, text):
            failures = 0
            found.add(text)
            yield text
        else:
            failures += 1
            if failures > _MAX_FAILURES:
                return


def draw(inputs: Inputs, random: Random, size: float, values: Values) -> str | None:
    """Draw an input, smaller if it would be too large; None if impossible."""
    cap = MAX_WORDS
    while cap > 1:
        try:
            writer = _Writer(inputs, random, size, values, cap)
            writer.items(inputs.format, {})
        except TooLarge:
            cap //= 4
        except Mismatch:
            return None
        else:
            return _text(writer.lines)
    return None


def _text(lines: Sequence[Sequence[str]]) -> str | None:
    text = "\n".join(" ".join(line) for line in lines) + "\n"
    return text if len(text) <= MAX_BYTES else None


class _Writer:
    """Writes the lines of a format with random values; counts are at most ``cap``."""

    def __init__(self, inputs: Inputs, random: Random, size: float, values: Values, cap: int) -> None:
        self._inputs, self._random = inputs, random
        self._size, self._values, self._cap = size, values, cap
        self._words = 0
        self.lines: list[list[str]] = []

    def items(self, items: Format, known: dict[int, int]) -> None:
        """Write items, updating ``known``."""
        for item in items:
            if isinstance(item, Line):
                self.lines.append(self._line(item, known))
            elif len(item.body) == 1 and isinstance(item.body[0], Line) and item.body[0].tail is None:
                self._columns(item, item.body[0], known)
            else:
                for _ in range(self._count(item.size, known)):
                    self.items(item.body, dict(known))

    def _line(self, line: Line, known: dict[int, int]) -> list[str]:
        words = []
        for place in line.head:
            words += self._series(place, [known])
            if self._inputs.domains[place].kind == "int":
                known[place] = int(words[-1])
        if line.tail is not None:
            words += self._series(line.tail, [known] * self._count(line.size, known))
        return words

    def _columns(self, item: Repeat, line: Line, known: dict[int, int]) -> None:
        """A repetition of lines of fixed length, column by column, so that each is a series."""
        scopes = [dict(known) for _ in range(self._count(item.size, known))]
        rows: list[list[str]] = [[] for _ in scopes]
        edges = self._edges(line, len(scopes)) if line.head[:1] and line.head[0] in self._inputs.trees else None
        for number, place in enumerate(line.head):
            column = [edge[number] for edge in edges] if edges and number < 2 else self._series(place, scopes)
            for row, scope, word in zip(rows, scopes, column, strict=True):
                row.append(word)
                if self._inputs.domains[place].kind == "int":
                    scope[place] = int(word)
        self.lines += rows

    def _edges(self, line: Line, number: int) -> list[tuple[str, str]]:
        """The edges of a tree; the smaller vertex first if that holds in all samples."""
        edges, ordered = tree(number, self._random), self._inputs.domains[line.head[1]].floor
        return [(str(min(edge)), str(max(edge))) if ordered else (str(edge[0]), str(edge[1])) for edge in edges]

    def _count(self, size: Size, known: Mapping[int, int]) -> int:
        found = self._random.randint(1, 6) if size.place is None else size_of(size, known)
        self._add_words(found)
        return max(found, 0)

    def _add_words(self, number: int) -> None:
        self._words += number
        if self._words > MAX_WORDS:
            raise TooLarge

    def _series(self, place: int, scopes: Sequence[Mapping[int, int]]) -> list[str]:
        """One value per scope."""
        domain = self._inputs.domains.get(place)
        if domain is None or (domain.kind == "mixed" and place not in self._inputs.counts):
            raise Mismatch
        if place in self._inputs.counts:
            return [str(self._draw_count(domain, known)) for known in scopes]
        if domain.kind == "word":
            return [self._word(domain, known) for known in scopes]
        return series(domain, scopes, self._values, self._random)

    def _draw_count(self, domain: Domain, known: Mapping[int, int]) -> int:
        low, high = map(int, limits(domain, known))
        if low > high:
            raise Mismatch
        return _between(low, min(high, max(low, self._cap)), self._size, self._random)

    def _word(self, domain: Domain, known: Mapping[int, int]) -> str:
        if domain.choice:
            return self._random.choice(domain.choice)
        if domain.length:
            length = size_of(domain.length, known)
        else:
            length = _between(int(domain.low), min(int(domain.high), self._cap), self._size, self._random)
        self._add_words(length // 8)
        return word(domain.alphabet, max(length, 0), self._values, self._random)


def _between(low: int, high: int, size: float, random: Random) -> int:
    """A count between low and high: low for size 0, high for 1, else about high ** size."""
    if size in (0.0, 1.0) or high <= low:
        return high if size == 1.0 else low
    most = min(high, max(low + 1, int(high**size)))
    return random.randint(max(low, most // 2), most)


def word(alphabet: str, length: int, values: Values, random: Random) -> str:
    """A random word over an alphabet; style ``few`` uses two of its letters, ``equal`` one."""
    if not alphabet:
        return ""
    few = {"few": 2, "ends": 2, "equal": 1, "low": 1, "high": 1}.get(values, len(alphabet))
    letters = random.sample(alphabet, min(few, len(alphabet)))
    found = random.choices(letters, k=length)
    if values in ("rising", "falling"):
        found.sort(reverse=values == "falling")
    return "".join(found)


def series(domain: Domain, scopes: Sequence[Mapping[int, int]], values: Values, random: Random) -> list[str]:
    """Numbers in a domain, one per scope.

    Raises:
        Mismatch: there is none.
    """
    ranges = [limits(domain, known) for known in scopes]
    if any(low > high for low, high in ranges):
        raise Mismatch
    if domain.kind == "float":
        return [_decimal(*each, domain.decimals, values, random) for each in ranges]
    whole = [(int(low), int(high)) for low, high in ranges]
    if domain.different:
        found = _different(whole, values, random)
    else:
        part = random.random()
        found = [_number(low, high, values, part, random) for low, high in whole]
    order = domain.order or (values if values in ("rising", "falling") and len(set(whole)) == 1 else "")
    return [str(value) for value in (sorted(found, reverse=order == "falling") if order else found)]


def _number(low: int, high: int, values: Values, part: float, random: Random) -> int:
    match values:
        case "low":
            return low
        case "high":
            return high
        case "ends":
            return random.choice((low, high))
        case "few":
            return random.randint(low, min(high, low + _FEW))
        case "equal":
            return low + int((high - low) * part)
    return random.randint(low, high)


def _different(ranges: Sequence[tuple[int, int]], values: Values, random: Random) -> list[int]:
    """Distinct numbers in the intersection of the ranges."""
    if not ranges:
        return []
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if high - low + 1 < len(ranges):
        raise Mismatch
    if values in ("low", "few", "equal"):
        high = low + len(ranges) - 1 + (len(ranges) // 2 if values == "few" else 0) * (high > low + 2 * len(ranges))
    elif values == "high":
        low = high - len(ranges) + 1
    return random.sample(range(low, high + 1), len(ranges))


def _decimal(low: float, high: float, decimals: int, values: Values, random: Random) -> str:
    bounds = {"low": (low, low), "high": (high, high), "few": (low, min(high, low + _FEW))}
    value = random.choice((low, high)) if values == "ends" else random.uniform(*bounds.get(values, (low, high)))
    return f"{min(max(round(value, decimals), low), high):.{decimals}f}"


def tree(edges: int, random: Random) -> list[tuple[int, int]]:
    """A random tree with randomly numbered vertices from 1: a path, a star, or something in between."""
    vertices = random.sample(range(1, edges + 2), edges + 1)
    reach = random.choice((1, 2, edges, edges, edges))
    star = random.random() < 0.15
    found = []
    for at in range(1, edges + 1):
        pair = [vertices[0 if star else random.randint(max(0, at - reach), at - 1)], vertices[at]]
        random.shuffle(pair)
        found.append((pair[0], pair[1]))
    random.shuffle(found)
    return found


def mutate(inputs: Inputs, sample: str, random: Random) -> str | None:
    """Change one to three values of a sample, except counts; None if it does not have the format."""
    try:
        pieces = read(inputs.format, lines_of(sample))
    except Mismatch:
        return None
    lines = [list(piece.words) for piece in pieces]
    cells = [
        (at, column, place)
        for at, piece in enumerate(pieces)
        for column in range(len(piece.words))
        if (place := _place(piece.line, column)) not in inputs.counts
    ]
    for at, column, place in random.sample(cells, min(len(cells), random.choice((1, 1, 2, 3)))):
        domain = inputs.domains.get(place)
        if domain is not None and domain.kind != "mixed":
            lines[at][column] = _other(domain, lines[at], column, pieces[at].known, random)
    return _text(lines)


def _place(line: Line, column: int) -> int:
    return line.head[column] if column < len(line.head) else (line.tail or 0)


def _other(domain: Domain, words: Sequence[str], column: int, known: Mapping[int, int], random: Random) -> str:
    """A new value for a word: from the same line, plus or minus one, or from the domain."""
    old = words[column]
    if random.random() < 0.3:
        return random.choice(words)
    if domain.kind == "word":
        return random.choice(domain.choice) if domain.choice else _edited(old, domain.alphabet, random)
    low, high = limits(domain, known)
    if low > high:
        return old
    if domain.kind == "float":
        return _decimal(low, high, domain.decimals, "any", random)
    if random.random() < 0.4:
        return str(int(old) + random.choice((-1, 1)))
    return str(_number(int(low), int(high), random.choice(("any", "few", "ends")), 0.0, random))


def _edited(old: str, alphabet: str, random: Random) -> str:
    """Replace a letter of a word, or swap two letters."""
    letters = list(old)
    if not letters:
        return old
    one, other = random.randrange(len(letters)), random.randrange(len(letters))
    letters[one], letters[other] = letters[other], letters[one] if random.random() < 0.5 else random.choice(alphabet)
    return "".join(letters)

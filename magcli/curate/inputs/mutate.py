"""Generate inputs in the format of samples: of all sizes, with random, extreme, equal or sorted values.

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
    seen = set(samples)
    failures = 0
    for number in count():
        random = Random(f"{seed}\0{number}")
        size, values = _PLAN[(number // 2) % len(_PLAN)]
        text = draw(inputs, random, size, values) if number % 2 else mutate(inputs, random.choice(samples), random)
        if text is not None and text not in seen and accepts(inputs, text):
            failures = 0
            seen.add(text)
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
        self._inputs = inputs
        self._random = random
        self._size = size
        self._values = values
        self._cap = cap
        self._words = 0
        self.lines: list[list[str]] = []

    def items(self, items: Format, scope: dict[int, int]) -> None:
        """Write items, updating ``scope``."""
        for item in items:
            if isinstance(item, Line):
                self.lines.append(self._line(item, scope))
            elif len(item.body) == 1 and isinstance(item.body[0], Line) and item.body[0].tail is None:
                self._columns(item, item.body[0], scope)
            else:
                for _ in range(self._count(item.size, scope)):
                    self.items(item.body, dict(scope))

    def _line(self, line: Line, scope: dict[int, int]) -> list[str]:
        words = []
        for slot in line.head:
            words += self._series(slot, [scope])
            if self._inputs.domains[slot].kind == "int":
                scope[slot] = int(words[-1])
        if line.tail is not None:
            words += self._series(line.tail, [scope] * self._count(line.size, scope))
        return words

    def _columns(self, item: Repeat, line: Line, outer: dict[int, int]) -> None:
        """A repetition of lines of fixed length, column by column, so that each column is a series."""
        scopes = [dict(outer) for _ in range(self._count(item.size, outer))]
        rows: list[list[str]] = [[] for _ in scopes]
        is_tree = bool(line.head) and line.head[0] in self._inputs.trees
        edges = self._edges(line, len(scopes)) if is_tree else []
        for number, slot in enumerate(line.head):
            column = [edge[number] for edge in edges] if edges and number < 2 else self._series(slot, scopes)
            for row, scope, word in zip(rows, scopes, column, strict=True):
                row.append(word)
                if self._inputs.domains[slot].kind == "int":
                    scope[slot] = int(word)
        self.lines += rows

    def _edges(self, line: Line, number: int) -> list[tuple[str, str]]:
        """The edges of a tree; the smaller vertex first if that holds in all samples."""
        edges = tree(number, self._random)
        if self._inputs.domains[line.head[1]].floor:
            edges = [(min(edge), max(edge)) for edge in edges]
        return [(str(vertex), str(other)) for vertex, other in edges]

    def _count(self, size: Size, scope: Mapping[int, int]) -> int:
        count = self._random.randint(1, 6) if size.slot is None else size_of(size, scope)
        self._add_words(count)
        return max(count, 0)

    def _add_words(self, number: int) -> None:
        self._words += number
        if self._words > MAX_WORDS:
            raise TooLarge

    def _series(self, slot: int, scopes: Sequence[Mapping[int, int]]) -> list[str]:
        """One value per scope."""
        domain = self._inputs.domains.get(slot)
        if domain is None or (domain.kind == "mixed" and slot not in self._inputs.counts):
            raise Mismatch
        if slot in self._inputs.counts:
            return [str(self._draw_count(domain, scope)) for scope in scopes]
        if domain.kind == "word":
            return [self._word(domain, scope) for scope in scopes]
        return series(domain, scopes, self._values, self._random)

    def _draw_count(self, domain: Domain, scope: Mapping[int, int]) -> int:
        low, high = map(int, limits(domain, scope))
        if low > high:
            raise Mismatch
        return _between(low, min(high, max(low, self._cap)), self._size, self._random)

    def _word(self, domain: Domain, scope: Mapping[int, int]) -> str:
        if domain.choice:
            return self._random.choice(domain.choice)
        if domain.length:
            length = size_of(domain.length, scope)
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
    num_letters = {"few": 2, "ends": 2, "equal": 1, "low": 1, "high": 1}.get(values, len(alphabet))
    letters = random.sample(alphabet, min(num_letters, len(alphabet)))
    chosen = random.choices(letters, k=length)
    if values in ("rising", "falling"):
        chosen.sort(reverse=values == "falling")
    return "".join(chosen)


def series(domain: Domain, scopes: Sequence[Mapping[int, int]], values: Values, random: Random) -> list[str]:
    """Numbers in a domain, one per scope.

    Raises:
        Mismatch: there is none.
    """
    ranges = [limits(domain, scope) for scope in scopes]
    if any(low > high for low, high in ranges):
        raise Mismatch
    if domain.kind == "float":
        return [_decimal(low, high, domain.decimals, values, random) for low, high in ranges]
    bounds = [(int(low), int(high)) for low, high in ranges]
    if domain.different:
        numbers = _different(bounds, values, random)
    else:
        part = random.random()
        numbers = [_number(low, high, values, part, random) for low, high in bounds]
    # Numbers can change places only if all of them have the same range.
    order = domain.order or (values if values in ("rising", "falling") and len(set(bounds)) == 1 else "")
    if order:
        numbers.sort(reverse=order == "falling")
    return [str(number) for number in numbers]


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
        has_room = high > low + 2 * len(ranges)
        high = low + len(ranges) - 1
        if values == "few" and has_room:
            high += len(ranges) // 2
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
    pairs = []
    for child in range(1, edges + 1):
        # With reach 1 the tree is a path; with a large reach its depth is logarithmic.
        parent = 0 if star else random.randint(max(0, child - reach), child - 1)
        pair = [vertices[parent], vertices[child]]
        random.shuffle(pair)
        pairs.append((pair[0], pair[1]))
    random.shuffle(pairs)
    return pairs


def mutate(inputs: Inputs, sample: str, random: Random) -> str | None:
    """Change one to three values of a sample, except counts; None if it does not have the format."""
    try:
        pieces = read(inputs.format, lines_of(sample))
    except Mismatch:
        return None
    lines = [list(piece.words) for piece in pieces]
    cells = [
        (row, column, slot)
        for row, piece in enumerate(pieces)
        for column in range(len(piece.words))
        if (slot := _slot_at(piece.line, column)) not in inputs.counts
    ]
    for row, column, slot in random.sample(cells, min(len(cells), random.choice((1, 1, 2, 3)))):
        domain = inputs.domains.get(slot)
        if domain is not None and domain.kind != "mixed":
            lines[row][column] = _other(domain, lines[row], column, pieces[row].scope, random)
    return _text(lines)


def _slot_at(line: Line, column: int) -> int:
    return line.head[column] if column < len(line.head) else (line.tail or 0)


def _other(domain: Domain, words: Sequence[str], column: int, scope: Mapping[int, int], random: Random) -> str:
    """A new value for a word: from the same line, plus or minus one, or from the domain."""
    old = words[column]
    if random.random() < 0.3:
        return random.choice(words)
    if domain.kind == "word":
        return random.choice(domain.choice) if domain.choice else _edited(old, domain.alphabet, random)
    low, high = limits(domain, scope)
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
    new = letters[one] if random.random() < 0.5 else random.choice(alphabet)
    letters[one], letters[other] = letters[other], new
    return "".join(letters)

"""Generate inputs in the format of samples: of all sizes, with random, extreme, equal or sorted values.

An input is either drawn from the format or mutated from a sample, changing some values but not its structure. Every
generated input has the format (``magcli.curate.inputs.values.accepts``).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random

from magcli.curate.inputs.drawing import MAX_FAILURES, Style, edited, length, number, size_and_style, word
from magcli.curate.inputs.format import Format, Line, Mismatch, Size, lines_of, read, size_of
from magcli.curate.inputs.values import Domain, Inputs, accepts, limits

MAX_WORDS, MAX_BYTES = 100_000, 1 << 20
"""Limits of a new input."""


class TooLarge(Exception):
    """A drawn input exceeds ``MAX_WORDS``."""


def mutations(inputs: Inputs, samples: Sequence[str], seed: str) -> Iterator[str]:
    """New distinct inputs in the format; ends after ``MAX_FAILURES`` consecutive failures."""
    seen = set(samples)
    failures = 0
    for attempt in count():
        random = Random(f"{seed}\0{attempt}")
        # Drawn inputs reach all sizes, mutated ones keep relations that were not inferred.
        text = draw(inputs, random) if attempt % 2 else mutate(inputs, random.choice(samples), random)
        failures += 1
        # Relations within a line or repetition are only known to hold once the input is parsed.
        if text is not None and text not in seen and accepts(inputs, text):
            failures = 0
            seen.add(text)
            yield text
        elif failures > MAX_FAILURES:
            return


def draw(inputs: Inputs, random: Random) -> str | None:
    """Draw an input, smaller if it would be too large; None if impossible."""
    size, style = size_and_style(random)
    cap = MAX_WORDS
    while cap > 1:
        try:
            writer = _Writer(inputs, random, size, style, cap)
            writer.items(inputs.format, {})
        # With nested counts the size is a product, so the cap falls quickly.
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

    def __init__(self, inputs: Inputs, random: Random, size: float, style: Style, cap: int) -> None:
        self._inputs = inputs
        self._random = random
        self._size = size
        self._style = style
        self._cap = cap
        self._words = 0
        self.lines: list[list[str]] = []

    def items(self, items: Format, scope: dict[int, int]) -> None:
        """Write items, updating ``scope``."""
        for item in items:
            if isinstance(item, Line):
                self._line(item, scope)
                continue
            count = self._count(item.size, scope)
            match item.body:
                case (Line(tail=None) as line,):
                    # All rows at once, as a column may be sorted or distinct.
                    self.lines += self._columns(line, [dict(scope) for _ in range(count)])
                case body:
                    for _ in range(count):
                        self.items(body, dict(scope))

    def _line(self, line: Line, scope: dict[int, int]) -> None:
        (words,) = self._columns(line, [scope])
        if line.tail is not None:
            # The size may be a value of the head, which ``_columns`` adds to ``scope``.
            tail_length = self._count(line.size, scope)
            words += self._series(line.tail, [scope] * tail_length)
        self.lines.append(words)

    def _columns(self, line: Line, scopes: Sequence[dict[int, int]]) -> list[list[str]]:
        """The heads of lines, column by column, so that each column is a series."""
        rows: list[list[str]] = [[] for _ in scopes]
        is_tree = bool(line.head) and line.head[0] in self._inputs.trees
        edges = self._edges(line, len(scopes)) if is_tree else []
        for column, slot in enumerate(line.head):
            # The first two columns are the vertices, any others are weights.
            is_vertex = bool(edges) and column < 2
            words = [edge[column] for edge in edges] if is_vertex else self._series(slot, scopes)
            for row, scope, value in zip(rows, scopes, words, strict=True):
                row.append(value)
                if self._inputs.domains[slot].is_integer:
                    scope[slot] = int(value)
        return rows

    def _edges(self, line: Line, num_edges: int) -> list[list[str]]:
        """The edges of a tree; the smaller vertex first if that holds in all samples."""
        edges = [list(edge) for edge in tree(num_edges, self._random)]
        if self._inputs.domains[line.head[1]].floor is not None:
            edges = [sorted(edge) for edge in edges]
        return [[str(vertex) for vertex in edge] for edge in edges]

    def _count(self, size: Size, scope: Mapping[int, int]) -> int:
        count = self._random.randint(1, 6) if size.slot is None else size_of(size, scope)
        self._add_words(count)
        return max(count, 0)

    def _add_words(self, words: int) -> None:
        self._words += words
        if self._words > MAX_WORDS:
            raise TooLarge

    def _series(self, slot: int, scopes: Sequence[Mapping[int, int]]) -> list[str]:
        """One value per scope."""
        domain = self._inputs.domains.get(slot)
        if domain is None or domain.kind == "mixed":
            raise Mismatch
        if slot in self._inputs.counts:
            return [str(self._draw_count(domain, scope)) for scope in scopes]
        if domain.kind == "word":
            return [self._word(domain, scope) for scope in scopes]
        return series(domain, scopes, self._style, self._random)

    def _draw_count(self, domain: Domain, scope: Mapping[int, int]) -> int:
        low, high = limits(domain, scope)
        return length(low, min(high, max(low, self._cap)), self._size, self._random)

    def _word(self, domain: Domain, scope: Mapping[int, int]) -> str:
        if domain.length:
            letters = size_of(domain.length, scope)
        else:
            letters = length(domain.low, min(domain.high, self._cap), self._size, self._random)
        # Eight letters of a word count as one more word.
        self._add_words(letters // 8)
        return word(domain.alphabet, max(letters, 0), self._style, self._random)


def series(domain: Domain, scopes: Sequence[Mapping[int, int]], style: Style, random: Random) -> list[str]:
    """Numbers in a domain, one per scope.

    Raises:
        Mismatch: there is none.
    """
    ranges = [limits(domain, scope) for scope in scopes]
    if domain.different and ranges:
        numbers = _different(ranges, style, random)
    else:
        seed = random.random()
        numbers = []
        for low, high in ranges:
            # The same seed for each gives equal numbers in equal ranges.
            source = Random(seed) if style == "equal" else random
            numbers.append(number(low, high, style, source))
    # Numbers can change places only if all of them have the same range.
    if domain.rising or (style == "rising" and len(set(ranges)) == 1):
        numbers.sort()
    return [domain.text(value) for value in numbers]


def _different(ranges: Sequence[tuple[int, int]], style: Style, random: Random) -> list[int]:
    """Distinct numbers in the intersection of the ranges; of some styles the smallest ones."""
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if high - low + 1 < len(ranges):
        raise Mismatch
    if style in ("low", "few", "equal"):
        high = low + len(ranges) - 1
    return random.sample(range(low, high + 1), len(ranges))


def tree(edges: int, random: Random) -> list[tuple[int, int]]:
    """A random tree with randomly numbered vertices from 1: a path, a star, or something in between."""
    vertices = random.sample(range(1, edges + 2), edges + 1)
    # How many vertices back a parent may be.
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
    cells = []
    for row, piece in enumerate(pieces):
        for column in range(len(piece.words)):
            slot = piece.slot_at(column)
            if slot not in inputs.counts:
                cells.append((row, column, slot, piece.scope))
    num_changes = min(len(cells), random.choice((1, 1, 2, 3)))
    for row, column, slot, scope in random.sample(cells, num_changes):
        domain = inputs.domains.get(slot)
        if domain is not None and domain.kind != "mixed":
            lines[row][column] = _other(domain, lines[row], column, scope, random)
    return _text(lines)


def _other(domain: Domain, words: Sequence[str], column: int, scope: Mapping[int, int], random: Random) -> str:
    """A new value for a word: from the same line, plus or minus one, or from the domain."""
    old = words[column]
    # A third of the new values are words of the same line, which may make two of them equal.
    kind = random.random()
    if kind < 0.3:
        return random.choice(words)
    if domain.kind == "word":
        return edited(old, domain.alphabet, random)
    if domain.is_integer and kind < 0.6:
        return str(int(old) + random.choice((-1, 1)))
    try:
        low, high = limits(domain, scope)
    except Mismatch:
        return old
    style: Style = random.choice(("any", "few", "ends"))
    return domain.text(number(low, high, style, random))

"""The format of a problem's inputs, inferred from samples: lines of values and their counts.

A format is a sequence of lines and repetitions. Every value has a numbered slot (``place``). The number of values on a
line, or of repetitions, is fixed or is an integer read earlier, possibly plus or minus one: *n; then n lines of two
values*, *n and n values on one line*, *t; then t times a line with n and a line with n values*.

Inference searches for a format that parses all samples, preferring formats with more relations.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

Words = Sequence[str]
"""The words of one line."""

MAX_SAMPLES, MAX_WORDS = 16, 1000
"""Number of samples used, and maximum words of a sample if there are shorter ones."""

_MAX_ITEMS, _MAX_BODY, _MAX_FIXED, _LINES_READ = 12, 3, 16, 60_000


class Size(NamedTuple):
    """A count: the integer at a place plus a constant; any number if the place is None."""

    place: int | None
    plus: int = 0


class Line(NamedTuple):
    """A line: one value for each place in ``head``, then ``size`` values of place ``tail``, if any."""

    head: tuple[int, ...]
    tail: int | None = None
    size: Size = Size(None)


class Repeat(NamedTuple):
    """Repeated lines; without a place for the size, until the end of the input."""

    size: Size
    body: "tuple[Line | Repeat, ...]"


Item = Line | Repeat
Format = tuple[Item, ...]


class Piece(NamedTuple):
    """A parsed line. ``known`` are the integers read so far in its scope, including its own head; ``run`` is the number
    of the repetition it belongs to, 0 outside."""

    line: Line
    words: Words
    known: Mapping[int, int]
    run: int

    @property
    def head(self) -> Words:
        """The values of the head."""
        return self.words[: len(self.line.head)]

    @property
    def tail(self) -> Words:
        """The values after the head."""
        return self.words[len(self.line.head) :]


class Mismatch(Exception):
    """The input does not have the format."""


def lines_of(text: str) -> list[Words]:
    """The lines of an input as words, without trailing empty lines."""
    lines: list[Words] = [tuple(line.split()) for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def read(format: Format, lines: Sequence[Words]) -> list[Piece]:
    """Parse an input line by line.

    Raises:
        Mismatch: it does not have the format.
    """
    reader = _Reader(lines)
    if reader.items(format, 0, {}, 0) != len(lines):
        raise Mismatch
    return reader.pieces


class _Reader:
    """Parses items of a format from the lines of one input."""

    def __init__(self, lines: Sequence[Words]) -> None:
        self._lines = lines
        self._runs = 0
        self.pieces: list[Piece] = []

    def items(self, items: Format, at: int, known: dict[int, int], run: int) -> int:
        """Parse items; returns the next line number and updates ``known``."""
        for item in items:
            at = self._line(item, at, known, run) if isinstance(item, Line) else self._repeat(item, at, known)
        return at

    def _line(self, line: Line, at: int, known: dict[int, int], run: int) -> int:
        words = self._lines[at] if at < len(self._lines) else None
        if words is None or len(words) < len(line.head) or (line.tail is None and len(words) != len(line.head)):
            raise Mismatch
        for place, word in zip(line.head, words, strict=False):
            known.pop(place, None)
            if is_int(word):
                known[place] = int(word)
        counted = line.tail is not None and line.size.place is not None
        if counted and len(words) - len(line.head) != size_of(line.size, known):
            raise Mismatch
        self.pieces.append(Piece(line, words, dict(known), run))
        return at + 1

    def _repeat(self, repeat: Repeat, at: int, known: dict[int, int]) -> int:
        count = size_of(repeat.size, known) if repeat.size.place is not None else len(self._lines) - at
        if count < 0 or at + count > len(self._lines):
            raise Mismatch
        self._runs += 1
        run = self._runs
        for _ in range(count):
            at = self.items(repeat.body, at, dict(known), run)
        return at


def size_of(size: Size, known: Mapping[int, int]) -> int:
    """The value of a count.

    Raises:
        Mismatch: the value at its place is not an integer.
    """
    if size.place is None or size.place not in known:
        raise Mismatch
    return known[size.place] + size.plus


def is_int(word: str) -> bool:
    """Whether a word is an integer as programs print it, unlike ``007`` and ``-0``."""
    digits = word.removeprefix("-")
    return digits.isascii() and digits.isdigit() and (digits[0] != "0" or word == "0") and len(digits) < 40


def places_of(format: Format) -> Iterator[int]:
    """All places in reading order."""
    for item in format:
        if isinstance(item, Repeat):
            yield from places_of(item.body)
        else:
            yield from item.head
            yield from [item.tail] if item.tail is not None else []


def infer(texts: Sequence[str]) -> Format | None:
    """The first format that parses all samples; None if none is found."""
    samples = [lines for lines in map(lines_of, _select_samples(texts)) if lines]
    if not samples:
        return None
    for free in (False, True):
        search = _Search(samples, free=free)
        found = next(search.formats([_State(0, {}) for _ in samples], 0, _MAX_ITEMS), None)
        if found:
            return found
    return None


def _select_samples(texts: Sequence[str]) -> list[str]:
    """Distinct samples of all lengths except overly long ones; at least the shortest."""
    ordered = sorted(set(texts), key=lambda text: (len(text), text))
    short = [text for text in ordered if text.count(" ") + text.count("\n") < MAX_WORDS] or ordered[:1]
    step = max(1, -(-len(short) // MAX_SAMPLES))
    return short[::step] if step == 1 else [*short[::step], short[-1]]


class _State(NamedTuple):
    """How far a sample has been parsed, and the integers read so far."""

    at: int
    known: Mapping[int, int]


class _Search:
    """Depth-first search for formats; ``free`` allows lines and repetitions of any size."""

    def __init__(self, samples: Sequence[Sequence[Words]], *, free: bool) -> None:
        self._samples, self._free, self._left = samples, free, _LINES_READ

    def formats(self, states: Sequence[_State], place: int, most: int) -> Iterator[Format]:
        """Formats of the rest of all samples; new values are numbered from ``place``."""
        ends = [state.at == len(lines) for state, lines in zip(states, self._samples, strict=True)]
        if all(ends):
            yield ()
        if all(ends) or not most:
            return
        for item in self._items(states, place, blocks=True):
            after = self._after((item,), states)
            if after is not None:
                yield from ((item, *rest) for rest in self.formats(after, _next_place(item, place), most - 1))

    def _after(self, items: Format, states: Sequence[_State]) -> list[_State] | None:
        """Parse further in all samples; None if one does not match."""
        found = []
        for state, lines in zip(states, self._samples, strict=True):
            if self._left < 0:
                return None
            known, reader = dict(state.known), _Reader(lines)
            try:
                found.append(_State(reader.items(items, state.at, known, 0), known))
            except Mismatch:
                return None
            finally:
                self._left -= 1 + len(reader.pieces)
        return found

    def _items(self, states: Sequence[_State], place: int, *, blocks: bool) -> Iterator[Item]:
        """Candidates for the next item, in order of preference."""
        sizes = _sizes(states)
        for size in sizes:
            yield from self._repeats(size, states, place)
        for size in sizes if blocks else ():
            yield from self._blocks(size, states, place)
        yield from self._lines([1] * len(states), states, place)
        if self._free:
            counts = [len(lines) - state.at for state, lines in zip(states, self._samples, strict=True)]
            yield from (Repeat(Size(None), (line,)) for line in self._lines(counts, states, place))

    def _repeats(self, size: Size, states: Sequence[_State], place: int) -> Iterator[Item]:
        """Repetitions of a single line."""
        counts = [size_of(size, state.known) for state in states]
        remaining = [len(lines) - state.at for state, lines in zip(states, self._samples, strict=True)]
        too_many = any(count > left for count, left in zip(counts, remaining, strict=True))
        if min(counts) < 0 or max(counts) < 2 or too_many:
            return
        yield from (Repeat(size, (line,)) for line in self._lines(counts, states, place))

    def _blocks(self, size: Size, states: Sequence[_State], place: int) -> Iterator[Item]:
        """Repetitions of several lines that end the input."""
        if size.plus or min(size_of(size, state.known) for state in states) < 1:
            return
        if all(size_of(size, state.known) < 2 for state in states):
            return
        for body in self._bodies(states, place, _MAX_BODY):
            after = self._after((Repeat(size, body),), states) if len(body) > 1 else None
            if after and all(state.at == len(lines) for state, lines in zip(after, self._samples, strict=True)):
                yield Repeat(size, body)

    def _bodies(self, states: Sequence[_State], place: int, most: int) -> Iterator[Format]:
        """Prefixes of the rest of the samples with at most ``most`` items."""
        if not most or any(state.at >= len(lines) for state, lines in zip(states, self._samples, strict=True)):
            return
        for item in self._items(states, place, blocks=False):
            after = self._after((item,), states)
            if after is not None:
                yield (item,)
                rests = self._bodies(after, _next_place(item, place), most - 1)
                yield from ((item, *rest) for rest in rests)

    def _lines(self, counts: Sequence[int], states: Sequence[_State], place: int) -> Iterator[Line]:
        """Lines that the next ``counts`` lines of the samples may all be, by their numbers of words."""
        rows = [
            (words, state.known)
            for lines, state, count in zip(self._samples, states, counts, strict=True)
            for words in lines[state.at : state.at + count]
        ]
        lengths = {len(words) for words, _ in rows}
        if not rows:
            return
        yield from _counted(rows, states, place)
        if len(lengths) == 1 and max(lengths) <= _MAX_FIXED:
            yield Line(tuple(range(place, place + max(lengths))))
        if self._free:
            yield Line((), place)


def _counted(rows: Sequence[tuple[Words, Mapping[int, int]]], states: Sequence[_State], place: int) -> Iterator[Line]:
    """Lines whose number of words is an integer read before or at their beginning."""
    least = min(len(words) for words, _ in rows)
    for width in range(min(2, least) + 1):
        head = tuple(range(place, place + width))
        for size in [*_sizes(states), *map(Size, head)]:
            tails = {len(words) - width for words, _ in rows}
            if max(tails) >= 2 and all(_fits(words, width, size, known, place) for words, known in rows):
                yield Line(head, place + width, size)


def _fits(words: Words, width: int, size: Size, known: Mapping[int, int], place: int) -> bool:
    read = {place + number: int(word) for number, word in enumerate(words[:width]) if is_int(word)}
    found = read.get(size.place, known.get(size.place)) if size.place is not None else None
    return found is not None and len(words) - width == found + size.plus


def _sizes(states: Sequence[_State]) -> list[Size]:
    """Candidate counts: integers that all samples have, plus -1, 0 or 1."""
    places = [place for place in states[0].known if all(place in state.known for state in states)]
    return [Size(place, plus) for plus, place in product((0, -1, 1), places)]


def _next_place(item: Item, place: int) -> int:
    """The first unused place."""
    return max([place, *(each + 1 for each in places_of((item,)))])

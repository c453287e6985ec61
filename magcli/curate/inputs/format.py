"""The format of a problem's inputs, inferred from samples: lines of values and their counts.

A format is a sequence of lines and repetitions. Every value has a numbered slot. The number of values on a
line, or of repetitions, is fixed or is an integer read earlier, possibly plus or minus one: *n; then n lines of two
values*, *n and n values on one line*, *t; then t times a line with n and a line with n values*.

Inference searches for a format that parses all samples, preferring formats with more relations.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

Words = Sequence[str]
"""The words of one line."""

MAX_SAMPLES, MAX_WORDS = 16, 1000
"""Number of samples used, and maximum words of a sample if there are shorter ones."""

# Bounds of the search: items of a format, lines of a repeated block, words of a fixed line, lines parsed in all.
_MAX_ITEMS = 12
_MAX_BODY = 3
_MAX_FIXED = 16
_LINES_READ = 60_000


class Size(NamedTuple):
    """A count: the integer in a slot plus a constant; any number if the slot is None."""

    slot: int | None
    plus: int = 0


class Line(NamedTuple):
    """A line: one value for each slot in ``head``, then ``size`` values in the slot ``tail``, if any."""

    head: tuple[int, ...]
    tail: int | None = None
    size: Size = Size(None)


class Repeat(NamedTuple):
    """Repeated lines; without a slot for the size, until the end of the input."""

    size: Size
    body: "tuple[Line | Repeat, ...]"


Item = Line | Repeat
Format = tuple[Item, ...]


class Piece(NamedTuple):
    """A parsed line.

    ``scope`` maps slots to the integers that the line can refer to: those read before it, and those of its own head.
    ``run`` is the number of the repetition that it belongs to, 0 outside of all.
    """

    line: Line
    words: Words
    scope: Mapping[int, int]
    run: int

    @property
    def head(self) -> Words:
        """The values of the head."""
        return self.words[: len(self.line.head)]

    @property
    def tail(self) -> Words:
        """The values after the head."""
        return self.words[len(self.line.head) :]

    def slot_at(self, column: int) -> int:
        """The slot of a word."""
        head = self.line.head
        return head[column] if column < len(head) else self.line.tail or 0


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

    def items(self, items: Format, start: int, scope: dict[int, int], run: int) -> int:
        """Parse items; returns the next line number and updates ``scope``."""
        number = start
        for item in items:
            if isinstance(item, Line):
                self._line(item, number, scope, run)
                number += 1
            else:
                number = self._repeat(item, number, scope)
        return number

    def _line(self, line: Line, number: int, scope: dict[int, int], run: int) -> None:
        if number >= len(self._lines):
            raise Mismatch
        words = self._lines[number]
        tail_length = len(words) - len(line.head)
        # Without a tail, the head is the whole line.
        if tail_length < 0 or (line.tail is None and tail_length > 0):
            raise Mismatch
        for slot, word in zip(line.head, words, strict=False):
            # In a repetition, the slot may still have the integer of the line before.
            scope.pop(slot, None)
            if is_int(word):
                scope[slot] = int(word)
        # The size may be in the line's own head, so it is only known here.
        is_counted = line.tail is not None and line.size.slot is not None
        if is_counted and tail_length != size_of(line.size, scope):
            raise Mismatch
        self.pieces.append(Piece(line, words, dict(scope), run))

    def _repeat(self, repeat: Repeat, start: int, scope: dict[int, int]) -> int:
        num_left = len(self._lines) - start
        count = num_left if repeat.size.slot is None else size_of(repeat.size, scope)
        # Every repetition takes at least a line.
        if not 0 <= count <= num_left:
            raise Mismatch
        self._runs += 1
        run = self._runs
        number = start
        for _ in range(count):
            # Integers of one repetition are not known to the next, or after the last.
            number = self.items(repeat.body, number, dict(scope), run)
        return number


def size_of(size: Size, scope: Mapping[int, int]) -> int:
    """The value of a count.

    Raises:
        Mismatch: the value in its slot is not an integer.
    """
    if size.slot is None or size.slot not in scope:
        raise Mismatch
    return scope[size.slot] + size.plus


def is_int(word: str) -> bool:
    """Whether a word is an integer as programs print it, unlike ``007`` and ``-0``."""
    if word == "0":
        return True
    digits = word.removeprefix("-")
    return digits.isascii() and digits.isdigit() and digits[0] != "0" and len(digits) < 40


def slots_of(format: Format) -> Iterator[int]:
    """All slots in reading order."""
    for item in format:
        if isinstance(item, Repeat):
            yield from slots_of(item.body)
        else:
            yield from item.head
            if item.tail is not None:
                yield item.tail


def infer(texts: Sequence[str]) -> Format | None:
    """The first format that parses all samples; None if none is found."""
    samples = [lines for lines in map(lines_of, _select_samples(texts)) if lines]
    if not samples:
        return None
    starts = [_State(0, {}) for _ in samples]
    # Lines and repetitions of any size fit everything, so they are only tried if nothing else fits.
    for free in (False, True):
        search = _Search(samples, free=free)
        inferred = next(search.formats(starts, 0, _MAX_ITEMS), None)
        if inferred:
            return inferred
    return None


def _select_samples(texts: Sequence[str]) -> list[str]:
    """Distinct samples of all lengths except overly long ones; at least the shortest."""
    ordered = sorted(set(texts), key=lambda text: (len(text), text))
    # Spaces and line breaks approximate the number of words without splitting a long text.
    short = [text for text in ordered if text.count(" ") + text.count("\n") < MAX_WORDS]
    if not short:
        return ordered[:1]
    if len(short) <= MAX_SAMPLES:
        return short
    # Evenly over the lengths, with the longest.
    step = math.ceil(len(short) / MAX_SAMPLES)
    return [*short[::step], short[-1]]


class _State(NamedTuple):
    """The number of the next line of a sample to parse, and the integers read so far."""

    line: int
    scope: Mapping[int, int]


class _Search:
    """Depth-first search for formats; ``free`` allows lines and repetitions of any size."""

    def __init__(self, samples: Sequence[Sequence[Words]], *, free: bool) -> None:
        self._samples = samples
        self._free = free
        self._lines_left = _LINES_READ

    def formats(self, states: Sequence[_State], next_slot: int, max_items: int) -> Iterator[Format]:
        """Formats of the rest of all samples; new values get slots from ``next_slot`` on."""
        if not any(self._remaining(states)):
            yield ()
            return
        if not max_items:
            return
        for item in self._items(states, next_slot, blocks=True):
            after = self._after((item,), states)
            if after is None:
                continue
            for rest in self.formats(after, _slot_after(item, next_slot), max_items - 1):
                yield (item, *rest)

    def _remaining(self, states: Sequence[_State]) -> list[int]:
        """The number of lines left in each sample."""
        return [len(lines) - state.line for state, lines in zip(states, self._samples, strict=True)]

    def _after(self, items: Format, states: Sequence[_State]) -> list[_State] | None:
        """Parse further in all samples; None if one does not match."""
        advanced = []
        for state, lines in zip(states, self._samples, strict=True):
            if self._lines_left < 0:
                return None
            scope = dict(state.scope)
            reader = _Reader(lines)
            try:
                advanced.append(_State(reader.items(items, state.line, scope, 0), scope))
            except Mismatch:
                return None
            # The budget counts work, not time, so that the result is the same on every machine.
            finally:
                self._lines_left -= 1 + len(reader.pieces)
        return advanced

    def _items(self, states: Sequence[_State], next_slot: int, *, blocks: bool) -> Iterator[Item]:
        """Candidates for the next item, in order of preference."""
        sizes = _sizes(states)
        for size in sizes:
            yield from self._repeats(size, states, next_slot)
        if blocks:
            for size in sizes:
                yield from self._blocks(size, states, next_slot)
        yield from self._lines([1] * len(states), states, next_slot)
        if self._free:
            for line in self._lines(self._remaining(states), states, next_slot):
                yield Repeat(Size(None), (line,))

    def _repeats(self, size: Size, states: Sequence[_State], next_slot: int) -> Iterator[Item]:
        """Repetitions of a single line."""
        counts = [size_of(size, state.scope) for state in states]
        too_many = any(count > left for count, left in zip(counts, self._remaining(states), strict=True))
        # If no sample repeats the line, it is rather a line of its own.
        if too_many or min(counts) < 0 or max(counts) < 2:
            return
        for line in self._lines(counts, states, next_slot):
            yield Repeat(size, (line,))

    def _blocks(self, size: Size, states: Sequence[_State], next_slot: int) -> Iterator[Item]:
        """Repetitions of several lines that end the input."""
        counts = [size_of(size, state.scope) for state in states]
        if size.plus or min(counts) < 1 or max(counts) < 2:
            return
        for body in self._bodies(states, next_slot, _MAX_BODY):
            if len(body) == 1:
                continue  # `_repeats` yields it
            block = Repeat(size, body)
            after = self._after((block,), states)
            if after is not None and not any(self._remaining(after)):
                yield block

    def _bodies(self, states: Sequence[_State], next_slot: int, max_items: int) -> Iterator[Format]:
        """Prefixes of the rest of the samples with at most ``max_items`` items."""
        if not max_items or not all(self._remaining(states)):
            return
        for item in self._items(states, next_slot, blocks=False):
            after = self._after((item,), states)
            if after is None:
                continue
            yield (item,)
            for rest in self._bodies(after, _slot_after(item, next_slot), max_items - 1):
                yield (item, *rest)

    def _lines(self, counts: Sequence[int], states: Sequence[_State], next_slot: int) -> Iterator[Line]:
        """Lines that the next ``counts`` lines of the samples may all be, by their numbers of words."""
        rows = [
            (words, state.scope)
            for lines, state, count in zip(self._samples, states, counts, strict=True)
            for words in lines[state.line : state.line + count]
        ]
        if not rows:
            return
        # Preferred is a count that was read, then a fixed number of words, then any number.
        yield from _counted(rows, states, next_slot)
        lengths = {len(words) for words, _ in rows}
        if len(lengths) == 1 and max(lengths) <= _MAX_FIXED:
            yield Line(tuple(range(next_slot, next_slot + max(lengths))))
        if self._free:
            yield Line((), next_slot)


def _counted(
    rows: Sequence[tuple[Words, Mapping[int, int]]], states: Sequence[_State], next_slot: int
) -> Iterator[Line]:
    """Lines whose number of words is an integer read before or at their beginning."""
    lengths = [len(words) for words, _ in rows]
    # Up to two values may precede the counted ones.
    for width in range(min(2, *lengths) + 1):
        # If no line has two values after its head, their number tells nothing.
        if max(lengths) - width < 2:
            return
        head = tuple(range(next_slot, next_slot + width))
        for size in [*_sizes(states), *map(Size, head)]:
            if all(_fits(words, head, size, scope) for words, scope in rows):
                yield Line(head, next_slot + width, size)


def _fits(words: Words, head: Sequence[int], size: Size, scope: Mapping[int, int]) -> bool:
    """Whether a line has as many words after its head as ``size`` says."""
    if size.slot is None:
        return False
    own = {slot: int(word) for slot, word in zip(head, words, strict=False) if is_int(word)}
    count = own.get(size.slot, scope.get(size.slot))
    return count is not None and len(words) - len(head) == count + size.plus


def _sizes(states: Sequence[_State]) -> list[Size]:
    """Candidate counts: integers that all samples have, plus -1, 0 or 1."""
    slots = [slot for slot in states[0].scope if all(slot in state.scope for state in states)]
    # First all slots as they are: n - 1 lines, such as the edges of a tree, are rarer than n.
    return [Size(slot, plus) for plus, slot in product((0, -1, 1), slots)]


def _slot_after(item: Item, next_slot: int) -> int:
    """The first slot that neither an earlier item nor this one uses."""
    return max([next_slot, *(slot + 1 for slot in slots_of((item,)))])

"""Find training problems that also occur in evaluation sets, by common 13-grams of words and equal numbers.

A problem is contaminated by an evaluation problem if they share 13-grams, these are at least half of the n-grams of the
shorter one, and all numbers of the shorter one occur in the longer one. Boilerplate of a contest ("relatively prime
positive integers") is therefore no match, nor is a problem with other numbers. Statements shorter than 13 words must be
equal.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from magcli.curate.math.duplicates import mathematics_of, tokens_of
from magcli.curate.reading import context_columns, context_of, read_strict, with_context
from magcli.errors import DataError

GRAM = 13
"""Words per n-gram, as in the decontamination of GPT-3."""
SHARE = 0.5
STATEMENTS = ("prompt", "problem", "question", "statement", "informal_statement", "content", "input")
"""Names of the statement column, in order of preference."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class Source(NamedTuple):
    """An evaluation problem: short name of its file, and id or number (from 0) of its row."""

    file: str
    row: str


class Problem(NamedTuple):
    """An evaluation problem: its source, number of n-grams, and numbers."""

    source: Source
    grams: int
    numbers: Counter[str]


class Evaluations:
    """An index of the problems of evaluation sets by n-gram."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.by_gram: dict[int, list[int]] = {}
        self.whole: dict[tuple[str, ...], Source] = {}

    def add(self, source: Source, statement: str) -> None:
        """Add a problem, unless it has no words."""
        words = tokens_of(statement)
        if len(words) < GRAM:
            if words:
                self.whole.setdefault(_whole(words, statement), source)
            return
        grams = _grams(words)
        for gram in grams:
            self.by_gram.setdefault(gram, []).append(len(self.problems))
        self.problems.append(Problem(source, len(grams), _numbers(statement)))

    def hit(self, statement: str) -> Source | None:
        """The evaluation problem that a statement equals, contains, or is mostly part of, if any."""
        words = tokens_of(statement)
        if len(words) < GRAM:
            return self.whole.get(_whole(words, statement))
        grams = _grams(words)
        shared = Counter(number for gram in grams for number in self.by_gram.get(gram, ()))
        if not shared:
            return None
        numbers = _numbers(statement)
        for number, count in sorted(shared.items(), key=lambda each: (-each[1], each[0])):
            problem = self.problems[number]
            if count >= SHARE * min(len(grams), problem.grams) and _within(numbers, problem.numbers):
                return problem.source
        return None


def short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """File names, or whole paths if several have the same name."""
    each = dict.fromkeys(paths)
    count = Counter(path.name for path in each)
    return {path: path.name if count[path.name] == 1 else str(path) for path in each}


def read_evaluations(paths: Iterable[Path]) -> Evaluations:
    """Index the problems of tables; the statement is the first of the columns ``STATEMENTS``, after context columns.

    Raises:
        DataError: a table or a line is unreadable, or has no statement column.
    """
    found = Evaluations()
    for path, called in short_names(paths).items():
        source = read_strict(path)
        names = source.schema.names
        column = next((name for name in STATEMENTS if name in names), None)
        if column is None:
            raise DataError(f"{path} has no column {', '.join(STATEMENTS)} to compare; it has: {', '.join(names)}")
        context = context_columns(names)
        rows = (row for batch in source.rows for row in batch.to_pylist())
        for number, row in enumerate(rows):
            statement = with_context(context_of(row, context), str(row[column] or ""))
            found.add(Source(called, _name(row, number)), statement)
    return found


def _name(row: Mapping[str, Any], number: int) -> str:
    return str(row["id"] if row.get("id") is not None else number)


def _grams(words: Sequence[str]) -> set[int]:
    return {hash(tuple(words[at : at + GRAM])) for at in range(len(words) - GRAM + 1)}


def _whole(words: Sequence[str], statement: str) -> tuple[str, ...]:
    return (*words, mathematics_of(statement))


def _numbers(statement: str) -> Counter[str]:
    return Counter(_NUMBER.findall(_GROUPED.sub("", statement)))


def _within(one: Counter[str], other: Counter[str]) -> bool:
    """Whether the multiset of numbers with fewer elements is contained in the other."""
    few, many = sorted((one, other), key=Counter.total)
    return few <= many

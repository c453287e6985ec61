"""Training problems that evaluation sets hold too: found by runs of words in common, with their numbers.

A problem is contaminated by an evaluation problem when they share runs of 13 words, these make up at least half of the
runs of the shorter of the two, and the numbers of the shorter all stand in the longer. Sentences that every problem of
a contest ends with ("relatively prime positive integers") are therefore no hit, nor is a problem with other numbers.
Statements shorter than 13 words must be equal as a whole.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from magcli.curate.math.facts import columns_of_facts, facts_of, stated
from magcli.curate.math.tokens import mathematics_of, tokens_of
from magcli.curate.reading import read_whole
from magcli.errors import DataError

GRAM = 13
"""Words of a run, as in the decontamination of GPT-3 and of those after it."""
SHARE = 0.5
STATEMENTS = ("prompt", "problem", "question", "statement", "informal_statement", "content", "input")
"""What the column of the statement is called, first come first taken."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class Source(NamedTuple):
    """An evaluation problem: its file as ``short_names`` calls it, its row's id or else its number from 0."""

    file: str
    row: str


class Problem(NamedTuple):
    """What is kept of an evaluation problem: how many runs it has, and its numbers."""

    source: Source
    grams: int
    numbers: Counter[str]


class Evaluations:
    """The problems of evaluation sets, by their runs of words."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.by_gram: dict[int, list[int]] = {}
        self.whole: dict[tuple[str, ...], Source] = {}

    def add(self, source: Source, statement: str) -> None:
        """Remember a problem; one of no words is passed over."""
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
        """The evaluation problem that a statement is, or holds, or is the most of; None when it is none."""
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
    """What people are told files are called: their names alone, or the whole path where several have one name."""
    each = dict.fromkeys(paths)
    count = Counter(path.name for path in each)
    return {path: path.name if count[path.name] == 1 else str(path) for path in each}


def read_evaluations(paths: Iterable[Path]) -> Evaluations:
    """The problems of tables; the first column of ``STATEMENTS`` that a table has is the statement.

    Facts in a column of their own come before it.

    Raises:
        DataError: a table or a line of it cannot be read, or there is no such column.
    """
    found = Evaluations()
    for path, called in short_names(paths).items():
        source = read_whole(path)
        names = source.schema.names
        column = next((name for name in STATEMENTS if name in names), None)
        if column is None:
            raise DataError(f"{path} has no column {', '.join(STATEMENTS)} to compare; it has: {', '.join(names)}")
        facts = columns_of_facts(names)
        rows = (row for batch in source.rows for row in batch.to_pylist())
        for number, row in enumerate(rows):
            statement = stated(facts_of(row, facts), str(row[column] or ""))
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
    """Whether all numbers of the one that has fewer stand in the other, as often."""
    few, many = sorted((one, other), key=Counter.total)
    return few <= many

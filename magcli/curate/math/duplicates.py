"""Duplicates among the problems of a set, and problems that also occur in evaluation sets (contamination).

Statements are near-duplicates if their words overlap enough and their numbers, operators and answers are equal: a
different number makes a different problem. Candidates come from MinHash and are verified by the exact Jaccard
similarity of words and bigrams. Of each cluster the row with the smallest id is kept.

A problem is contaminated by an evaluation problem if they share 13-grams, these are at least half of the n-grams of the
shorter one, and all numbers of the shorter one occur in the longer one. So contests' boilerplate ("relatively prime
positive integers") is no match, nor is a problem with other numbers. Statements under 13 words must be equal.
"""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rensa import RMinHash, RMinHashLSH

from magcli.curate.tables import context_columns, context_of, read_strict, with_context
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.layouts.convert import converted
from magcli.run.layout import convert

PERMUTATIONS, BANDS = 64, 16
"""MinHash parameters: pairs with similarity 0.7 become candidates with probability 0.99, with 0.8 with 0.9998."""
SEED = 20250612
# What may differ between two spellings of an answer: spaces, dollar signs, \text, ".0" and a final period.
_LAYOUT = re.compile(r"[\s$]|\\[,;:! ]|\\(?:text|left|right)(?![A-Za-z])|(?<=\d)\.0+\Z|[.。]\Z")
_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:[.,]\d+)*|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W\d_]+")
_LAYOUT_COMMANDS = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|displaystyle|textstyle|text|textbf|textit|textrm|mathrm|mathbf|rm|bf|quad|qquad"
    r"|hspace|vspace|begin|end|item|noindent|limits)(?![A-Za-z])"
)
# \dfrac, \tfrac and \cfrac
_SIZED = re.compile(r"\\[dtc]frac(?![A-Za-z])")
# LaTeX commands, digits and operators, but no hyphens.
_SIGNS = re.compile(r"\\[A-Za-z]+|\d|[+*/=<>^!|~−×÷≤≥±√π]|-(?![A-Za-z])")
_NUMBER_WORDS = {
    word: digit
    for digit, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|,\\!)(?=\d{3}(?!\d))")
GRAM = 13
"""Words per n-gram, as in the decontamination of GPT-3."""
MIN_SHARE = 0.5
STATEMENTS = ("prompt", "problem", "question", "statement", "informal_statement", "content", "input")
"""Names of the statement column of evaluation sets, in order of preference."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PLAIN_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class Duplicate(NamedTuple):
    """A row to drop: its number, whether it is an exact duplicate, and the number of the kept row."""

    number: int
    exact: bool
    of: int


class StatementIndex:
    """The statements of a set, numbered in order of addition; about 400 bytes per row besides the text."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.keys: list[tuple[str, str]] = []
        self._exact, self._comparable = array("Q"), array("Q")

    def add(self, id: str, statement: str, answer: str) -> None:
        """Add a row."""
        self.statements.append(statement)
        self.keys.append((id, answer))
        self._exact.append(_digest(" ".join(statement.split())))
        self._comparable.append(_digest(f"{mathematics_of(statement)}\n{_LAYOUT.sub('', answer).lower()}"))

    def duplicates(self, similarity: float) -> Iterator[Duplicate]:
        """All rows to drop; ``similarity`` is the threshold for near-duplicates, 1 for only exact ones."""
        dropped = set()
        for group in _groups(self._exact, range(len(self.statements))):
            for duplicate in self._all_but_one(group, exact=True):
                dropped.add(duplicate.number)
                yield duplicate
        rows = [row for row in range(len(self.statements)) if row not in dropped] if similarity < 1 else []
        for group in _groups(self._comparable, rows):
            for cluster in clusters([shingles_of(self.statements[row]) for row in group], similarity):
                yield from self._all_but_one([group[index] for index in cluster], exact=False)

    def _all_but_one(self, rows: Sequence[int], *, exact: bool) -> Iterator[Duplicate]:
        kept = min(rows, key=lambda row: (*self.keys[row], self.statements[row]))
        return (Duplicate(row, exact, kept) for row in rows if row != kept)


def clusters(shingles: Sequence[frozenset[str]], similarity: float) -> list[list[int]]:
    """Connected components of similar sets with at least two members, as sorted indices."""
    hashes = [_min_hash(words) for words in shingles]
    index = RMinHashLSH(similarity, PERMUTATIONS, BANDS)
    # Union-find, in which the smallest index of a component leads it.
    leader = list(range(len(shingles)))
    for row, min_hash in enumerate(hashes):
        for other in sorted(index.query(min_hash)):
            a, b = _leader(leader, row), _leader(leader, other)
            if a != b and jaccard(shingles[row], shingles[other]) >= similarity:
                leader[max(a, b)] = min(a, b)
        index.insert(row, min_hash)
    components: dict[int, list[int]] = {}
    for row in range(len(shingles)):
        components.setdefault(_leader(leader, row), []).append(row)
    return [component for component in components.values() if len(component) > 1]


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity; 1 for two empty sets."""
    common = len(one & other)
    union = len(one) + len(other) - common
    return common / union if union else 1.0


def _groups(digests: "array[int]", rows: Sequence[int]) -> Iterator[list[int]]:
    """Groups of at least two rows with equal digests, by sorting."""
    chosen = np.asarray(rows, np.int64)
    values = np.frombuffer(digests, np.uint64)[chosen] if len(chosen) else np.zeros(0, np.uint64)
    order = np.argsort(values, kind="stable")
    edges = np.flatnonzero(np.diff(values[order])) + 1
    for start, end in pairwise([0, *edges.tolist(), len(order)]):
        if end - start > 1:
            yield chosen[order[start:end]].tolist()


def _leader(leader: list[int], row: int) -> int:
    """The leader of the component of a row; halves the path to it on the way."""
    while leader[row] != row:
        leader[row] = leader[leader[row]]
        row = leader[row]
    return row


def _min_hash(shingles: frozenset[str]) -> RMinHash:
    min_hash = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
    min_hash.update(sorted(shingles))
    return min_hash


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def tokens_of(statement: str) -> list[str]:
    """Words, numbers and LaTeX commands in lower case; each CJK character is a word."""
    return _TOKEN.findall(_without_layout(statement))


def mathematics_of(statement: str) -> str:
    """Digits, operators and LaTeX commands in order, which differ between different problems.

    Number words count as digits; ``\\dfrac`` is ``\\frac``, and ``\\frac12`` is ``\\frac{1}{2}``.
    """
    text = _THOUSANDS.sub("", _without_layout(statement))
    return "".join(_SIGNS.findall(_NUMBER_WORD.sub(lambda word: str(_NUMBER_WORDS[word[0]]), text)))


def shingles_of(statement: str) -> frozenset[str]:
    """Words and bigrams, for the similarity of two statements."""
    words = tokens_of(statement)
    return frozenset(words) | frozenset(f"{a} {b}" for a, b in pairwise(words))


def _without_layout(statement: str) -> str:
    text = statement.lower()
    return _SIZED.sub(r"\\frac", _LAYOUT_COMMANDS.sub(" ", text)) if "\\" in text else text


# ---- contamination ----


class EvaluationRow(NamedTuple):
    """An evaluation problem: short name of its file, and id or number (from 0) of its row."""

    file: str
    row: str


class EvaluationIndex:
    """The problems of evaluation sets by n-gram."""

    def __init__(self) -> None:
        self._problems: list[tuple[EvaluationRow, int, Counter[str]]] = []
        self._by_gram: dict[int, list[int]] = {}
        self._short: dict[tuple[str, ...], EvaluationRow] = {}

    def add(self, source: EvaluationRow, statement: str) -> None:
        """Add a problem, unless it has no words."""
        words = tokens_of(statement)
        if len(words) < GRAM:
            if words:
                self._short.setdefault((*words, mathematics_of(statement)), source)
            return
        grams = _grams(words)
        for gram in grams:
            self._by_gram.setdefault(gram, []).append(len(self._problems))
        self._problems.append((source, len(grams), _numbers(statement)))

    def match(self, statement: str) -> EvaluationRow | None:
        """The evaluation problem that contaminates a statement, if any."""
        words = tokens_of(statement)
        if len(words) < GRAM:
            return self._short.get((*words, mathematics_of(statement)))
        grams = _grams(words)
        shared = Counter(number for gram in grams for number in self._by_gram.get(gram, ()))
        numbers = _numbers(statement) if shared else Counter[str]()
        # Most shared n-grams first; in a tie, the earlier problem.
        for number, count in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
            source, num_grams, others = self._problems[number]
            fewer_numbers, more_numbers = sorted((numbers, others), key=Counter.total)
            if count >= MIN_SHARE * min(len(grams), num_grams) and fewer_numbers <= more_numbers:
                return source
        return None


def short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """File names, or whole paths if several have the same name."""
    distinct = dict.fromkeys(paths)
    count = Counter(path.name for path in distinct)
    return {path: path.name if count[path.name] == 1 else str(path) for path in distinct}


def index_evaluations(paths: Iterable[Path]) -> EvaluationIndex:
    """Index the problems of tables; the statement is the first of the columns ``STATEMENTS``, after context columns.

    Raises:
        DataError: a table or a line is unreadable, or has no statement column.
    """
    index = EvaluationIndex()
    for path, short_name in short_names(paths).items():
        source = read_strict(path)
        if layout := converted(source.schema, ("prompt",)):
            convert(source, layout)
        names = source.schema.names
        column = next((name for name in STATEMENTS if name in names), None)
        if column is None:
            raise DataError(
                f"{path} has none of the columns {', '.join(STATEMENTS)} to compare; it has: {', '.join(names)}"
            )
        context = context_columns(names)
        for number, row in enumerate(row for batch in source.rows for row in to_rows(batch)):
            id = str(row["id"] if row.get("id") is not None else number)
            statement = with_context(context_of(row, context), str(row[column] or ""))
            index.add(EvaluationRow(short_name, id), statement)
    return index


def _grams(words: Sequence[str]) -> set[int]:
    return {hash(tuple(words[start : start + GRAM])) for start in range(len(words) - GRAM + 1)}


def _numbers(statement: str) -> Counter[str]:
    return Counter(_NUMBER.findall(_PLAIN_THOUSANDS.sub("", statement)))

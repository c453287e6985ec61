"""Exact and near-duplicate problems.

Statements are near-duplicates if their words overlap enough and their numbers, operators and answers are equal: a
different number makes a different problem. Candidates come from MinHash and are verified by the exact Jaccard
similarity of words and bigrams. Of each cluster the row with the smallest id is kept.
"""

import hashlib
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from rensa import RMinHash, RMinHashLSH

PERMUTATIONS, BANDS = 64, 16
"""MinHash parameters: pairs with similarity 0.7 become candidates with probability 0.99, with 0.8 with 0.9998."""
SEED = 20250612
_LAYOUT = re.compile(r"[\s$]|\\[,;:! ]|\\(?:text|left|right)(?![A-Za-z])|(?<=\d)\.0+\Z|[.。]\Z")
_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:[.,]\d+)*|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W\d_]+")
_LAYOUT_COMMANDS = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|displaystyle|textstyle|text|textbf|textit|textrm|mathrm|mathbf|rm|bf|quad|qquad"
    r"|hspace|vspace|begin|end|item|noindent|limits)(?![A-Za-z])"
)
_SIZED = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_SIGNS = re.compile(r"\\[A-Za-z]+|\d|[+*/=<>^!|~−×÷≤≥±√π]|-(?![A-Za-z])")
_NUMBER_WORDS = {
    word: digit
    for digit, words in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
    for word in (words,)
}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b")
_GROUPED = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|,\\!)(?=\d{3}(?!\d))")


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
        self.exact, self.kin = array("Q"), array("Q")

    def add(self, id: str, statement: str, answer: str) -> None:
        """Add a row."""
        self.statements.append(statement)
        self.keys.append((id, answer))
        self.exact.append(_digest(" ".join(statement.split())))
        self.kin.append(_digest(f"{mathematics_of(statement)}\n{_LAYOUT.sub('', answer).lower()}"))

    def duplicates(self, similarity: float) -> Iterator[Duplicate]:
        """All rows to drop; ``similarity`` is the threshold for near-duplicates, 1 for only exact ones."""
        gone = set()
        for group in _groups(self.exact, range(len(self.statements))):
            stays = min(group, key=self._rank)
            for row in group:
                if row != stays:
                    gone.add(row)
                    yield Duplicate(row, True, stays)
        if similarity < 1:
            for group in _groups(self.kin, [row for row in range(len(self.statements)) if row not in gone]):
                yield from self._near(group, similarity)

    def _near(self, group: Sequence[int], similarity: float) -> Iterator[Duplicate]:
        for cluster in clusters([shingles_of(self.statements[row]) for row in group], similarity):
            rows = [group[index] for index in cluster]
            stays = min(rows, key=self._rank)
            for row in rows:
                if row != stays:
                    yield Duplicate(row, False, stays)

    def _rank(self, row: int) -> tuple[str, str, str]:
        return (*self.keys[row], self.statements[row])


def clusters(shingles: Sequence[frozenset[str]], similarity: float) -> list[list[int]]:
    """Connected components of similar sets with at least two members, as sorted indices."""
    hashes = [_min_hash(each) for each in shingles]
    index = RMinHashLSH(similarity, PERMUTATIONS, BANDS)
    leader = list(range(len(shingles)))
    for row, found in enumerate(hashes):
        for other in sorted(index.query(found)):
            a, b = _leader(leader, row), _leader(leader, other)
            if a != b and jaccard(shingles[row], shingles[other]) >= similarity:
                leader[max(a, b)] = min(a, b)
        index.insert(row, found)
    gathered: dict[int, list[int]] = {}
    for row in range(len(shingles)):
        gathered.setdefault(_leader(leader, row), []).append(row)
    return [cluster for cluster in gathered.values() if len(cluster) > 1]


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
    while leader[row] != row:
        leader[row] = leader[leader[row]]
        row = leader[row]
    return row


def _min_hash(shingles: frozenset[str]) -> RMinHash:
    found = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
    found.update(sorted(shingles))
    return found


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def tokens_of(statement: str) -> list[str]:
    """Words, numbers and LaTeX commands in lower case; each CJK character is a word."""
    return _TOKEN.findall(_without_layout(statement))


def mathematics_of(statement: str) -> str:
    """Digits, operators and LaTeX commands in order, which differ between different problems.

    Number words count as digits; ``\\dfrac`` is ``\\frac``, and ``\\frac12`` is ``\\frac{1}{2}``.
    """
    text = _GROUPED.sub("", _without_layout(statement))
    return "".join(_SIGNS.findall(_NUMBER_WORD.sub(lambda word: str(_NUMBER_WORDS[word[0]]), text)))


def shingles_of(statement: str) -> frozenset[str]:
    """Words and bigrams, for the similarity of two statements."""
    words = tokens_of(statement)
    return frozenset(words) | frozenset(f"{a} {b}" for a, b in pairwise(words))


def _without_layout(statement: str) -> str:
    text = statement.lower()
    return _SIZED.sub(r"\\frac", _LAYOUT_COMMANDS.sub(" ", text)) if "\\" in text else text

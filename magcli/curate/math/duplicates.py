"""Problems that stand in a set more than once: the same statement, or nearly the same with the same mathematics.

Statements are near-duplicates when their words overlap enough and their numbers, operators and answers are equal: what
differs in a number is another problem. Candidates come from MinHash, each is verified by the exact Jaccard similarity
of its words and pairs of words. Of a cluster the row with the smallest id stays, wherever it stood.
"""

import hashlib
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from rensa import RMinHash, RMinHashLSH

from magcli.curate.math.tokens import mathematics_of, shingles_of

PERMUTATIONS, BANDS = 64, 16
"""Of MinHash: pairs as alike as 0.7 become candidates with a probability of 0.99, as alike as 0.8 of 0.9998."""
SEED = 20250612
_LAYOUT = re.compile(r"[\s$]|\\[,;:! ]|\\(?:text|left|right)(?![A-Za-z])|(?<=\d)\.0+\Z|[.。]\Z")


class Duplicate(NamedTuple):
    """A row that goes: its number, whether it is equal to the one that stays or nearly so, and that one's number."""

    number: int
    exact: bool
    of: int


class Seen:
    """The statements of a set, numbered as they are added: about 400 bytes a row besides its text."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.keys: list[tuple[str, str]] = []
        self.exact, self.kin = array("Q"), array("Q")

    def add(self, id: str, statement: str, answer: str) -> None:
        """Remember a row."""
        self.statements.append(statement)
        self.keys.append((id, answer))
        self.exact.append(_digest(" ".join(statement.split())))
        self.kin.append(_digest(f"{mathematics_of(statement)}\n{_LAYOUT.sub('', answer).lower()}"))

    def duplicates(self, similarity: float) -> Iterator[Duplicate]:
        """Every row that goes; ``similarity`` is the least of near-duplicates, 1 leaves exact ones only."""
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
    """Which sets are alike, directly or through others: clusters of two and more, as indices in order."""
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
    """Size of the intersection over that of the union; 1 for two empty sets."""
    common = len(one & other)
    union = len(one) + len(other) - common
    return common / union if union else 1.0


def _groups(digests: "array[int]", rows: Sequence[int]) -> Iterator[list[int]]:
    """The rows whose digests are equal, where there are at least two; by sorting, in little memory."""
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

"""Duplicates among the problems of a set, and problems that also occur in evaluation sets (contamination).

Statements are duplicates if only spaces, punctuation and the case of words differ. Of these the row with the smallest
id is kept, unless their answers contradict each other: then none is, as nothing tells which one is right.

Statements are near-duplicates if their words overlap enough, their numbers, operators and answers are equal, and the
words that differ make no other problem (see ``rewording``). Candidates come from MinHash and are verified by the exact
Jaccard similarity of words and bigrams. The row with the smallest id is kept.

A problem is contaminated by an evaluation problem if they share 13-grams, these are at least half of the n-grams of the
shorter one, and all numbers of the shorter one occur in the longer one. So contests' boilerplate ("relatively prime
positive integers") is no match, nor is a problem with other numbers. Statements under 13 words must be equal.
Evaluation problems are compared as they are and as cleaning leaves them; translations are not found.
"""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rensa import RMinHash, RMinHashLSH

from magcli.curate.math.choices import append_options, as_open_question, split_options
from magcli.curate.math.problems import Kept, clean
from magcli.curate.math.rewording import changes, filled_in, gaps, same_problem, words_of
from magcli.curate.math.words import hashed_ngrams, jaccard, mathematics_of, plain_text, shingles_of, tokens_of
from magcli.curate.tables import context_columns, context_of, read_strict, with_context
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.layouts import names
from magcli.layouts.convert import converted
from magcli.run.layout import convert

PERMUTATIONS, BANDS = 64, 16
"""MinHash parameters: pairs with similarity 0.7 become candidates with probability 0.99, with 0.8 with 0.9998."""
SEED = 20250612
MAX_LINKED = 64
"""Rows of a component that further rows are compared with: the rows of a large template are all similar."""
MAX_COMPARED = 64
"""Problems of one template with which a similar row is compared at most."""
# What may differ between two spellings of an answer: spaces, dollar signs, \text, ".0" and a final period.
_LAYOUT = re.compile(r"[\s$]|\\[,;:! ]|\\(?:text|left|right)(?![A-Za-z])|(?<=\d)\.0+\Z|[.。]\Z")
GRAM = 13
"""Words per n-gram, as in the decontamination of GPT-3."""
MIN_SHARE = 0.5
STATEMENTS = ("prompt", "problem", "question", "statement", "informal_statement", "content", "input")
"""Names of the statement column of evaluation sets, in order of preference."""
ANSWERS = ("answer", *names.PROBLEM["answer"])
"""Names of their answer column: how a multiple-choice question is opened depends on the right option."""
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# The comma of 1,000
_PLAIN_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


DropReason = Literal["duplicate", "near-duplicate", "conflicting-answers"]
Agree = Callable[[str, str], bool]
"""Whether two answers are equal."""


class Duplicate(NamedTuple):
    """A row to drop: its number, why, and the number of the row that is kept or whose answer contradicts."""

    number: int
    reason: DropReason
    of: int


class StatementIndex:
    """The statements of a set, numbered in order of addition; about 400 bytes per row besides the text.

    ``agree`` compares two answers that differ as text.
    """

    def __init__(self, agree: Agree) -> None:
        self.statements: list[str] = []
        self.keys: list[tuple[str, str]] = []
        self._agree = agree
        self._exact, self._comparable = array("Q"), array("Q")

    def add(self, id: str, statement: str, answer: str) -> None:
        """Add a row."""
        self.statements.append(statement)
        self.keys.append((id, answer))
        # Digests, as the texts are compared within groups of equal ones only.
        self._exact.append(_digest(plain_text(statement)))
        self._comparable.append(_digest(f"{mathematics_of(statement)}\n{_without_layout(answer)}"))

    def duplicates(self, similarity: float) -> Iterator[Duplicate]:
        """All rows to drop; ``similarity`` is the threshold for near-duplicates, 1 for only exact ones."""
        dropped = set()
        for group in _groups(self._exact, range(len(self.statements))):
            for duplicate in self._of_one_statement(self._sorted(group)):
                dropped.add(duplicate.number)
                yield duplicate
        if similarity >= 1:
            return
        rows = [row for row in range(len(self.statements)) if row not in dropped]
        # Only statements with equal mathematics and answers can be near-duplicates.
        for group in _groups(self._comparable, rows):
            shingles = [shingles_of(self.statements[row]) for row in group]
            for component in components(shingles, similarity):
                yield from self._reworded(self._sorted(group[index] for index in component))

    def _of_one_statement(self, rows: Sequence[int]) -> Iterator[Duplicate]:
        """The rows of one statement without the first one, or all of them if their answers contradict each other."""
        first = rows[0]
        answers = {row: self.keys[row][1] for row in rows}
        distinct_answers = set(answers.values())
        contradicting = {answer for answer in distinct_answers if not self._are_equal(answers[first], answer)}
        if not contradicting:
            for row in rows[1:]:
                yield Duplicate(row, "duplicate", first)
            return
        opponent = next(row for row in rows if answers[row] in contradicting)
        for row in rows:
            # Each row names one of the other side.
            yield Duplicate(row, "conflicting-answers", first if answers[row] in contradicting else opponent)

    def _reworded(self, rows: Sequence[int]) -> Iterator[Duplicate]:
        """Those of similar rows that state the problem of an earlier one in other words."""
        statements = [self.statements[row] for row in rows]
        words = [words_of(statement) for statement in statements]
        has_numbers = any(map(_DIGIT.search, statements))
        differing = [changes(words[0], others) for others in words]
        positions = gaps(differing)
        # Rows that fill the gaps of their template differently are different problems.
        kept: dict[tuple[tuple[int, str], ...], list[int]] = {}
        for index, row in enumerate(rows):
            alike = kept.setdefault(filled_in(differing[index], positions), [])
            for first in alike[:MAX_COMPARED]:
                if same_problem(changes(words[first], words[index]), strict=not has_numbers):
                    yield Duplicate(row, "near-duplicate", rows[first])
                    break
            else:
                alike.append(index)

    def _are_equal(self, one: str, other: str) -> bool:
        return _without_layout(one) == _without_layout(other) or self._agree(one, other)

    def _sorted(self, rows: Iterable[int]) -> list[int]:
        return sorted(rows, key=lambda row: (*self.keys[row], self.statements[row]))


def _without_layout(answer: str) -> str:
    return _LAYOUT.sub("", answer).lower()


def components(shingles: Sequence[frozenset[str]], similarity: float) -> list[list[int]]:
    """Connected components of similar sets with at least two members, as sorted indices."""
    # A row asks for its neighbours before it is added, so each pair is looked at once.
    hashes = [_min_hash(words) for words in shingles]
    index = RMinHashLSH(similarity, PERMUTATIONS, BANDS)
    # Union-find, in which the smallest index of a component leads it.
    leader = list(range(len(shingles)))
    size = [0] * len(shingles)
    for row, min_hash in enumerate(hashes):
        for other in sorted(index.query(min_hash)):
            first, second = sorted((_leader(leader, row), _leader(leader, other)))
            if first != second and jaccard(shingles[row], shingles[other]) >= similarity:
                leader[second] = first
                size[first] += size[second]
        own_leader = _leader(leader, row)
        size[own_leader] += 1
        # Later rows are compared with the first members of a large component only.
        if size[own_leader] <= MAX_LINKED:
            index.insert(row, min_hash)
    members: dict[int, list[int]] = {}
    for row in range(len(shingles)):
        members.setdefault(_leader(leader, row), []).append(row)
    return [component for component in members.values() if len(component) > 1]


def _groups(digests: "array[int]", rows: Sequence[int]) -> Iterator[list[int]]:
    """Groups of at least two rows with equal digests, by sorting."""
    chosen = np.asarray(rows, np.int64)
    values = np.asarray(digests)[chosen]
    order = np.argsort(values, kind="stable")
    # Where the next digest begins.
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
    # JSON may have unpaired surrogates, which UTF-8 refuses otherwise.
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


# ---- contamination ----


Row = Mapping[str, Any]


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
        grams = hashed_ngrams(words, GRAM)
        for gram in grams:
            self._by_gram.setdefault(gram, []).append(len(self._problems))
        self._problems.append((source, len(grams), _numbers(statement)))

    def match(self, statement: str) -> EvaluationRow | None:
        """The evaluation problem that contaminates a statement, if any."""
        words = tokens_of(statement)
        if len(words) < GRAM:
            return self._short.get((*words, mathematics_of(statement)))
        grams = hashed_ngrams(words, GRAM)
        shared = Counter(number for gram in grams for number in self._by_gram.get(gram, ()))
        # Most statements share no n-gram, so their numbers are not looked for.
        numbers = _numbers(statement) if shared else Counter[str]()
        # Most shared n-grams first; in a tie, the earlier problem.
        for number, count in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
            source, num_grams, others = self._problems[number]
            if count < MIN_SHARE * min(len(grams), num_grams):
                continue
            fewer_numbers, more_numbers = sorted((numbers, others), key=Counter.total)
            if fewer_numbers <= more_numbers:  # as multisets
                return source
        return None


def short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """File names, or whole paths if several have the same name."""
    distinct = dict.fromkeys(paths)
    count = Counter(path.name for path in distinct)
    return {path: path.name if count[path.name] == 1 else str(path) for path in distinct}


def index_evaluations(paths: Iterable[Path], suites: Mapping[str, Sequence[Row]] | None = None) -> EvaluationIndex:
    """Index the problems of tables; the statement is the first of the columns ``STATEMENTS``, after context columns.

    ``suites`` are more problems, with columns ``id``, ``prompt`` and ``answer``, by the name of their evaluation.

    Raises:
        DataError: a table or a line is unreadable, or has no statement column.
    """
    index = EvaluationIndex()
    for path, short_name in short_names(paths).items():
        source = read_strict(path)
        if layout := converted(source.schema, ("prompt",)):
            convert(source, layout)
        columns = source.schema.names
        column = next((name for name in STATEMENTS if name in columns), None)
        if column is None:
            raise DataError(
                f"{path} has none of the columns {', '.join(STATEMENTS)} to compare; it has: {', '.join(columns)}"
            )
        context = context_columns(columns)
        rows = chain.from_iterable(map(to_rows, source.rows))
        for number, row in enumerate(rows):
            id = row.get("id")
            name = str(number if id is None else id)
            statement = with_context(context_of(row, context), str(row[column] or ""))
            _add_forms(index, EvaluationRow(short_name, name), statement, row)
    for name, problems in (suites or {}).items():
        for problem in problems:
            _add_forms(index, EvaluationRow(name, str(problem["id"])), str(problem["prompt"]), problem)
    return index


def _add_forms(index: EvaluationIndex, source: EvaluationRow, statement: str, row: Row) -> None:
    for form in _forms(statement, row):
        index.add(source, form)


def _forms(statement: str, row: Row) -> list[str]:
    """A statement as it is, and as cleaning leaves it: with and without its options. Their words differ."""
    stated_options = [row[name] for name in names.OPTIONS if row.get(name)]
    complete = append_options(statement, stated_options[0] if stated_options else None)
    forms = [statement, complete]
    if listed := split_options(complete):
        forms.append(as_open_question(listed, "").stem)
    answers = [row[name] for name in ANSWERS if row.get(name) is not None]
    if answers:
        # Any answer, as the evaluation problem is not graded here.
        cleaned = clean(complete, str(answers[0]), parsable=lambda _: True)
        if isinstance(cleaned, Kept):
            forms.append(cleaned.prompt)
    # Forms with the same words are matched as one.
    by_words = {tuple(tokens_of(form)): form for form in forms}
    return list(by_words.values())


def _numbers(statement: str) -> Counter[str]:
    return Counter(_NUMBER.findall(_PLAIN_THOUSANDS.sub("", statement)))

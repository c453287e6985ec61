"""Deterministic synthetic problems with known outcomes.

Kinds repeat in cycles of 100 rows with fixed shares, so that the funnel of any number of whole cycles is known
(``math_funnel``, ``code_funnel``).
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.scale.programs import CODE_KINDS, code_row
from benchmarks.scale.statements import EVALUATIONS, MATH_KINDS, evaluation, math_row

Row = dict[str, Any]


def shuffled(kinds: dict[tuple[str, str], int], seed: int) -> list[tuple[str, str]]:
    """A cycle of (kind, outcome), each as often as its count says."""
    cycle = [kind for kind, count in kinds.items() for _ in range(count)]
    random.Random(seed).shuffle(cycle)
    return cycle


MATH_CYCLE, CODE_CYCLE = shuffled(MATH_KINDS, 1), shuffled(CODE_KINDS, 2)


def numbered(cycle: list[tuple[str, str]], count: int) -> Iterator[tuple[str, int]]:
    """For ``count`` rows: the kind, and its serial number among the rows of that kind."""
    before = Counter[str]()
    for number in range(count):
        kind, _ = cycle[number % len(cycle)]
        yield kind, before[kind]
        before[kind] += 1


def math_rows(count: int) -> Iterator[Row]:
    """Mathematics problems: columns id, prompt, answer."""
    for number, (kind, serial) in enumerate(numbered(MATH_CYCLE, count)):
        prompt, answer = math_row(kind, serial)
        yield {"id": f"m{number:07}", "prompt": prompt, "answer": answer}


def evaluation_rows() -> Iterator[Row]:
    """The problems of an evaluation set, some of which ``math_rows`` repeats."""
    for number in range(EVALUATIONS):
        prompt, answer = evaluation(number)
        yield {"id": f"e{number:04}", "problem": prompt, "answer": answer}


def code_rows(count: int) -> Iterator[Row]:
    """Code problems: columns id, prompt, tests, solutions."""
    for number, (kind, serial) in enumerate(numbered(CODE_CYCLE, count)):
        yield {"id": f"c{number:07}", **code_row(kind, serial)}


def math_funnel(count: int) -> Counter[str]:
    """The outcomes of ``count`` mathematics problems: ``kept`` or the reason for dropping."""
    return Counter(MATH_CYCLE[number % len(MATH_CYCLE)][1] for number in range(count))


def code_funnel(count: int) -> Counter[str]:
    """The outcomes of ``count`` code problems: ``kept`` or the reason for dropping."""
    return Counter(CODE_CYCLE[number % len(CODE_CYCLE)][1] for number in range(count))


def new_tests_funnel(count: int) -> Counter[str]:
    """The outcomes of ``count`` code problems in ``make-tests``, which keeps all that can be run."""
    kinds = code_kinds(count)
    dropped = Counter({"no-solutions": kinds["unsolved"], "few-tests": kinds["untested"]})
    return dropped + Counter(kept=count - dropped.total())


def code_kinds(count: int) -> Counter[str]:
    """How many of ``count`` code problems are of each kind."""
    return Counter(CODE_CYCLE[number % len(CODE_CYCLE)][0] for number in range(count))


def write_all(folder: Path, math: int, code: int, new_tests: int = 0) -> None:
    """Write ``math.jsonl``, ``evaluation.jsonl``, ``code.jsonl`` and ``new-tests.jsonl``."""
    write(folder / "math.jsonl", math_rows(math))
    write(folder / "evaluation.jsonl", evaluation_rows())
    write(folder / "code.jsonl", code_rows(code))
    write(folder / "new-tests.jsonl", code_rows(new_tests))


def write(path: Path, rows: Iterator[Row]) -> None:
    """Rows as JSON lines."""
    dumps: Callable[[Row], str] = json.JSONEncoder(ensure_ascii=False).encode
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(dumps(row) + "\n" for row in rows)

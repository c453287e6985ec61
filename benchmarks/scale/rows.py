"""Synthetic problems, as many as wanted, whose fates are known: the same rows for the same numbers.

Kinds come in cycles, the same share of each in every cycle, so the funnel of any number of whole cycles is known
beforehand (``math_funnel``, ``code_funnel``).
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
    """A cycle: each kind and what becomes of it as often as it says, in an order of its own."""
    cycle = [kind for kind, count in kinds.items() for _ in range(count)]
    random.Random(seed).shuffle(cycle)
    return cycle


MATH_CYCLE, CODE_CYCLE = shuffled(MATH_KINDS, 1), shuffled(CODE_KINDS, 2)


def told_apart(cycle: list[tuple[str, str]], count: int) -> Iterator[tuple[str, int]]:
    """Of ``count`` rows the kind, and how many rows of that kind there are before."""
    before = Counter[str]()
    for number in range(count):
        kind, _ = cycle[number % len(cycle)]
        yield kind, before[kind]
        before[kind] += 1


def math_rows(count: int) -> Iterator[Row]:
    """Mathematics problems: columns id, prompt, answer."""
    for number, (kind, serial) in enumerate(told_apart(MATH_CYCLE, count)):
        prompt, answer = math_row(kind, serial)
        yield {"id": f"m{number:07}", "prompt": prompt, "answer": answer}


def evaluation_rows() -> Iterator[Row]:
    """The problems of an evaluation that some of ``math_rows`` repeat."""
    for number in range(EVALUATIONS):
        prompt, answer = evaluation(number)
        yield {"id": f"e{number:04}", "problem": prompt, "answer": answer}


def code_rows(count: int) -> Iterator[Row]:
    """Code problems: columns id, prompt, tests, solutions."""
    for number, (kind, serial) in enumerate(told_apart(CODE_CYCLE, count)):
        yield {"id": f"c{number:07}", **code_row(kind, serial)}


def math_funnel(count: int) -> Counter[str]:
    """What becomes of ``count`` mathematics problems: ``kept`` or the reason they go."""
    return Counter(MATH_CYCLE[number % len(MATH_CYCLE)][1] for number in range(count))


def code_funnel(count: int) -> Counter[str]:
    """What becomes of ``count`` code problems: ``kept`` or the reason they go."""
    return Counter(CODE_CYCLE[number % len(CODE_CYCLE)][1] for number in range(count))


def made_funnel(count: int) -> Counter[str]:
    """What ``make-tests`` makes of ``count`` code problems: all that can be run stay."""
    kinds = code_kinds(count)
    lost = Counter({"no-solutions": kinds["unsolved"], "few-tests": kinds["untested"]})
    return lost + Counter(kept=count - lost.total())


def code_kinds(count: int) -> Counter[str]:
    """How many of ``count`` code problems are of each kind."""
    return Counter(CODE_CYCLE[number % len(CODE_CYCLE)][0] for number in range(count))


def write_all(folder: Path, math: int, code: int, made: int = 0) -> None:
    """The tables ``math.jsonl``, ``evaluation.jsonl``, ``code.jsonl`` and ``made.jsonl``."""
    write(folder / "math.jsonl", math_rows(math))
    write(folder / "evaluation.jsonl", evaluation_rows())
    write(folder / "code.jsonl", code_rows(code))
    write(folder / "made.jsonl", code_rows(made))


def write(path: Path, rows: Iterator[Row]) -> None:
    """Rows as JSON lines."""
    dumps: Callable[[Row], str] = json.JSONEncoder(ensure_ascii=False).encode
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(dumps(row) + "\n" for row in rows)

"""Make the problems and cold-start traces in ``recipes/smollm2/data``.

    python recipes/smollm2/make_data.py FOLDER_WITH_GSM8K

The folder holds ``train.jsonl`` and ``test.jsonl`` of github.com/openai/grade-school-math (MIT). The easy problems are
written by this script from ``templates.toml``. Everything is drawn with a fixed seed: the same input gives the same
bytes, and the results are kept in the repository, so that the recipe itself needs no download.
"""

import argparse
import json
import random
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SEED = 20250610
LEVELS = {"small": (2, 9), "medium": (3, 25), "large": (12, 99)}
OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}

Row = dict[str, str]


class Sizes(NamedTuple):
    """How many rows each file gets from each source."""

    easy_traces: int = 1000
    gsm8k_traces: int = 250
    easy_problems: int = 180
    gsm8k_problems: int = 60
    flawed: int = 140
    easy_test: int = 150
    gsm8k_test: int = 200


def solve(template: dict[str, Any], values: dict[str, int]) -> list[str] | None:
    """Work through a template's steps, adding each result to ``values``; None when one is not a positive integer."""
    sentences = []
    for step in template["steps"]:
        equation, _, sentence = step.partition(" | ")
        result, _, left, operation, right = equation.split()
        if operation == "/" and values[left] % values[right]:
            return None
        values[result] = OPERATIONS[operation](values[left], values[right])
        if not 0 < values[result] < 1000:
            return None
        sentences.append(sentence)
    return sentences


def easy_problem(templates: dict[str, Any], rng: random.Random, kind: str, level: str) -> Row | None:
    """One problem with its worked solution; None when the drawn numbers do not work out."""
    template = rng.choice(templates[kind])
    low, high = LEVELS[level]
    values = {letter: rng.randint(low, high) for letter in "abc"}
    words = dict(zip(("name", "other"), rng.sample(templates["names"], 2), strict=True))
    words["thing"] = rng.choice(templates["things"])
    sentences = solve(template, values)
    if sentences is None:
        return None
    filled = [text.format(**words, **values) for text in (template["prompt"], *sentences)]
    source = f"easy/{kind.replace('_', '-')}/{level}"
    return {"prompt": filled[0], "answer": str(values["r"]), "solution": "\n".join(filled[1:]), "source": source}


def easy_problems(templates: dict[str, Any]) -> Iterator[Row]:
    """Endless different easy problems: both kinds and all three sizes of numbers in turn."""
    rng = random.Random(SEED)
    turns = [(kind, level) for kind in ("one_step", "two_step") for level in LEVELS]
    seen: set[str] = set()
    while True:
        for kind, level in turns:
            row = None
            while row is None or row["prompt"] in seen:
                row = easy_problem(templates, rng, kind, level)
            seen.add(row["prompt"])
            yield row


def flawed_problems(templates: dict[str, Any], easy: Iterable[Row]) -> Iterator[Row]:
    """Easy problems turned into statements such as the format filter must drop or, for options, rewrite."""
    rng = random.Random(SEED + 1)
    for index, row in enumerate(easy):
        flaw = templates["flawed"][index % len(templates["flawed"])]
        answer = int(row["answer"])
        words = {
            **row,
            "name": rng.choice(templates["names"]),
            "wrong": max(1, answer - rng.randint(1, 5)),
            "double": 2 * answer,
            "more": answer + rng.randint(1, 5),
            "parity": "AB"[answer % 2],
        }
        truth = flaw.get("answer", "{answer}").format(**words)
        yield {"prompt": flaw["prompt"].format(**words), "answer": truth, "source": f"flawed/{flaw['kind']}"}


def gsm8k_problems(path: Path) -> Iterator[Row]:
    """Short GSM8K problems: whole-number answer, at most three lines of solution; calculator marks removed."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        worked, _, answer = row["answer"].partition("\n#### ")
        solution = "\n".join(part.strip() for part in re.sub(r"<<[^<>]*>>", "", worked).splitlines() if part.strip())
        answer = answer.strip().replace(",", "")
        if answer.isdecimal() and len(row["question"]) <= 240 and len(solution) <= 240 and solution.count("\n") <= 2:
            yield {"prompt": row["question"].strip(), "answer": answer, "solution": solution, "source": "gsm8k"}


def trace(row: Row) -> Row:
    """The problem with a completion in the recipe's format: thoughts, then the answer in a box."""
    completion = f"<think>\n{row['solution']}\n</think>\nThe answer is \\boxed{{{row['answer']}}}."
    return {**{key: row[key] for key in ("prompt", "answer")}, "completion": completion, "source": row["source"]}


def take(rows: Iterator[Row], count: int) -> list[Row]:
    """The next ``count`` rows."""
    return [next(rows) for _ in range(count)]


def write(name: str, rows: Iterable[Row]) -> None:
    """One JSON object a line, in an order mixed by the seed, each row with an id."""
    mixed = list(rows)
    random.Random(SEED).shuffle(mixed)
    stem = name.removesuffix(".jsonl")
    lines = [json.dumps({"id": f"{stem}/{i:04}"} | row, ensure_ascii=False) for i, row in enumerate(mixed)]
    (HERE / "data" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{name}: {len(mixed)} rows")


def main() -> None:
    """Read GSM8K, write the four files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gsm8k", type=Path, help="folder with train.jsonl and test.jsonl of grade-school-math")
    folder = parser.parse_args().gsm8k
    sizes = Sizes()
    templates = tomllib.loads((HERE / "templates.toml").read_text(encoding="utf-8"))
    easy = easy_problems(templates)
    train, test = list(gsm8k_problems(folder / "train.jsonl")), list(gsm8k_problems(folder / "test.jsonl"))
    random.Random(SEED).shuffle(train)
    random.Random(SEED).shuffle(test)
    train_rows = iter(train)
    traces = take(easy, sizes.easy_traces) + take(train_rows, sizes.gsm8k_traces)
    problems = take(easy, sizes.easy_problems) + take(train_rows, sizes.gsm8k_problems)
    flawed = list(flawed_problems(templates, take(easy, sizes.flawed)))
    write("cold_start.jsonl", map(trace, traces))
    write("problems.jsonl", problems + flawed)
    write("test_easy.jsonl", take(easy, sizes.easy_test))
    write("test_gsm8k.jsonl", test[: sizes.gsm8k_test])


if __name__ == "__main__":
    main()

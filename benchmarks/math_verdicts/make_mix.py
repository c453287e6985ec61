"""``python -m benchmarks.math_verdicts.make_mix FOLDER`` writes ``mix.jsonl``, the fixed mix on which grading is timed.

FOLDER holds the four source files as published. Half of the mix are the boxed answers of a model to competition
problems, all eight responses to each; the other half are ground truths of school and competition problems with a
rewrite of the kind that models produce, or a wrong answer. Rows are drawn with a fixed seed without running any grader.
"""

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIX_FILE = Path(__file__).with_name("mix.jsonl")
SEED = 20251121
RIGHT = 0.6
"""Share of correct answers among the rewritten ones, about as in RL."""
SIZES = {"math": 500, "college": 250, "gsm8k": 50}

Pair = tuple[str, str]
Rewrite = Callable[[str], str]

REWRITES: tuple[Rewrite, ...] = (
    lambda gold: gold,
    lambda gold: gold.replace(r"\frac", r"\dfrac"),
    lambda gold: gold.replace(r"\dfrac", r"\frac"),
    lambda gold: re.sub(r"\\d?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", gold),
    lambda gold: gold.replace("(", r"\left(").replace(")", r"\right)").replace(r"\left\left", r"\left"),
    lambda gold: gold.replace(r"\left", "").replace(r"\right", ""),
    lambda gold: gold.replace(" ", ""),
    lambda gold: re.sub(r"([+=,-])", r" \1 ", gold),
    lambda gold: re.sub(r"^(-?\d+)(\d{3})$", r"\1,\2", gold),
    lambda gold: re.sub(r"^(-?\d+)$", r"\1.0", gold),
    lambda gold: re.sub(r"^(-?\d+)$", r"\1.", gold),
    lambda gold: re.sub(r"^(-?[\w\\{}/]+)$", r"x = \1", gold),
    lambda gold: re.sub(r"^([^,=<>]+)$", r"\\boxed{\1}", gold),
    lambda gold: re.sub(r"^([^+,=-]+)([+-])([^+,=-]+)$", r"\2\3+\1", gold).removeprefix("+"),
    lambda gold: re.sub(r"\\text\{(.+?)\}", r"\1", gold),
    lambda gold: re.sub(r"\\cdot|\\times", "*", gold),
)


def main(folder: Path) -> None:
    """Draw all rows and write the file."""
    rng = random.Random(SEED)
    rows = [("qwen-math", *pair) for pair in _traces(folder / "qwen_math_cot_100x8.jsonl")]
    rows += [("math", *pair) for pair in _answers(rng, _math(folder / "math_train.json"), SIZES["math"])]
    rows += [("college", *pair) for pair in _answers(rng, _college(folder / "college_math.jsonl"), SIZES["college"])]
    solutions = list(_gsm8k(folder / "gsm8k_model_solutions.jsonl"))
    rows += [("gsm8k", *pair) for pair in rng.sample(solutions, SIZES["gsm8k"])]
    rng.shuffle(rows)
    lines = [json.dumps({"source": s, "prediction": p, "gold": g}, ensure_ascii=False) for s, p, g in rows]
    MIX_FILE.write_text("\n".join(lines) + "\n")


def _answers(rng: random.Random, golds: list[str], size: int) -> list[Pair]:
    return [_answer(rng, gold, golds) for gold in rng.sample(golds, size)]


def _answer(rng: random.Random, gold: str, golds: list[str]) -> Pair:
    """A pair of ``gold`` with a rewrite, or with an answer that has another digit, sign or value."""
    if rng.random() < RIGHT:
        changed = [new for new in (rewrite(gold) for rewrite in REWRITES) if new != gold]
        return (rng.choice([gold, *changed]), gold)
    near = [new for new in (_other_digit(rng, gold), _other_sign(gold)) if new != gold]
    return (rng.choice([*near, rng.choice(golds)]), gold)


def _other_digit(rng: random.Random, gold: str) -> str:
    places = [m.start() for m in re.finditer(r"\d", gold)]
    if not places:
        return gold
    at = rng.choice(places)
    return gold[:at] + str((int(gold[at]) + rng.randint(1, 9)) % 10) + gold[at + 1 :]


def _other_sign(gold: str) -> str:
    return gold[1:] if gold.startswith("-") else f"-{gold}" if "," not in gold and "\\text" not in gold else gold


def _traces(file: Path) -> Iterator[Pair]:
    for problem in _lines(file):
        for response in problem["code"]:
            yield _last_box(response), problem["answer"]


def _last_box(text: str) -> str:
    """The content of the last box; the braces must match."""
    start = text.rindex(r"\boxed{") + len(r"\boxed{")
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    raise ValueError(f"unclosed box: {text[start : start + 80]!r}")


def _math(file: Path) -> list[str]:
    return [row["answer"] for row in json.loads(file.read_text()) if row["answer"]]


def _college(file: Path) -> list[str]:
    """Answers of the book under CC BY 3.0; longer ones are worked solutions."""
    rows = [row for row in _lines(file) if "(CC BY 3.0)" in row["license"]]
    return [row["answer"].strip("$") for row in rows if len(row["answer"]) < 80]


def _gsm8k(file: Path) -> Iterator[Pair]:
    for row in _lines(file):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            prediction = row[model]["solution"].rpartition("A:")[2].strip()
            if prediction:
                yield prediction, gold


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in file.read_text().splitlines())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

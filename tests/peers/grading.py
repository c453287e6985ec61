"""The math grader beside Math-Verify, on one core: pairs of prediction and ground truth graded per second.

``math_pairs.jsonl`` holds pairs of many kinds of answers, half of them equal, written by hand for this comparison and
labelled before either grader saw them: agreement tells what these kinds come to, not how often they occur. Math-Verify
gets both sides between dollar signs, which serves it better than a box. Both forget what they graded before each run.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import math_verify
from math_verify import parser
from sympy.core.cache import clear_cache

from magcli.verify import math, normalize, rational, symbolic
from tests.peers.pairs import Result, Side, compare, report, timed

PAIRS_FILE = Path(__file__).with_name("math_pairs.jsonl")

Grader = Callable[[str, str], bool]


def against_math_verify() -> Result:
    """Whole file, both graders; also prints how many verdicts agree with the labels."""
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    cases = [json.loads(line) for line in PAIRS_FILE.read_text().splitlines()]
    name = "grade-vs-math-verify"
    for whose, grader in (("magcli", _magcli), ("math-verify", _math_verify)):
        wrong = [case for case in cases if grader(case["prediction"], case["gold"]) != case["same"]]
        accepted = sum(not case["same"] for case in wrong)
        print(f"{name}: {whose} agrees with {len(cases) - len(wrong)} of {len(cases)} labels, {accepted} wrong accepts")
    return compare(name, _side(_magcli, cases), _side(_math_verify, cases), amount=len(cases), unit="cases")


def _side(grader: Grader, cases: list[dict[str, str]]) -> Side:
    grade_all = timed(lambda: [grader(case["prediction"], case["gold"]) for case in cases])

    def side() -> float:
        _forget()
        return grade_all()

    return side


def _magcli(prediction: str, gold: str) -> bool:
    return math.compare(prediction, gold)[0]


def _math_verify(prediction: str, gold: str) -> bool:
    return bool(math_verify.verify(math_verify.parse(f"${gold}$"), math_verify.parse(f"${prediction}$")))


def _forget() -> None:
    clear_cache()
    for remembered in (normalize.normalize, rational.rational, symbolic.parse):
        remembered.cache_clear()
    for remembered in (parser.parse_latex_cached, parser.parse_expr_cached):
        remembered.cache_clear()


if __name__ == "__main__":
    report(against_math_verify)

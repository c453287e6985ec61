"""Answers graded per CPU second against Math-Verify on a fixed mix, on one core.

Math-Verify gets both sides between dollar signs, which it handles better than a box. Caches are cleared before runs.
"""

import json
import logging
import sys
import time
from collections.abc import Callable

import math_verify
from sympy.core.cache import clear_cache

from benchmarks.math_verdicts.make_mix import MIX_FILE
from benchmarks.pairs import Result, Side, compare
from magcli.verify import math

Pair = tuple[str, str]


def on_mix() -> Result:
    """All rows of the mix; half are responses to the same problems, eight each, as in RL."""
    return _compare("math-speed-vs-math-verify", _mix())


def on_distinct() -> Result:
    """Each distinct pair of the mix once, so that no verdict can be cached."""
    return _compare("math-speed-distinct-vs-math-verify", list(dict.fromkeys(_mix())))


def _compare(name: str, pairs: list[Pair]) -> Result:
    for logger in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    equal = sum(math.equal(*pair) == _math_verify(*pair) for pair in pairs)
    print(f"{name}: equal verdicts on {equal} of {len(pairs)} pairs")
    return compare(name, _side(math.equal, pairs), _side(_math_verify, pairs), amount=len(pairs), unit="cases")


def _mix() -> list[Pair]:
    rows = [json.loads(line) for line in MIX_FILE.read_text().splitlines()]
    return [(row["prediction"], row["gold"]) for row in rows]


def _side(grader: Callable[[str, str], bool], pairs: list[Pair]) -> Side:
    def side() -> float:
        _clear_caches()
        started = time.process_time()
        for pair in pairs:
            grader(*pair)
        return time.process_time() - started

    return side


def _math_verify(prediction: str, gold: str) -> bool:
    return bool(math_verify.verify(math_verify.parse(f"${gold}$"), math_verify.parse(f"${prediction}$")))


def _clear_caches() -> None:
    """SymPy's cache and every ``lru_cache`` of both graders."""
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name.startswith(("magcli.verify", "math_verify", "latex2sympy2_extended")):
            for member in list(vars(module).values()):
                if callable(getattr(member, "cache_clear", None)):
                    member.cache_clear()

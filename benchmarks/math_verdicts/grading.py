"""The math grader beside public ones: a table of right and wrong verdicts, and verdicts per second on one core.

Accuracy is measured on the suites of ``suites.py``, each grader in its own process, each distinct pair asked once.
Speed is measured on ``mix.jsonl``, with its repeats as they come in groups, and on its distinct pairs; Math-Verify
gets both sides between dollar signs, which serves it better than a box; both forget what they know before each run.
Seconds are those of the processor: the work has one thread, and a busy machine does not count.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import math_verify
from sympy.core.cache import clear_cache

from benchmarks.math_verdicts.graders import NO_ANSWER, TITLES, Answer, Grader
from benchmarks.math_verdicts.make_mix import MIX_FILE
from benchmarks.math_verdicts.suites import Case, Suite, suites
from benchmarks.pairs import Result, Side, compare, report
from benchmarks.public import Missing
from magcli.verify import math
from magcli.verify.pool import Pool
from magcli.verify.reward import RewardRule

DEADLINE = 2.0
"""Seconds for one verdict in the pool, its default."""
SHOWN = 160

Pair = tuple[str, str]
Verdicts = dict[Pair, Answer]


@dataclass(frozen=True, slots=True)
class Tally:
    """A grader's verdicts on a suite against the labels."""

    cases: int
    accepts: int
    rejects: int

    def __str__(self) -> str:
        """Accuracy in percent, wrong accepts and wrong rejects."""
        accuracy = 100 * (1 - (self.accepts + self.rejects) / self.cases)
        return f"{accuracy:.1f} ({self.accepts} + {self.rejects})"


def accuracy() -> None:
    """Print the table as Markdown, what could not be had, each wrong verdict of magcli, and its slowest one."""
    given = suites()
    cases = [case for suite in given for case in suite.cases]
    verdicts, missing = _all_verdicts({(case.prediction, case.gold) for case in cases})
    print("\n".join(_table(given, verdicts)))
    for told in [*missing, *(f"{suite.name}: missing: {suite.missing}" for suite in given if suite.missing)]:
        print(f"missing: {told}")
    for case in dict.fromkeys(cases):
        if verdicts["magcli"][case.prediction, case.gold].same != case.same:
            print(f"  magcli is wrong: {case.suite}: {_short(case)}")
    _slowest(dict.fromkeys((case.prediction, case.gold) for case in cases))


def _all_verdicts(pairs: Iterable[Pair]) -> tuple[dict[str, Verdicts], list[str]]:
    """What each grader says of all pairs, and which graders cannot be had."""
    ordered, verdicts, missing = sorted(pairs), {}, []
    for name, title in TITLES.items():
        begun = time.monotonic()
        try:
            with Grader(name) as grader:
                verdicts[name] = {pair: grader.same(*pair) for pair in ordered}
        except Missing as why:
            missing.append(f"{title}: {why}")
            continue
        silent = sum(answer.failure == NO_ANSWER for answer in verdicts[name].values())
        seconds = time.monotonic() - begun
        print(f"  {title}: {len(ordered):,} pairs in {seconds:.0f} s, {silent} without an answer", flush=True)
    return verdicts, missing


def _table(given: Sequence[Suite], verdicts: dict[str, Verdicts]) -> list[str]:
    rows = [
        [suite.name, f"{len(suite.cases):,}", *(str(_tally(suite.cases, answers)) for answers in verdicts.values())]
        for suite in given
        if suite.cases
    ]
    every = [case for suite in given for case in suite.cases]
    rows.append(["all", f"{len(every):,}", *(str(_tally(every, answers)) for answers in verdicts.values())])
    head = ["suite", "cases", *(TITLES[name] for name in verdicts)]
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]


def _tally(cases: Sequence[Case], answers: Verdicts) -> Tally:
    wrong = [case for case in cases if answers[case.prediction, case.gold].same != case.same]
    accepts = sum(not case.same for case in wrong)
    return Tally(len(cases), accepts, len(wrong) - accepts)


def _short(case: Case) -> str:
    text = f"{case.prediction!r} for {case.gold!r}, label {case.same}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({case.key})"


def _slowest(pairs: Iterable[Pair]) -> None:
    """Print how long the slowest verdict took through the pool, from the question to the answer."""
    pool = Pool(workers=1, deadline=DEADLINE)
    seconds, timeouts = [], 0
    try:
        pool.rewards([_job("1", "1")])
        for pair in pairs:
            begun = time.perf_counter()
            timeouts += pool.rewards([_job(*pair)])[0].reason == "timeout"
            seconds.append(time.perf_counter() - begun)
    finally:
        pool.shutdown()
    print(f"magcli through the pool, deadline {DEADLINE:g} s: {len(seconds):,} verdicts, slowest {max(seconds):.2f} s, "
          f"{timeouts} timeouts")  # fmt: skip


def _job(prediction: str, gold: str) -> tuple[str, int, dict[str, str], RewardRule]:
    return (
        f"<think>\n</think>\n\\boxed{{{prediction}}}",
        1,
        {"prompt": "", "answer": gold},
        RewardRule(penalty_end=9999),
    )


def speed_on_mix() -> Result:
    """All rows of the mix: half of them responses to the same problems, eight to each, as RL makes them."""
    return _speed("math-speed-vs-math-verify", _mix())


def speed_on_distinct() -> Result:
    """Each pair of the mix once: no verdict can be remembered."""
    return _speed("math-speed-distinct-vs-math-verify", list(dict.fromkeys(_mix())))


def _speed(name: str, pairs: list[Pair]) -> Result:
    for logger in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    agree = sum(math.equal(*pair) == _math_verify(*pair) for pair in pairs)
    print(f"{name}: the two agree on {agree} of {len(pairs)}")
    return compare(name, _side(math.equal, pairs), _side(_math_verify, pairs), amount=len(pairs), unit="cases")


def _mix() -> list[Pair]:
    rows = [json.loads(line) for line in MIX_FILE.read_text().splitlines()]
    return [(row["prediction"], row["gold"]) for row in rows]


def _side(grader: Callable[[str, str], bool], pairs: list[Pair]) -> Side:
    def side() -> float:
        _forget()
        begun = time.process_time()
        for pair in pairs:
            grader(*pair)
        return time.process_time() - begun

    return side


def _math_verify(prediction: str, gold: str) -> bool:
    return bool(math_verify.verify(math_verify.parse(f"${gold}$"), math_verify.parse(f"${prediction}$")))


def _forget() -> None:
    """Empty SymPy's cache and every ``lru_cache`` of both graders."""
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name.startswith(("magcli.verify", "math_verify", "latex2sympy2_extended")):
            for member in list(vars(module).values()):
                if callable(getattr(member, "cache_clear", None)):
                    member.cache_clear()


if __name__ == "__main__":
    accuracy()
    report(speed_on_mix, speed_on_distinct)

"""Verdicts of magcli and of public math graders on labelled cases, one process per grader, as a table."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.downloads import Unavailable
from benchmarks.math_verdicts.graders import NO_ANSWER, TITLES, Answer, Grader
from benchmarks.math_verdicts.suites import Case, Suite, suites
from magcli.verify.pool import Pool
from magcli.verify.reward import RewardRule

DEADLINE = 2.0
"""The default timeout of a verdict in the worker pool."""
MAX_SHOWN = 160

Pair = tuple[str, str]
Verdicts = dict[Pair, Answer]


@dataclass(frozen=True, slots=True)
class Score:
    """Cases of a suite and a grader's wrong verdicts on them."""

    cases: int
    wrong_accepts: int
    wrong_rejects: int

    def __str__(self) -> str:
        """Accuracy in percent (wrong accepts + wrong rejects)."""
        accuracy = 100 * (1 - (self.wrong_accepts + self.wrong_rejects) / self.cases)
        return f"{accuracy:.1f} ({self.wrong_accepts} + {self.wrong_rejects})"


def table() -> None:
    """Print the table as Markdown, unavailable suites and graders, magcli's wrong verdicts and its slowest one."""
    all_suites = suites()
    cases = [case for suite in all_suites for case in suite.cases]
    verdicts, unavailable = _all_verdicts({(case.prediction, case.gold) for case in cases})
    print("\n".join(_markdown(all_suites, verdicts)))
    unavailable += [f"{suite.name}: {suite.unavailable}" for suite in all_suites if suite.unavailable]
    for message in unavailable:
        print(f"unavailable: {message}")
    for case in dict.fromkeys(cases):
        if verdicts["magcli"][case.prediction, case.gold].same != case.same:
            print(f"  magcli is wrong: {case.suite}: {_short(case)}")
    _print_slowest(dict.fromkeys((case.prediction, case.gold) for case in cases))


def _all_verdicts(pairs: Iterable[Pair]) -> tuple[dict[str, Verdicts], list[str]]:
    """The verdicts of each grader, and why others are unavailable."""
    ordered = sorted(pairs)
    verdicts = {}
    unavailable = []
    for name, title in TITLES.items():
        started = time.monotonic()
        try:
            with Grader(name) as grader:
                verdicts[name] = {pair: grader.same(*pair) for pair in ordered}
        except Unavailable as error:
            unavailable.append(f"{title}: {error}")
            continue
        timeouts = sum(answer.failure == NO_ANSWER for answer in verdicts[name].values())
        seconds = time.monotonic() - started
        print(f"  {title}: {len(ordered):,} pairs in {seconds:.0f} s, {timeouts} without an answer", flush=True)
    return verdicts, unavailable


def _markdown(all_suites: Sequence[Suite], verdicts: dict[str, Verdicts]) -> list[str]:
    rows = [
        [suite.name, f"{len(suite.cases):,}", *(str(_score(suite.cases, answers)) for answers in verdicts.values())]
        for suite in all_suites
        if suite.cases
    ]
    every = [case for suite in all_suites for case in suite.cases]
    rows.append(["all", f"{len(every):,}", *(str(_score(every, answers)) for answers in verdicts.values())])
    head = ["suite", "cases", *(TITLES[name] for name in verdicts)]
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]


def _score(cases: Sequence[Case], answers: Verdicts) -> Score:
    wrong = [case for case in cases if answers[case.prediction, case.gold].same != case.same]
    wrong_accepts = sum(not case.same for case in wrong)
    return Score(len(cases), wrong_accepts, len(wrong) - wrong_accepts)


def _short(case: Case) -> str:
    text = f"{case.prediction!r} for {case.gold!r}, label {case.same}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({case.key})"


def _print_slowest(pairs: Iterable[Pair]) -> None:
    """Print the longest time of a verdict through the worker pool."""
    pool = Pool(workers=1, deadline=DEADLINE)
    seconds, timeouts = [], 0
    try:
        pool.rewards([_job("1", "1")])
        for pair in pairs:
            started = time.perf_counter()
            timeouts += pool.rewards([_job(*pair)])[0].reason == "timeout"
            seconds.append(time.perf_counter() - started)
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

"""Does a slow verifier delay generation? ``magcli rl`` with one that takes 100 ms longer beside one that does not.

Generated tokens a second of whole runs, in pairs, with SmolLM2-135M-Instruct on word problems: both sides are magcli,
with one generator process beside the trainer. The ratio is that of the slow verifier's run.
"""

from benchmarks.pairs import Result
from benchmarks.public import Missing
from benchmarks.rl import prepare, sides
from benchmarks.rl.sides import Task

PAIRS = 5
LIMIT = 48
WARMUP, TIMED = 2, 3
WORKERS = 4
"""Verifier processes: about as many completions end in 100 ms when a group ends at once."""
SLOW = sides.REWARD.replace(":answered", ":answered_late")
LEAST = 0.95


def run() -> Result | None:
    """Slow over quick, in pairs; the exit code is 1 where the median is below ``LEAST``."""
    try:
        task = Task(prepare.natural(), prepare.problems(WARMUP + TIMED), LIMIT, WARMUP, TIMED)
    except Missing as missing:
        print(f"rl-slow-verifier: not run: {missing}", flush=True)
        return None
    return Result("rl-slow-verifier", tuple(_pair(task, number) for number in range(PAIRS)), least=LEAST)


def _pair(task: Task, number: int) -> float:
    """The sides take turns in being first."""
    rewards = (SLOW, sides.REWARD) if number % 2 else (sides.REWARD, SLOW)
    rates = {reward: _rate(task, reward) for reward in rewards}
    ratio = rates[SLOW] / rates[sides.REWARD]
    print(
        f"  rl-slow-verifier: {rates[sides.REWARD]:.1f} tokens/s generated, {rates[SLOW]:.1f} with a verifier that "
        f"takes 100 ms more, ratio {ratio:.3f}",
        flush=True,
    )
    return ratio


def _rate(task: Task, reward: str) -> float:
    seconds, lines = sides.clock(task, sides.run_magcli(task, reward=reward, workers=WORKERS, generators=1))
    return sum(line["generated_tokens"] for line in lines) / seconds

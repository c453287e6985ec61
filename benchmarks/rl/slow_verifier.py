"""``magcli rl`` with a verifier that takes 100 ms longer per completion, against the same without the delay.

Generated tokens a second of whole runs with one generator process beside the trainer, SmolLM2-135M-Instruct on word
problems. The ratio is slow over fast: below 1, generation waits for verifiers.
"""

from benchmarks.pairs import Result
from benchmarks.rl import inputs
from benchmarks.rl.runs import REWARD, Task, clock, run_magcli

PAIRS = 5
LIMIT = 48
WARMUP, TIMED = 2, 3
WORKERS = 4
"""Verifier processes: about as many completions end within 100 ms when a group ends at once."""
SLOW_REWARD = REWARD.replace(":correct_anywhere", ":delayed")
LEAST = 0.95


def run() -> Result:
    """Slow over fast, in pairs; the median must be at least ``LEAST``."""
    task = Task(inputs.smollm2(), inputs.problems(WARMUP + TIMED), LIMIT, WARMUP, TIMED)
    return Result("rl-slow-verifier", tuple(_ratio(task, number) for number in range(PAIRS)), least=LEAST)


def _ratio(task: Task, number: int) -> float:
    """Of one pair; every second pair starts with the slow verifier."""
    rewards = (SLOW_REWARD, REWARD) if number % 2 else (REWARD, SLOW_REWARD)
    rates = {reward: _rate(task, reward) for reward in rewards}
    ratio = rates[SLOW_REWARD] / rates[REWARD]
    print(
        f"  rl-slow-verifier: {rates[REWARD]:.1f} generated tokens/s, {rates[SLOW_REWARD]:.1f} with the slow verifier, "
        f"ratio {ratio:.3f}",
        flush=True,
    )
    return ratio


def _rate(task: Task, reward: str) -> float:
    seconds, lines = clock(task, run_magcli(task, reward=reward, workers=WORKERS, generators=1))
    return sum(line["generated_tokens"] for line in lines) / seconds

"""``magcli rl`` with the number formats that ``auto`` finds beside each fixed choice: trained tokens a second.

Every completion has as many tokens, so that all sides do the same work. A fixed choice that is hopeless here, as bf16
is on a processor without instructions for it, is given up once it has taken longer than a run that was faster could.
"""

import os

from benchmarks.pairs import Result
from benchmarks.public import Missing
from benchmarks.rl import prepare, sides
from benchmarks.rl.sides import Task

PAIRS = 1 if os.environ.get("PEERS_SHORT") == "1" else 3
LIMIT = 32
WARMUP, TIMED = 2, 2
LEAST = 0.95
FIXED = tuple({"bf16": bf16, "dtype": dtype} for bf16 in ("yes", "no") for dtype in ("bf16", "fp32"))
PATIENCE = 1.5
"""A run that takes this many times as long as the shortest before it is not the best."""


def run() -> Result | None:
    """Auto over the best of the fixed choices, in rounds; the exit code is 1 where the median is below ``LEAST``."""
    try:
        task = Task(prepare.endless(), prepare.problems(WARMUP + TIMED), LIMIT, WARMUP, TIMED)
    except Missing as missing:
        print(f"rl-auto-vs-best: not run: {missing}", flush=True)
        return None
    hopeless: set[str] = set()
    return Result("rl-auto-vs-best", tuple(_round(task, hopeless) for _ in range(PAIRS)), least=LEAST)


def _round(task: Task, hopeless: set[str]) -> float:
    auto, shortest = _rate(task, {"bf16": "auto", "dtype": "auto"}, sides.SECONDS)
    rates = {}
    for fixed in FIXED:
        name = f"bf16 {fixed['bf16']}, dtype {fixed['dtype']}"
        if name in hopeless:
            continue
        try:
            rates[name], seconds = _rate(task, fixed, PATIENCE * shortest)
            shortest = min(shortest, seconds)
        except AssertionError as slow:
            if "too slow" not in str(slow):
                raise
            hopeless.add(name)
    best = max(rates, key=lambda name: rates[name])
    told = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    given_up = f"; given up: {'; '.join(sorted(hopeless))}" if hopeless else ""
    print(
        f"  rl-auto-vs-best: auto {auto:.1f} trained tokens/s, {told}{given_up}; ratio {auto / rates[best]:.2f}",
        flush=True,
    )
    return auto / rates[best]


def _rate(task: Task, formats: dict[str, str], patience: float) -> tuple[float, float]:
    """Trained tokens a second on the clock, and the seconds of the whole run."""
    watched = sides.run_magcli(task, seconds=patience, **formats)
    took, lines = sides.clock(task, watched)
    return sum(line["trained_tokens"] for line in lines) / took, watched.seconds

"""``--dtype auto --bf16 auto`` of ``magcli rl`` against each fixed number format: trained tokens a second.

Every completion has the same number of tokens, so that all runs do the same work. A fixed format that is too slow, as
bf16 is on a CPU without instructions for it, is not run again.
"""

from benchmarks.monitor import TooSlow
from benchmarks.pairs import Result
from benchmarks.rl import inputs, settings
from benchmarks.rl.runs import SECONDS, Task, clock, run_magcli

LIMIT = 32
LEAST = 0.95
FIXED = tuple({"bf16": bf16, "dtype": dtype} for bf16 in ("yes", "no") for dtype in ("bf16", "fp32"))
TIMEOUT_FACTOR = 1.5
"""A run is stopped after this many times the shortest run so far."""


def run() -> Result:
    """The rate of ``auto`` over the best fixed format; the median must be at least ``LEAST``."""
    updates = settings.WARMUP + settings.TIMED
    task = Task(inputs.smollm2_without_end(), inputs.problems(updates), LIMIT, settings.WARMUP, settings.TIMED)
    too_slow: set[str] = set()
    ratios = tuple(_ratio(task, too_slow) for _ in range(settings.PAIRS))
    return Result("rl-auto-vs-best", ratios, least=LEAST)


def _ratio(task: Task, too_slow: set[str]) -> float:
    auto, shortest = _rate(task, {"bf16": "auto", "dtype": "auto"}, SECONDS)
    rates = {}
    for formats in FIXED:
        name = f"bf16 {formats['bf16']}, dtype {formats['dtype']}"
        if name in too_slow:
            continue
        try:
            rates[name], seconds = _rate(task, formats, TIMEOUT_FACTOR * shortest)
            shortest = min(shortest, seconds)
        except TooSlow:
            too_slow.add(name)
    ratio = auto / max(rates.values())
    measured = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    stopped = f"; stopped: {'; '.join(sorted(too_slow))}" if too_slow else ""
    print(f"  rl-auto-vs-best: trained tokens/s: auto {auto:.1f}, {measured}{stopped}; ratio {ratio:.2f}", flush=True)
    return ratio


def _rate(task: Task, formats: dict[str, str], timeout: float) -> tuple[float, float]:
    """Trained tokens a second on the clock, and the seconds of the whole run."""
    record = run_magcli(task, seconds=timeout, **formats)
    seconds, lines = clock(task, record)
    return sum(line["trained_tokens"] for line in lines) / seconds, record.seconds

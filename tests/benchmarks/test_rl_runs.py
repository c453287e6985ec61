"""Clock and memory of runs of the RL comparisons, padding, and the time to a reward."""

import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.monitor import Record, TooSlow, complete_lines, monitor
from benchmarks.rl.reward_curve import seconds_to_level
from benchmarks.rl.runs import Task, clock, flags, padding_share, rate_with_warmup
from benchmarks.rl.settings import TOY_LEVEL, TOY_SMOOTH


def _monitor(tmp_path: Path, code: str, *, last: int, seconds: float = 20.0) -> Record:
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.parent.mkdir()
    program = f"path = {str(metrics)!r}\n{textwrap.dedent(code)}"
    return monitor([sys.executable, "-c", program], metrics, last=last, environment={}, seconds=seconds)


WRITER = """
    import time
    held = b"x" * (60 << 20)
    for step in range(1, 5):
        with open(path, "a") as file:
            file.write('{"step": %d}\\n{"st' % step if step == 4 else '{"step": %d}\\n' % step)
        time.sleep(0.2)
    time.sleep(60)
"""


def test_lines_are_timed_and_the_process_is_terminated(tmp_path: Path) -> None:
    record = _monitor(tmp_path, WRITER, last=3)
    assert set(record.lines) == {1, 2, 3}
    assert record.at[3] - record.at[1] == pytest.approx(0.4, abs=0.25)
    assert record.peak_mib > 60


def test_an_incomplete_line_is_ignored(tmp_path: Path) -> None:
    _monitor(tmp_path, WRITER, last=4)
    assert complete_lines(tmp_path / "run" / "metrics.jsonl")[-1] == {"step": 4}


def test_a_process_that_exits_early_fails_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 3 after step None: out of luck"):
        _monitor(tmp_path, "print('out of luck'); raise SystemExit(3)", last=1)


def test_a_process_that_is_too_slow_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(TooSlow, match="too slow after step 4"):
        _monitor(tmp_path, WRITER, last=9, seconds=2.0)


def test_the_clock_excludes_the_warm_up(tmp_path: Path) -> None:
    record = Record({step: {"step": step} for step in range(5)}, {step: 10.0 * step for step in range(5)}, 0)
    task = Task(tmp_path, tmp_path, 8, warmup=1, timed=2)
    assert clock(task, record) == (20.0, [{"step": 2}, {"step": 3}])


def test_the_rate_with_warm_up_starts_with_the_first_update(tmp_path: Path) -> None:
    lines = {step: {"step": step, "seconds": 5.0, "trained_tokens": 30} for step in range(1, 4)}
    record = Record(lines, {1: 10.0, 2: 12.0, 3: 14.0}, 0)
    task = Task(tmp_path, tmp_path, 8, warmup=1, timed=2)
    assert rate_with_warmup(task, record, lambda line: line["trained_tokens"]) == 10.0


def test_padding_share() -> None:
    assert padding_share({"prompt_lengths": [4, 4], "lengths": [4, 4]}) == 0
    assert padding_share({"prompt_lengths": [4, 2], "lengths": [1, 6]}) == pytest.approx(1 - 13 / 20)


def test_seconds_to_level() -> None:
    low, high = TOY_LEVEL - 0.2, TOY_LEVEL + 0.2
    rewards = [low, high, low, low, *[high] * TOY_SMOOTH, low]
    curve = [(float(second), reward) for second, reward in enumerate(rewards)]
    assert seconds_to_level(curve) == 3.0 + (TOY_SMOOTH + 1) // 2
    assert seconds_to_level(curve[:3]) is None


def test_options_become_flags() -> None:
    assert flags({"n_async": 64, "language": False}) == ["--n-async", "64", "--no-language"]

"""How a race's clock and memory are read, what counts as padding, and when a level of reward is reached."""

import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.rl.learning import reached
from benchmarks.rl.settings import TOY_LEVEL, TOY_SMOOTH
from benchmarks.rl.sides import Task, _padding, _whole, clock, flags
from benchmarks.rl.watch import Watched, watch, whole_lines


def _watch(tmp_path: Path, code: str, *, last: int, seconds: float = 20.0) -> Watched:
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.parent.mkdir()
    program = f"path = {str(metrics)!r}\n{textwrap.dedent(code)}"
    return watch([sys.executable, "-c", program], metrics, last=last, environment={}, seconds=seconds)


WRITER = """
    import time
    held = b"x" * (60 << 20)
    for step in range(1, 5):
        with open(path, "a") as file:
            file.write('{"step": %d}\\n{"st' % step if step == 4 else '{"step": %d}\\n' % step)
        time.sleep(0.2)
    time.sleep(60)
"""


def test_lines_are_clocked_as_they_appear_and_the_process_is_ended(tmp_path: Path) -> None:
    watched = _watch(tmp_path, WRITER, last=3)
    assert set(watched.lines) == {1, 2, 3}
    assert watched.at[3] - watched.at[1] == pytest.approx(0.4, abs=0.25)
    assert watched.peak_mib > 60


def test_a_line_that_is_not_whole_waits(tmp_path: Path) -> None:
    _watch(tmp_path, WRITER, last=4)
    assert whole_lines(tmp_path / "run" / "metrics.jsonl")[-1] == {"step": 4}


def test_a_process_that_ends_early_is_named_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3 after step None: out of luck"):
        _watch(tmp_path, "print('out of luck'); raise SystemExit(3)", last=1)


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="too slow after step 4"):
        _watch(tmp_path, WRITER, last=9, seconds=2.0)


def test_the_clock_leaves_the_warm_up_out(tmp_path: Path) -> None:
    watched = Watched({step: {"step": step} for step in range(5)}, {step: 10.0 * step for step in range(5)}, 0)
    task = Task(tmp_path, tmp_path, 8, warmup=1, timed=2)
    assert clock(task, watched) == (20.0, [{"step": 2}, {"step": 3}])


def test_the_whole_run_begins_with_its_first_update(tmp_path: Path) -> None:
    lines = {step: {"step": step, "seconds": 5.0, "trained_tokens": 30} for step in range(1, 4)}
    watched = Watched(lines, {1: 10.0, 2: 12.0, 3: 14.0}, 0)
    task = Task(tmp_path, tmp_path, 8, warmup=1, timed=2)
    assert _whole(task, watched, lambda line: line["trained_tokens"]) == 10.0


def test_padding_is_what_a_batch_as_wide_as_its_longest_parts_has() -> None:
    assert _padding({"prompt_lengths": [4, 4], "lengths": [4, 4]}) == 0
    assert _padding({"prompt_lengths": [4, 2], "lengths": [1, 6]}) == pytest.approx(1 - 13 / 20)


def test_a_level_is_reached_when_the_mean_of_several_updates_has_it() -> None:
    low, high = TOY_LEVEL - 0.2, TOY_LEVEL + 0.2
    rewards = [low, high, low, low, *[high] * TOY_SMOOTH, low]
    curve = [(float(second), reward) for second, reward in enumerate(rewards)]
    assert reached(curve) == 3.0 + (TOY_SMOOTH + 1) // 2
    assert reached(curve[:3]) is None


def test_options_become_flags() -> None:
    assert flags({"n_async": 64, "language": False}) == ["--n-async", "64", "--no-language"]

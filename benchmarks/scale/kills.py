"""Stages killed at random times and resumed: their outputs must equal those of an uninterrupted run byte for byte."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale import rows
from tests.faults.kills import Story, fresh_seed, survive

KILLS = 2
CODE_SHARE = 20
"""Rows of mathematics per row of code, which takes as long."""


def check_resume(folder: Path, count: int) -> str:
    """Kill ``clean-math`` on ``count`` rows and ``filter-code`` on a twentieth of them; returns a summary.

    Raises:
        AssertionError: outputs differ, or finished units were computed again.
    """
    seed = fresh_seed()
    folder.mkdir(exist_ok=True)
    programs = max(100, count // CODE_SHARE // 100 * 100)
    rows.write_all(folder, count, programs)

    def clean_math(output: Path) -> Sequence[object]:
        against = ["--against", folder / "evaluation.jsonl", "--dropped", output / "dropped.jsonl"]
        return ["clean-math", folder / "math.jsonl", "-o", output / "out.arrow", *against]

    def filter_code(output: Path) -> Sequence[object]:
        paths = ["-o", output / "out.arrow", "--dropped", output / "dropped.jsonl"]
        return ["filter-code", folder / "code.jsonl", "--min-tests", 2, "--workers", 2, *paths]

    outputs = ("out.arrow", "dropped.jsonl")
    mathematics = survive(clean_math, outputs, folder / "clean-math", kills=KILLS, seed=seed)
    code = survive(filter_code, outputs, folder / "filter-code", kills=KILLS, seed=seed)
    return f"{_summary('clean-math', count, mathematics)}\n{_summary('filter-code', programs, code)}"


def _summary(stage: str, count: int, stories: Sequence[Story]) -> str:
    kills = sum(story.kills for story in stories)
    progress = ", ".join(str(units) for story in stories for units in story.progress)
    return f"{stage}: {count:,} rows, killed {kills} times after {progress} units, same output as uninterrupted"

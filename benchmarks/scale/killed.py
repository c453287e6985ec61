"""Stages killed at random instants and begun again: their tables must be those of an unbroken run, byte for byte."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale import rows
from tests.faults.kills import Story, fresh_seed, survive

KILLS = 2
CODE_SHARE = 20
"""Of so many rows of mathematics one of code is run, which takes as long."""


def bytes_survive(folder: Path, count: int) -> str:
    """Kill ``clean-math`` on ``count`` rows and ``filter-code`` on a twentieth; says what was finished when.

    Raises:
        AssertionError: bytes differ, or a finished problem was computed again.
    """
    seed = fresh_seed()
    folder.mkdir(exist_ok=True)
    programs = max(100, count // CODE_SHARE // 100 * 100)
    rows.write_all(folder, count, programs)

    def cleaned(place: Path) -> Sequence[object]:
        against = ["--against", folder / "evaluation.jsonl", "--dropped", place / "dropped.jsonl"]
        return ["clean-math", folder / "math.jsonl", "-o", place / "out.arrow", *against]

    def agreed(place: Path) -> Sequence[object]:
        places = ["-o", place / "out.arrow", "--dropped", place / "dropped.jsonl"]
        return ["filter-code", folder / "code.jsonl", "--min-tests", 2, "--workers", 2, *places]

    outputs = ("out.arrow", "dropped.jsonl")
    mathematics = survive(cleaned, outputs, folder / "clean-math", kills=KILLS, seed=seed)
    code = survive(agreed, outputs, folder / "filter-code", kills=KILLS, seed=seed)
    return f"{_told('clean-math', count, mathematics)}\n{_told('filter-code', programs, code)}"


def _told(stage: str, count: int, stories: Sequence[Story]) -> str:
    kills = sum(story.kills for story in stories)
    progress = ", ".join(str(each) for story in stories for each in story.progress)
    return f"{stage}: {count:,} rows, killed {kills} times with {progress} units finished, the bytes of an unbroken run"

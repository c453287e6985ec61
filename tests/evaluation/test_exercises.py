"""Exercises in the shape of Exercism's: a folder made by hand, its row, and its solution in the sandbox."""

import json
from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.evaluation.rows import exercises, problems
from magcli.evaluation.suite import load
from magcli.verify import Grader
from magcli.verify.reward import RewardRule

FILES = {
    ".docs/instructions.md": "Say how many legs some animals have.",
    "legs.py": "def legs(animals):\n    pass  # to be written\n",
    "legs_test.py": """import unittest
from legs import legs

class LegsTest(unittest.TestCase):
    def test_none(self):
        self.assertEqual(legs([]), 0)

    def test_several(self):
        self.assertEqual(legs(["cat", "hen", "fish"]), 6)

    def test_a_chair_has_none(self):
        with self.assertRaises(ValueError):
            legs(["chair"])
""",
    ".meta/example.py": """KNOWN = {"cat": 4, "hen": 2, "fish": 0}


def legs(animals):
    if unknown := [each for each in animals if each not in KNOWN]:
        raise ValueError(unknown)
    return sum(KNOWN[each] for each in animals)
""",
    ".meta/config.json": json.dumps(
        {"files": {"solution": ["legs.py"], "test": ["legs_test.py"], "example": [".meta/example.py"]}}
    ),
}


FORGED = [
    "class Any(int):\n    __eq__ = lambda *_: True\n    __hash__ = None\ndef legs(animals):\n    return Any()\n",
    "import unittest\nunittest.TestCase.run = lambda *_: None\ndef legs(animals):\n    return 0\n",
    "import os\ndef legs(animals):\n    print('all tests passed: 5d41402abc4b', flush=True)\n    os._exit(0)\n",
]
"""Programs that would pass where their own process decides."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository with one exercise."""
    for name, text in FILES.items():
        path = tmp_path / "polyglot" / "python" / "exercises" / "practice" / "legs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "polyglot"


def test_an_exercise_is_a_row(clone: Path) -> None:
    (row,) = exercises(clone / "python" / "exercises" / "practice")
    assert row["slug"] == "legs"
    assert row["instructions"] == FILES[".docs/instructions.md"]
    assert row["introduction"] == row["instructions_append"] == ""
    assert {key: row[key] for key in ("stub", "tests", "example")} == {
        "stub": {"legs.py": FILES["legs.py"]},
        "tests": {"legs_test.py": FILES["legs_test.py"]},
        "example": {".meta/example.py": FILES[".meta/example.py"]},
    }


@pytest.mark.parametrize("place", [".", "polyglot"])
def test_a_clone_is_graded_in_the_sandbox(clone: Path, place: str) -> None:
    (problem,) = problems(load(["aider-polyglot-python"])[0], [str(clone.parent / place)], reference=True)
    assert problem["id"] == "aider-polyglot-python/legs"
    assert "to be written" in problem["prompt"]
    if place == ".":
        return
    right = problem.pop("reference")
    programs = [right, right.replace("sum(", "max("), *FORGED]
    completions = [f"<think>.</think>\n```python\n{text}\n```" for text in programs]
    with Grader() as grader:
        assert grader.fault(problem) == ""
        rewards = grader.grade(completions, [problem] * len(programs), RewardRule(use_language=False))
    assert [each.correct for each in rewards] == [True] + [False] * (len(programs) - 1)


def test_an_unreadable_exercise_is_named(clone: Path) -> None:
    folder = clone / "python" / "exercises" / "practice"
    (folder / "legs" / "legs_test.py").unlink()
    with pytest.raises(DataError, match=r"the exercise .*legs cannot be read"):
        exercises(folder)
    (folder / "legs" / ".meta" / "config.json").write_text('{"files": []}')
    with pytest.raises(DataError, match=r"the exercise .*legs cannot be read"):
        exercises(folder)
    assert exercises(clone) == []

"""Exercises in the shape of Exercism's: a folder made by hand, its row, and its solution in the sandbox."""

import json
from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.evaluation import exercises
from magcli.evaluation.rows import problems
from magcli.evaluation.suite import load
from magcli.verify import Grader
from magcli.verify.reward import RewardRule

FILES = {
    ".docs/instructions.md": "Say how many legs some animals have.",
    "legs.cpp": '#include "legs.h"\n\nnamespace legs {\n// to be written\n}\n',
    "legs.h": "#pragma once\n\nnamespace legs {\n// to be declared\n}\n",
    "legs_test.cpp": """#include "legs.h"
#ifdef EXERCISM_TEST_SUITE
#include <catch2/catch.hpp>
#else
#include "test/catch.hpp"
#endif
TEST_CASE("none") { REQUIRE(legs::of({}) == 0); }
#if defined(EXERCISM_RUN_ALL_TESTS)
TEST_CASE("several") { REQUIRE(legs::of({"cat", "hen", "fish"}) == 6); }
TEST_CASE("a chair is none") { REQUIRE_THROWS_AS(legs::of({"chair"}), std::domain_error); }
#endif
""",
    "test/catch.hpp": "#error not this one\n",
    ".meta/example.cpp": """#include "legs.h"
#include <map>
#include <stdexcept>
namespace legs {
int of(const std::vector<std::string>& animals) {
    const std::map<std::string, int> known{{"cat", 4}, {"hen", 2}, {"fish", 0}};
    int sum = 0;
    for (auto& each : animals) {
        if (!known.count(each)) throw std::domain_error("no animal");
        sum += known.at(each);
    }
    return sum;
}
}
""",
    ".meta/example.h": """#pragma once
#include <string>
#include <vector>
namespace legs {
int of(const std::vector<std::string>& animals);
}
""",
    ".meta/config.json": json.dumps(
        {
            "files": {
                "solution": ["legs.cpp", "legs.h"],
                "test": ["legs_test.cpp"],
                "example": [".meta/example.cpp", ".meta/example.h"],
            }
        }
    ),
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository with one exercise."""
    for name, text in FILES.items():
        path = tmp_path / "polyglot" / "cpp" / "exercises" / "practice" / "legs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "polyglot"


def test_an_exercise_is_a_row(clone: Path) -> None:
    (row,) = exercises.rows(clone / "cpp" / "exercises" / "practice")
    assert row["slug"] == "legs"
    assert row["instructions"] == FILES[".docs/instructions.md"]
    assert row["introduction"] == row["instructions_append"] == ""
    assert {key: list(row[key]) for key in ("stub", "tests", "example")} == {
        "stub": ["legs.cpp", "legs.h"],
        "tests": ["legs_test.cpp"],
        "example": [".meta/example.cpp", ".meta/example.h"],
    }


def test_files_become_one_with_headers_first(clone: Path) -> None:
    (row,) = exercises.rows(clone / "cpp" / "exercises" / "practice")
    text = exercises.one_text(row["example"])
    assert text.index("#include <vector>") < text.index("#include <map>")
    assert '"legs.h"' not in text
    assert exercises.one_text({"a.py": "import b\n"}) == "import b\n"


@pytest.mark.parametrize("place", [".", "polyglot"])
def test_a_clone_is_graded_in_the_sandbox(clone: Path, place: str) -> None:
    (problem,) = problems(load(["aider-polyglot-cpp"])[0], [str(clone.parent / place)], reference=True)
    assert problem["id"] == "aider-polyglot-cpp/legs"
    assert "to be declared" in problem["prompt"]
    if place == ".":
        return
    right = problem.pop("reference")
    said = [f"<think>.</think>\n```cpp\n{text}\n```" for text in (right, right.replace("sum +=", "sum -="))]
    with Grader() as grader:
        told = grader.grade(said, [problem] * 2, RewardRule(use_language=False))
    assert [each.correct for each in told] == [True, False]
    assert "line 9 of the tests" in told[1].detail


def test_a_broken_exercise_is_named(clone: Path) -> None:
    folder = clone / "cpp" / "exercises" / "practice"
    (folder / "legs" / "legs_test.cpp").unlink()
    with pytest.raises(DataError, match=r"the exercise .*legs cannot be read"):
        exercises.rows(folder)
    (folder / "legs" / ".meta" / "config.json").write_text('{"files": []}')
    with pytest.raises(DataError, match=r"the exercise .*legs cannot be read"):
        exercises.rows(folder)
    assert exercises.rows(clone) == []

"""Samples are matched to problems by function name and, among several, by the beginning of the prompt."""

import pytest

from benchmarks.humaneval_checker import Sample, problem_of

PROBLEMS = [
    {
        "task_id": "a",
        "entry_point": "solve",
        "prompt": 'def solve(n):\n    """Add up.\n    >>> solve(2)\n    3\n    """\n',
    },
    {"task_id": "b", "entry_point": "solve", "prompt": 'def solve(s):\n    """Turn round.\n    """\n'},
    {"task_id": "c", "entry_point": "twice", "prompt": "def one():\n    return 1\n\ndef twice(n):\n"},
]


@pytest.mark.parametrize(
    ("prompt", "task"),
    [
        ('\ndef solve(n):\n    """Add up.\n    """\n', "a"),
        ('def solve(s):\n    """Turn round.\n    """\n', "b"),
        ("def one():\n    return 1\n\ndef twice(n):\n", "c"),
    ],
)
def test_problem_of_a_shortened_prompt(prompt: str, task: str) -> None:
    assert problem_of(prompt, PROBLEMS)["task_id"] == task


def test_program_is_prompt_and_completion() -> None:
    sample = Sample({**PROBLEMS[2], "prompt": "def twice(n):\n"}, "    return 2 * n\n")
    assert sample.program == "def twice(n):\n    return 2 * n\n"
    assert sample.digest != Sample(sample.problem, "    return n + n\n").digest

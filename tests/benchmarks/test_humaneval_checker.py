"""How stored samples find their problem: by the name of the function, and of several by how the prompt begins."""

import pytest

from benchmarks.humaneval_checker import Sample, _completed

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
def test_a_prompt_finds_the_problem_that_it_was_cut_from(prompt: str, task: str) -> None:
    assert _completed(prompt, PROBLEMS)["task_id"] == task


def test_a_sample_is_its_prompt_and_what_completes_it() -> None:
    sample = Sample({**PROBLEMS[2], "prompt": "def twice(n):\n"}, "    return 2 * n\n")
    assert sample.program == "def twice(n):\n    return 2 * n\n"
    assert sample.digest != Sample(sample.problem, "    return n + n\n").digest

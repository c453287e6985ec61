import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.verify.format import Parts, gate, split

GOOD = r"<think>2+3=5</think>The answer is \boxed{5}."
FENCE = "<think>a loop</think>\n```python\nprint(5)\n```\n"


def test_split() -> None:
    assert split(GOOD) == Parts("2+3=5", r"The answer is \boxed{5}.")
    assert split("<think></think>") == Parts("", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        r"\boxed{5}",
        r" <think>a</think>\boxed{5}",
        r"<think>a\boxed{5}",
        r"a</think>\boxed{5}",
        r"</think><think>\boxed{5}",
        r"<think>a<think>b</think>\boxed{5}",
        r"<think>a</think>b</think>\boxed{5}",
        r"<think>a</think>\boxed{5}<think>b</think>",
        r"<Think>a</Think>\boxed{5}",
    ],
)
def test_no_think(text: str) -> None:
    assert split(text) is None
    assert gate(text) == (None, "no-think")


@pytest.mark.parametrize(
    "answer",
    ["5", r"\boxed{}", r"\boxed{ }", r"\boxed{5", r"\boxed 5", r"\fbox{5}", r"boxed{5}", r"\boxed{5} or \boxed{"],
)
def test_no_box(answer: str) -> None:
    assert gate(f"<think>a</think>{answer}") == (None, "no-box")


def test_a_box_in_the_thoughts_does_not_count() -> None:
    assert gate(r"<think>\boxed{5}</think>It is 5.") == (None, "no-box")


def test_good_formats() -> None:
    assert gate(GOOD) == (split(GOOD), "")
    assert gate(FENCE, "code") == (split(FENCE), "")


@pytest.mark.parametrize(
    "answer",
    [
        "print(5)",
        "```\nprint(5)\n```",
        "```python\nprint(5)",
        "`python print(5)`",
        "```python print(5)```",
        "```\n```python\nprint(5)\n",
    ],
)
def test_no_code(answer: str) -> None:
    assert gate(f"<think>a</think>\n{answer}", "code") == (None, "no-code")


@pytest.mark.parametrize(
    "answer", ["```c++\nint x;\n```", "text\n```\nplain\n```\n```py\nx\n```", "````python\n```\n````"]
)
def test_code(answer: str) -> None:
    assert gate(f"<think>a</think>\n{answer}", "code")[1] == ""


@given(st.text(max_size=40).filter(lambda s: "<" not in s), st.text(max_size=40).filter(lambda s: "<" not in s))
def test_split_gives_back_what_was_joined(thoughts: str, answer: str) -> None:
    assert split(f"<think>{thoughts}</think>{answer}") == Parts(thoughts, answer)


PIECES = ["<think>", "</think>", "{", "}", r"\boxed{", r"\boxed", "`", "```\n", "```a\n", " ", "\\"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_linear_time(piece: str) -> None:
    text = "<think>a</think>\\boxed" + piece * (1_000_000 // len(piece))
    start = time.perf_counter()
    gate(text, "math")
    gate(text, "code")
    assert time.perf_counter() - start < 5

import re
import time
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.model.chat.thoughts import BRACKETS, CHANNELS, THINK, form_named
from magcli.verify.format import Block, Parts, blocks, gate, split
from magcli.verify.types import FormatReason

GOOD = r"<think>2+3=5</think>The answer is \boxed{5}."
FENCE = "<think>a loop</think>\n```python\nprint(5)\n```\n"


def test_split() -> None:
    assert split(GOOD) == Parts("2+3=5", r"The answer is \boxed{5}.")
    assert split(" \n" + GOOD) == split(GOOD), "some templates write white space before an answer"
    assert split("<think></think>") == Parts("", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no-think"),
        (r"\boxed{5}", "no-think"),
        (r"a <think>a</think>\boxed{5}", "no-think"),
        (r"a</think>\boxed{5}", "no-think"),
        (r"</think><think>\boxed{5}", "no-think"),
        (r"<Think>a</Think>\boxed{5}", "no-think"),
        (r"<think>a\boxed{5}", "unclosed-think"),
        (r"<think>a</Think>\boxed{5}", "unclosed-think"),
        (r"<think>a<think>b</think>\boxed{5}", "repeated-think"),
        (r"<think><think>a\boxed{5}", "repeated-think"),
        (r"<think>a</think>b</think>\boxed{5}", "repeated-think"),
        (r"<think>a</think>\boxed{5}<think>b</think>", "repeated-think"),
        ("<think>a</think>`<think>` \\boxed{5}", "repeated-think"),
    ],
)
def test_each_rule_about_the_tags_has_its_reason(text: str, reason: str) -> None:
    assert split(text) == gate(text) == gate(text, "code") == reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("5", "no-box"),
        (r"\boxed 5", "no-box"),
        (r"\fbox{5}", "no-box"),
        ("boxed{5}", "no-box"),
        (r"\boxed{}", "empty-box"),
        ("\\boxed{ \n}", "empty-box"),
        (r"\boxed{5} or \boxed{}", "empty-box"),
        (r"\boxed{\boxed{}}", "empty-box"),
        (r"\boxed{5\boxed{ }}", "empty-box"),
        (r"\boxed{5", "unclosed-box"),
        (r"\boxed{5} or \boxed{", "unclosed-box"),
        (r"\boxed{\frac{1}{2}", "unclosed-box"),
    ],
)
def test_each_rule_about_the_box_has_its_reason(answer: str, reason: str) -> None:
    assert gate(f"<think>a</think>{answer}") == reason


def test_a_box_or_a_block_in_the_thoughts_does_not_count() -> None:
    assert gate(r"<think>\boxed{5}</think>It is 5.") == "no-box"
    assert gate("<think>\n```py\n1\n```\n</think>It is 5.", "code") == "no-code"


def test_good_formats() -> None:
    assert gate(GOOD) == split(GOOD) == Parts("2+3=5", r"The answer is \boxed{5}.")
    assert gate(FENCE, "code") == split(FENCE)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("print(5)", "no-code"),
        ("`python print(5)`", "no-code"),
        ("```python print(5)```", "no-code"),
        ("~~~python\nprint(5)\n~~~", "no-code"),
        ("```\nprint(5)\n```", "unnamed-code"),
        ("```\nplain\n```\n```python\nprint(5)", "unnamed-code"),
        ("```python\nprint(5)", "unclosed-code"),
        ("````python\nprint(5)\n```", "unclosed-code"),
        ("```\n```python\nprint(5)\n", "unclosed-code"),
    ],
)
def test_each_rule_about_the_block_has_its_reason(answer: str, reason: str) -> None:
    assert gate(f"<think>a</think>\n{answer}", "code") == reason


@pytest.mark.parametrize(
    "answer",
    ["```c++\nint x;\n```", "text\n```\nplain\n```\n```py\nx\n```", "````python\n```\n````", "```py\r\nx\r\n```\r\n"],
)
def test_code(answer: str) -> None:
    assert isinstance(gate(f"<think>a</think>\n{answer}", "code"), Parts)


def test_a_block_in_a_list_item_is_read_without_its_margin() -> None:
    item = "1. First:\n\n    ```python\n    def f():\n        return 1\n    ```\n"
    assert list(blocks(item)) == [Block("python", "def f():\n    return 1\n", True)]
    assert list(blocks("- ```cpp\n  int x;\n  ```")) == [Block("cpp", "int x;\n", True)]
    assert list(blocks("    ```python\n    no list\n    ```")) == []


def test_blocks_contain_the_text_between_the_fences() -> None:
    text = "a\n```py\nx = 1\n\n  y\n```\nb\n```\nplain\n```\n````cpp\n```\n````\n```c"
    assert list(blocks(text)) == [
        Block("py", "x = 1\n\n  y\n", True),
        Block("", "plain\n", True),
        Block("cpp", "```\n", True),
        Block("c", "", False),
    ]


TOKENS = ["<think>", "</think>", "\\boxed{", "{", "}", "5", " ", "\n", "```py\n", "```\n", "``", "\\"]
completions = st.lists(st.sampled_from(TOKENS), max_size=14).map("".join)
framed = completions.map(lambda text: "<think>" + text)


def rules_of_the_recipe(text: str, kind: str) -> bool:
    """The format as the recipe states it, without regard for speed or reasons."""
    if not re.fullmatch(r"<think>((?!</?think>).)*</think>((?!</?think>).)*", text, re.DOTALL):
        return False
    answer = text.partition("</think>")[2]
    if kind == "math":
        ends = [depth_zero(answer, match.end()) for match in re.finditer(r"(?<!\\)(?:\\\\)*\\boxed\{", answer)]
        return bool(ends) and ends[-1].strip() != ""
    lines, at = answer.split("\n"), 0
    while at < len(lines):
        fence = re.fullmatch(r" {0,3}(`{3,})\s*([^`]*)", lines[at])
        ends = [n for n in range(at + 1, len(lines)) if fence and closes(lines[n], fence[1])]
        if fence and ends and fence[2].strip():
            return True
        if fence and not ends:
            return False
        at = ends[0] + 1 if fence else at + 1
    return False


def closes(line: str, ticks: str) -> bool:
    return bool(re.fullmatch(rf" {{0,3}}`{{{len(ticks)},}}\s*", line))


def depth_zero(text: str, start: int) -> str:
    """The text before the brace that closes the one before ``start``; empty if none does."""
    depth = 1
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[start : match.start()]
    return ""


@settings(max_examples=400)
@given(framed | completions, st.sampled_from(["math", "code"]))
def test_the_gate_is_that_of_the_recipe(text: str, kind: str) -> None:
    assert isinstance(gate(text, kind), Parts) == rules_of_the_recipe(text, kind)


@given(framed | completions | st.text(max_size=60), st.sampled_from(["math", "code"]))
def test_every_text_is_well_formed_or_has_a_reason(text: str, kind: str) -> None:
    found = gate(text, kind)
    if isinstance(found, str):
        assert found in get_args(FormatReason)
    else:
        assert f"<think>{found.thoughts}</think>{found.answer}" == text


@given(completions, completions)
def test_trailing_text_breaks_the_format_only_by_a_tag_or_a_box(before: str, after: str) -> None:
    text = f"<think></think>{before}\n\\boxed{{5}}{after}"
    if not any(token in before + after for token in ("think>", "\\", "{", "}")):
        assert isinstance(gate(text), Parts)


@given(st.text(max_size=40).filter(lambda s: "<" not in s), st.text(max_size=40).filter(lambda s: "<" not in s))
def test_split_inverts_joining(thoughts: str, answer: str) -> None:
    assert split(f"<think>{thoughts}</think>{answer}") == Parts(thoughts, answer)


PIECES = ["<think>", "</think>", "{", "}", r"\boxed{", r"\boxed", "`", "```\n", "```a\n", " ", "\\"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_linear_time(piece: str) -> None:
    text = "<think>a</think>\\boxed" + piece * (1_000_000 // len(piece))
    start = time.thread_time()
    gate(text, "math")
    gate(text, "code")
    assert time.thread_time() - start < 5


FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
CHANNELLED = "<|channel|>analysis<|message|>2+3=5" + FINAL + r"\boxed{5}"


@pytest.mark.parametrize("form", [THINK, BRACKETS, CHANNELS, form_named("<seed>...</seed>")], ids=str)
def test_each_form_has_the_same_rules(form) -> None:
    good = form.join("2+3=5", r"\boxed{5}")
    parts = gate(good, form=form)
    assert isinstance(parts, Parts)
    assert (parts.thoughts.strip(), parts.answer.strip()) == ("2+3=5", r"\boxed{5}")
    assert gate("x" + good, form=form) == "no-think"
    assert gate(good + form.opening, form=form) == "repeated-think"
    assert gate(good + form.closing, form=form) == "repeated-think"
    assert gate(good.replace(form.closing, ""), form=form) == "unclosed-think"
    assert gate(form.join("2+3=5", "5"), form=form) == "no-box"
    others = [each for each in (THINK, BRACKETS, CHANNELS) if each != form]
    assert {gate(good, form=other) for other in others} == {"no-think"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CHANNELLED.replace(FINAL, "<|end|>"), "unclosed-think"),
        (CHANNELLED.replace(FINAL, f"<|end|>words{FINAL.removeprefix('<|end|>')}"), "unclosed-think"),
        (CHANNELLED + FINAL.removeprefix("<|end|>"), "repeated-think"),
        (CHANNELLED.replace(FINAL, ""), "unclosed-think"),
    ],
)
def test_the_answer_channel_follows_the_thoughts_once(text: str, reason: str) -> None:
    assert gate(CHANNELLED, form=CHANNELS) == Parts("2+3=5", r"\boxed{5}")
    assert gate(text, form=CHANNELS) == reason

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.data.schema import REWARD
from magcli.errors import DataError
from magcli.model.chat.thoughts import BRACKETS, CHANNELS
from magcli.verify.reward import Reward, RewardRule, length_penalty, reward, ungraded
from magcli.verify.reward_columns import columns
from magcli.verify.types import Verdict

RULE = RewardRule(penalty_end=1000, penalty_width=200)
ROW = {"prompt": "What is the sum of two and three?", "answer": "5"}
RIGHT = r"<think>We add two and three, and that makes five.</think>The answer to the question is \boxed{5}."


def test_all_parts_of_the_reward_add_up() -> None:
    graded = reward(RIGHT, 900, ROW, RULE)
    assert (graded.format, graded.correctness, graded.language) == (0.1, 0.9, 0.1)
    assert graded.length == pytest.approx(-0.05)
    assert graded.total == pytest.approx(1.05)
    assert (graded.correct, graded.correct_anywhere, graded.reason, graded.extracted) == (True, True, "correct", "5")
    assert graded.trainable


def test_wrong_answer_keeps_format_and_language() -> None:
    graded = reward(RIGHT.replace("{5}", "{6}"), 10, ROW, RULE)
    assert graded.total == pytest.approx(0.2)
    assert (graded.reason, graded.extracted, graded.correct, graded.trainable) == ("wrong", "6", False, True)


@pytest.mark.parametrize(
    ("text", "reason", "found"),
    [
        (RIGHT.removeprefix("<think>"), "no-think", True),
        ("It is 5", "no-think", True),
        (RIGHT.replace(r"\boxed{5}", "5"), "no-box", True),
        (RIGHT.replace(r"\boxed{5}", "6"), "no-box", False),
        ("", "no-think", False),
        (RIGHT.replace("</think>", ""), "unclosed-think", True),
        (RIGHT + "</think>", "repeated-think", True),
        (RIGHT.replace(r"\boxed{5}", r"5 \boxed{ }"), "empty-box", False),
        (RIGHT.replace(r"\boxed{5}", r"5 \boxed{"), "unclosed-box", True),
    ],
)
def test_format_is_a_gate(text: str, reason: str, found: bool) -> None:
    graded = reward(text, 5000, ROW, RULE)
    assert (graded.total, graded.format, graded.correctness, graded.length, graded.language) == (0, 0, 0, 0, 0)
    assert (graded.reason, graded.correct, graded.correct_anywhere) == (reason, False, found)
    assert graded.trainable


@pytest.mark.parametrize("answer", [None, "", r"\frac{", r"\boxed{}"])
def test_bad_gold_never_trains(answer: str | None) -> None:
    graded = reward(RIGHT, 10, {**ROW, "answer": answer}, RULE)
    assert (graded.total, graded.reason, graded.trainable) == (0, "bad-gold", False)


def test_the_language_reward_is_optional_and_zero_if_undecided() -> None:
    assert reward(RIGHT, 10, ROW, RewardRule(1000, use_language=False)).language == 0
    assert reward(r"<think>2+3=5</think>\boxed{5}", 10, ROW, RULE).total == pytest.approx(1.0)
    assert reward(RIGHT, 10, {**ROW, "prompt": "Quelle est la somme de deux et de trois ?"}, RULE).language == 0


def test_numbers_are_accepted_as_ground_truth() -> None:
    assert reward(RIGHT, 10, {**ROW, "answer": 5.0}, RULE).correct


def test_the_last_box_counts_and_an_fbox_does_not() -> None:
    assert reward(RIGHT + r" No, \boxed{6}.", 10, ROW, RULE).extracted == "6"
    assert reward(RIGHT + r" \fbox{6}", 10, ROW, RULE).reason == "correct"


CODE = {"kind": "code", "prompt": "Write a program that prints the sum of two numbers.", "tests": []}
PROGRAM = "<think>We read two numbers and print their sum.</think>Here is the program:\n```python\nprint(5)\n```\n"


def test_a_program_needs_a_verifier_and_an_unknown_kind_has_none() -> None:
    with pytest.raises(DataError, match=r"use magcli\.verify\.Grader"):
        reward(PROGRAM, 10, CODE, RULE)
    with pytest.raises(DataError, match="kind 'proof' cannot be graded"):
        reward(RIGHT, 10, {**ROW, "kind": "proof"}, RULE)


@pytest.mark.parametrize(
    ("verdict", "total", "correct"),
    [
        (Verdict(1.0, "accepted", "python"), 1.1, True),
        (Verdict(0.0, "wrong-answer", "python", "test 2: expected '5', got '6'"), 0.2, False),
        (Verdict(0.5, "time-limit", "python", "test 2", 1, 2), 0.65, False),
        (Verdict(0.0, "infra-error", "python", "bwrap: no such file"), 0.0, False),
    ],
)
def test_a_verdict_on_a_program_becomes_a_reward(verdict: Verdict, total: float, correct: bool) -> None:
    graded = reward(PROGRAM, 10, CODE, RULE, lambda answer, row: verdict)
    assert graded.total == pytest.approx(total)
    assert (graded.correct, graded.reason, graded.detail) == (correct, verdict.reason, verdict.detail)
    assert graded.trainable == (verdict.reason != "infra-error")


def test_the_format_of_a_program_is_a_gate_too() -> None:
    accept = Verdict(1.0, "accepted", "python")
    graded = reward(PROGRAM.replace("python", ""), 10, CODE, RULE, lambda answer, row: accept)
    assert (graded.total, graded.reason, graded.correct, graded.correct_anywhere) == (0, "unnamed-code", False, True)


@given(st.text(max_size=60), st.text(max_size=30), st.integers(0, 5000))
def test_bounds(thoughts: str, answer: str, tokens: int) -> None:
    graded = reward(f"<think>{thoughts}</think>{answer}", tokens, ROW, RULE)
    assert -0.1 <= graded.length <= 0
    assert 0 <= graded.total <= 1.1
    assert graded.total == pytest.approx(graded.format + graded.correctness + graded.length + graded.language)
    assert (graded.format > 0) == (graded.reason in ("correct", "wrong"))
    assert graded.correct == (graded.reason == "correct") == (graded.correctness > 0)


@given(st.integers(0, 4000), st.integers(1, 2000), st.integers(0, 2000))
def test_length_penalty_is_piecewise_and_monotone(tokens: int, longest: int, cache: int) -> None:
    penalty = length_penalty(tokens, longest, cache)
    assert -0.1 <= length_penalty(tokens + 1, longest, cache) <= penalty <= 0
    if tokens <= longest - cache:
        assert penalty == 0
    elif tokens <= longest:
        assert penalty == pytest.approx(-0.1 * (tokens - longest + cache) / cache)
    else:
        assert penalty == -0.1


def test_columns() -> None:
    batch = columns([reward(RIGHT, 10, ROW, RULE), reward("\ud800" + RIGHT, 10, ROW, RULE), ungraded("timeout")])
    assert batch.schema == REWARD
    assert batch.column("reason").to_pylist() == ["correct", "no-think", "timeout"]
    assert columns([]).schema == REWARD


def test_lone_surrogates_fit_a_table() -> None:
    graded: Reward = reward("<think>a</think>\\boxed{\udc80\x00}", 10, ROW, RULE)
    assert columns([graded]).num_rows == 1


@pytest.mark.parametrize("form", [BRACKETS, CHANNELS], ids=str)
def test_a_right_completion_in_the_models_form_has_the_full_reward(form) -> None:
    text = form.join("We add two and three, and that makes five.", r"The answer to the question is \boxed{5}.")
    graded = reward(text, 10, ROW, RewardRule(thoughts=form))
    assert graded.total == pytest.approx(1.1)
    assert graded.languages == "en en en"
    assert reward(text, 10, ROW, RewardRule()).reason == "no-think"
    assert reward(RIGHT, 10, ROW, RewardRule(thoughts=form)).reason == "no-think"

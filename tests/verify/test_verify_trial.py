"""A user's reward function is tried before any work, and what is wrong with it is one line."""

import pytest

from magcli.errors import UsageError
from magcli.verify.grader import Grader
from magcli.verify.trial import check_reward, try_reward

SOURCE = """
def good(completion, row):
    return float(row["answer"] in completion)

def only_right(completion, row):
    if row["answer"] in completion:
        return 1.0

def other_column(completion, row):
    return row["ground_truth"] in completion

def text(completion, row):
    return "0.5"

def nan(completion, row):
    return float("nan")

def several(texts, rows):
    return [1.0]

def trl(completions, **kwargs):
    return [1.0 for _ in completions]

def trl_prompts(prompts, completions):
    return [1.0 for _ in completions]

def in_form(completion, row, thoughts):
    return thoughts.split(completion)[0] != ""
"""
ROW = {"id": "p7", "prompt": "What is 6 x 7?", "answer": "42"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(SOURCE)
    return path


def tried(spec):
    with Grader(1, function=spec) as grader:
        try_reward(grader, spec, ROW)


def test_a_function_that_returns_rewards_passes(source):
    check_reward(f"{source}:good")
    assert tried(f"{source}:good") is None


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("only_right", "TypeError: the function returned None, not a number, a truth value or a mapping (own.py:5"),
        ("other_column", "KeyError: 'ground_truth' (own.py:10, other_column)"),
        ("text", "TypeError: the function returned a str"),
        ("nan", "ValueError: a reward of nan is not finite (own.py:15, nan)"),
        ("several", "TypeError: the function returned a list"),
    ],
)
def test_a_failing_function_is_named_with_its_exception(name, failure, source):
    with pytest.raises(UsageError) as error:
        tried(f"{source}:{name}")
    message = str(error.value)
    assert message.startswith(f"reward '{source}:{name}' failed on row p7: {failure}")
    assert "function(completion, row)" in message
    assert "\n" not in message


@pytest.mark.parametrize(("name", "failure"), [("trl", "(completions, **kwargs)"), ("trl_prompts", "as in TRL")])
def test_the_signature_of_trl_is_refused(name, failure, source):
    with pytest.raises(UsageError) as error:
        check_reward(f"{source}:{name}")
    assert failure in str(error.value)
    assert "function(completion, row)" in str(error.value)


def test_a_function_with_the_form_of_thoughts_passes(source):
    check_reward(f"{source}:in_form")
    assert tried(f"{source}:in_form") is None


def test_a_function_that_is_always_too_slow_is_named(source):
    source.write_text("import time\ndef slow(completion, row):\n    time.sleep(30)\n")
    with (
        Grader(1, deadline=0.3, function=f"{source}:slow") as grader,
        pytest.raises(UsageError, match="verify-deadline"),
    ):
        try_reward(grader, f"{source}:slow", ROW)

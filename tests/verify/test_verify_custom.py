import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from magcli.errors import UsageError
from magcli.model.chat.thoughts import BRACKETS
from magcli.verify.custom import digests, graded, grader_of, load
from magcli.verify.pool import Pool
from magcli.verify.reward import Reward, RewardRule
from magcli.verify.reward_columns import columns, from_row

RULE = RewardRule()
SOURCE = """
import asyncio
import ctypes
import os
import sys
import time

def short(completion, row):
    return 1.0 if len(completion) < row["limit"] else 0.25

def full(completion, row):
    return {"total": 0.5, "correct": True, "extracted": row["answer"], "detail": "by hand"}

def broken(completion, row):
    return row["missing"]

def strange(completion, row):
    return completion

def unbounded(completion, row):
    return float("nan")

def misnamed(completion, row):
    return {"total": 1, "correctly": 1}

def without_total(completion, row):
    return {"score": 1}

def large(completion, row):
    return 1e300

def leaves(completion, row):
    sys.exit(3)

def text_part(completion, row):
    return {"total": 1, "words": "few"}

def infinite_part(completion, row):
    return {"total": 1, "share": float("inf")}

def parts(completion, row):
    return {"total": 0.5, "brevity": 0.25, "odd": len(completion) % 2 == 1, "unknown": None}

async def later(completion, row):
    await asyncio.sleep(0)
    return float(completion == "yes")

async def later_leaves(completion, row):
    sys.exit()

def ends(completion, row):
    if completion == "end":
        os._exit(7)
    return 1.0

def crashes(completion, row):
    if completion == "end":
        ctypes.string_at(0)
    return 1.0

def sleeping(completion, row):
    time.sleep(30)

def answer_only(completion, row, thoughts):
    return thoughts.split(completion)[1] == row["answer"]

def consuming(completion, row):
    right = completion == row.pop("answer") and row["nested"][0].pop("part") == 1
    row["nested"].clear()
    return right

WORDS = ["not", "callable"]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "own_reward.py"
    path.write_text(textwrap.dedent(SOURCE))
    return path


@pytest.fixture
def pool(source: Path) -> Iterator[Pool]:
    pool = Pool(1, deadline=1.0, function=f"{source}:short")
    yield pool
    pool.shutdown()


def test_a_number_is_a_reward(pool: Pool) -> None:
    short, long = pool.rewards([("ab", 2, {"limit": 3}, RULE), ("abcd", 4, {"limit": 3}, RULE)])
    assert short == Reward(1.0, 0.0, 1.0, 0.0, 0.0, True, True, "correct")
    assert long == Reward(0.25, 0.0, 0.25, 0.0, 0.0, False, False, "wrong")


def test_a_mapping_may_have_more_fields(source: Path) -> None:
    found = graded(load(f"{source}:full"), "text", {"answer": "7"})
    assert (found.total, found.correct, found.reason, found.extracted, found.detail) == (
        0.5, True, "correct", "7", "by hand",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "KeyError: 'missing'"),
        ("strange", "TypeError: the function returned a str"),
        ("unbounded", "ValueError: a reward of nan is not finite"),
        ("misnamed", "TypeError: the part correctly of a reward is nearly correct"),
        ("without_total", "TypeError: a reward needs total and may have"),
        ("large", "ValueError: a reward of 1e+300 is too large: at most 1e+15"),
        ("leaves", "SystemExit: 3 (own_reward.py:"),
        ("text_part", "TypeError: the part words of a reward is a str, not a number"),
        ("infinite_part", "ValueError: the part share of inf is not finite"),
    ],
)
def test_an_invalid_reward_is_counted_and_never_trains(name: str, message: str, source: Path) -> None:
    found = graded(load(f"{source}:{name}"), "text", {})
    assert (found.total, found.reason, found.trainable) == (0.0, "reward-error", False)
    assert found.detail.startswith(message)


@pytest.mark.parametrize("correct", [False, 0, np.bool_(False), np.int64(0), torch.tensor(False)])
@pytest.mark.parametrize("field", ["correct", "correct_anywhere"])
def test_what_is_correct_is_a_truth_value_of_any_library(field: str, correct: object) -> None:
    found = graded(lambda completion, row: {"total": 1.0, field: correct}, "", {})
    assert getattr(found, field) is False


@pytest.mark.parametrize("correct", ["no", "", 0.3, 2, float("nan"), [], [True], {}, np.array([0, 1]), object()])
@pytest.mark.parametrize("field", ["correct", "correct_anywhere"])
def test_what_is_correct_must_be_a_truth_value(field: str, correct: object) -> None:
    found = graded(lambda completion, row: {"total": 0.0, field: correct}, "", {})
    assert (found.reason, found.correct) == ("reward-error", False)
    assert re.match(rf"TypeError: {field} of a reward is .*, not True or False", found.detail)


@pytest.mark.parametrize("total", [0.5, 1.0])
def test_fields_that_are_none_follow_from_the_total(total: float) -> None:
    fields = dict.fromkeys(("correct", "correct_anywhere", "correctness", "reason", "extracted"))
    found = graded(lambda completion, row: {"total": total, **fields}, "", {})
    assert found == graded(lambda completion, row: total, "", {})


@pytest.mark.parametrize(
    "given",
    [
        {"total": 1, "correct": "yes", "detail": "\ud800" * 2000},
        {"total": "0.5", "length": 10**400},
        {"total": 1.0, "reason": None},
        {"total": 1.0, "extracted": 7, "detail": b"bytes"},
        {"total": True, "correct_anywhere": [], "format": object()},
        {"total": 1e300, "languages": ["en"]},
        Reward(1, 0, 0, 0, 0, "no", None, "correct", detail="\udcff"),
    ],
)
def test_any_returned_value_fits_a_table(given: object) -> None:
    found = graded(lambda completion, row: given, "", {})
    assert columns([found]).num_rows == 1
    assert found.reason in ("correct", "reward-error")


def test_a_truth_value_and_a_reward_are_rewards() -> None:
    assert graded(lambda completion, row: True, "", {}).correct
    own = Reward(0.3, 0.1, 0.2, 0.0, 0.0, False, False, "wrong-answer")
    assert graded(lambda completion, row: own, "", {}) is own


def test_a_function_that_hangs_is_a_timeout_and_its_worker_is_replaced(source: Path) -> None:
    pool = Pool(1, deadline=0.5, function=f"{source}:sleeping")
    try:
        assert [each.reason for each in pool.rewards([("a", 1, {}, RULE), ("b", 1, {}, RULE)])] == ["timeout"] * 2
    finally:
        pool.shutdown()


def test_an_asynchronous_function_is_awaited(source: Path) -> None:
    later = load(f"{source}:later")
    assert [graded(later, text, {}).total for text in ("yes", "no")] == [1.0, 0.0]
    assert graded(load(f"{source}:later_leaves"), "", {}).detail.startswith("SystemExit")
    assert graded(later, "yes", {}).total == 1.0


@pytest.mark.parametrize(
    ("name", "detail"),
    [("ends", "ended its process with exit status 7"), ("crashes", "crashed its process twice, by SIGSEGV")],
)
def test_a_function_that_ends_its_process_is_named_and_the_others_are_graded(
    name: str, detail: str, source: Path
) -> None:
    pool = Pool(1, function=f"{source}:{name}")
    try:
        before, ended, after = pool.rewards([(text, 1, {}, RULE) for text in ("a", "end", "b")])
    finally:
        pool.shutdown()
    assert (before.total, after.total) == (1.0, 1.0)
    assert (ended.reason, ended.detail.startswith(f"{source}:{name} {detail}")) == ("reward-error", True)


def test_parts_of_a_mapping_are_numbers_by_name(source: Path) -> None:
    reward = graded(load(f"{source}:parts"), "abc", {})
    assert (reward.total, reward.parts) == (0.5, {"brevity": 0.25, "odd": 1.0})
    assert from_row(columns([reward], custom=True).to_pylist()[0]) == reward


def test_several_functions_are_one_reward_by_weight(source: Path) -> None:
    grade = grader_of(f"{source}:short=0.5, {source}:parts=-2,{source}:full")
    reward = grade("abc", 3, {"limit": 2, "answer": "7"}, RULE)
    assert reward.total == pytest.approx(0.5 * 0.25 - 2 * 0.5 + 0.5)
    assert reward.parts == {"short": 0.25, "parts": 0.5, "parts.brevity": 0.25, "parts.odd": 1.0, "full": 0.5}
    assert not reward.correct
    assert grade("abc", 3, {"limit": 9, "answer": "7"}, RULE).correct
    assert grade("abc", 3, {}, RULE).reason == "reward-error"


@pytest.mark.parametrize("weights", ["OWN:short=heavy", "OWN:short=1,OWN:full=nan", "OWN:short=0.5,OWN:short=0.5"])
def test_weights_and_names_that_are_none_are_refused(weights: str, source: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a number|two functions are called"):
        grader_of(weights.replace("OWN", str(source)))


@pytest.mark.parametrize(
    ("value", "total"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.bool_(True), 1.0),
        (np.array(0.25), 0.25),
        (torch.tensor(3.0), 3.0),
    ],
)
def test_numbers_of_other_libraries_are_numbers(value: object, total: float) -> None:
    assert graded(lambda completion, row: value, "", {}).total == total


def test_a_file_may_have_the_name_of_any_module(tmp_path: Path) -> None:
    """Neither the file nor what is beside it stands for the module of that name, and helpers are still found."""
    for name in ("json", "torch", "absent_optional_package"):
        (tmp_path / f"{name}.py").write_text(
            "import helper\nimport json\ndef score(completion, row):\n    return helper.N"
        )
    (tmp_path / "helper.py").write_text("import json\nN = float(json.dumps(0.5))\n")
    loaded = sys.modules["json"]
    for name in ("json", "torch"):
        assert graded(load(f"{tmp_path}/{name}.py:score"), "", {}).total == 0.5
    assert sys.modules["json"] is loaded
    assert sys.modules["torch"] is torch
    assert importlib.util.find_spec("absent_optional_package") is None
    assert importlib.util.find_spec("helper_that_is_not_there") is None


def test_two_neighbours_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same_helper.py").write_text(f"NAME = {folder!r}\n")
        (tmp_path / folder / f"reward_{folder}.py").write_text(
            "from same_helper import NAME\ndef f(c, r): return 1.0\n"
        )
    load(f"{tmp_path}/one/reward_one.py:f")
    with pytest.raises(UsageError, match="imports same_helper, of which there are two"):
        load(f"{tmp_path}/two/reward_two.py:f")


def test_a_file_that_exits_when_it_is_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(2)\n")
    with pytest.raises(UsageError, match=r"leaving\.py cannot be imported: SystemExit: 2"):
        load(f"{tmp_path}/leaving.py:f")


def test_modules_are_found_in_the_working_folder(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    assert load("own_reward:short")("", {"limit": 1}) == 1.0
    pool = Pool(1, function="own_reward:short")
    try:
        assert pool.rewards([("", 0, {"limit": 1}, RULE)])[0].correct
    finally:
        pool.shutdown()


def test_the_digest_depends_on_the_source(source: Path) -> None:
    before = digests(f"{source}:short")
    source.write_text(source.read_text() + "\n# changed\n")
    assert digests(f"{source}:short") != before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("short", "name it as module:function or file.py:function"),
        ("no_such_module_here:f", "no_such_module_here cannot be imported: ModuleNotFoundError"),
        ("missing/file.py:f", "cannot be imported: FileNotFoundError"),
        ("OWN:nothing", "has no function nothing"),
        ("OWN:WORDS", "has no function WORDS"),
    ],
)
def test_missing_functions_are_named(spec: str, message: str, source: Path) -> None:
    with pytest.raises(UsageError, match=message):
        load(spec.replace("OWN", str(source)))


def test_a_function_may_ask_for_the_form_of_thoughts(source: Path) -> None:
    job = ("[THINK]six[/THINK]7", 3, {"answer": "7"})
    pool = Pool(1, function=f"{source}:answer_only")
    try:
        in_form, not_in_form = pool.rewards([(*job, RewardRule(thoughts=BRACKETS)), (*job, RULE)])
    finally:
        pool.shutdown()
    assert (in_form.correct, not_in_form.correct) == (True, False)


def test_what_a_function_changes_in_its_row_is_seen_by_nobody(source: Path) -> None:
    row = {"id": "a", "answer": "2", "nested": [{"part": 1}]}
    pool = Pool(1, deadline=5.0, function=f"{source}:consuming")
    try:
        rewards = pool.rewards([("2", 1, row, RULE)] * 6)
    finally:
        pool.shutdown()
    assert [reward.total for reward in rewards] == [1.0] * 6
    assert graded(load(f"{source}:consuming"), "2", row).correct
    assert row == {"id": "a", "answer": "2", "nested": [{"part": 1}]}


def test_the_rewards_of_the_documentation_work(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()
    source = next(block for block in text.split("```")[1::2] if "async def right" in block)
    (tmp_path / "documented.py").write_text(source.removeprefix("python"))
    grade = grader_of(f"{tmp_path}/documented.py:right=0.7,{tmp_path}/documented.py:style=0.3")
    reward = grade("It is, please, 42", 4, {"answer": "42"}, RULE)
    assert reward.total == pytest.approx(1.0)
    assert reward.parts == {"right": 1.0, "style": 1.0, "style.words": 4.0, "style.polite": 1.0}

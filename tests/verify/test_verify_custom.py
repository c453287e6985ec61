import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from magcli.errors import UsageError
from magcli.model.thoughts import BRACKETS
from magcli.verify.custom import digests, graded, load
from magcli.verify.pool import Pool
from magcli.verify.reward import Reward, RewardRule, columns

RULE = RewardRule()
SOURCE = """
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
        ("misnamed", "TypeError: a reward needs total and may have"),
    ],
)
def test_an_invalid_reward_is_counted_and_never_trains(name: str, message: str, source: Path) -> None:
    found = graded(load(f"{source}:{name}"), "text", {})
    assert (found.total, found.reason, found.trainable) == (0.0, "reward-error", False)
    assert found.detail.startswith(message)


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

"""Conditions on rows: what --where takes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.data import condition
from magcli.data.jsonl import STYLES, scan, to_batch
from magcli.errors import UsageError

BATCH = pa.RecordBatch.from_pydict(
    {
        "row": [0, 1, 2, 3],
        "reward": [0.1, 0.5, None, 1.0],
        "reason": ["wrong", "correct", "wrong", None],
        "correct": [False, True, None, True],
    }
)


def kept(text: str) -> list[int]:
    rows: list[int] = BATCH.filter(condition.parse(text, BATCH.schema).matching(BATCH))["row"].to_pylist()
    return rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("reward < 0.5", [0]),
        ("0.5 <= reward", [1, 3]),
        ('reason == "wrong"', [0, 2]),
        ('reason != "wrong"', [1]),
        ("correct", [1, 3]),
        ("not correct", [0]),
        ("not (not correct)", [1, 3]),
        ("not (correct and reward > 0.2)", [0]),
        ("reward < 0.2 or not correct", [0]),
        ("correct or reason == 'wrong'", [0, 1, 2, 3]),
        ("reason == None", [3]),
        ("None != reason", [0, 1, 2]),
        ("not (correct == None)", [0, 1, 3]),
        ('reward < 0.5 and reason == "wrong"', [0]),
        ('reward > 0.9 or reason == "wrong" or correct', [0, 1, 2, 3]),
        ("reward > -1", [0, 1, 3]),
    ],
)
def test_rows_for_which_a_condition_holds(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


@pytest.mark.parametrize(
    "text",
    [
        "rewrd < 1",
        "reward",
        "reward + 1 < 2",
        "f(reward)",
        "reward < 1 < 2",
        "reward.x == 1",
        "__import__('os')",
        "1",
        "[1]",
        "1 == 1",
        "None == None",
        "reward < None",
        "rewrd == None",
        "reward > 99999999999999999999",
        "reward > -99999999999999999999",
        "reward == 1j",
        "reward == ...",
        'reason == "\\ud800"',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        kept(text)


@pytest.mark.parametrize("text", ['reward < "x"', "reason > 3", "correct == 'yes'"])
def test_values_of_another_type_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        kept(text)


ROWS = [
    {
        "row": 0,
        "text": "a prime",
        "tags": ["x", "y"],
        "n": [1, 2],
        "r": {"gold": "5", "n": 1},
        "mix": "a",
        "when": "2026",
    },
    {"row": 1, "text": None, "tags": None, "n": [], "r": {"gold": None, "n": 2}, "mix": 3},
    {"row": 2, "text": "Prim", "tags": ["z"], "n": None, "r": None, "mix": ["a"]},
    {
        "row": 3,
        "text": "é",
        "tags": [],
        "n": [3],
        "r": {"gold": "7", "n": 3},
        "mix": {"k": "a"},
        "a b": True,
        "when": "",
    },
]


def matching(text: str) -> list[int]:
    schema, _ = scan(iter([("", row) for row in ROWS]), STYLES[0])
    batch = to_batch(ROWS, schema, STYLES[0])
    rows: list[int] = batch.filter(condition.parse(text, schema).matching(batch))["row"].to_pylist()
    return rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("row in (1, 3)", [1, 3]),
        ("row not in [1, 3]", [0, 2]),
        ("text in ('é', 'Prim')", [2, 3]),
        ("text not in ('é',)", [0, 2]),
        ("text is null", [1]),
        ("text is not null and tags is not None", [0, 2, 3]),
        ("r is null", [2]),
        ("text contains 'prim'", [0]),
        ("not text contains 'prim'", [2, 3]),
        ("'prim' in text", [0]),
        ("'prim' not in text", [2, 3]),
        ("contains(text, 'prim') or row == 3", [0, 3]),
        ("tags contains 'y'", [0]),
        ("'z' in tags or n contains 3", [2, 3]),
        ("not tags contains 'y'", [2, 3]),
        ("len(text) > 4", [0]),
        ("length(text) == 1", [3]),
        ("len(tags) == 0", [3]),
        ("len(n) >= 1 and len(tags) < 2", [3]),
        ("r.gold == '5'", [0]),
        ("r.gold in ('5', '7') and r.n > 1", [3]),
        ("len(r.gold) == 1", [0, 3]),
        ("r.gold is null", [1, 2]),
        ("mix == 'a'", [0]),
        ("mix == 3", [1]),
        ("mix contains 'a'", [0, 2]),
        ("mix.k == 'a'", [3]),
        ("len(mix) == 1", [0, 2, 3]),
        ("0 < row <= 2", [1, 2]),
        ("row < r.n", [0, 1]),
        ("column('a b') == true", [3]),
        ("column('a b')", [3]),
    ],
)
def test_lists_nulls_contents_lengths_and_nested_values(text: str, rows: list[int]) -> None:
    assert matching(text) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("r.glod == '5'", "r has no 'glod'; did you mean 'gold'"),
        ("text.x == '5'", "text holds no objects but string"),
        ("row in ('a', 1)", "in needs constants of one type"),
        ("row in ('a',)", "int64 and string cannot be compared"),
        ("row in ()", "in needs constants of one type"),
        ("row contains 'a'", "int64 cannot contain string"),
        ("tags contains 1", "string and int64 cannot be compared"),
        ("len(row) > 1", "column row is int64, which has no length"),
        ("len(text, tags) > 1", "use < <="),
        ("text contains tags", "contains needs a column and a constant"),
        ("text is 'a'", "null can only be compared"),
        ("text contains", "invalid syntax"),
    ],
)
def test_what_cannot_be_compared_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="condition") as refused:
        matching(text)
    assert message in str(refused.value)


def test_times_are_compared_with_text() -> None:
    batch = pa.record_batch({"t": pa.array([0, 10**9], pa.timestamp("ns"))})
    wanted = condition.parse("t >= '1970-01-01 00:00:01'", batch.schema)
    assert wanted.matching(batch).to_pylist() == [False, True]


def test_a_misspelt_column_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'reward'"):
        kept("rewrd < 1")


@given(limit=st.floats(0, 1), low=st.booleans())
def test_a_comparison_and_its_negation_partition_the_rows_with_a_value(limit: float, low: bool) -> None:
    text = f"reward < {limit!r}" if low else f"reward >= {limit!r}"
    assert sorted(kept(text) + kept(f"not {text}")) == [0, 1, 3]

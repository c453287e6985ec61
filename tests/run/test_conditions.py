import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.errors import UsageError
from magcli.run.conditions import parse_condition

BATCH = pa.RecordBatch.from_pydict(
    {
        "row": [0, 1, 2, 3],
        "reward": [0.1, 0.5, None, 1.0],
        "reason": ["wrong", "correct", "wrong", None],
        "correct": [False, True, None, True],
    }
)


def kept(text: str) -> list[int]:
    rows: list[int] = BATCH.filter(parse_condition(text, BATCH.schema))["row"].to_pylist()
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


def test_a_misspelt_column_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'reward'"):
        kept("rewrd < 1")


@given(limit=st.floats(0, 1), low=st.booleans())
def test_a_comparison_and_its_negation_partition_the_rows_with_a_value(limit: float, low: bool) -> None:
    text = f"reward < {limit!r}" if low else f"reward >= {limit!r}"
    assert sorted(kept(text) + kept(f"not {text}")) == [0, 1, 3]

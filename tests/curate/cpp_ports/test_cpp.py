"""C++ types of Python values and annotations."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.cpp_ports.cpp import UNKNOWN, UnsupportedSignature, annotation_type, common_type


def hint(text: str):
    return annotation_type(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("values", "type_name"),
    [
        ([True, False], "bool"),
        ([1, -5], "int"),
        ([1, 2**31], "long long"),
        ([1, 0.5], "double"),
        (["a", ""], "std::string"),
        ([[], [1]], "std::vector<int>"),
        ([[[1]], [[], [2**40]]], "std::vector<std::vector<long long>>"),
        ([(1, 2), (3,)], "std::vector<int>"),
        ([(1, 2), (3, 4)], "std::vector<int>"),
        ([(1, "a"), (2, "b")], "std::tuple<int, std::string>"),
        ([(1, 0.5)], "std::tuple<int, double>"),
        ([[("a", 1)], []], "std::vector<std::tuple<std::string, int>>"),
        ([{1, 2}, set()], "std::set<int>"),
        ([{"a": [1]}, {}], "std::map<std::string, std::vector<int>>"),
        ([None, 1], "std::optional<int>"),
        ([[None, "a"]], "std::vector<std::optional<std::string>>"),
    ],
)
def test_types_of_values(values, type_name: str) -> None:
    assert str(common_type(values)) == type_name
    assert str(common_type(reversed(values))) == type_name


@pytest.mark.parametrize(
    ("annotation", "values", "type_name"),
    [
        ("list[int]", [[]], "std::vector<int>"),
        ("float", [1, 2], "double"),
        ("typing.List[float]", [[1]], "std::vector<double>"),
        ("Tuple[int, ...]", [()], "std::vector<int>"),
        ("Optional[str]", [None], "std::optional<std::string>"),
        ("int | None", [3], "std::optional<int>"),
        ("Dict[str, int]", [{}], "std::map<std::string, int>"),
        ("list", [[1]], "std::vector<int>"),
        ("Any", [1], "int"),
        ("'int'", [1], "int"),
    ],
)
def test_annotations_decide_what_values_leave_open(annotation: str, values, type_name: str) -> None:
    assert str(common_type(values, hint(annotation))) == type_name


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1, "a"], "types"),
        ([[1, "a"]], "types"),
        ([True, 1], "types"),
        ([None], "types"),
        ([[]], "types"),
        ([1j], "types"),
        ([b"x"], "types"),
        ([2**63], "big-integers"),
        (["é"], "non-ascii-text"),
    ],
)
def test_values_without_a_type_have_a_reason(values, reason: str) -> None:
    with pytest.raises(UnsupportedSignature) as raised:
        common_type(values)
    assert raised.value.reason == reason


values = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3) | st.none(),
    lambda part: st.lists(part, max_size=3) | st.tuples(part, part) | st.dictionaries(st.text(max_size=2), part),
    max_leaves=8,
)


@given(st.lists(values, min_size=1, max_size=4))
def test_any_values_have_a_type_or_a_reason_whatever_their_order(given) -> None:
    def found(each) -> str:
        try:
            return str(common_type(each))
        except UnsupportedSignature:
            return "none"

    assert found(given) == found(given[::-1])
    assert "unknown" not in found(given)


def test_an_unknown_annotation_is_unknown() -> None:
    assert hint("ListNode") == hint("list[int][0]") == UNKNOWN

"""Which programs that compute nothing pass the tests of a problem."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.code.prepare import trivial
from magcli.verify.code.cases import parse_tests
from magcli.verify.code.outputs import comparison


def passes(*tests: tuple[str, str], compare: str = "tokens") -> str | None:
    return trivial(parse_tests([{"input": one, "output": other} for one, other in tests]), comparison(compare))


def passes_asserts(*tests: str) -> str | None:
    return trivial(parse_tests([{"assert": f"assert {test}"} for test in tests]), comparison("tokens"))


@pytest.mark.parametrize(
    ("tests", "compare", "passing"),
    [
        ([("1", " \n"), ("2", "")], "tokens", "nothing"),
        ([("1 2", "1\n2\n"), ("3", "3")], "tokens", "input"),
        ([("aB", "Ab"), ("c", "C")], "tokens", "input"),
        ([("aB", "Ab"), ("c", "C")], "tokens-case", None),
        ([("1", "yes"), ("2", "YES")], "tokens", "constant"),
        ([("1", "yes"), ("2", "no")], "tokens", None),
        ([("1", "yes")], "tokens", None),
        ([("1", "5e-7"), ("2", "0.0000003")], "floats:1e-6", "constant"),
        ([("1", "a 5e-7"), ("2", "b 3e-7"), ("3", "c 0.0")], "floats:1e-6", "zero"),
        ([("1", "a 5e-7"), ("2", "b 3e-7")], "floats:1e-8", None),
        ([("1", "a 5e-7"), ("2", "b 0.5")], "floats:1e-6", None),
        ([("1", "a 0.0"), ("2", "b 0.0")], "floats:1e-6", None),
    ],
)
def test_a_program_that_computes_nothing(tests: list[tuple[str, str]], compare: str, passing: str | None) -> None:
    assert passes(*tests, compare=compare) == passing


@pytest.mark.parametrize(
    ("tests", "passing"),
    [
        (["f(1) is None", "not f(2)"], "nothing"),
        (["f([1], 2) == [1]", "f(x=[3], y=1) == [3]"], "input"),
        (["f(1, [2]) == [2]", "f(2, [2, 1]) == [2, 1]"], "input"),
        (["f(1) == 'a'", "f(2)"], "constant"),
        (["f(1) in (3, 4)", "f(2) == 3"], "constant"),
        (["f(1) is True", "f(2)"], "constant"),
        (["abs(f(1) - 5e-7) < 1e-6", "abs(f(3) - 3e-7) < 1e-6"], "constant"),
        (["f(1) == 2"], None),
        (["f(1) == 2", "f(2) == 3"], None),
        (["decode(encode('a')) == 'a'", "encode('a') == 'b'", "decode('b') == 'a'"], None),
    ],
)
def test_a_function_that_computes_nothing(tests: list[str], passing: str | None) -> None:
    assert passes_asserts(*tests) == passing


VALUES = st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(st.lists(st.tuples(st.integers(), VALUES), min_size=2, max_size=4))
def test_one_value_for_all_is_found(tests: list[tuple[int, object]]) -> None:
    found = passes_asserts(*(f"f({given}) == {value!r}" for given, value in tests))
    assert (found is not None) == (
        all(value == tests[0][1] for _, value in tests) or all(given == value for given, value in tests)
    )

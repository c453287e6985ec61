import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.errors import DataError
from magcli.verify.code.outputs import close, comparison, difference, infer_comparison


def right(mode: str, expected: str | bytes, given: str | bytes) -> bool:
    one, other = (text.encode() if isinstance(text, str) else text for text in (expected, given))
    return difference(one, other, comparison(mode)) is None


@pytest.mark.parametrize(
    ("expected", "given", "modes"),
    [
        ("1 2\n3\n", "1 2\n3\n", "tokens tokens-case floats lines unordered-lines exact"),
        ("1 2\n3\n", "1 2\n3", "tokens tokens-case floats lines unordered-lines"),
        ("1 2\n3\n", "1 2 \r\n3\r\n\n\n", "tokens tokens-case floats lines unordered-lines"),
        ("1 2\n3\n", "1  2\n\n3", "tokens tokens-case floats unordered-lines"),
        ("1 2\n3\n", "1\n2 3", "tokens tokens-case floats"),
        ("1 2\n3\n", "3\n1 2\n", "unordered-lines"),
        ("Yes\n", "YES\n", "tokens floats unordered-lines"),
        ("Yes\nno", "NO\nyes\n", "unordered-lines"),
        ("1 2\n3\n", "1 2\n3\n3\n", ""),
        ("1 2\n3\n", "1 2", ""),
        ("1 2\n3\n", "", ""),
        ("", "", "tokens tokens-case floats lines unordered-lines exact"),
        ("", "\n", "tokens tokens-case floats lines unordered-lines"),
        ("", "0", ""),
        ("a\na\nb", "a\nb\nb", ""),
        ("  a", "a", "tokens tokens-case floats unordered-lines"),
        ("0.5", "0.5000001", "floats"),
        ("0.5", "0.5001", ""),
        ("1000000.0", "1000000.9", "floats"),
        ("1000000", "1000001", ""),
        ("1000000", "1000000.9", ""),
        ("3", "3.0000", "floats"),
        ("3", "2.9999999999999996", "floats"),
        ("3.0", "3", "floats"),
        ("1e-9", "0.000000001", "floats"),
        ("nan", "NaN", "tokens floats unordered-lines"),
        ("nan", "1", ""),
        ("inf", "1e400", ""),
        ("1e400", "1", ""),
        ("Case #1: 0.25", "case #1: .25", "floats"),
        ("0x10", "16", ""),
        ("1_0.0", "10.0", ""),
        ("12.5", "１２.5", ""),
    ],
)
def test_each_mode_tolerates_only_what_it_documents(expected: str, given: str, modes: str) -> None:
    known = ["tokens", "tokens-case", "floats", "lines", "unordered-lines", "exact"]
    assert [mode for mode in known if right(mode, expected, given)] == modes.split()


def test_the_tolerance_of_floats_can_be_set() -> None:
    assert right("floats:1e-2", "1.00", "1.009")
    assert not right("floats:1e-2", "1.00", "1.02")
    assert right("floats:1e-2", "100.0", "100.9"), "relative"
    assert not right("floats:0", "1.00", "1.01")


@pytest.mark.parametrize("name", ["", "token", "floats:", "floats:x", "floats:-1", "tokens:1e-3", "TOKENS"])
def test_an_unknown_mode_is_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match="unordered-lines"):
        comparison(name)


def test_a_difference_says_where_and_what() -> None:
    def says(mode: str, expected: bytes, given: bytes) -> str | None:
        return difference(expected, given, comparison(mode))

    assert says("tokens", b"1 7", b"1 8") == "token 2: expected '7', got '8'"
    assert says("tokens", b"1 7", b"1") == "token 2: expected '7', got the end"
    assert says("lines", b"a\nb", b"a\nb\nc") == "line 3: expected the end, got 'c'"
    assert says("exact", b"a\n", b"a") == "line 1: expected 'a\\n', got 'a'"
    assert says("unordered-lines", b"a\nb", b"a\na") == "line 2: 'a' is not expected again"
    assert says("unordered-lines", b"a\nb", b"b") == "line 'a' is missing"
    assert len(says("tokens", b"x" * 10**6, b"y" * 10**6) or "") < 200


@pytest.mark.parametrize("mode", ["tokens", "floats", "lines", "unordered-lines", "exact"])
@pytest.mark.parametrize("flood", [b"7 " * 8_000_000, b"7\n" * 8_000_000, b"7" * 16_000_000, bytes(16_000_000)])
def test_a_large_output_is_compared_quickly(mode: str, flood: bytes) -> None:
    begun = time.process_time()
    assert difference(b"7 7\n7\n", flood, comparison(mode)) is not None
    assert time.process_time() - begun < 2


def test_output_that_is_not_text_is_compared_as_bytes() -> None:
    assert right("tokens", b"\xff\xfe 1", b"\xff\xfe\n1")
    assert not right("tokens", b"\xff\xfe 1", b"\xff\xfd 1")


@given(st.lists(st.text("aB1. ", max_size=4)), st.sampled_from(["tokens", "lines", "unordered-lines", "exact"]))
def test_an_output_equals_itself(lines: list[str], mode: str) -> None:
    assert right(mode, "\n".join(lines), "\n".join(lines))


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_close_by_either_tolerance(expected: float, given: float) -> None:
    gap = abs(expected - given)
    assert close(expected, given, 1e-6) is (gap <= 1e-6 or gap <= 1e-6 * abs(expected) < float("inf"))


@pytest.mark.parametrize(
    ("tests", "mode"),
    [
        ([("1 2", "3\n"), ("2 2", "4\n")], "tokens"),
        ([("1", "Yes\n"), ("2", "YES\n"), ("3", "no"), ("4", "nO")], "tokens"),
        ([("yes", "YES\n")], "tokens"),
        ([("Hello World", "hELLO wORLD\n")], "tokens-case"),
        ([("5\nhello", "HELLO\n")], "tokens-case"),
        ([("1", "Alice\n"), ("2", "alice\n")], "tokens-case"),
        ([("hello world", "helloWorld\n")], "tokens-case"),
        ([("HELLO", "HELLO\n")], "tokens"),
        ([("3", "  *\n ***\n"), ("1", " *\n")], "lines"),
        ([("3", "  *\n ***\n"), ("1", "*\n")], "tokens"),
        ([("3", " \n")], "tokens"),
        ([], "tokens"),
    ],
)
def test_the_comparison_fits_the_tests(tests: list[tuple[str, str]], mode: str) -> None:
    assert infer_comparison(tests) == mode


@given(st.lists(st.tuples(st.text("aB 1\n", max_size=9), st.text("aB 1\n", max_size=9)), max_size=4))
def test_expected_outputs_pass_the_comparison_chosen_for_them(tests: list[tuple[str, str]]) -> None:
    rule = comparison(infer_comparison(tests))
    assert all(difference(output.encode(), output.encode() + b"\n", rule) is None for _, output in tests)

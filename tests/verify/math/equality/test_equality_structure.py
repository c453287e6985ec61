"""Which comparison decides; the kinds of answers are in ``math_kinds.jsonl``."""

import pytest

from magcli.verify.math.equality.structure import MAX_UNORDERED, same
from magcli.verify.math.latex.answers import parse_answer


@pytest.mark.parametrize(
    ("a", "b", "found", "path"),
    [
        ("1/2", "0.5", True, "number"),
        ("x+1", "x+1", True, "same"),
        ("x+1", "1+x", True, "numeric"),
        ("1,2", "2,1", True, "structure"),
        ("(1,2)", "1,2,3", False, "structure"),
        ("x>1", r"(1,\infty)", True, "region"),
        ("2x=y", "y=2x", True, "equation"),
        ("5 cm", "5 km", False, "unit"),
        (r"50\%", "50", True, "percent"),
        ("(C) 12", "C", True, "choice"),
        ("1011_2", "1011_3", False, "literal"),
        ("1:2", "2:4", True, "ratio"),
        ("yes", "no", False, "words"),
        ("9^{9^9}", "9^{9^9}+1", False, "undecided"),
        (r"\unknown{1}", r"\unknown{1}", False, "unparsable"),
    ],
)
def test_paths(a: str, b: str, found: bool, path: str) -> None:
    assert same(parse_answer(a), parse_answer(b)) in ((found, path), (found, "same"))


def test_long_lists_are_compared_in_order() -> None:
    numbers = [str(n) for n in range(MAX_UNORDERED + 5)]
    assert same(parse_answer(",".join(numbers)), parse_answer(", ".join(numbers)))[0]
    assert not same(parse_answer(", ".join(numbers)), parse_answer(", ".join(reversed(numbers))))[0]


def test_nesting_is_bounded() -> None:
    deep, other = ("(" + "1,(" * 12 + end + ")" * 13 for end in ("1,2", "1,3"))
    assert same(parse_answer(deep), parse_answer(other)) == (False, "structure")

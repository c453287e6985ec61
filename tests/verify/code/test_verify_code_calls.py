import ast
import math
import re
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest
from forgeries import CALLS
from hypothesis import given
from hypothesis import strategies as st
from properties import adversarial

from magcli.errors import DataError
from magcli.verify.code.cases import Call, Expected, constant, parse_assert, parse_call, split_asserts
from magcli.verify.code.driver import text_of
from magcli.verify.code.outputs import (
    DECODERS,
    Comparison,
    NotPlain,
    Other,
    Plain,
    comparison,
    decode,
    in_any_order,
    same,
    shown,
)
from magcli.verify.code.runs import check_output
from magcli.verify.code.scripts import names_of_problem

TOKENS = Comparison()


@pytest.mark.parametrize(
    ("source", "asked", "expected"),
    [
        ("assert f(1, [2]) == [3]", "f(1, [2])", Expected("equal", [3])),
        ("assert 3 == f(1)", "f(1)", Expected("equal", 3)),
        ("assert f(1) is None, 'why'", "f(1)", Expected("identical", None)),
        ("assert f(1) is True", "f(1)", Expected("identical", True)),
        ("assert f(1)", "not not f(1)", Expected("equal", True)),
        ("assert not f(1)", "not not f(1)", Expected("equal", False)),
        ("assert f(1) in (1, 2)", "f(1)", Expected("one-of", (1, 2))),
        ("assert f(x=1) == {(1, 2): {3}}", "f(x=1)", Expected("equal", {(1, 2): frozenset({3})})),
        ("assert f(1) == set([1, 2])", "f(1)", Expected("equal", frozenset({1, 2}))),
        ("assert f(1) == set()", "f(1)", Expected("equal", frozenset())),
        ("assert f(1) == [float('inf'), -math.inf]", "f(1)", Expected("equal", [math.inf, -math.inf])),
        ("assert f(1) == 1 - 2j", "f(1)", Expected("equal", 1 - 2j)),
        ("assert sum(10, 15) == 6", "sum(10, 15)", Expected("equal", 6)),
        ("assert Solution().count(a=1) == 1", "Solution().count(a=1)", Expected("equal", 1)),
        ("assert abs(f(1) - 0.5) < 1e-6", "f(1)", Expected("near", 0.5, 1e-6, 0.0)),
        ("assert abs(0.5 - f(1)) <= 1e-6", "f(1)", Expected("near", 0.5, 1e-6, 0.0)),
        ("assert math.isclose(f(1), 2.5, rel_tol=0.001)", "f(1)", Expected("near", 2.5, 0.0, 0.001)),
        ("assert math.isclose(2.5, f(1))", "f(1)", Expected("near", 2.5, 0.0, 1e-9)),
        ("assert f(f(1)) == -1 * 2 ** 3 + 10 // 3", "f(f(1))", Expected("equal", -5)),
        ("assert f(1) == [-3 * 19, 'a' * 2, 10 ** 6]", "f(1)", Expected("equal", [-57, "aa", 1_000_000])),
        ("assert f([i * i for i in range(3)]) == 1", "f([i * i for i in range(3)])", Expected("equal", 1)),
        ("assert f(Pair(1, 2)) == 3", "f(Pair(1, 2))", Expected("equal", 3)),
    ],
)
def test_an_assert_is_split(source: str, asked: str, expected: Expected) -> None:
    call = parse_assert(source)
    assert (call.request, call.expected) == (asked, expected)
    assert asked.removeprefix("not not ").startswith(call.name)


def test_names_under_test_come_from_other_tests_or_the_entry_point() -> None:
    nested = "assert decode(encode('a')) == 'a'"
    with pytest.raises(DataError, match="not known which"):
        parse_assert(nested)
    sources = ["assert encode('a') == 'b'", "assert decode('b') == 'a'"]
    both = names_of_problem([{"assert": source} for source in sources])
    assert parse_assert(nested, both).source == "decode(encode('a'))"
    assert parse_assert("assert set([1]) == 1", frozenset({"set"})).source == "set([1])"


@pytest.mark.parametrize(
    "source",
    [
        "assert set(f(1)) == {1, 2}",
        "assert round(f(1), 2) == 0.33",
        "assert f(1)[0] == 2",
        "assert f(1).val == 2",
        "assert Stack([1]).pop() == 1",
        "assert f(1) == 5 and f(2) == 6",
        "assert f(1) - 5 == 0",
        "assert 5 <= f(1)",
        "assert f(1).startswith('a')",
        "assert isinstance(f(1), int)",
        "assert np.allclose(f(1), [1.5], atol=1e-3)",
        "assert f(1) == 2 ** 3 ** 9",
        "assert f(1) == 'a%99999999d' % 1",
        "assert abs(f(1) - True) < 1",
        "assert f(1) == pytest.approx(2.5)",
        "assert is_same_list(f(1), list_node([2, 3]))",
        "assert f(1) == [0] * 3",
        "assert set() == f(1)",
        "assert f(1) == g(1) == 5",
        "assert f(1) == 5 == g(1)",
        "assert sum(f(1), -5) == g(1)",
        "assert f(1) == g(1)",
        "assert tuple(f(1)) == tuple(f(1))",
        "assert is_right(f(1), 5)",
        "assert all(f(x) == x for x in f(1))",
        "assert list(map(lambda x: f(x), [1])) == [1]",
        "assert sum(f(i) for i in range(2000)) == 1",
        "assert re.match('(a+)+$', f(1))",
        "assert f(1).__len__() == 3",
        "assert f(1).__class__ == list",
        "assert f(1).append(3) is None",
        "assert hasattr(f(1), 'x')",
        "assert eval(f(1)) == 2",
        "assert Text(1).startswith('a')",
        "assert Text(1).find('a') == 0",
        "assert f(1).is_like([1, 2])",
        "assert Solution().f(1).is_like([1, 2])",
        "assert Text(1).__contains__(3)",
        "assert (x := f(1)) == 2",
        "assert f(1) == open('x').read()",
        "assert next(f(1)) == 2",
        "assert f(1) == x",
        "assert f",
        "assert True",
        "f(1) == 2",
        "assert f(1) == 2; assert f(2) == 3",
        "assert f(1",
        "assert f(1) == " + "[" * 5000 + "]" * 5000,
        "assert f(1) == " + "-" * 5000 + "1",
        "assert f(" + "+".join(["1"] * 20_000) + ") == 1",
        "assert f" + "(1)" * 5000 + " == 1",
        "assert f(1) == 10 ** 10 ** 10",
        "assert f(1) == [0] * 10 ** 9",
        "assert f(1) == 'a' * 10 ** 9",
        "assert f(1) == __import__('os').getpid()",
        "assert f(1) == {[]: 1}",
        "assert f(1) == 1 / 0",
        "",
    ],
)
def test_asserts_that_cannot_be_split_are_refused_by_name(source: str) -> None:
    begun = time.process_time()
    with pytest.raises(DataError):
        parse_assert(source)
    assert time.process_time() - begun < 5


def test_a_call_and_its_value_may_be_separate() -> None:
    assert parse_call("f(1)", "[1, 'a', (2,)]").expected == Expected("equal", [1, "a", (2,)])
    assert parse_call("f(1)", '{"a": [true, null]}').expected == Expected("equal", {"a": [True, None]})
    for call, output in (("f(1)", "f(2)"), ("f(1", "2"), ("1 + 1", "2"), ("f(1)", "")):
        with pytest.raises(DataError):
            parse_call(call, output)


def test_a_script_of_asserts_becomes_single_tests() -> None:
    script = """
import math

def check(candidate):
    'what it checks'
    # about it
    assert candidate(1) == 2, "first"
    assert True, "a note"
    assert candidate(candidate(1)) == 3
"""
    assert split_asserts(script, "f") == ["assert f(1) == 2", "assert f(f(1)) == 3"]
    assert split_asserts(script + "\ncheck(Solution().go)")[0] == "assert Solution().go(1) == 2"
    assert split_asserts("import math\nassert f(1) == 2") == ["assert f(1) == 2"]


@pytest.mark.parametrize(
    "script",
    [
        "def check(c):\n    assert c(1) == 2",
        "def check(c):\n    x = 1\n    assert c(x) == 2\ncheck(f)",
        "def check(c):\n    for i in range(3):\n        assert c(i) == i\ncheck(f)",
        "def check(c:\n    pass",
    ],
)
def test_a_script_with_other_statements_is_refused(script: str) -> None:
    with pytest.raises(DataError):
        split_asserts(script)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3) | st.booleans(), inner, max_size=3)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_constants_are_evaluated_as_in_python(value: Plain) -> None:
    text = repr(value).replace("inf", "float('inf')")
    assert same(value, constant(ast.parse(text, mode="eval").body))


@given(plain)
def test_a_value_survives_as_text(value: Plain) -> None:
    assert same(value, decode(text_of(value).encode("ascii")))


@given(plain)
def test_a_value_equals_itself(value: Plain) -> None:
    assert same(value, value)
    assert same(value, value, 1e-6)
    assert in_any_order([value, 1], [1, value])


@pytest.mark.parametrize(
    ("expected", "given", "equal"),
    [
        (1, True, False),
        (True, 1, True),
        (False, 0, True),
        (True, 2, False),
        (True, 1.0, False),
        (0, False, False),
        (None, False, False),
        (1, 1.0, True),
        (1.0, 1, True),
        (1, 1.0000000000001, False),
        (1.0, 1.0000000000001, True),
        (0.3, 0.1 + 0.2, True),
        (0.3, 0.3001, False),
        (0.0, 1e-300, False),
        (float("inf"), 1e308, False),
        (float("inf"), float("inf"), True),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (10**400, 1e308, False),
        (1.5, 10**400, False),
        (1 + 2j, 1 + 2j, True),
        (1j, 1.0, False),
        ("a", "a", True),
        ("a", b"a", False),
        ("a", ["a"], False),
        ([1, 2], (1, 2), True),
        ((1, 2), [1, 2], False),
        ([(1, 2)], ((1, 2),), True),
        ([(1, 2)], [[1, 2]], False),
        ([True], [1], True),
        (0.5, Fraction(1, 2), True),
        (0.1, Decimal("0.1"), True),
        (2, Fraction(2), True),
        (2, Decimal("2.0"), True),
        (2, Decimal("2.1"), False),
        (Fraction(1, 3), Fraction(2, 6), True),
        (Fraction(1, 3), 1 / 3, False),
        (Decimal("0.5"), 0.5, True),
        (Other("range", (0, 1)), Other("range", (0, 1)), True),
        ([0, 1], Other("range", (0, 1)), False),
        (Other("range", (0, 1)), Other("generator", (0, 1)), False),
        ([1, 2], [2, 1], False),
        ([1], [True], False),
        ([[0.3]], [[0.1 + 0.2]], True),
        (frozenset({1}), frozenset({True}), False),
        (frozenset({True}), frozenset({1}), True),
        (frozenset({1, 2}), frozenset({2, 1}), True),
        (frozenset({(1,)}), frozenset({(True,)}), False),
        ({1: "a"}, {True: "a"}, False),
        ({True: "a"}, {1: "a"}, True),
        ({"a": 0.3, "b": 1}, {"b": 1, "a": 0.1 + 0.2}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({}, [], False),
        ({}, frozenset(), False),
    ],
)
def test_equality_is_that_of_python_except_for_tuples_and_booleans(expected: Plain, given: Plain, equal: bool) -> None:
    assert same(expected, given) is equal


@pytest.mark.parametrize(
    ("expected", "given"),
    [([1], (1,)), (True, 1), (1, 1.0), (0.3, 0.1 + 0.2), (0.5, Fraction(1, 2)), ({True: 1}, {1: 1}), ([[1]], [(1,)])],
)
def test_exact_equality_can_be_required(expected: Plain, given: Plain) -> None:
    assert not same(expected, given, exact=True)
    assert not Expected("equal", expected).matches(given, comparison("exact"))
    assert Expected("equal", expected).matches(given, TOKENS)
    assert Expected("equal", expected).matches(expected, comparison("exact"))


def test_integers_may_be_of_any_size() -> None:
    assert same(10**5000, 10**5000)
    assert not same(10**5000, 10**5000 + 1)


def test_a_list_may_be_in_any_order_if_allowed() -> None:
    rule = comparison("unordered-lines")
    assert Expected("equal", [[1, 2], [3]]).matches([[3], [1, 2]], rule)
    assert Expected("equal", [0.3, 1]).matches([1, 0.1 + 0.2], rule)
    assert not Expected("equal", [[1, 2], [3]]).matches([[3], [2, 1]], rule)
    assert not Expected("equal", [1, 1, 2]).matches([1, 2, 2], rule)
    assert not Expected("equal", [1]).matches([True], rule)
    assert not Expected("equal", [1, 2]).matches([2, 1], TOKENS)


def test_conditions_of_a_test_on_a_value() -> None:
    assert Expected("equal", 2.0).matches(2.009, comparison("floats:1e-2"))
    assert Expected("one-of", (1, 2)).matches(2, TOKENS)
    assert not Expected("one-of", (1, 2)).matches(True, TOKENS)
    assert Expected("near", 2.0, 0.1).matches(2.05, TOKENS)
    assert not Expected("near", 1.0, 0.1).matches(True, TOKENS)
    assert not Expected("near", 1.0, 0.1).matches("1.0", TOKENS)
    assert not Expected("near", 1.0, 0.1).matches(10**400, TOKENS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"tuple":[1,{"set":[2]}]}', (1, frozenset({2}))),
        (b'{"dict":[[{"tuple":[1]},null]]}', {(1,): None}),
        (b'{"int":"-%s"}' % (b"f" * 999), -(16**999 - 1)),
        (b'{"float":"-inf"}', float("-inf")),
        (b'{"complex":[1.5,-2.0]}', 1.5 - 2j),
        (b'{"bytes":"00ff"}', b"\x00\xff"),
        (b'"\\ud800"', "\ud800"),
    ],
)
def test_plain_text_is_read(text: bytes, value: Plain) -> None:
    assert decode(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1 2",
        b'{"a":1}',
        b'{"tuple":1}',
        b'{"set":[[1]]}',
        b'{"set":{"set":[]}, "list":[]}',
        b'{"dict":[[1]]}',
        b'{"int":"g"}',
        b'{"bytes":[]}',
        b"1" * 10_000,
        b"[" * 100_000 + b"]" * 100_000,
        b"\xff",
    ],
)
def test_text_that_is_not_plain_data_is_refused(text: bytes) -> None:
    with pytest.raises(NotPlain):
        decode(text)


def test_colliding_keys_take_little_time() -> None:
    colliding = b",".join(b'{"int":"%x"}' % (number * (2**61 - 1)) for number in range(1, 5_000))
    half = b'{"set":[%s]}' % b",".join(colliding.split(b",")[:1_500])
    begun = time.process_time()
    assert len(decode(half)) == 1_500  # type: ignore[arg-type]
    for text in (b'{"set":[%s]}' % colliding, b"[%s,%s]" % (half, half)):
        with pytest.raises(NotPlain, match="collide"):
            decode(text)
    assert time.process_time() - begun < 10


def test_a_value_may_have_many_keys() -> None:
    squares = {number: number * number for number in range(100_000)}
    assert decode(text_of(squares).encode()) == squares
    assert len(decode(text_of(set(squares)).encode())) == 100_000  # type: ignore[arg-type]


def test_long_values_are_abbreviated() -> None:
    assert shown((1, "a")) == "(1, 'a')"
    assert len(shown([0] * 1000)) < 80
    assert "long" in shown(10**5000)


NUMBERS = st.integers() | st.floats() | st.complex_numbers() | st.sampled_from([10**400, -(10**400), 1 << 5000])
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
)
RULES = st.sampled_from(["tokens", "floats", "floats:1e-4", "unordered-lines", "exact"])


TAGGED = st.recursive(
    st.sampled_from([b"1", b"1" * 400, b'"ff"', b"1e999", b"null", b"true", b"NaN", b"[]", b"{}", b"-0"]),
    lambda inner: (
        st.lists(inner).map(lambda parts: b"[" + b",".join(parts) + b"]")
        | st.tuples(st.sampled_from(sorted(DECODERS)), inner).map(
            lambda pair: b'{"%s":%s}' % (pair[0].encode(), pair[1])
        )
    ),
)


TESTS = st.sampled_from([parse_assert(test) for test in CALLS])


@adversarial
@given(st.binary() | TAGGED | ANYTHING, TESTS, RULES)
def test_no_report_makes_a_test_raise(value: Plain, case: Call, rule: str) -> None:
    report = value if isinstance(value, bytes) else text_of(value).encode()
    fault = check_output(report, case, comparison(rule), None, None)  # type: ignore[arg-type]
    assert fault is None or fault.reason == "wrong-answer"


class Named(str):
    """A class of the program with a different text."""

    def __str__(self) -> str:
        return "other"

    __class__ = int  # type: ignore[assignment]


class Three(IntEnum):
    VALUE = 3


class Walked(list[int]):
    """A class with different elements."""

    def __iter__(self) -> Iterator[int]:
        return iter([7])


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Named("a"), "a"),
        (Three.VALUE, 3),
        (Walked([1, 2]), [1, 2]),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (namedtuple("Pair", "a b")(1, 2), (1, 2)),
        (deque([1, 2]), Other("deque", (1, 2))),
        (range(3), Other("range", (0, 1, 2))),
        ((n for n in (1, 2)), Other("generator", (1, 2))),
        ({1: 2}.keys(), Other("dict_keys", (1,))),
        (re.match("a", "a"), Other("Match")),
        (object(), Other("object")),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.10"), Decimal("0.10")),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.5]), [1.5]),
        (np.longdouble(1.5), 1.5),
        ([np.int32(1), {np.int64(2): np.float16(3)}], [1, {2: 3.0}]),
        (bytearray(b"a"), b"a"),
    ],
)
def test_library_values_become_plain_data(value: object, plain: Plain) -> None:
    found = decode(text_of(value).encode())
    assert (found, type(found)) == (plain, type(plain))


@pytest.mark.parametrize("text", [b'{"float":' + b"1" * 400 + b"}", b'{"complex":[' + b"1" * 400 + b",0]}"])
def test_a_forged_number_beyond_floats_is_refused(text: bytes) -> None:
    with pytest.raises(NotPlain):
        decode(text)


@pytest.mark.parametrize("expected", [1.5, 2j, float("nan")])
def test_an_integer_beyond_floats_is_unequal(expected: Plain) -> None:
    assert not same(expected, 10**400)

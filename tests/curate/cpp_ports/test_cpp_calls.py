"""C++ programs with types of their own, called as tests call a Python function."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magcli.curate.code.execution import RunnableSolution, compiled
from magcli.curate.code.prepare import Prepared, prepare
from magcli.curate.cpp_ports.calls import cpp_calls
from magcli.curate.cpp_ports.cpp import UnsupportedSignature, _tokens, common_type
from magcli.verify.code.cases import parse_call
from magcli.verify.code.outputs import NotPlain, decode, same
from magcli.verify.sandbox import open_sandbox


def values_of(code: str, *tests: tuple[str, str]) -> list[object]:
    """What a C++ program gives in tests of a call and the value of it, or the reason why nothing."""
    row = {"tests": [{"call": call, "output": output} for call, output in tests]}
    prepared = prepare({**row, "prompt": "?", "solutions": [{"language": "cpp", "code": code}]})
    assert isinstance(prepared, Prepared), prepared
    box = open_sandbox("auto")
    with compiled(prepared.plan, prepared.plan.solutions[0], box) as program:
        if not isinstance(program, RunnableSolution):
            return [program.reason]
        runs = [program.run(case, prepared.plan.limits).output for case in prepared.plan.tests.values()]
    return [decode(output) if isinstance(output, bytes) else output.reason for output in runs]


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        (
            "class Solution {\npublic:\n  vector<vector<char>> f(vector<vector<char>>& board, int64_t n, float x) {\n"
            "    for (auto& row : board) row.push_back(x > 0.5f ? '#' : n > 3000000000 ? ' ' : '\"');\n"
            "    return board;\n  }\n};",
            [
                ("Solution().f([['a']], 1, 0.25)", "[['a', '\"']]"),
                ("Solution().f([['\\n'], []], 2**40, 1.5)", "[['\\n', '#'], ['#']]"),
            ],
        ),
        (
            "#include <map>\nstd::unordered_map<std::string, std::pair<unsigned, double>> f(const std::list<int>& a, "
            "std::unordered_set<char> s) {\n  return {{std::string(s.begin(), s.end()), {a.size(), a.front()}}};\n}",
            [("f([2, 3], {'x'})", "{'x': (2, 2.0)}"), ("f([-1], {'y'})", "{'y': (1, -1.0)}")],
        ),
        (
            "bool f(int n) { return std::abs(n); }\nint f(string s) { return s.size(); }\nint main() { return f(1); }",
            [("f('ab')", "2"), ("f('')", "0")],
        ),
        (
            "struct Solution { static long f(vector<int>& a, int k = 7) { cout << k; return a[0] + k; } };",
            [("Solution().f([1])", "8"), ("Solution().f([2])", "9")],
        ),
        ("template <class T> T f(T a, T b) { return a / b; }", [("f(1, 2)", "0"), ("f(-9, 2)", "-4")]),
    ],
)
def test_types_follow_the_annotations_of_the_program(code: str, tests: list[tuple[str, str]]) -> None:
    found = values_of(code, *tests)
    expected = [parse_call(call, output).expected.value for call, output in tests]
    assert all(same(one, other) for one, other in zip(expected, found, strict=True)), found


def test_calls_without_a_value_have_a_reason() -> None:
    tests = [("f(1)", "1"), ("f(2)", "1"), ("f(3)", "1"), ("f(4)", "1")]
    code = "int f(int n) { if (n == 2) exit(0); if (n == 3) abort(); if (n == 4) for (;;) {} return n; }"
    assert values_of(code, *tests) == [1, "wrong-answer", "runtime-error", "time-limit"]
    assert values_of("void f(int n) {}", *tests) == ["compile-error"]


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ([("f(f([1]))", "1")], "arguments"),
        ([("len(f(1))", "1")], "value"),
        ([("f([1, 'a'])", "1")], "types"),
        ([("f(10 ** 20)", "1")], "big-integers"),
        ([("f(1)", "'é'")], "non-ascii-text"),
        ([("f(1)", "1"), ("g(1)", "1")], "names"),
        ([("f(1)", "[]"), ("f(2)", "(1, 2)")], "types"),
        ([("f(1)", "[(1, 2), (3,)]"), ("f(2)", "[[1, 2, 3]]")], "types"),
    ],
)
def test_calls_that_cpp_cannot_express_have_a_reason(tests: list[tuple[str, str]], reason: str) -> None:
    row = {"tests": [{"call": call, "output": output} for call, output in tests], "prompt": "?"}
    found = prepare({**row, "solutions": [{"language": "cpp", "code": "int f(int n);"}]})
    assert not isinstance(found, Prepared)
    assert (found.reason, found.detail.rpartition(": ")[2]) == ("no-solutions", reason)
    more = prepare({**row, "solutions": [{"language": "cpp", "code": "int f(int n);"}, "def f(n): return 1"]})
    assert isinstance(more, Prepared)
    assert (more.cpp_unrun, list(more.plan.solutions)) == (reason, [1])


def test_new_arguments_must_be_of_the_types_of_the_given_ones() -> None:
    calls = cpp_calls([parse_call("f([1], x='a')", "1")], "?", ["def f(n, x): return 1"])
    assert calls.stdin(parse_call("f([2, -3], 'b c')", "None")) == b'[ 2 -3 ]\n"b\\x20c"\n'
    for call, reason in (("f([2**40], 'a')", "types"), ("f([1.5], 'a')", "types"), ("f([1])", "arguments")):
        with pytest.raises(UnsupportedSignature, match=reason):
            calls.stdin(parse_call(call, "None"))


DEEP = 100_000


@pytest.mark.parametrize(
    "stdout", [b"", b"1 2", b"[ 1", b"]", b"[ 1 ] ]", b"abc", b'"\\xff"', b"[ " * DEEP + b"] " * DEEP]
)
def test_invalid_values_are_rejected(stdout: bytes) -> None:
    calls = cpp_calls([parse_call("f(1)", "1")], "?", [])
    with pytest.raises(NotPlain):
        calls.value(stdout)


KEYS = st.integers(-9, 9) | st.text('ab "\\\n', max_size=3)
VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab \"\\\n", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.frozensets(KEYS, max_size=3)
    | st.dictionaries(KEYS, inner, max_size=3),
)  # fmt: skip


@given(st.lists(VALUES, min_size=1, max_size=3))
@example([[], (False, False)])
def test_values_come_back_as_python_types(values: list[object]) -> None:
    """Written as the harness writes them and read again, for all values that C++ can give."""
    try:
        type = common_type(values)
        calls = cpp_calls([parse_call(f"f({n})", repr(value)) for n, value in enumerate(values)], "?", [])
    except UnsupportedSignature:
        return
    for value in values:
        text = calls.value(" ".join(_tokens(value, type)).encode())
        assert same(value, decode(text)), (text, value)

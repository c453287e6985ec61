"""Checkers as in contests: a sum, a rotation of brackets, a counted tiling, a fraction."""

import pytest

from magcli.errors import DataError
from magcli.verify.code.judge import judge
from magcli.verify.code.runs import Checker


def reason(program: str, tests: list[dict[str, str]], checker: Checker | None = None) -> str:
    return judge(program, "python", tests, checker=checker).reason


EVEN = """
import sys
question, answer = open(sys.argv[1]).read(), open(sys.argv[2]).read()
given = sys.stdin.read().split()
assert question and answer and len(sys.argv) == 4
print("not two numbers that add up to", question)
sys.exit(42 if len(given) == 2 and sum(map(int, given)) == int(question) else 43)
"""
EVEN_CPP = """
#include <bits/stdc++.h>
int main(int argc, char** argv) {
    std::ifstream question(argv[1]), answer(argv[2]);
    long n, m, a, b;
    question >> n;
    if (argc != 4 || !(answer >> m)) return 1;
    std::string rest;
    if (!(std::cin >> a >> b) || (std::cin >> rest) || a + b != n) { std::cerr << "no such sum\\n"; return 43; }
    return 42;
}
"""


@pytest.mark.parametrize(
    ("checker", "says"), [(Checker(EVEN, "python"), "add up to 10"), (Checker(EVEN_CPP, "cpp"), "sum")]
)
def test_a_checker_decides_where_several_outputs_are_correct(checker: Checker, says: str) -> None:
    tests = [{"input": "10", "output": "5 5"}]
    assert reason("print(3, 7)", tests) == "wrong-answer"
    assert reason("print(3, 7)", tests, checker) == "accepted"
    assert reason("print(3)\nprint(7)", tests, checker) == "accepted"
    wrong = judge("print(3, 8)", "python", tests, checker=checker)
    assert wrong.reason == "wrong-answer"
    assert says in wrong.detail
    assert reason("print(5, 5, 0)", tests, checker) == "wrong-answer"
    assert reason("exit(42)", tests, checker) == "runtime-error"


def test_a_failing_checker_does_not_fail_the_program() -> None:
    tests = [{"input": "10", "output": "5 5"}]
    for source in ("1 / 0", "exit(0)", "print("):
        verdict = judge("print(3, 7)", "python", tests, checker=Checker(source, "python"))
        assert (verdict.reason, verdict.score) == ("infra-error", 0.0)
        assert "checker failed" in verdict.detail
    with pytest.raises(DataError, match="does not compile"):
        judge("print(3, 7)", "python", tests, checker=Checker("int main() {", "cpp"))
    with pytest.raises(DataError, match="function"):
        judge("x", "python", [{"call": "f()", "output": "1"}], checker=Checker(EVEN, "python"))


BRACKETS = Checker(
    """
#include <bits/stdc++.h>
using namespace std;
// The output is another balanced rotation of the input, or "no" where the answer file says so too.
bool balanced(const string& s) {
    long depth = 0;
    for (char c : s) {
        depth += c == '(' ? 1 : -1;
        if (depth < 0) return false;
    }
    return depth == 0;
}
int main(int, char** argv) {
    string given, expected, said, more;
    ifstream(argv[1]) >> given;
    ifstream(argv[2]) >> expected;
    if (!(cin >> said) || (cin >> more)) return 43;
    if (said == "no" || said == "No" || said == "NO") return expected == "no" ? 42 : 43;
    for (char c : said) if (c != '(' && c != ')') return 43;
    if (said.size() != given.size() || said == given || !balanced(said)) return 43;
    if ((given + given).find(said) == string::npos) return 43;
    return expected == "no" ? 1 : 42;
}
""",
    "cpp",
)
"""A balanced sequence on a ring is cut elsewhere, so that another balanced one is read; ``no`` where there is none."""

ROAD = Checker(
    """
import sys

MODULUS = 10**9 + 7

def tilings(rows, mark):
    # Dominoes in the places of two rows that hold the mark; the state: which places of the column are taken already.
    ways = {(False, False): 1}
    for column in zip(*rows):
        free = [place == mark for place in column]
        after = {}
        for taken, count in ways.items():
            if any(t and not f for t, f in zip(taken, free)):
                continue
            left = tuple(f and not t for t, f in zip(taken, free))
            after[left] = after.get(left, 0) + count
            if all(left):
                after[False, False] = after.get((False, False), 0) + count
        ways = after
    return ways.get((False, False), 0) % MODULUS if mark == "." else ways.get((False, False), 0)

number = int(open(sys.argv[1]).read())
rows = sys.stdin.read().split()
if len(rows) != 2 or len(rows[0]) != len(rows[1]) or not 1 <= len(rows[0]) <= 200 or set(rows[0] + rows[1]) - set("#."):
    sys.exit(43)
print("the cars fit" if tilings(rows, "#") else "no cars stand like that", "and leave", tilings(rows, "."), "ways")
sys.exit(42 if tilings(rows, "#") and tilings(rows, ".") == number else 43)
""",
    "python",
)
"""Cars are parked on two lanes so that the rest can be filled with cars in a given number of ways."""

FRACTION = Checker(
    """
import sys
from collections import Counter

a, b, c, d = open(sys.argv[1]).read().split()
expected, said = open(sys.argv[2]).read().split(), sys.stdin.read().split()

def cancelled(whole, rest):
    # The digits that were struck out; None where the rest is not what some leave.
    left = iter(whole)
    inside = all(digit in left for digit in rest)
    return Counter(whole) - Counter(rest) if inside else None

if said == ["impossible"]:
    sys.exit(42 if expected == ["impossible"] else 43)
if len(said) != 3 or said[0] != "possible" or not all(part.isdigit() and part[0] != "0" for part in said[1:]):
    sys.exit(43)
struck = cancelled(a, said[1])
right = struck is not None and struck == cancelled(b, said[2]) and int(said[1]) * int(d) == int(said[2]) * int(c)
sys.exit(43 if not right else 1 if expected == ["impossible"] else 42)
""",
    "python",
)
"""The same digits are struck out of both parts of a fraction, so that it equals another one."""


@pytest.mark.parametrize(
    ("checker", "given", "answer", "right", "wrong"),
    [
        (BRACKETS, "()(())()", "(())()()", ["(())()()", "()()(())"], ["()(())()", "no", "(()())()", "())(()", ""]),
        (BRACKETS, "(())", "no", ["no", "NO"], ["(())", "())(", "no no"]),
        (
            ROAD,
            "2",
            "..\\n..",
            ["..\\n..", "#..#\\n#..#", "..#\\n..#"],
            ["...\\n...", "..", "#..\\n...", "..\\n.", "##\\n##"],
        ),
        (ROAD, "1", ".\\n.", [".\\n.", "##.\\n##."], ["..\\n.."]),
        (
            FRACTION,
            "163 326 1 2",
            "possible 1 2",
            ["possible\\n1 2", "possible 163 326"],
            ["possible 2 4", "possible 1 02"],
        ),
        (FRACTION, "123 267 12339 23679", "impossible", ["impossible"], ["possible 1 2", "possible"]),
    ],
)
def test_a_checker_accepts_every_correct_output(
    checker: Checker, given: str, answer: str, right: list[str], wrong: list[str]
) -> None:
    tests = [{"input": given, "output": answer.replace("\\n", "\n")}]
    assert {text: reason(f"print('{text}')", tests, checker) for text in right} == dict.fromkeys(right, "accepted")
    assert {text: reason(f"print('{text}')", tests, checker) for text in wrong} == dict.fromkeys(wrong, "wrong-answer")


def test_an_output_that_crashes_a_working_checker_is_wrong() -> None:
    parses = Checker("import sys\nn = int(sys.stdin.read())\nsys.exit(42 if n == 4 else 43)", "python")
    tests = [{"input": "2", "output": "4"}]
    assert reason("print('abc')", tests, parses) == "wrong-answer"
    assert reason("print('9' * 10_000)", tests, parses) == "wrong-answer"
    loops = Checker("import sys\nwhile sys.stdin.read() != '4':\n    pass\nsys.exit(42)", "python")
    assert reason("print('abc')", tests, loops) == "wrong-answer"
    found = judge("print('(())()()')", "python", [{"input": "()(())()", "output": "no"}], checker=BRACKETS)
    assert (found.reason, found.score) == ("wrong-answer", 0.0)
    assert "the checker failed" in found.detail


def test_the_language_of_a_checker_has_several_names() -> None:
    tests = [{"input": "10", "output": "5 5"}]
    assert reason("print(3, 7)", tests, Checker(EVEN, "py")) == "accepted"
    assert reason("print(3, 7)", tests, Checker(EVEN_CPP, "C++20")) == "accepted"
    with pytest.raises(DataError, match="rust"):
        reason("print(3, 7)", tests, Checker("", "rust"))

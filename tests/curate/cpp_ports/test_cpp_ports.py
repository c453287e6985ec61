"""Code problems asked for in two languages: what the rows say, and that both are judged alike."""

import pytest

from magcli.curate.cpp_ports.cpp import UnsupportedSignature
from magcli.curate.cpp_ports.prompts import language_pair
from magcli.verify.code.judge import Programs
from magcli.verify.reward import RewardRule

SUM = [{"input": "1 2", "output": "3"}]


def problem(prompt: str, *tests: str | dict, **more) -> dict:
    found = [{"assert": test} if isinstance(test, str) else test for test in tests]
    return {"id": "p", "kind": "code", "prompt": prompt, "tests": found} | more


# ---- what is asked ----


def test_a_stdin_problem_only_states_the_language() -> None:
    python, cpp = language_pair(problem("Write a Python program that adds two numbers.", *SUM))
    assert (set(python), set(cpp)) == ({"prompt"}, {"prompt"})
    assert python["prompt"].startswith(
        "Write a program that adds two numbers.\n\nWrite a program in Python 3 that reads"
    )
    assert cpp["prompt"].startswith("Write a program that adds two numbers.\n\nWrite a program in C++20 that reads")
    assert cpp["prompt"].endswith("Put it into one code block marked `cpp`.")


@pytest.mark.parametrize(
    ("row", "python", "cpp"),
    [
        (
            problem("Add two numbers.", "assert add(1, 2) == 3"),
            "def add(a, b):",
            "int add(int a, int b);",
        ),
        (
            problem("Add.", "assert add(1, 2) == 3", solutions=[{"code": "def add(x, y=0):\n  return x + y"}]),
            "def add(x, y=0):",
            "int add(int x, int y);",
        ),
        (
            problem("Which?", {"call": "new_ones([], 'x')", "output": "[]"}, "assert new_ones(['a'], 'b') == [1.5]"),
            "def new_ones(a, b):",
            "std::vector<double> new_ones(std::vector<std::string> a, std::string b);",
        ),
        (
            problem(
                "Swap it.\nComplete the following python code:\n```python\nclass Solution:\n    def swap(self, this: "
                "List[int]) -> List[int]:\n```",
                "assert Solution().swap(this=[]) == []",
            ),
            "class Solution:\n    def swap(self, this: List[int]) -> List[int]:",
            "class Solution {\npublic:\n    std::vector<int> swap(std::vector<int> this_);\n};",
        ),
        (
            problem(
                'from typing import Optional\n\ndef first(text: str) -> Optional[str]:\n    """The first letter."""\n',
                "assert first('') is None",
                "assert first('ab') == 'a'",
            ),
            "def first(text: str) -> Optional[str]:",
            "std::optional<std::string> first(std::string text);",
        ),
        (
            problem("Is it so?", "assert so(1)", "assert not so(2)"),
            "def so(a):",
            "bool so(int a);",
        ),
    ],
)
def test_a_function_is_declared_in_both_languages(row, python: str, cpp: str) -> None:
    pair = language_pair(row)
    assert python in pair.python["prompt"]
    assert f"```cpp\n{cpp}\n```" in pair.cpp["prompt"]
    assert "python" not in pair.cpp["prompt"].lower()
    assert "tests" not in pair.python
    assert len(pair.cpp["tests"]) == len(row["tests"])
    assert all(set(test) == {"input", "output"} for test in pair.cpp["tests"])


@pytest.mark.parametrize(
    ("row", "compare"),
    [
        (problem("?", "assert f(1) == 'Ab'"), "tokens-case"),
        (problem("?", "assert f(1) == 0.5"), "floats:1e-06"),
        (problem("?", "assert abs(f(1) - 0.5) < 1e-3", "assert f(2) == 1.0"), "floats:0.001"),
        (problem("?", "assert f(1) == 0.5", compare="floats:1e-4"), "floats:1e-4"),
    ],
)
def test_values_are_compared_as_the_tests_require(row, compare: str) -> None:
    assert language_pair(row).cpp["compare"] == compare


@pytest.mark.parametrize("tale", ["Red pandas sort ducks.", "An alien generator decorates.", "Ports import goods."])
def test_contest_stories_may_mention_pythons(tale: str) -> None:
    assert tale in language_pair(problem(tale, *SUM)).cpp["prompt"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (problem("Add.", *SUM, language="cpp"), "asks-already"),
        (problem("What does the Python interpreter print?", *SUM), "about-python"),
        (problem("Subclass by duck typing.", *SUM), "about-python"),
        (problem("Write a generator of squares.", "assert f(2) == [0, 1]"), "about-python"),
        (problem("Count letters with a dict comprehension.", "assert f('a') == {'a': 1}"), "about-python"),
        (problem('def g(x):\n    return x\n\ndef f(x):\n    """Use g."""\n', "assert f(1) == 1"), "helper-code"),
        (problem("Mix.", "assert f([1, 'a']) == 1"), "types"),
        (problem("Grow.", "assert f(100) == 10 ** 30".replace("10 ** 30", str(10**30))), "big-integers"),
        (problem("Turn.", "assert f('é') == 'é'"), "non-ascii-text"),
        (problem("Call.", "assert f(len) == 1"), "arguments"),
        (problem("Call.", "assert f(1) == 1", "assert f(1, 2) == 1"), "arguments"),
        (problem("Size.", "assert len(f(1)) == 1"), "value"),
        (problem("Either.", "assert f(1) in (1, 2)"), "value"),
        (problem("Any.", "assert f(1) == [1, 2]", compare="unordered-lines"), "any-order"),
        (problem("Two.", "assert f(1) == 1", "assert g(1) == 1"), "names"),
        (problem("Power.", "assert pow(1.0, 2.0) == 1.0"), "names"),
        (problem("Nothing.", "assert 1 == 1"), "bad-tests"),
        (problem("Nothing."), "bad-tests"),
    ],
)
def test_problems_that_are_not_ported_have_a_reason(row, reason: str) -> None:
    with pytest.raises(UnsupportedSignature) as raised:
        language_pair(row)
    assert raised.value.reason == reason


# ---- what is judged ----

EVERYTHING = problem(
    "Give back what is given, or nothing.",
    "assert back(True, 'a \"b\\\\\\n', [1.5, -2.0], {'k': [1]}, {3, 1}, (7, 'x'), None) == "
    "[(7, 'x', True, {'k': [1]}, {1, 3}, None)]",
    "assert back(False, '', [], {}, {9}, (2, 'y'), None) == []",
    f"assert back(False, ' ', [1e-9], {{}}, set(), (2, 'Y'), {2**40}) == [(2, 'Y', False, {{}}, set(), {2**40})]",
)
PYTHON = "def back(a, b, c, d, e, f, g):\n    print('x')\n    return [(*f, a, d, e, g)] if sum(c) else []"
CPP = """#include <bits/stdc++.h>
using namespace std;
#define int long long
vector<tuple<int32_t, string, bool, map<string, vector<int32_t>>, set<int32_t>, optional<int>>> back(
    bool a, string b, const vector<double>& c, map<string, vector<int32_t>> d, set<int32_t> e,
    tuple<int32_t, string> f, optional<int> g) {
    cout << "noise" << endl;
    if (accumulate(c.begin(), c.end(), 0.0) == 0) return {};
    return {{get<0>(f), get<1>(f), a, d, e, g}};
}
int32_t main() { cout << 1; return 0; }
"""


def verdict(row: dict, changed, language: str, program: str):
    asked = {**row, **changed, "language": language}
    return Programs("auto").verify(f"```{language}\n{program}\n```", asked, RewardRule())


def test_programs_in_both_languages_pass_the_tests_of_every_type() -> None:
    pair = language_pair(EVERYTHING)
    python, cpp = (
        verdict(EVERYTHING, changed, language, program)
        for changed, language, program in ((pair.python, "python", PYTHON), (pair.cpp, "cpp", CPP))
    )
    assert (python.reason, python.passed) == ("accepted", 3), python
    assert (cpp.reason, cpp.passed) == ("accepted", 3), cpp


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("bool odd(int n) { return n % 2 == 1; }", "wrong-answer"),
        ("bool odd(int n) { return n % 2 != 0 || n == 7; }", "accepted"),
        ("bool even(int n) { return n % 2 == 0; }", "compile-error"),
        ("#include <cstdlib>\nbool odd(int n) { std::exit(0); }", "wrong-answer"),
        ("#include <cstdlib>\nbool odd(int n) { std::abort(); }", "runtime-error"),
    ],
)
def test_wrong_programs_fail(program: str, reason: str) -> None:
    row = problem("Is it odd?", "assert odd(7) == True", "assert odd(4) == False", "assert odd(-3) == True")
    found = verdict(row, language_pair(row).cpp, "cpp", program)
    assert found.reason == reason, found


def test_a_method_of_a_class_is_called() -> None:
    row = problem(
        "Double it.",
        "assert Solution().twice(x=1.25) == 2.5",
        "assert Solution().twice(x=1e300) == 2e300",
        solutions=[{"code": "class Solution:\n    def twice(self, x: float) -> float:\n        return 2 * x"}],
    )
    program = "class Solution {\npublic:\n    double twice(double x) { return 2 * x; }\n};"
    assert verdict(row, language_pair(row).cpp, "cpp", program).reason == "accepted"


def test_a_program_in_the_other_language_is_wrong() -> None:
    row = problem("Is it odd?", "assert odd(7) == True")
    found = verdict(row, language_pair(row).cpp, "python", "def odd(n):\n    return n % 2 == 1")
    assert found.reason != "accepted"

"""The forms in which files have code problems."""

import json

import pytest

from magcli.curate.code.problems import CodeProblem, Unusable, code_problem, split_cpp_classes, split_python_classes

PRINT = "print(1)"
TESTS = [{"input": "1", "output": "2"}]


def read_tests(**row):
    found = code_problem({"solutions": [PRINT], **row})
    assert isinstance(found, CodeProblem), found
    return [{name: value for name, value in test.items() if value is not None} for test in found.tests]


def solutions_of(**row):
    found = code_problem({"tests": TESTS, "prompt": "def f(x):\n    '''Adds.'''\n", **row})
    assert isinstance(found, CodeProblem), found
    return list(found.solutions)


@pytest.mark.parametrize(
    "row",
    [
        {"tests": TESTS},
        {"tests": json.dumps(TESTS)},
        {"tests": [{"n": 1, "input": "1", "output": "2", "call": None}]},
        {"tests": {"inputs": ["1"], "outputs": ["2"]}},
        {"tests": json.dumps({"inputs": ["1"], "outputs": ["2"]})},
        {"test": json.dumps([{"input": {"stdin": "1"}, "output": {"stdout": "2"}}])},
        {"public_tests": {"input": ["1"], "output": ["2"]}, "private_tests": {"input": [], "output": []}},
    ],
)
def test_stdin_tests_come_in_many_forms(row):
    assert read_tests(**row) == TESTS


@pytest.mark.parametrize(
    "row",
    [
        {"test_list": ["assert f(1) == 2"], "test_setup_code": ""},
        {"test": "def check(candidate):\n    assert candidate(1) == 2\n", "entry_point": "f"},
        {"test_list": ["assert f(1) == 2"], "test": "for x in ([1],):\n    assert f(*x) == 2"},
        {"tests": [{"assert": "assert f(1) == 2"}], "test": "assert f(2) == 3"},
        {"test_list": [], "test": "assert f(1) == 2"},
        {"tests": {"functional": "def check(candidate):\n    assert candidate(1) == 2\ncheck(f)"}},
        {"tests": "def check(candidate):\n    assert candidate(1) == 2\n\n\ncheck(f)"},
    ],
)
def test_scripts_are_split_into_asserts(row):
    assert read_tests(**row) == [{"assert": "assert f(1) == 2"}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"tests": {"inputs": ["1"], "outputs": []}}, "bad-tests"),
        ({"test": "for x in y:\n    assert f(x)", "entry_point": "f"}, "bad-tests"),
        ({"tests": [{"input": 3, "output": "4"}]}, "bad-tests"),
        ({"tests": TESTS, "test_setup_code": "N = 1"}, "bad-tests"),
        ({"test_list": ["assert f(N) == 1"], "test_setup_code": "N = (1"}, "bad-tests"),
        ({"tests": TESTS, "validation": "custom interactive"}, "interactive"),
        ({"tests": TESTS, "validation": "custom"}, "no-checker"),
        ({"tests": TESTS, "custom_output_validator": True}, "no-checker"),
    ],
)
def test_solutions_that_cannot_run_have_a_reason(row, reason):
    found = code_problem({"solutions": [PRINT], **row})
    assert isinstance(found, Unusable)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("setup", "needed"),
    [
        ({"test_setup_code": "N = 1"}, "N = 1\n"),
        ({"test_setup_code": "", "test_imports": ["from math import pi as N"]}, "from math import pi as N\n"),
        ({"test_imports": '["from cmath import isclose"]'}, "from cmath import isclose\n"),
        ({"test_imports": ["from math import pi"], "test_setup_code": "N = pi"}, "from math import pi\nN = pi\n"),
        # Neither is needed: scripts have the one, and the test does not use the other.
        ({"test_imports": ["import math", "import numpy as np", "import heapq as q"]}, ""),
        ({"test_setup_code": None, "test_imports": None}, ""),
    ],
)
def test_asserts_run_after_the_set_up_code_that_they_need(setup, needed):
    source = "assert isclose(f(N), np.pi)"
    assert read_tests(test_list=[source], **setup) == [{"assert": f"{needed}{source}"}]


@pytest.mark.parametrize("setup", [{"import": "x"}, ["import x", 3], 3])
def test_set_up_code_that_is_not_text_makes_the_tests_unusable(setup):
    found = code_problem({"tests": TESTS, "test_setup_code": setup, "solutions": [PRINT]})
    assert isinstance(found, Unusable)
    assert found.reason == "bad-tests"


@pytest.mark.parametrize(
    "row",
    [
        {"samples": 3},
        {"samples": [None, 3]},
        {"canonical_solution": ["    return 1"]},
        {"canonical_solution": 3},
        {"python_file": ["class Solution: ..."]},
        {"cpp_file": {"a": 1}},
        {"solutions": [{"code": 3}, {"code": [PRINT]}, None]},
    ],
)
def test_solutions_that_are_not_text_are_ignored(row):
    assert solutions_of(**row) == []


def test_valid_solutions_are_used_next_to_invalid_ones():
    assert [each.code[-9:] for each in solutions_of(samples=[None, "    pass\n"])] == ["    pass\n"]
    listed = {"language": [["C"], 3], "solution": [PRINT, PRINT]}
    assert [each.language for each in solutions_of(solutions=listed)] == ["['c']", "python"]
    found = code_problem({"tests": TESTS, "solutions": [PRINT], "time_limit": {"seconds": "3", "nanos": None}})
    assert isinstance(found, CodeProblem)
    assert found.time_limit == 3.0


def test_a_checker_replaces_custom_validation():
    row = {"tests": TESTS, "solutions": [PRINT], "custom_output_validator": True, "checker": "exit(42)"}
    assert isinstance(code_problem(row), CodeProblem)


def test_solutions_and_their_labels():
    submissions = [
        {"verdict": "accepted", "language": "cpp", "code": "int main(){}"},
        {"verdict": "time_limit_exceeded", "language": "python3", "code": PRINT},
        {"verdict": "mixed", "language": "java", "code": "class A{}"},
    ]
    assert solutions_of(submissions=submissions) == [
        ("cpp", "int main(){}", "right"), ("python", PRINT, "wrong"), ("java", "class A{}", "unknown"),
    ]  # fmt: skip
    assert solutions_of(solutions=[{"language": "Python", "source": PRINT}, {"code": " "}]) == [
        ("python", PRINT, "right")
    ]
    assert solutions_of(solutions=json.dumps([{"code": PRINT, "verdict": False}])) == [("python", PRINT, "wrong")]
    contests = {"language": [3, 2], "solution": [PRINT, "int main(){}"]}
    assert solutions_of(solutions=contests, incorrect_solutions={"language": [3], "solution": ["x"]}) == [
        ("python", PRINT, "right"), ("cpp", "int main(){}", "right"), ("python", "x", "wrong"),
    ]  # fmt: skip
    assert solutions_of(code=PRINT) == [("python", PRINT, "right")]


def test_bodies_and_samples_continue_the_prompt():
    ((_, code, label),) = solutions_of(canonical_solution="    return x + 1\n")
    assert (code, label) == ("def f(x):\n    '''Adds.'''\n    return x + 1\n", "right")
    ((_, code, _),) = solutions_of(canonical_solution="  y = x\n  return y\n")
    space = {}
    exec(code, space)
    assert space["f"](3) == 3
    assert [label for *_, label in solutions_of(samples=["    return x\n", "    return"])] == ["unknown", "unknown"]


@pytest.mark.parametrize(
    "body",
    [
        "\treturn twice(x)\ndef twice(x):\n\treturn x + x\n",
        "# f = lambda x: 2 * x\n return x + x\n",
        "    return x + x\n",
        "  return x + x\n",
    ],
)
def test_a_body_continues_a_head_with_another_indentation(body):
    head = "import math\ndef f(x):\n    '''\n    Double it.\n    '''\n"
    ((_, code, _),) = solutions_of(canonical_solution=body, prompt=head)
    space = {}
    exec(code, space)
    assert (space["f"](4), space["f"].__doc__.strip()) == (8, "Double it.")


def carried(code):
    ((language, program, _),) = solutions_of(solutions=[{"language": "python2", "code": code}])
    space = {"raw_input": None}
    if language == "python":
        exec(compile(program, "carried", "exec"), space)
    return language, space


def test_python_2_is_accepted_where_it_parses_as_python_3():
    language, space = carried("found = 7\nfound /= 2\nshares = [n / 2 for n in xrange(4)] + [1 / 2.0]\n")
    assert (language, space["found"], space["shares"]) == ("python", 3, [0, 0, 1, 1, 0.5])
    language, space = carried("from __future__ import division\nshare = 1 / 2 if xrange(1) else 0\n")
    assert (language, space["share"]) == ("python", 0.5)
    assert carried("print 1")[0] == "python2"
    (once,) = solutions_of(code="print(sum(n / 2 for n in xrange(3)))")
    assert once.code.startswith("xrange, raw_input = (range, input)")
    assert solutions_of(solutions=[once._asdict()]) == [once]


def test_a_file_of_several_classes_becomes_several_programs():
    source = "import math\n\nclass Node: pass\n\nclass Solution(object):\n    def f(self): return 1\n\n\n" + (
        "class Solution2(object):\n    def f(self): return Solution2.g()\n    def g(): return 2\n"
    )
    one, two = split_python_classes(source)
    results = []
    for program in (one, two):
        assert program.count("class Solution(") == 1
        assert "class Node" in program
        space = {}
        exec(program, space)
        results.append(space["Solution"]().f())
    assert results == [1, 2]
    assert split_python_classes("print 1") == []


def test_a_cpp_file_of_several_classes_becomes_several_programs():
    source = (
        "#include <map>\nclass Node {\n};\n\n// O(1)\nclass Solution {\npublic:\n    int f() { return 1; }\n};\n\n"
        + ("class Solution2 {\n    class Inner {\n    };\npublic:\n    int f() { return Solution2::g(); }\n};\n")
    )
    found = solutions_of(cpp_file=source)
    assert [(each.language, each.verdict) for each in found] == [("cpp", "right")] * 2
    for program, own in zip(split_cpp_classes(source), ("return 1;", "return Solution::g();"), strict=True):
        assert program.count("class Solution {") == 1
        assert "Solution2" not in program
        assert own in program
        assert program.startswith("#include <map>\nclass Node {\n};")
    assert split_cpp_classes("int f() { return 1; }") == ["int f() { return 1; }"]


def test_tests_keep_their_origin():
    assert read_tests(tests=[{"input": "1", "output": "2", "origin": "mutation"}])[0]["origin"] == "mutation"
    assert "origin" not in read_tests(tests=TESTS)[0]


def test_comparison_and_limits_are_read_from_the_row():
    def of(**row):
        return code_problem({"tests": TESTS, "solutions": [PRINT], **row})

    assert of().compare == "tokens"
    assert of(compare="lines").compare == "lines"
    assert of(problem_yaml="name: x\noutput_validator_flags: float_tolerance 1e-6\n").compare == "floats:1e-6"
    assert of(validator_flags="case_sensitive").compare == "tokens-case"
    assert of(validator_flags="# no case_sensitive here").compare == "tokens"
    limited = of(time_limit={"seconds": 2, "nanos": 500_000_000}, memory_limit_bytes=256 << 20)
    assert (limited.time_limit, limited.memory_limit) == (2.5, 256.0)
    assert (of(time_limit=3).time_limit, of(time_limit=3).memory_limit) == (3.0, None)

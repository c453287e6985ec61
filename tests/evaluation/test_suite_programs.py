"""The tests of code suites, in the shapes of the real files: right programs pass and wrong ones fail."""

import base64
import json
import pickle
import zlib

import pytest

from magcli.errors import DataError
from magcli.evaluation.programs import PASSED, in_process_note, with_tests
from magcli.verify import Grader
from magcli.verify.reward import RewardRule

CHECK = {
    "entry_point": "double",
    "test": "def check(candidate):\n    for n in range(3):\n        assert candidate(n) == 2 * n\n",
}
PLAIN_CHECK = {
    "entry_point": "double",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(2) == 4, ''\n    assert candidate(3) == 6\n",
}
ASSERTS = {
    "test_setup_code": "import math",
    "test_list": ["assert double(2) == 4", "assert math.isclose(double(.1), .2)"],
}
WITH_SETUP = ASSERTS | {"test_setup_code": "import math\nhalf = 0.5"}
WITH_IMPORTS = {
    "test_setup_code": "",
    "test_imports": ["from collections import Counter as C"],
    "test_list": ["assert double(C('aa')['a']) == 4", "assert double(3) == 6"],
}
MAIN = {"test": "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (twice(2)==4);\n    return 0;\n}\n"}
UNITS = {
    "stub": {"doubling.py": "def double(n):\n    pass\n"},
    "tests": {
        "doubling_test.py": "import unittest\nfrom doubling import double\n\nclass DoublingTest(unittest.TestCase):\n"
        "    def test_it(self):\n        self.assertEqual(double(2), 4)\n"
    },
}
PYTHON = "def double(n):\n    return {} * n\n\nprint('noise')\n"
CPP = "int twice(int n) {{ return {} * n; }}\nint main() {{ return 1; }}\n"
ATCODER = """Double a number.

Sample Input 1

2

Sample Output 1

4

Twice two is four.

Sample Input 2

5

Sample Output 2

10

Read from stdin.
"""
LEETCODE = """Double all.

Example 1:

Input: numbers = [1, 2], flag = true
Output: [2, 4]
Explanation: twice.

```python
class Solution:
    def doubled(self, numbers: List[int], flag: bool) -> List[int]:
```
"""


def accepted(program: str, row: dict, grader: Grader) -> bool:
    block = f"<think>.</think>\n```{row['language']}\n{program}\n```"
    (reward,) = grader.grade([block], [{"id": "p", "kind": "code", **row}], RewardRule(use_language=False))
    assert reward.reason != "bad-gold", reward.detail
    return reward.correct


@pytest.fixture(scope="module")
def grader():
    with Grader() as grader:
        yield grader


@pytest.mark.parametrize(
    ("form", "row", "program"),
    [
        ("check", CHECK, PYTHON),
        ("check", PLAIN_CHECK, PYTHON),
        ("asserts", ASSERTS, PYTHON),
        ("asserts", WITH_SETUP, PYTHON),
        ("asserts", WITH_IMPORTS, PYTHON),
        ("main", MAIN, CPP),
        ("unittest", UNITS, PYTHON),
    ],
)
def test_correct_programs_pass_and_wrong_ones_fail(form: str, row: dict, program: str, grader: Grader) -> None:
    made = with_tests(form, row)
    assert accepted(program.format(2), made, grader)
    assert not accepted(program.format(3), made, grader)


def test_a_program_that_ends_before_the_tests_do_fails(grader: Grader) -> None:
    assert not accepted("import sys\ndef double(n):\n    sys.exit(0)\n", with_tests("check", CHECK), grader)


FORGERIES = {
    "ends early": f"print({PASSED!r})\nraise SystemExit\n",
    "ends when called": f"import os\ndef double(n):\n    print({PASSED!r}, flush=True)\n    os._exit(0)\n",
    "equals everything": "class Any:\n    __eq__ = lambda *_: True\ndouble = lambda n: Any()\n",
    "rebinds": "import math\nmath.isclose = lambda *_: True\ndouble = lambda n: 4\n",
}


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES)
@pytest.mark.parametrize(
    ("form", "row"), [("check", PLAIN_CHECK), ("check", CHECK), ("asserts", ASSERTS), ("asserts", WITH_SETUP)]
)
def test_asserts_cannot_be_forged(form: str, row: dict, program: str, grader: Grader) -> None:
    made = with_tests(form, row)
    assert not made["harness"]
    assert not accepted(program, made, grader)


def test_scripts_of_which_nobody_knows_what_they_test_run_inside_the_program_and_are_counted() -> None:
    made = with_tests("asserts", ASSERTS | {"test_list": ["assert double(helper(1)) == other(2)"]})
    split = with_tests("check", CHECK)
    assert made["harness"]
    assert made.keys() == split.keys()
    assert in_process_note([made, split, made]) == "2 of 3 problems run their asserts in the program's process"
    assert in_process_note([split]) == ""


def test_examples_of_a_statement_are_pairs_of_input_and_output() -> None:
    tests = json.loads(with_tests("samples", {"prompt": ATCODER})["tests"])
    assert tests == [{"input": "2\n", "output": "4\n"}, {"input": "5\n", "output": "10\n"}]


def test_examples_of_a_method_are_calls(grader: Grader) -> None:
    row = with_tests("samples", {"prompt": LEETCODE})
    assert json.loads(row["tests"]) == [{"call": "Solution().doubled([1, 2], True)", "output": "[2, 4]"}]
    program = "class Solution:\n    def doubled(self, numbers, flag):\n        return [2 * n for n in numbers]\n"
    assert accepted(program, row, grader)
    assert not accepted(program.replace("2 *", "3 *"), row, grader)


def test_hidden_tests_are_unpacked_without_executing_them() -> None:
    cases = json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}])
    packed = base64.b64encode(zlib.compress(pickle.dumps(cases))).decode()
    row = {"public_test_cases": cases, "private_test_cases": packed, "metadata": "{}"}
    assert len(json.loads(with_tests("hidden", row)["tests"])) == 2
    method = {"public_test_cases": json.dumps([{"input": '[1]\n"a"', "output": "true", "testtype": "functional"}])}
    called = with_tests("hidden", {**method, "metadata": json.dumps({"func_name": "f"})})
    assert json.loads(called["tests"]) == [{"call": "Solution().f([1], 'a')", "output": "True"}]
    evil = base64.b64encode(zlib.compress(b"cos\nsystem\n(S'true'\ntR.")).decode()
    with pytest.raises(DataError, match="opcode GLOBAL, which does not build plain data"):
        with_tests("hidden", {**row, "private_test_cases": evil})


DEEP = "[" * 100_000 + "]" * 100_000
ONE_CASE = json.dumps([{"input": "2\n", "output": "4\n", "testtype": "functional"}])
HIDDEN = {"public_test_cases": ONE_CASE, "private_test_cases": "[]", "metadata": '{"func_name": "f"}'}
NESTED = {
    "JSON": {**HIDDEN, "private_test_cases": DEEP},
    "pickled": {**HIDDEN, "private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(DEEP))).decode()},
    "metadata": {**HIDDEN, "metadata": DEEP},
    "an argument": {**HIDDEN, "public_test_cases": ONE_CASE.replace("2\\n", DEEP)},
}


@pytest.mark.parametrize("row", NESTED.values(), ids=NESTED)
def test_hidden_tests_that_are_nested_too_deeply_are_named(row: dict) -> None:
    assert with_tests("hidden", HIDDEN)
    with pytest.raises(
        DataError, match=r"^(the JSON text is nested too deeply|tests of .* cannot be read: maximum rec)"
    ):
        with_tests("hidden", row)


@pytest.mark.parametrize(
    ("form", "row", "message"),
    [
        ("samples", {"prompt": "no example"}, "there is no example"),
        ("unittest", {"stub": {"a.py": "", "b.py": ""}, "tests": {}}, "asks for 2 files"),
        ("magic", {}, "unknown form of tests 'magic'; choose from asserts"),
    ],
)
def test_untestable_problems_are_reported(form: str, row: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        with_tests(form, row)

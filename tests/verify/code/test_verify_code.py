"""Programs judged with a real interpreter, compiler and sandbox."""

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from magcli.errors import DataError, EnvironmentFault
from magcli.verify.code.judge import Judge, extract, judge, max_seconds, sample_tests
from magcli.verify.code.runs import Checker
from magcli.verify.sandbox import Limits, open_sandbox
from magcli.verify.types import Verdict

SUMS = [{"input": "1 2\n", "output": "3\n"}, {"input": "5 6\n", "output": "11\n"}, {"input": "0 0\n", "output": "0\n"}]
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
ADD_CPP = "#include <bits/stdc++.h>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }\n"
SHORT = Limits(cpu=1.0, memory=300 << 20)
FLOOD = Limits(output=1 << 20)


def reason(program: str, language: str = "python", tests: list[dict[str, str]] = SUMS, **more: object) -> str:
    return judge(program, language, tests, **more).reason  # type: ignore[arg-type]


def calls(program: str, *tests: str) -> Verdict:
    return judge(program, "python", [{"assert": test} for test in tests])


def test_the_first_named_block_is_the_program() -> None:
    answer = "Some `code`:\n```\nno name\n```\nthen\n```python\nprint(1)\n```\nor\n```cpp\nint x;\n```\n"
    assert extract(answer) == ("python", "print(1)\n")
    assert extract("```C++\nint x;\n```") == ("cpp", "int x;\n")
    assert extract("```py title=a.py\nx\n```") == ("python", "x\n")
    assert extract("```java\nx\n```") == ("java", "x\n")
    assert extract("```python\nprint(1)") is None
    assert extract("print(1)") is None


def test_a_group_is_judged_on_the_same_tests() -> None:
    tests = list(range(100))
    drawn = sample_tests(tests, "p1", 7)
    assert drawn == sample_tests(tests, "p1", 7) == sorted(set(drawn))
    assert len(drawn) == 20
    assert drawn[:5] == [1, 11, 18, 21, 26], "the same on every machine and version"
    assert drawn != sample_tests(tests, "p1", 8) != sample_tests(tests, "p2", 8)
    assert sample_tests(tests[:20], "p1", 7) == tests[:20]
    assert len(sample_tests(tests, "p1", 7, count=3)) == 3


def test_all_tests_are_drawn_equally_often() -> None:
    counts = [0] * 40
    for seed in range(2000):
        for test in sample_tests(range(40), "p", seed, count=10):
            counts[test] += 1
    assert min(counts) > 400
    assert max(counts) < 600


@pytest.mark.parametrize(
    ("program", "expected", "detail"),
    [
        (ADD, "accepted", "3 tests"),
        ("print(3)", "wrong-answer", "test 2: token 1: expected '11', got '3'"),
        ("", "wrong-answer", "test 1: token 1: expected '3', got the end"),
        ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "accepted", ""),
        ("import os\nprint(sum(map(int, os.read(0, 99).split())))", "accepted", ""),
        ("print(sum(map(int, open(0).read().split())))", "accepted", ""),
        (ADD + "exit()", "accepted", ""),
        (ADD + "quit(0)", "accepted", ""),
        (
            "def main():\n    " + ADD.replace("\n", "\n    ") + "\nif __name__ == '__main__':\n    main()",
            "accepted",
            "",
        ),
        ("import __main__\nx = 1\nassert __main__.x == 1\n" + ADD, "accepted", ""),
        (ADD + "exit(3)", "runtime-error", "test 1: exit code 3"),
        (ADD + "raise KeyError(1)", "runtime-error", "test 1: exit code 1: KeyError: 1"),
        ("import pandas", "runtime-error", "test 1: exit code 1: ModuleNotFoundError: No module named 'pandas'"),
        ("def f(n): return f(n + 1)\nf(0)", "runtime-error", "test 1: exit code 1: RecursionError"),
        ("import os\nos.abort()", "runtime-error", "test 1: SIGABRT"),
        ("print(1", "compile-error", "test 1: SyntaxError: '(' was never closed"),
        ("if 1:\nprint(1)", "compile-error", "test 1: IndentationError"),
        ("x = '\0'", "compile-error", "test 1: "),
        ("while True: pass", "time-limit", "test 1: more than 1 s of CPU time"),
        ("import time\ntime.sleep(60)", "time-limit", "test 1: not done after 3 s"),
        ("x = bytearray(400 << 20)", "memory-limit", "test 1: "),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory-limit", "test 1: "),
        ("print('a' * (20 << 20))", "output-limit", "test 1: more than 16 MiB of output"),
        ("print('\\ud800')", "runtime-error", "test 1: exit code 1: UnicodeEncodeError"),
    ],
)
def test_verdicts_on_python_programs(program: str, expected: str, detail: str) -> None:
    verdict = judge(program, "python", SUMS, SHORT)
    assert verdict.reason == expected, verdict
    assert verdict.detail.startswith(detail), verdict
    assert verdict.answer == "python"
    assert (verdict.score, verdict.total) == (float(expected == "accepted"), 3)


@pytest.mark.parametrize(
    ("program", "expected", "detail"),
    [
        (ADD_CPP, "accepted", "3 tests"),
        ('#include <cstdio>\nint main() { puts("3"); }', "wrong-answer", "test 2: token 1: expected '11', got '3'"),
        (ADD_CPP + "#error why not", "compile-error", "program.cpp:3:2: error: #error why not"),
        ("int main() { undefined(); }", "compile-error", "program.cpp:1:14: error: 'undefined' was not declared"),
        ("int f(); int main() { f(); }", "compile-error", ""),
        ("int main() { __builtin_trap(); }", "runtime-error", "test 1: SIGILL"),
        ("int main() { return 7; }", "runtime-error", "test 1: exit code 7"),
        ("int main() { for (volatile int i = 0;; i = i + 1); }", "time-limit", "test 1: more than 1 s of CPU time"),
        (
            "#include <vector>\nint main() { std::vector<char> x(400 << 20, 1); return x[9]; }",
            "memory-limit",
            "test 1: ",
        ),
        ("static char x[200 << 20]; int main() { return x[9]; }", "wrong-answer", ""),
    ],
)
def test_verdicts_on_cpp_programs(program: str, expected: str, detail: str) -> None:
    verdict = judge(program, "cpp", SUMS, SHORT)
    assert verdict.reason == expected, verdict
    assert verdict.detail.replace("‘", "'").replace("’", "'").startswith(detail), verdict
    assert verdict.answer == "cpp"


BROKEN_ASSEMBLY = 'int main() { asm("no such instruction"); }'
UNLINKED = "int missing(); int main() { return missing(); }"


@pytest.mark.parametrize(
    ("program", "language"),
    [
        (BROKEN_ASSEMBLY, "cpp"),
        (UNLINKED, "cpp"),
        ("raise ValueError(object())", "python"),
        ("import time\ntime.sleep(60)", "python"),
    ],
)
def test_the_detail_of_a_verdict_is_the_same_in_every_run(program: str, language: str) -> None:
    details = {judge(program, language, SUMS, SHORT).detail for _ in range(3)}
    assert len(details) == 1, details
    assert "" not in details


def test_cpp_is_cpp20() -> None:
    program = """
    #include <bits/stdc++.h>
    template <std::integral T> T twice(T x) { return 2 * x; }
    int main() { int a, b; std::cin >> a >> b; std::cout << std::ranges::max(twice(a), a) - a + b; }
    """
    assert reason(program, "c++20") == "accepted"


def test_deep_recursion_is_allowed() -> None:
    program = (
        "#include <cstdio>\nlong f(long n) { volatile char pad[64]; pad[0] = 1; return n ? f(n - 1) + pad[0] : 0; }"
    )
    tests = [{"input": "", "output": "1000000"}]
    assert reason(program + '\nint main() { printf("%ld", f(1000000)); }', "cpp", tests) == "accepted"


def test_code_in_another_language_is_not_judged() -> None:
    assert judge("x", "rust", SUMS) == Verdict(0.0, "no-code", "rust", "language 'rust' is not judged", 0, 3)
    assert reason("int f() {}", "cpp", [{"call": "f()", "output": "1"}]) == "no-code"


def test_judging_stops_at_the_first_failure_unless_the_fraction_is_wanted() -> None:
    program = "a, b = map(int, input().split())\nprint(a + b if a != 5 else 'no')"
    assert judge(program, "python", SUMS) == Verdict(
        0.0, "wrong-answer", "python", "test 2: token 1: expected '11', got 'no'", 1, 3
    )
    partial = judge(program, "python", SUMS, partial=True)
    assert (partial.score, partial.passed, partial.reason) == (2 / 3, 2, "wrong-answer")
    assert partial.detail.startswith("test 2: ")
    assert judge(ADD, "python", SUMS, partial=True).score == 1.0


def test_outputs_are_compared_by_the_named_rule() -> None:
    tests = [{"input": "", "output": "Yes 0.50\n"}]
    assert reason("print('YES\\n0.50')", tests=tests) == "accepted"
    assert reason("print('YES 0.50')", tests=tests, mode="tokens-case") == "wrong-answer"
    assert reason("print('Yes 0.5000001')", tests=tests) == "wrong-answer"
    assert reason("print('Yes 0.5000001')", tests=tests, mode="floats") == "accepted"


@pytest.mark.parametrize(
    ("tests", "named"),
    [
        ([], "no tests"),
        ([SUMS[0], {"input": "1"}], "test 2"),
        ([SUMS[0], {"input": 1, "output": "1"}], "test 2 is a bad test: its input is not a string"),
        ([{"assert": "assert f(1) == g(1)"}], "test 1"),
        ([{"call": "f(1)", "output": "1"}, SUMS[0]], "one kind"),
    ],
)
def test_bad_tests_are_refused_by_name(tests: list[dict[str, str]], named: str) -> None:
    with pytest.raises(DataError, match=named):
        judge(ADD, "python", tests)


def test_bytes_that_are_not_unicode_pass_unchanged() -> None:
    tests = [{"input": "\ud800 é", "output": "\ud800 é"}]
    assert reason("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", tests=tests) == "accepted"
    assert reason("print('\ud800')", tests=tests) == "compile-error"


def test_columns_of_a_table_that_are_empty_count_as_absent() -> None:
    assert reason(ADD, tests=[{"input": "1 2", "output": "3", "call": None, "assert": ""}]) == "accepted"


def test_a_function_is_called() -> None:
    program = "print('noise')\ndef f(x): return [x, (x,), {x: {1.5}}, 'é\\ud800', 2**70, None]"
    assert calls(program, "assert f(1) == [1, (1,), {1: {1.5}}, 'é\\ud800', 2 ** 70, None]").reason == "accepted"
    assert calls("def f(x): return iter([x])", "assert list(f(1)) == [1]").reason == "accepted"
    wrong = calls("def f(x): return x + 1", "assert f(1) == 2", "assert f(2) == 4")
    assert (wrong.reason, wrong.detail, wrong.passed) == ("wrong-answer", "test 2: f(2): expected 4, got 3", 1)
    assert calls("def f(x): return iter([x])", "assert f(1) == [1]").detail == (
        "test 1: f(1) is a list_iterator, which is not plain data"
    )
    assert calls("def f(x): return 1 / 0", "assert f(1) == 1").detail.endswith("ZeroDivisionError: division by zero")
    assert calls("import re\ndef f(x): return re.match('a', x)", "assert f('ab')", "assert not f('ba')").score == 1.0
    assert calls("def f(x", "assert f(1) == 1").reason == "compile-error"
    assert calls("exit()\ndef f(x): return 1", "assert f(1) == 1").reason == "runtime-error"


def test_the_main_part_of_a_program_is_not_run_when_its_function_is_called() -> None:
    program = "def f(x): return x\nif __name__ == '__main__':\n    print(f(int(input())))"
    assert calls(program, "assert f(1) == 1").reason == "accepted"


@pytest.mark.parametrize(
    "program",
    [
        "class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()",
        "class Int(int):\n    def __eq__(self, other): return True\ndef f(x): return Int(7)",
        "class L(list):\n    def __eq__(self, other): return True\ndef f(x): return L([7])",
        "class S(str):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return S('7')",
        "def f(x): return True",
        "def f(x): return 1.1",
        "def f(x): return '1'",
        "def f(x): exit(0)",
        "def f(x): raise SystemExit",
        "import os\ndef f(x): os._exit(0)",
        "import os\nos.write(3, b'0 value 1')\nos._exit(0)",
        "import os\ndef f(x):\n    os.write(3, b' value 1')\n    os._exit(0)",
        "def f(x): return x\nimport builtins\nbuiltins.isinstance = lambda *a: True",
        "from operator import *",
    ],
)
def test_no_trick_passes_for_a_value(program: str) -> None:
    call = "pos(1)" if "operator" in program else "f(2)"
    assert calls(program, f"assert {call} == 1").reason in ("wrong-answer", "runtime-error")


def test_a_number_subclass_equals_its_number() -> None:
    program = "import enum\nclass N(enum.IntEnum):\n    ONE = 1\ndef f(x): return N.ONE"
    assert calls(program, "assert f(0) == 1").reason == "accepted"
    program = "from collections import *\ndef f(x): return OrderedDict(Counter('aab'))"
    assert calls(program, "assert f(0) == {'a': 2, 'b': 1}").reason == "accepted"


@pytest.mark.flaky(reruns=3)  # the program has a few seconds
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b'[' * (2 << 20)", "wrong-answer"),
        ("b'[' + b'[],' * (1 << 20) + b'0]'", "wrong-answer"),
        ("b'9' * (3 << 20)", "wrong-answer"),
        ("""b'{"int":"' + b'f' * (3 << 20) + b'"}'""", "wrong-answer"),
        ("""b'{"set":[' + b','.join(b'%d' % (n * (2**61 - 1)) for n in range(90000)) + b']}'""", "wrong-answer"),
        ("b'[' + b'0,' * (4 << 20) + b'0]'", "output-limit"),
    ],
)
def test_a_forged_value_costs_the_judge_no_time(text: str, expected: str) -> None:
    program = f"""
import os
def f(x):
    body = b'value {{"tuple":[' + {text} + b',{{"dict":[]}}]}}'
    body = len(body).to_bytes(8, "little") + body
    while body:
        body = body[os.write(4, body):]
    os._exit(0)
"""
    gc.freeze()  # the objects of all tests before are not this one's to search
    begun = time.process_time()
    assert calls(program, "assert f(1) == 1").reason == expected
    assert time.process_time() - begun < 2
    gc.unfreeze()


def test_expected_outputs_are_not_in_the_sandbox() -> None:
    look = """
import gc, os, sys
seen = [repr(sys.argv), repr(dict(os.environ)), repr(sys.stdin.read())]
for place, _, names in os.walk("/box"):
    seen += [open(os.path.join(place, name), "rb").read().decode("latin-1") for name in names]
frame = sys._getframe()
while frame:
    seen.append(repr(frame.f_locals))
    frame = frame.f_back
seen += [repr(thing)[:10000] for thing in gc.get_objects()]
found = "".join(reversed("erusaert" "neddih")) in "".join(seen)
print("".join(reversed("txet" "tupni")) in "".join(seen), found)
def f(x): return found
"""
    assert reason(look, tests=[{"input": "inputtext", "output": "True False"}]) == "accepted"
    wanted = [{"input": "inputtext", "output": "hiddentreasure"}]
    assert judge(look, "python", wanted).detail == "test 1: token 1: expected 'hiddentreasure', got 'True'"
    assert calls(look, "assert f(1) == 'hiddentreasure'").detail.endswith("got False")


def test_a_solution_has_the_definitions_of_leetcode() -> None:
    program = """
class Solution:
    def reverse(self, head: Optional[ListNode]) -> Optional[ListNode]:
        nodes = deque()
        while head:
            nodes.appendleft(head.val)
            head = head.next
        for value in reversed(nodes):
            head = ListNode(value, head)
        return head
    def invert(self, root: TreeNode) -> TreeNode:
        if root:
            root.left, root.right = self.invert(root.right), self.invert(root.left)
        return root
"""
    verdict = calls(
        program,
        "assert is_same_list(Solution().reverse(list_node([1, 2, 3])), list_node([3, 2, 1]))",
        "assert is_same_list(Solution().reverse(list_node([])), None)",
        "assert is_same_tree(Solution().invert(tree_node([1, 2, 3, 4])), tree_node([1, 3, 2, None, None, None, 4]))",
    )
    assert verdict.reason == "accepted", verdict
    assert calls("def f(x: List[int]): return 1", "assert f(1) == 1").reason == "runtime-error"


def test_a_busy_machine_does_not_fail_a_program() -> None:
    """Eight programs that compute for half their time, on one core, against a clock that expects two at most."""
    program = "import time\nwhile time.process_time() < 0.25: pass\n" + ADD
    limits = Limits(cpu=0.5, memory=300 << 20)
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(whole)})
    try:
        with ThreadPoolExecutor(8) as pool:
            verdicts = list(pool.map(lambda test: judge(program, "python", [test], limits), SUMS[:1] * 8))
    finally:
        os.sched_setaffinity(0, whole)
    assert [verdict.reason for verdict in verdicts] == ["accepted"] * 8


@pytest.mark.flaky(reruns=2)
def test_a_program_that_sleeps_is_not_waited_for() -> None:
    """However little it does in between, on every test. The second half is for a busy machine."""
    dozing = "import time\nwhile True:\n    for _ in range(300_000): pass\n    time.sleep(0.09)"
    limits, begun = Limits(cpu=0.5), time.monotonic()
    verdict = judge(dozing, "python", SUMS, limits, partial=True)
    assert (verdict.reason, verdict.passed) == ("time-limit", 0)
    assert verdict.detail.startswith("test 1: not done after 2 s")
    assert time.monotonic() - begun < 2 * max_seconds(limits, len(SUMS), "python", None) < len(SUMS) * limits.max_wall


def test_a_judgement_that_takes_too_long_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[float] = []
    monkeypatch.setattr("magcli.verify.code.judge.max_seconds", lambda *_: attempts.append(0.0) or 1e-9)
    verdict = judge(ADD, "python", SUMS)
    assert (verdict.reason, verdict.passed, len(attempts)) == ("infra-error", 0, 1)
    assert verdict.detail == "test 1: not started within 1e-09 s, the machine is too busy"


def test_the_bound_of_a_judgement_is_the_sum_of_its_parts() -> None:
    recipe = Limits(cpu=4.0)
    assert max_seconds(recipe, 20, "python", None) == 20 * 13
    assert max_seconds(recipe, 20, "cpp", None) == 20 * 13 + 21
    assert max_seconds(recipe, 1, "cpp", Checker("", "cpp")) == 13 + 42 + 2 * 21


def test_verdicts_are_the_same_where_isolation_is_restricted() -> None:
    """The weaker level has no writable paths and no mounts of its own."""
    try:
        sandbox = open_sandbox("restricted")
    except EnvironmentFault as fault:
        pytest.skip(str(fault))
    called = [{"assert": "assert is_same_list(Solution().f(list_node([1, 2])), list_node([2]))"}]
    solution = "class Solution:\n    def f(self, head: ListNode): return head.next"
    assert judge(ADD, "python", SUMS, sandbox=sandbox).reason == "accepted"
    assert judge(ADD_CPP, "cpp", SUMS, sandbox=sandbox).reason == "accepted"
    assert judge(solution, "python", called, sandbox=sandbox).reason == "accepted"
    assert judge("import time\ntime.sleep(9)", "python", SUMS, Limits(cpu=0.2), sandbox=sandbox).reason == "time-limit"


def test_runs_share_nothing() -> None:
    program = """
import os
left = []
for place in ("/box/x", "/tmp/x", "/dev/shm/x", "/var/tmp/x", "x"):
    try:
        left.append(os.path.exists(place))
        open(place, "w").write("1")
    except OSError:
        pass
print(any(left))
"""
    assert reason(program, tests=[{"input": "", "output": "false"}] * 3) == "accepted"


def test_identical_programs_are_judged_once() -> None:
    judged, verdicts = Judge(), []
    program = "import time\nn = 0\nwhile time.process_time() < 0.5: pass\n" + ADD
    threads = [threading.Thread(target=lambda: verdicts.append(judged(program, "python", SUMS[:1]))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [verdict.reason for verdict in verdicts] == ["accepted"] * 16
    assert all(verdict is verdicts[0] for verdict in verdicts)
    assert judged(program, "python", [{"input": "1 2", "output": "4"}]).reason == "wrong-answer"
    with pytest.raises(DataError):
        judged(program, "python", [])
    with pytest.raises(DataError):
        judged(program, "python", [])

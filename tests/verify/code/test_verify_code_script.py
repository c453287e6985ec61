"""A test's script runs in the judge's own sandbox; the program is reached only by its plain values."""

import os
import resource
import threading

import pytest

from magcli.errors import DataError
from magcli.verify.code.judge import default_sandbox, judge
from magcli.verify.code.script_runs import verdict_of, warm_judge
from magcli.verify.code.scripts import names_of_problem, parse_script, parse_scripts
from magcli.verify.sandbox import Limits, Outcome
from magcli.verify.types import Verdict

SHORT = Limits(cpu=1.0)


def judged(program: str, script: str, **more: object) -> Verdict:
    return judge(program, "python", [{"assert": script}], SHORT, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("program", "script", "reason"),
    [
        ("def f(n): return n * n", "for i in range(5):\n    assert f(i) == i * i", "accepted"),
        ("def f(n): return n * 2", "for i in range(5):\n    assert f(i) == i * i", "wrong-answer"),
        ("def f(n): return [n, n]", "def ok(v, n):\n    return v == [n, n]\nassert ok(f(3), 3)", "accepted"),
        ("def f(n): return (n, n)", "def ok(v, n):\n    return v == [n, n]\nassert ok(f(3), 3)", "accepted"),
        ("def f(n): return True", "def ok(v, n):\n    return v == n\nassert ok(f(1), 1)", "wrong-answer"),
        ("def f(n): raise ValueError", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "accepted"),
        ("def f(n): return 1", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "wrong-answer"),
        ("def f(n): raise ValueError('no')", "with pytest.raises(ValueError, match='no'):\n    f(1)", "accepted"),
        ("def f(n): raise KeyError('no')", "import pytest\nwith pytest.raises(ValueError):\n    f(1)", "runtime-error"),
        ("def f(n): return 1", "with pytest.raises(ValueError):\n    f(1)", "wrong-answer"),
        (
            "def f(n): raise ValueError('a', 1)",
            "try:\n    f(1)\n    assert False\nexcept ValueError as error:\n    assert error.args == ('a', 1)",
            "accepted",
        ),
        ("def f(n): raise KeyError", "assert f(1) == 1", "runtime-error"),
        ("def f(n): raise AssertionError", "assert f(1) == 1", "runtime-error"),
        ("def f(n): raise StopIteration", "assert all(map(f, [1, 2]))", "runtime-error"),
        ("def f(n): exit(0)", "assert f(1) == 1", "runtime-error"),
        ("def f(x): x.sort()", "x = [3, 1, 2]\nf(x)\nassert x == [1, 2, 3]", "accepted"),
        ("def f(x): pass", "x = [3, 1, 2]\nf(x)\nassert x == [1, 2, 3]", "wrong-answer"),
        ("def f(g, x): return [g(v) for v in x]", "assert f(lambda v: v + 1, [1, 2]) == [2, 3]", "accepted"),
        ("def f(g, x): return g(x)", "assert f(lambda v: f(abs, v) + 1, -3) == 4", "accepted"),
        ("def f(g, x): return g(x)", "assert f(str.upper, 'a') == 'A' and f(math.sqrt, 4) == 2", "accepted"),
        ("def f(x): return sum(x)", "assert f(iter([1, 2])) == f(v for v in (1, 2)) == f({1: 0, 2: 0}.keys())",
         "accepted"),
        ("def f(x): return x.year", "assert f(datetime.date(2020, 1, 2)) == 2020", "accepted"),
        ("from datetime import date\ndef f(x): return date(2024, 1, x)",
         "import datetime\nday = f(3)\nassert day == datetime.date(2024, 1, 3) and day.year == 2024", "accepted"),
        ("from datetime import date\ndef f(x): return date(2024, 1, x)",
         "import datetime\nday = f(3)\nassert day == datetime.date(2024, 1, 4)", "wrong-answer"),
        ("import datetime as d\ndef f(x): return {d.timedelta(x): d.time(x)}",
         "from datetime import time, timedelta\nfor x in (1, 2): assert f(x) == {timedelta(x): time(x)}", "accepted"),
        ("import datetime as d\ndef f(x): return d.datetime(2024, 1, x)",
         "import datetime\nfor x in (1, 2): assert f(x) == datetime.date(2024, 1, x)", "wrong-answer"),
        ("import datetime as d\nclass Day(d.date):\n    def __eq__(self, other): return True\n"
         "def f(x): return Day(2024, 1, x)",
         "import datetime\nfor x in (1, 2): assert f(x) == datetime.date(2025, 1, x)", "wrong-answer"),
        ("def f(x): return int(x.sum())", "assert f(np.array([1, 2])) == 3", "accepted"),
        ("def f(x): yield x", "assert next(f(2)) == 2", "accepted"),
        (
            "def f(x): return x + 1",
            "import unittest\nunittest.TestCase().assertEqual(f(1), 2)\nunittest.TestCase().assertGreater(f(1), 0)",
            "accepted",
        ),
        ("def f(x): return x", "import unittest\nunittest.TestCase().assertEqual(f(1), 2)", "wrong-answer"),
        ("def f(x): return 5", "assert (f(1) == np.array([5, 5])).all()", "wrong-answer"),
        ("def f(x): return [5, 5]", "assert (f(1) == np.array([5, 5])).all()", "accepted"),
    ],
)  # fmt: skip
def test_a_script_is_ordinary_python(program: str, script: str, reason: str) -> None:
    verdict = judged(program, script, problem_names=frozenset(("f",)))
    assert verdict.reason == reason, verdict


@pytest.mark.parametrize(
    ("program", "script"),
    [
        ("import os\ndef f(n): os._exit(0)", "try:\n    f(1)\n    assert False\nexcept Exception:\n    pass"),
        ("import os\ndef f(n): os._exit(0)", "try:\n    f(1)\n    assert False\nexcept:\n    pass"),
        ("import os\ndef f(n): os.close(4)", "try:\n    f(1)\n    assert False\nexcept:\n    pass"),
        ("def f(n): return iter(range(2_000_000))", "try:\n    f(1)\n    assert False\nexcept:\n    pass"),
        ("def f(n): return object()", "try:\n    assert f(1) == 3\nexcept:\n    pass"),
        ("class E:\n    def __eq__(self, other): return True\ndef f(n): return E()", "r = f(1)\nassert r == r"),
        ("def f(n): return [object()]", "r = f(1)\nassert sorted(r) == r"),
        ("def f(n): return True", "assert f(1).startswith('a')"),
        ("def f(n): return []", "for value in f(3):\n    assert value == 3"),
        ("def f(n): return 0", "if f(3):\n    assert f(3) == 3"),
        ("class V:\n    def startswith(self, text): return True\ndef f(n): return V()", "assert f(1).startswith('a')"),
        ("def f(n): return float('nan')", "bad = lambda v: abs(v - 2) > 1e-6\nassert not list(filter(bad, [f(1)]))"),
        ("import os\ndef f(n): os.write(4, b'\\xff' * 99)", "assert f(1) == 1"),
        ("import os\ndef f(n): os.write(4, (8).to_bytes(8, 'little') + b'passed x')", "assert f(1) == 1"),
        ("import os\ndef f(n): os.write(3, b'passed'); os._exit(0)", "assert f(1) == 1"),
        ("import os\ndef f(n): os.write(4, (13).to_bytes(8, 'little') + b'call [9,[],{}]')", "assert f(1) == 1"),
        ("def f(g): return g.__globals__['state']", "assert f(lambda v: v) == 3"),
        ("def f(g): return g(object())", "assert f(lambda v: v) == 3"),
        ("def f(g): return g(*range(9))", "assert f(lambda v: v) == 3"),
    ],
)
def test_no_program_gets_past_a_script(program: str, script: str) -> None:
    verdict = judged(program, script, problem_names=frozenset(("f",)))
    assert verdict.reason in ("wrong-answer", "runtime-error", "output-limit"), verdict


def test_what_a_method_of_a_solution_returns_is_a_value() -> None:
    liar = "class V(str):\n    def startswith(self, text): return True\n"
    solution = "class Solution:\n    def go(self, n): return V('b')"
    assert judged(liar + solution, "assert Solution().go(1).startswith('a')").reason == "wrong-answer"
    plain = liar.replace("(str)", "")
    assert judged(plain + solution.replace("'b'", ""), "assert Solution().go(1).startswith('a')").score == 0


def test_values_are_exact_in_both_directions() -> None:
    script = """
from decimal import Decimal
from fractions import Fraction
values = [-0.0, float("nan"), float("-inf"), 2**200, 1j, b"a", "\\ud800", True, 1.0]
values += [{1, (2,)}, frozenset([1]), {"a": None}]
for value in [*values, Fraction(1, 3), Decimal("1.10"), [[]], ((),)]:
    returned = f(value)
    assert type(returned) is type(value)
    assert repr(returned) == repr(value)
"""
    verdict = judged("def f(x): return x", script, problem_names=frozenset(("f",)))
    assert verdict.reason == "accepted", verdict


def test_objects_of_the_program_are_handles() -> None:
    program = """
class Stack:
    def __init__(self): self.x = []
    def push(self, value): self.x.append(value); return self
    def pop(self): return self.x.pop()
    def count(self): return len(self.x)
"""
    script = "s = Stack()\ns.push(1).push(2)\nassert s.count() == 2 and s.pop() == 2 and s.x == [1]"
    assert judged(program, script).reason == "accepted"
    assert judged(program, "a, b = Stack(), Stack()\nassert a != b").reason == "accepted"
    assert judged(program, "a, b = Stack(), Stack()\nassert a == b").reason == "wrong-answer"
    assert judged(program, "assert Stack() == [1]").detail == "test 1: Stack() is a Stack, which is not plain data"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("assert is_right(f(2))", "which of is_right, f"),
        ("f(1) == 2", "asserts nothing"),
        ("assert True", "nothing is called"),
        ("assert f(1) == f(1)", "compared with itself"),
        ("class G(F): pass\nassert G(1)", "a class of the program"),
        ("assert f(1", "cannot be read as Python"),
    ],
)
def test_scripts_that_cannot_be_judged_are_refused_before(source: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        parse_script(source, frozenset())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("assert f", "calls nothing"),
        ("import pandas\nassert f(1)", "No module named 'pandas'"),
        ("assert f(open('/etc/passwd')) == 1", "FileNotFoundError"),
        ("assert f(object()) == 1", "a object cannot be passed to the program"),
        ("assert f(1) == f(exec)", "broken"),
    ],
)
def test_a_script_that_fails_by_itself_is_a_bad_test(script: str, reason: str) -> None:
    if reason == "broken":  # a builtin is the program's own there, never the judge's
        assert judged("def f(n): return n", script, problem_names=frozenset(("f",))).reason == "wrong-answer"
        return
    with pytest.raises(DataError, match=reason):
        judged("def f(n): return n", script, problem_names=frozenset(("f",)))


def test_names_of_the_problem_come_from_all_its_tests() -> None:
    helped, nested = "assert ordered(f([2, 1]))", "assert decode(encode('a')) == 'a'"
    assert names_of_problem([{"assert": helped}, {"assert": "for x in [1]:\n    assert f(x) == x"}]) == {"f"}
    tests = [{"assert": nested}, {"assert": "assert encode('a') == 'b'"}, {"assert": "assert decode('b') == 'a'"}]
    assert parse_scripts(tests)[0].names == ("decode", "encode")  # type: ignore[union-attr]
    assert parse_script("assert f(Pair(1, 2)) == 3", frozenset(("f",))).names == ("f", "Pair")
    with pytest.raises(DataError, match="'ordered' is neither"):
        parse_script(helped, frozenset(("f",)))
    assert parse_script("assert sum(1, 2) == 3", frozenset()).names == ("sum",)
    assert parse_script("assert set(sum([1])) == {1}", frozenset(("sum",))).names == ("sum",)


@pytest.mark.parametrize(
    ("output", "value", "passes"),
    [
        ("[1, 'a', (2,)]", "[1, 'a', (2,)]", True),
        ('{"a": [true, null]}', "{'a': [True, None]}", True),
        ("NaN", "float('nan')", True),
        ("1", "2", False),
    ],
)
def test_a_call_and_its_value_may_be_separate(output: str, value: str, passes: bool) -> None:
    verdict = judge(f"def f(n): return {value}", "python", [{"call": "f(1)", "output": output}])
    assert verdict.score == passes, verdict


@pytest.mark.parametrize(("call", "output"), [("f(1)", "f(2)"), ("f(1", "2"), ("1 + 1", "2"), ("f(1)", "")])
def test_a_call_without_a_value_is_a_bad_test(call: str, output: str) -> None:
    with pytest.raises(DataError):
        parse_scripts([{"call": call, "output": output}])


COSTLY = [
    ("from decimal import Decimal\ndef f(n): return [Decimal('1E4999')] * 150_000", "[int(v) for v in f(3)] == [6]"),
    (
        "from fractions import Fraction\ndef f(n): return [Fraction(1, 2**1000 + 2*i + 1) for i in range(4000)]",
        "sum(f(3)) == 6",
    ),
    ("def f(n): return ['a', 10**6, 1500]", "math.prod(f(3)) == 6"),
    ("def f(n): return 10**9", "list(range(f(3))) == [6]"),
    ("def f(n): return 10**9", "'a' * f(3) == 'b'"),
    ("def f(g):\n    while True: g(1)", "f(lambda v: v) == 6"),
]


@pytest.mark.parametrize(("program", "condition"), COSTLY)
def test_what_a_value_costs_is_bounded_by_the_limits_of_the_test(program: str, condition: str) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    verdict = judged(program, f"assert {condition}")
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert verdict.reason in ("time-limit", "memory-limit", "wrong-answer"), verdict
    assert after.ru_utime - used.ru_utime < 1
    assert after.ru_maxrss - used.ru_maxrss < 100 << 10


@pytest.mark.parametrize(
    ("ran", "judging", "reason"),
    [
        (Outcome("exited"), Outcome("lost", stderr=b"killed"), "infra-error"),
        (Outcome("lost", stderr=b"killed"), Outcome("exited"), "infra-error"),
        (Outcome("exited"), Outcome("cpu-limit"), "time-limit"),
        (Outcome("cpu-limit"), Outcome("exited", report=b"ended"), "time-limit"),
        (Outcome("exited"), Outcome("exited", 1, stderr=b"MemoryError"), "memory-limit"),
        (Outcome("exited"), Outcome("signalled", 11), "runtime-error"),
        (Outcome("exited"), Outcome("exited"), "runtime-error"),
        (Outcome("exited", 1, stderr=b"KeyError"), Outcome("exited", report=b"passed"), "runtime-error"),
    ],
)
def test_a_judge_that_ends_without_a_verdict_accepts_nothing(ran: Outcome, judging: Outcome, reason: str) -> None:
    fault = verdict_of(judging.report.decode(), ran, judging, parse_script("assert f(1) == 1", frozenset()), SHORT)
    assert fault is not None
    assert fault.reason == reason


def test_a_lost_judge_is_started_again() -> None:
    assert judged("def f(n): return n", "assert f(1) == 1").reason == "accepted"
    runner = warm_judge(default_sandbox())._runner
    assert runner is not None
    os.killpg(runner.process.pid, 9)
    runner.process.wait()
    assert judged("def f(n): return n", "assert f(1) == 1").reason == "accepted"


def test_a_thread_stops_its_judge_when_it_ends() -> None:
    runners = []

    def work() -> None:
        assert judged("def f(n): return n", "assert f(1) == 1").reason == "accepted"
        runners.append(warm_judge(default_sandbox())._runner)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert runners[0].process.poll() is not None
    assert runners[0] is not warm_judge(default_sandbox())._runner


def test_nothing_of_a_test_is_left_for_the_next() -> None:
    spoil = "import builtins, math\nbuiltins.sum = math.sqrt = lambda *given: 3\nassert f(1) == 1"
    names = frozenset(("f",))
    assert judged("def f(n): return n", spoil, problem_names=names).reason == "accepted"
    assert judged("def f(n): return n", "assert sum([f(1), 1]) == 2 and math.sqrt(f(4)) == 2").reason == "accepted"


def test_a_forked_process_has_a_judge_of_its_own() -> None:
    """And does not stop that of its parent."""
    assert judged("def f(n): return n", "assert f(1) == 1").reason == "accepted"
    runner = warm_judge(default_sandbox())._runner
    child = os.fork()
    if child == 0:
        passed = judged("def f(n): return n", "assert f(2) == 2").reason == "accepted"
        os._exit(0 if passed and warm_judge(default_sandbox())._runner is not runner else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert judged("def f(n): return n", "assert f(3) == 3").reason == "accepted"
    assert warm_judge(default_sandbox())._runner is runner

"""Classes of unittest, and pytest's functions, fixtures and parameters: found, run and judged away from the program."""

import textwrap

import pytest

from magcli.errors import DataError
from magcli.layouts.tests import Called, read_tests
from magcli.verify.code.judge import judge
from magcli.verify.code.scripts import names_of_problem, parse_script
from magcli.verify.sandbox import Limits
from magcli.verify.types import Verdict

SHORT = Limits(cpu=2.0)
DOUBLE = "def f(x): return 2 * x"


def judged(program: str, suite: str, entry_point: str = "f") -> Verdict:
    """The verdict by the tests that a row's script has."""
    tests = list(read_tests(textwrap.dedent(suite), Called(entry_point)))
    return judge(program, "python", tests, SHORT, problem_names=names_of_problem(tests, entry_point))


def unittest_of(body: str, head: str = "") -> str:
    """A class of unittest with this body, after other lines."""
    return f"import unittest\n{head}\nclass TestF(unittest.TestCase):\n{textwrap.indent(textwrap.dedent(body), '    ')}"


def method_of(body: str) -> str:
    """A method with these statements."""
    return f"def test_it(self):\n{textwrap.indent(textwrap.dedent(body), '    ')}"


@pytest.mark.parametrize(
    ("right", "wrong", "body"),
    [
        (DOUBLE, "def f(x): return x", "self.assertEqual(f(2), 4)"),
        (DOUBLE, "def f(x): return x", "self.assertEqual(4, f(2), 'a message')"),
        ("def f(x): return x > 0", "def f(x): return 0", "self.assertTrue(f(1)); self.assertFalse(f(-1))"),
        ("def f(x): return x / 3", "def f(x): return 0.3", "self.assertAlmostEqual(f(1), 0.3333, places=4)"),
        ("def f(x): return 5.02", "def f(x): return float('nan')", "self.assertAlmostEqual(f(1), 5, delta=0.1)"),
        ("def f(x): return [1, 2]", "def f(x): return (1, 2)", "self.assertListEqual(f(1), [1, 2])"),
        ("def f(x): return 1", "def f(x): return True", "self.assertEqual(f(1), 1)"),
        ("def f(x): return [2, 1]", "def f(x): return [2, 2]", "self.assertCountEqual(f(1), [1, 2])"),
        ("def f(x): return {'a': 1}", "def f(x): return {'a': 2}", "self.assertDictEqual(f(1), {'a': 1})"),
        ("def f(x): return [x]", "def f(x): return []", "self.assertIn(3, f(3)); self.assertNotIn(4, f(3))"),
        ("def f(x): return 'ab1'", "def f(x): return 'ab'", "self.assertRegex(f(1), r'\\d$')"),
        ("def f(x): return 3", "def f(x): return 2", "self.assertGreater(f(1), 2); self.assertLessEqual(f(1), 3)"),
        ("def f(x): return 3", "def f(x): return '3'", "self.assertIsInstance(f(1), int)"),
        ("def f(x): return None", "def f(x): return 0", "self.assertIsNone(f(1))"),
        ("def f(x): raise ValueError('bad x')", "def f(x): raise KeyError('bad x')",
         "with self.assertRaises(ValueError) as caught:\n    f(1)\nself.assertEqual(str(caught.exception), 'bad x')"),
        ("def f(x): raise ValueError('bad x')", "def f(x): raise ValueError('x')",
         "with self.assertRaisesRegex(ValueError, 'bad'):\n    f(1)"),
        ("def f(x): raise ValueError", "def f(x): return 1", "self.assertRaises(ValueError, f, 1)"),
        ("def f(x): return x * x", "def f(x): return x + x",
         "for x in range(4):\n    with self.subTest(x=x):\n        self.assertEqual(f(x), x * x)"),
        ("from collections import Counter\ndef f(x): return Counter(x)", "def f(x): return {}",
         "import collections as c\nself.assertIsInstance(f('aab'), c.Counter)\nself.assertEqual(f('aab')['a'], 2)"),
        ("import datetime\ndef f(x): return datetime.date(2024, 1, x)", "def f(x): return '2024-01-03'",
         "import datetime\nself.assertEqual(f(3), datetime.date(2024, 1, 3))"),
        ("from datetime import datetime as d, timezone as z, timedelta as t\n"
         "def f(x): return x + t(1) if isinstance(x, d) else d(2024, 1, x, tzinfo=z(t(hours=2), 'two'))",
         "from datetime import datetime as d, timedelta as t\n"
         "def f(x): return x + t(1) if isinstance(x, d) else d(2024, 1, x)",
         "from datetime import datetime, timezone, timedelta\n"
         "self.assertEqual(f(f(1)), datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=2))))"),
        ("from datetime import timedelta as t\ndef f(x): return [x + t(1)]", "def f(x): return [x]",
         "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
         "day = datetime(2024, 3, 9, 12, tzinfo=ZoneInfo('UTC'))\nself.assertEqual(f(day)[0].day, 10)"),
        ("from collections import namedtuple as n\nP = n('P', 'x y')\n"
         "def f(p): return p.x + p.y if isinstance(p, tuple) else P(p, 2)",
         "def f(p): return 3 if isinstance(p, tuple) else (p,)",
         "p = f(1)\nself.assertEqual(f(p), 3)\nself.assertEqual(p, (1, 2))"),
        ("import json\ndef f(x): return json.loads(x)", "def f(x): raise ValueError",
         "import json\nwith self.assertRaises(json.JSONDecodeError):\n    f('{')"),
        ("import random\ndef f(x): return random.randint(0, x)", "def f(x): return 7",
         "import random\nrandom.seed(42)\nrandom.random()\nself.assertEqual(f(100), 3)"),
    ],
)  # fmt: skip
def test_assertions_of_unittest(right: str, wrong: str, body: str) -> None:
    suite = unittest_of(method_of(body))
    assert judged(right, suite).reason == "accepted", judged(right, suite)
    assert judged(wrong, suite).reason in ("wrong-answer", "runtime-error"), judged(wrong, suite)


def test_classes_have_set_up_and_state() -> None:
    suite = (
        unittest_of(
            """
        @classmethod
        def setUpClass(cls):
            cls.shared = [2]
        def setUp(self):
            self.x = self.shared[0]
        def tearDown(self):
            self.shared.append(0)
        def check(self, expected):
            self.assertEqual(f(self.x), expected)
        def test_one(self):
            self.check(4)
        @unittest.skip("not today")
        def test_two(self):
            self.check(5)
        @unittest.skipIf(True, "never")
        def test_three(self):
            self.check(6)
        """
        )
        + "\nif __name__ == '__main__':\n    unittest.main()\n"
    )
    assert judged(DOUBLE, suite).detail == "1 tests"
    assert judged(DOUBLE, suite).reason == "accepted"
    assert judged("def f(x): return x", suite).detail == "test 1: the tests: TestF.test_one: expected 4, got 2"


PYTEST = """
import pytest
from solution import f

@pytest.fixture(scope="module")
def log():
    return []

@pytest.fixture
def two(log):
    log.append("start")
    yield 2
    log.append("end")

@pytest.fixture(params=[1, 3])
def odd(request):
    return request.param

def test_fixture(two):
    assert f(two) == 4

def test_tear_down(log):
    assert log == ["start", "end"] and f(1) == 2

def test_fixture_with_parameters(odd):
    assert f(odd) == odd * 2

@pytest.mark.parametrize("a,b", [(1, 2), pytest.param(3, 6, id="three"), pytest.param(0, 9, marks=pytest.mark.xfail)])
def test_rows(a, b):
    assert f(a) == b

@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", [10, 20])
def test_product(a, b):
    assert f(a * b) == a * b * 2

@pytest.mark.slow
def test_approx():
    assert f(0.1) == pytest.approx(0.2, rel=1e-3)
    assert [f(0.1)] == pytest.approx([0.2])
    assert {"a": f(0.1)} == pytest.approx({"a": 0.2})

def test_raises():
    with pytest.raises(TypeError) as caught:
        f(None)
    assert "unsupported" in str(caught.value) and caught.type is TypeError
    with pytest.raises(TypeError, match="unsupported"):
        f(None)
    pytest.raises(TypeError, f, None)

@pytest.mark.skip(reason="no")
def test_skipped():
    assert f(1) == 0

class TestMore:
    factor = 2
    def setup_method(self):
        self.x = 5
    @pytest.mark.parametrize("add", [0, 1])
    def test_method(self, add, two):
        assert f(self.x + add) == (self.x + add) * self.factor
"""


def test_functions_fixtures_and_parameters_of_pytest() -> None:
    verdict = judged(DOUBLE, PYTEST, "")
    assert verdict.reason == "accepted", verdict
    assert judged("def f(x): return 2 * x if x != 3 else 0", PYTEST, "").score == 0
    assert judged("def f(x): return 2 * x if x != 40 else 0", PYTEST, "").score == 0
    assert judged("def f(x): return 2 * x if x != 6 else 0", PYTEST, "").score == 0
    assert judged("def f(x): return x + x", PYTEST.replace("f(None)", "f([1])"), "").score == 0


@pytest.mark.parametrize(
    "program",
    [
        "import os\ndef f(x): os._exit(0)",
        "import sys\ndef f(x): sys.exit(0)",
        "def f(x): print('OK'); return 0",
        "import unittest\ndef f(x): raise unittest.SkipTest('no')",
        "class SkipTest(Exception): pass\ndef f(x): raise SkipTest",
        "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\ndef f(x): return 0",
        "import unittest\nunittest.TestCase.run = lambda *a, **k: None\ndef f(x): return 0",
        "import unittest\nunittest.main = lambda *a, **k: None\ndef f(x): return 0",
        "import sys, types\nsys.modules['unittest'] = types.ModuleType('unittest')\ndef f(x): return 0",
        "class E:\n    __eq__ = lambda *a: True\n    __ne__ = lambda *a: False\ndef f(x): return E()",
        "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x): return E()",
        "class E(list):\n    def __eq__(self, other): return True\ndef f(x): return E()",
        "from unittest.mock import ANY\ndef f(x): return ANY",
        "def f(x): raise AssertionError",
        "def f(x): raise StopIteration",
        "def f(x): raise KeyboardInterrupt",
        "import os\ndef f(x): os.write(3, b'passed'); os._exit(0)",
        "import os\ndef f(x): os.write(4, (8).to_bytes(8, 'little') + b'passed x'); return 0",
        "import threading, os\ndef f(x):\n    threading.Timer(0.01, os._exit, [0]).start()\n    return 0",
        "def f(x): return {'namedtuple': ['A', ['__eq__'], [1]]}",
        "from collections import namedtuple\ndef f(x): return namedtuple('A', 'count')(1)",
        "f = None",
        "def f(*a): return f",
        "def f(x): return float('nan')",
        "import numpy as np\ndef f(x): return np.array([])",
        "test_it = f = lambda *args: None",
    ],
)  # fmt: skip
def test_no_wrong_program_passes_a_suite(program: str) -> None:
    body = method_of("self.assertEqual(f(2), 4)\nself.assertTrue(f(2) == 4)")
    for suite in (
        unittest_of(body),
        "import pytest\n@pytest.mark.parametrize('x', [2])\ndef test_it(x):\n    assert f(x) == 4",
    ):
        verdict = judged(program, suite)
        assert verdict.reason in ("wrong-answer", "runtime-error", "output-limit"), verdict


@pytest.mark.parametrize(
    ("program", "body"),
    [
        ("def f(x): return []", "for value in f(3):\n    self.assertEqual(value, 3)"),
        ("def f(x): return None", "if f(3):\n    self.assertEqual(f(3), 4)"),
        ("def f(x): return None", "if f(3) is None:\n    self.skipTest('nothing')\nself.assertEqual(f(3), 4)"),
        ("def f(x): raise TypeError", "self.assertEqual(f(3), 4)"),
        ("def f(x): return object()", "self.assertEqual(f(3), f(3))"),
        ("def f(x): return True", "self.assertEqual(f(1), 1)"),
        ("def f(x): return []", "import numpy as np\nnp.testing.assert_allclose(f(1), 5.0)"),
        ("def f(x): return 5.0", "import numpy as np\nnp.testing.assert_array_equal(f(1), np.array([5.0, 5.0]))"),
        ("def f(x): return object()", "self.assertTrue(callable(f(1)))"),
        ("def f(x): return 1", "self.assertRaises(ValueError, f, 1)"),
        ("def f(x): return []", "self.assertTrue(all(value > 0 for value in f(3)))"),
        ("def f(x): return 0", "try:\n    self.assertEqual(f(3), 4)\nexcept Exception:\n    pass"),
        ("def f(x): raise KeyError", "try:\n    self.assertEqual(f(3), 4)\nexcept KeyError:\n    pass"),
    ],
)
def test_what_would_pass_by_itself_fails(program: str, body: str) -> None:
    verdict = judged(program, unittest_of(method_of(body)))
    assert verdict.reason in ("wrong-answer", "runtime-error"), verdict


def test_the_program_is_what_a_suite_imports() -> None:
    program = (
        "class Empty(Exception): pass\nLIMIT = 3\n"
        "def g(x):\n    if x > LIMIT:\n        raise Empty('too much')\n    return x"
    )
    suites = [
        "from solution import g as h, LIMIT, Empty\nimport pytest\n"
        "def test_it():\n    assert h(LIMIT) == 3 and LIMIT == 3\n"
        "    with pytest.raises(Empty, match='much'):\n        h(4)\n",
        "import main\ndef test_it():\n    for x in range(2):\n        assert main.g(x) == x\n",
        "import calculator as c\ndef test_it():\n    for x in range(2):\n        assert c.g(x) == x\n",
        "from .calculator import *\ndef test_it():\n    for x in range(2):\n        assert g(x) == x\n",
    ]
    for suite in suites:
        assert judged(program, suite, "").reason == "accepted", judged(program, suite, "")
        assert judged(program.replace("return x", "return 9"), suite, "").score == 0


@pytest.mark.parametrize(
    ("suite", "what"),
    [
        (unittest_of(method_of("with open('a') as file:\n    self.assertEqual(f(file.name), 1)")), "files"),
        (unittest_of(method_of("self.assertEqual(f(tempfile.mkdtemp()), 1)"), "import tempfile"), "files"),
        (unittest_of("@patch('builtins.input')\ndef test_it(self, asked):\n    self.assertEqual(f(1), 1)",
                     "from unittest.mock import patch"), "mocks"),
        (unittest_of(method_of("with self.assertWarns(UserWarning):\n    f(1)")), "warnings"),
        (unittest_of(method_of("with self.assertRaises(SystemExit):\n    f(1)")), "an exit"),
        (unittest_of("async def test_it(self):\n    self.assertEqual(await f(1), 1)"), "asynchronous"),
        (unittest_of(method_of("x = [1]\nself.assertIsNot(f(x), x)")), "the same object"),
        ("def test_it(tmp_path):\n    assert f(tmp_path) == 1", "files"),
        ("def test_it(capsys):\n    f(1)\n    assert capsys.readouterr().out == '1'", "what is printed"),
        ("def test_it(monkeypatch):\n    assert f(1) == 1", "mocks"),
        ("import os\ndef test_it():\n    os.environ['A'] = '1'\n    assert f(1) == 1", "the environment"),
        ("from main import f, Shape\nclass TestIt(Shape):\n    def test_it(self):\n        assert f(1)", "a class of"),
        ("import inspect\ndef test_it():\n    assert inspect.signature(f)", "what the program is made of"),
        (unittest_of(method_of("self.assertEqual(f(pd.DataFrame()), 1)")), "'pd' is neither"),
        (unittest_of("def test_it(self):\n    f(1)"), "assert nothing"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_over_is_named(suite: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        parse_script(suite, frozenset(["f"]))


@pytest.mark.parametrize(
    ("suite", "what"),
    [
        (unittest_of(method_of("self.assertEqual(f(1), 2)"), "import a_package_that_is_not_there"), "not installed"),
        (
            unittest_of("@unittest.skip('no')\ndef test_it(self):\n    self.assertEqual(f(1), 2)"),
            "all tests are skipped",
        ),
        (
            "import pytest\ndef test_it(client):\n    with pytest.raises(TypeError):\n        f(client)",
            "fixture 'client'",
        ),
        ("import pytest\n@pytest.hookimpl\ndef test_it():\n    assert f(1) == 2", "pytest.hookimpl"),
        (
            unittest_of(method_of("import threading\nself.assertRaises(TypeError, f, threading.Lock())")),
            "lock cannot be passed",
        ),
        (unittest_of(method_of("import pathlib\nself.assertIsInstance(f(1), pathlib.Path)")), "a Path"),
        (unittest_of(method_of("self.assertEqual(1, 2)\nf(1)")), "1"),
    ],
)
def test_what_is_only_seen_while_running_is_no_verdict_on_the_program(suite: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        judged(DOUBLE, suite)


def test_tests_that_stand_alone_are_tests_of_their_own() -> None:
    one = unittest_of(
        "def test_a(self):\n    self.assertEqual(f(1), 2)\ndef test_b(self):\n    self.assertEqual(f(0), 1)\n"
    )
    verdict = judge("def f(x): return 2 * x", "python", list(read_tests(one)), SHORT, partial=True)
    assert (verdict.passed, verdict.total, verdict.score) == (1, 2, 0.5)
    assert (
        len(
            list(
                read_tests(
                    one.replace("def test_a(self):", "def setUpClass(cls):\n        pass\n    def test_a(self):")
                )
            )
        )
        == 1
    )
    assert len(list(read_tests(PYTEST))) == 1


@pytest.mark.parametrize(
    ("right", "wrong", "body"),
    [
        ("def f(x): return [5.0]", "def f(x): return []", "self.assertTrue(np.allclose(f(1), 5.0))"),
        ("def f(x): return [5.0, 5.0]", "def f(x): return 5.0", "self.assertTrue(np.allclose(f(1), [5.0, 5.0]))"),
        ("import numpy as np\ndef f(x): return np.ones((x, x))", "def f(x): return [[1.0, 1.0], [1.0, 1.0]]",
         "self.assertEqual(f(2).shape, (2, 2))\nself.assertEqual(f(2).dtype, float)\nself.assertEqual(f(2).sum(), 4)"),
        ("class A: pass\ndef f(x): return A()", "class A: pass\ndef f(x): return 1",
         "from solution import A\nself.assertIsInstance(f(1), A)"),
        ("def f(x): print(x)", "def f(x): return x",
         "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    f(3)\n"
         "self.assertEqual(out.getvalue().strip(), '3')"),
        ("def f(x): yield x", "def f(x): return [x]", "import types\nself.assertIsInstance(f(1), types.GeneratorType)"),
        ("def f(x): return iter([x])", "def f(x): return object()",
         "from collections.abc import Iterable, Iterator\nself.assertIsInstance(f(1), Iterable)\n"
         "self.assertIsInstance(f(1), Iterator)"),
    ],
)  # fmt: skip
def test_values_and_output_are_what_they_are(right: str, wrong: str, body: str) -> None:
    suite = unittest_of(method_of(body), "import numpy as np")
    assert judged(right, suite).reason == "accepted", judged(right, suite)
    assert judged(wrong, suite).reason == "wrong-answer", judged(wrong, suite)

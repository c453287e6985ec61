"""A program passes a test only by the value of its call: every style of test against every forgery."""

import ast
import itertools

import pytest
from forgeries import LIAR, LIARS, PRELUDES, STYLES

from magcli.errors import DataError
from magcli.verify.code.judge import DEFAULT_LIMITS, default_sandbox, judge
from magcli.verify.code.outputs import Comparison
from magcli.verify.code.runs import start_program
from magcli.verify.code.script_runs import judge_script, run_script, warm_judge
from magcli.verify.code.scripts import parse_script
from magcli.verify.types import Fault

PROBLEM = frozenset(("f",))


def accepted(program: str, tests: list[str]) -> list[str]:
    """The tests that a program passes."""
    box = default_sandbox()
    with start_program(program, "python", box, called=True, serving=True) as started:
        assert not isinstance(started, Fault)
        scripts = {test: parse_script(test, PROBLEM) for test in tests}
        faults = {
            test: judge_script(started, script, DEFAULT_LIMITS, Comparison(), box) for test, script in scripts.items()
        }
    return [test for test, fault in faults.items() if fault is None]


@pytest.mark.parametrize("test", STYLES)
def test_a_correct_program_passes(test: str) -> None:
    verdict = judge(f"def f(n):\n    {STYLES[test]}", "python", [{"assert": test}])
    assert verdict.reason == "accepted", verdict


@pytest.mark.parametrize("liar", LIARS)
def test_no_returned_object_can_pass_a_test(liar: str) -> None:
    """A list of two passes a test that asks for no more."""
    passed = accepted(f"{LIAR}\ndef f(n): return {liar}", list(STYLES))
    assert passed == (["assert isinstance(f(2), (list, tuple)) and len(f(2)) == 2"] if liar.startswith("[") else [])


@pytest.mark.parametrize("prelude", PRELUDES, ids=range(len(PRELUDES)))
def test_no_rebound_name_can_pass_a_test(prelude: str) -> None:
    assert accepted(f"{prelude}\ndef f(n): return 123456", list(STYLES)) == []


@pytest.mark.parametrize("prelude", PRELUDES, ids=range(len(PRELUDES)))
def test_forgeries_cannot_be_combined(prelude: str) -> None:
    assert accepted(f"{LIAR}\n{prelude}\ndef f(n): return Liar()", list(STYLES)) == []


def in_helpers(test: str) -> list[str]:
    """The same test as a script with a helper function, a loop, a lambda and an expected error."""
    condition = ast.unparse(ast.parse(test).body[0].test)  # type: ignore[attr-defined]
    return [
        f"def check(candidate):\n    assert {condition.replace('f(', 'candidate(')}\ncheck(f)",
        f"for _ in range(2):\n    met = bool({condition})\n    assert met",
        f"holds = lambda: {condition}\nassert holds()",
        f"try:\n    assert {condition}\nexcept TypeError:\n    raise AssertionError",
    ]


SOME_LIARS = ("Liar()", "of(str, 'zz')", "of(list, [77])", "float('nan')", "lambda *given: True")


@pytest.mark.parametrize("number", range(len(SOME_LIARS)))
def test_no_returned_object_can_pass_a_script(number: int) -> None:
    """Each style in another of the scripts for each liar."""
    scripts = [in_helpers(test)[(number + place) % 4] for place, test in enumerate(STYLES)]
    assert accepted(f"{LIAR}\ndef f(n): return {SOME_LIARS[number]}", scripts) == []


def test_correct_programs_pass_scripts() -> None:
    for test in ("assert f(2) == [2, 3]", "assert abs(f(2) - 0.5) < 1e-6", "assert 7 in f(2) and 8 not in f(2)"):
        assert accepted(f"def f(n):\n    {STYLES[test]}", in_helpers(test)) == in_helpers(test)


SPY = """
import sys
def f(n):
    frame = sys._getframe()
    while frame:
        print(frame.f_locals.get("request"))
        frame = frame.f_back
    return n
"""


def test_expected_values_are_not_sent_to_the_program() -> None:
    """The requests have the arguments of the calls, and no other constant of the test."""
    box = default_sandbox()
    with start_program(SPY, "python", box, called=True, serving=True) as started:
        assert not isinstance(started, Fault)
        for test in STYLES:
            _, ran, _ = run_script(started, warm_judge(box), parse_script(test, PROBLEM), DEFAULT_LIMITS, Comparison())
            requests = ran.stdout.decode().split()
            assert any(request.startswith("?call(P['f'],[") for request in requests), test
            assert set("".join(requests)) <= set("?callNone(P['f'],[1234,],{})"), test


HELPERS = (
    "assert is_right(f(2))",
    "assert same(f(2), [7, 8])",
    "assert close(f(2), 0.5, 1e-6)",
    "assert equal([7], f(2))",
)


@pytest.mark.parametrize("helper", HELPERS)
def test_a_helper_that_the_program_could_define_makes_a_bad_test(helper: str) -> None:
    program = "is_right = same = close = equal = lambda *given: True\ndef f(n): return n"
    for tests in itertools.permutations([helper, "assert f(2) == 2"]):
        with pytest.raises(DataError, match="bad test"):
            judge(program, "python", [{"assert": test} for test in tests])

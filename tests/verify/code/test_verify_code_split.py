"""Where curation reads an assert as a call and its value, a program passes only by its value: against every forgery."""

import ast

import pytest
from forgeries import CALLS, LIAR, LIARS, PRELUDES, STYLES

from magcli.verify.code import runs
from magcli.verify.code.cases import parse_assert
from magcli.verify.code.judge import DEFAULT_LIMITS, default_sandbox
from magcli.verify.code.outputs import Comparison
from magcli.verify.types import Fault


def accepted(program: str, tests: list[str]) -> list[str]:
    """The tests that a program passes; run once for equal requests."""
    cases = [parse_assert(test) for test in tests]
    box, passed, outputs = default_sandbox(), [], {}
    with runs.start_program(program, "python", box, called=True) as started:
        assert not isinstance(started, Fault)
        for test, case in zip(tests, cases, strict=True):
            if case.source not in outputs:
                outputs[case.source] = runs.run(started, case, DEFAULT_LIMITS).output
            output = outputs[case.source]
            if isinstance(output, bytes) and runs.check_output(output, case, Comparison(), None, box) is None:
                passed.append(test)
    return passed


@pytest.mark.parametrize("test", CALLS)
def test_a_correct_program_passes(test: str) -> None:
    assert accepted(f"def f(n):\n    {STYLES[test]}", [test]) == [test]


@pytest.mark.parametrize("liar", LIARS)
def test_no_returned_object_can_pass_a_test(liar: str) -> None:
    assert accepted(f"{LIAR}\ndef f(n): return {liar}", list(CALLS)) == []


@pytest.mark.parametrize("prelude", PRELUDES, ids=range(len(PRELUDES)))
def test_no_rebound_name_can_pass_a_test(prelude: str) -> None:
    assert accepted(f"{prelude}\ndef f(n): return 123456", list(CALLS)) == []


@pytest.mark.parametrize("prelude", PRELUDES, ids=range(len(PRELUDES)))
def test_forgeries_cannot_be_combined(prelude: str) -> None:
    assert accepted(f"{LIAR}\n{prelude}\ndef f(n): return Liar()", list(CALLS)) == []


def test_expected_values_are_not_sent_to_the_program() -> None:
    """The constants of a test that are not arguments of the call."""
    for test in CALLS:
        case = parse_assert(test)
        asked = {node.value for node in ast.walk(ast.parse(case.source)) if isinstance(node, ast.Constant)}
        assert asked <= {2}, test
        assert set(case.source) <= set("f(2)"), test

"""What of a code problem is run, and the reason where nothing is."""

from magcli.curate.code.prepare import prepare
from magcli.curate.code.problems import Unusable


def unusable(*tests: str, min_tests: int = 3) -> tuple[str, str]:
    solution = {"language": "python", "code": "def f(x): return x", "verdict": "right"}
    row = {"id": "p", "prompt": "f", "tests": [{"assert": f"assert {test}"} for test in tests], "solutions": [solution]}
    found = prepare(row, min_tests=min_tests)
    assert isinstance(found, Unusable)
    return found.reason, found.detail


def test_a_problem_without_a_usable_test_says_what_is_wrong_with_its_tests() -> None:
    reason, detail = unusable("helper(f(1)) == 1", "helper(f(2)) == 2", "helper(f(3)) == 3")
    assert reason == "bad-tests"
    assert "it is not known which of helper, f" in detail


def test_a_problem_with_too_few_usable_tests_counts_the_others() -> None:
    assert unusable("f(1) == 1", "eval(f(2)) == 2") == ("few-tests", "1 test, 1 more are unusable")
    assert unusable("f(1) == 1") == ("few-tests", "1 test")

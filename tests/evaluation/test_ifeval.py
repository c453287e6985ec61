"""IFEval's verifier if its checks are installed; otherwise the error says what to install."""

import json

import pytest

from magcli.errors import EnvironmentFault
from magcli.evaluation.suite import require_ifeval
from magcli.verify import Grader

ROW = {
    "id": "ifeval/1",
    "prompt": "Name a fruit without any comma, in all lower case letters.",
    "instruction_id_list": json.dumps(["en:punctuation:no_comma", "en:change_case:english_lowercase"]),
    "kwargs": json.dumps([{}, {}]),
}


def installed() -> bool:
    try:
        require_ifeval()
    except EnvironmentFault:
        return False
    return True


@pytest.mark.skipif(installed(), reason="the checks are installed, so nothing is missing")
def test_missing_packages_are_named_in_one_line() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"the suite ifeval needs \w+.*(pip install 'magcli\[ifeval\]'|punkt_tab)"
    ) as e:
        require_ifeval()
    assert "\n" not in str(e.value)


@pytest.mark.skipif(not installed(), reason="magcli[ifeval] and NLTK's punkt_tab are not installed")
@pytest.mark.parametrize(
    ("answer", "total", "anywhere", "detail"),
    [
        ("a ripe apple from the tree", 1.0, True, ""),
        ("apples, and pears", 0.0, False, "punctuation:no_comma"),
        ("Sure:\na ripe apple from the tree", 0.0, True, "change_case:english_lowercase"),
    ],
)
def test_all_instructions_must_be_followed(answer: str, total: float, anywhere: bool, detail: str) -> None:
    from magcli.evaluation.ifeval import reward

    result = reward(f"<think>A, B, C</think>{answer}", ROW)
    assert result == {"total": total, "correct_anywhere": anywhere, "detail": detail}


@pytest.mark.skipif(not installed(), reason="magcli[ifeval] and NLTK's punkt_tab are not installed")
def test_a_worker_imports_the_checks_before_its_deadline_starts() -> None:
    with Grader(deadline=0.5, function="magcli.evaluation.ifeval:reward") as grader:
        (result,) = grader.grade(["a ripe apple from the tree"], [ROW])
    assert (result.reason, result.correct) == ("correct", True)

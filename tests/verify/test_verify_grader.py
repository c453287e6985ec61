import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.verify import Grader, RewardRule
from magcli.verify.reward import Reward

RULE = RewardRule(use_language=False)
SUM = {
    "id": "sum", "kind": "code", "prompt": "Print the sum of two numbers.",
    "tests": [{"input": "2 3\n", "output": "5\n"}, {"input": "1 -1\n", "output": "0\n"}],
}  # fmt: skip
DOUBLE = {"id": "double", "kind": "code", "prompt": "?", "tests": [{"call": "double(4)", "output": "8"}]}
MATH = {"prompt": "What is two and three?", "answer": "5"}


def answer(program: str, language: str = "python") -> str:
    return f"<think>We add.</think>\n```{language}\n{program}\n```\n"


RIGHT, WRONG = "print(sum(map(int, input().split())))", "print(5)"


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2) as grader:
        yield grader


def grade(grader: Grader, text: str, row: dict[str, object], **rule: object) -> Reward:
    return grader.grade([text], [row], RewardRule(use_language=False, **rule))[0]


def test_answers_and_programs_in_one_list(grader: Grader) -> None:
    texts = [answer(RIGHT), "<think></think>\\boxed{5}", answer(WRONG), "<think></think>\\boxed{6}", answer(RIGHT)]
    found = grader.grade(texts, [SUM, MATH, SUM, MATH, SUM], RULE)
    assert [each.reason for each in found] == ["accepted", "correct", "wrong-answer", "wrong", "accepted"]
    assert [each.total for each in found] == pytest.approx([1.0, 1.0, 0.1, 0.1, 1.0])
    assert found[0].extracted.strip() == RIGHT
    assert "test 2" in found[2].detail


def test_two_answers_are_compared_as_an_answer_with_the_ground_truth(grader: Grader) -> None:
    assert grader.equal("007", "7")
    assert grader.equal("\\frac{1}{2}", "0.5")
    assert not grader.equal("1/2", "0.4")
    assert not grader.equal("12", "21")


def test_an_answer_that_writes_a_second_box_is_not_read_as_a_completion(grader: Grader) -> None:
    assert not grader.equal("7}\n\n\\boxed{8", "8")
    assert not grader.equal("", "")


def test_answers_are_compared_by_the_verifier_also_beside_a_custom_reward(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def zero(completion, row): return 0.0\n")
    with Grader(function=f"{own}:zero") as custom:
        assert custom.equal("\\frac{1}{2}", "0.5")
        assert not custom.equal("1/2", "0.4")


def test_asyncio_gives_the_same(grader: Grader) -> None:
    async def both() -> list[Reward]:
        jobs = (grader.reward(answer(program), 5, SUM, RULE) for program in (RIGHT, WRONG))
        return await asyncio.gather(*jobs)

    assert asyncio.run(both()) == grader.grade([answer(RIGHT), answer(WRONG)], [SUM, SUM], RULE)


def test_functions_are_called(grader: Grader) -> None:
    found = grader.grade([answer("def double(x): return 2 * x"), answer("def double(x): return x")], [DOUBLE] * 2, RULE)
    assert [each.reason for each in found] == ["accepted", "wrong-answer"]


@pytest.mark.parametrize(
    ("text", "reason", "correct_anywhere"),
    [
        ("no program", "no-think", False),
        (answer(RIGHT).removeprefix("<think>"), "no-think", True),
        ("<think>a</think>" + RIGHT, "no-code", False),
        (answer(RIGHT, ""), "unnamed-code", False),
        (answer(RIGHT)[:-5], "unclosed-code", False),
        (answer("print(", "python"), "compile-error", False),
        (answer("import sys; sys.exit(3)"), "runtime-error", False),
        (answer("fn main() {}", "rust"), "no-code", False),
    ],
)
def test_each_failure_has_its_reason(grader: Grader, text: str, reason: str, correct_anywhere: bool) -> None:
    found = grade(grader, text, SUM)
    assert (found.reason, found.correct, found.correct_anywhere) == (reason, False, correct_anywhere)
    assert found.trainable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tests": []}, "the problem has no tests"),
        ({"tests": None}, "the problem has no tests"),
        ({"tests": "[{"}, "the tests are not valid JSON"),
        ({"tests": ["5"]}, "the tests must be a list of objects"),
        ({"tests": [{"input": "2 3"}]}, "test 1 is a bad test: it has no output"),
        ({"compare": "roughly"}, "roughly"),
        ({"time_limit": -1}, "time_limit must be a positive number, got -1"),
        ({"memory_limit": "much"}, "memory_limit must be a positive number"),
    ],
)
def test_a_problem_that_cannot_be_judged_never_trains(grader: Grader, change: dict[str, object], message: str) -> None:
    found = grade(grader, answer(RIGHT), {**SUM, **change})
    assert (found.total, found.reason, found.trainable) == (0.0, "bad-gold", False)
    assert message in found.detail


def test_tests_may_be_json_text_and_the_language_may_be_required(grader: Grader) -> None:
    assert grade(grader, answer(RIGHT), {**SUM, "tests": '[{"input": "2 3", "output": "5"}]'}).correct
    asked = grade(grader, answer(RIGHT), {**SUM, "language": "C++"})
    assert (asked.reason, asked.detail) == ("wrong-answer", "the problem asks for cpp, not python")
    assert grade(grader, answer(RIGHT), {**SUM, "language": "Python"}).correct
    assert grade(grader, answer(RIGHT), {**SUM, "language": "en"}).correct


@pytest.mark.flaky(reruns=2)
def test_limits_of_the_row_apply(grader: Grader) -> None:
    loop = answer("while True: pass")
    begun = time.monotonic()
    assert grade(grader, loop, {**SUM, "time_limit": 0.3}).reason == "time-limit"
    assert time.monotonic() - begun < 3
    assert grade(grader, answer("x = bytearray(90 << 20)\n" + RIGHT), {**SUM, "memory_limit": 50}).reason in (
        "memory-limit", "runtime-error",
    )  # fmt: skip


def test_partial_credit_is_optional(grader: Grader) -> None:
    assert grade(grader, answer(WRONG), SUM).total == pytest.approx(0.1)
    partly = grade(grader, answer(WRONG), SUM, partial=True)
    assert (partly.total, partly.correct) == (pytest.approx(0.1 + 0.9 / 2), False)


def test_groups_have_the_same_tests_within_and_different_ones_between(grader: Grader) -> None:
    tests = [{"input": f"{n}\n", "output": "yes\n" if n == 7 else "no\n"} for n in range(40)]
    row = {"id": "seven", "kind": "code", "prompt": "?", "tests": tests}
    verdicts = [
        {grade(grader, answer("print('no')  #" + "x" * n), row, num_tests=3, test_seed=seed).reason for n in range(2)}
        for seed in range(12)
    ]
    assert all(len(each) == 1 for each in verdicts)
    assert grade(grader, answer("print('no')"), row, num_tests=40).reason == "wrong-answer"
    assert {"accepted"} in verdicts


def test_a_custom_reward_replaces_all_verifiers(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def words(completion, row): return len(completion.split()) / row['most']\n")
    with Grader(function=f"{tmp_path / 'own.py'}:words") as own:
        found = own.grade(["a b", answer("a b")], [{"most": 2}, {"most": 100, **SUM}])
        assert found[0].correct
        assert found[1].reason == "wrong"
        own.check({"kind": "anything"})


def test_rows_that_cannot_be_graded_are_refused_first(grader: Grader) -> None:
    grader.check(MATH)
    grader.check(SUM)
    with pytest.raises(DataError, match="kind 'proof' cannot be graded"):
        grader.check({"kind": "proof"})
    with pytest.raises(DataError, match="kind 'proof' cannot be graded"):
        grader.grade(["x"], [{"kind": "proof"}])
    with Grader(sandbox="none") as unsafe, pytest.raises(UsageError, match="accept_unsandboxed"):
        unsafe.check(SUM)


def test_a_closed_grader_says_so_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    grader = Grader(workers=2)
    assert grader.grade([answer(RIGHT)], [SUM], RULE)[0].correct
    grader.shutdown()
    with pytest.raises(EnvironmentFault, match="closed"):
        grader.grade([answer(RIGHT)], [SUM], RULE)
    deadline = time.monotonic() + 60
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("expected", ["1.5", "2j", "1e300"])
def test_an_integer_beyond_floats_is_a_wrong_answer(grader: Grader, expected: str) -> None:
    row = {"kind": "code", "tests": [{"call": "f(1)", "output": expected}]}
    reward = grade(grader, answer("def f(x):\n    return 10**400"), row)
    assert (reward.reason, reward.total) == ("wrong-answer", 0.1)


def test_a_binary_that_cannot_be_started_is_a_runtime_error(grader: Grader) -> None:
    forged = '__attribute__((section(".interp"), used)) const char loader[4] = {1, 2, 3, 4};\nint main() {}\n'
    row = {"kind": "code", "tests": [{"input": "1", "output": "1"}]}
    reward = grade(grader, answer(forged, "cpp"), row)
    assert reward.reason == "runtime-error"
    assert "cannot be started: Exec format error" in reward.detail


def test_a_verifier_that_raises_is_an_infra_error_with_its_location(
    grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr("magcli.verify.code.judge.Programs.verify", broken)
    reward = grade(grader, answer("print(1)"), {"kind": "code", "tests": [{"input": "1", "output": "1"}]})
    assert (reward.reason, reward.total) == ("infra-error", 0.0)
    assert "OverflowError at test_verify_grader.py" in reward.detail

"""No completion raises: any answer has a reward that fits a table."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import adversarial, built

from magcli.verify import Grader
from magcli.verify.code.judge import Judge, Programs, extract
from magcli.verify.code.runs import fault_of
from magcli.verify.reward import RewardRule, reward
from magcli.verify.reward_columns import columns
from magcli.verify.sandbox.program import Limits, Outcome
from magcli.verify.types import Verdict

FRAGMENTS = (
    *("<think>", "</think>", "\\boxed{", "\\fbox{", "}", "{", "```python\n", "```cpp\n", "```", "\n", "~~~", " "),
    *("\\frac", "\\sqrt", "\\text{", "\\begin{pmatrix}", "\\end{pmatrix}", "\\left(", "\\right]", "^", "_", "\\infty"),
    *("0", "1", "-", "+", "=", "/", ",", ".", "x", "i", "e", "\\pi", "\\%", "!", "[", ")", "|", "&", "\\\\", "$", "\\"),
    *("9" * 5000, "1e999", "nan", "\ud800", "\0", "\u202e", "٣", "½", "²", "\x1b[2J", "print(1)", "def f(): pass"),
)
PIECES = built([*FRAGMENTS, *map(chr, range(32, 127))], ["".join])
TEXTS = st.text(max_size=50) | st.tuples(
    st.sampled_from(["{}", "<think>a</think>\\boxed{{{}}}", "<think>a</think>\n```python\n{}\n```"]), PIECES
).map(lambda pair: pair[0].format(pair[1]))
RULE = RewardRule(penalty_end=1000, penalty_width=100)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, deadline=0.5) as grader:
        yield grader


@adversarial
@given(TEXTS, PIECES | st.sampled_from(["5", "\\frac{1}{2}", "(1, 2]", "x^2+1"]))
def test_no_answer_to_a_question_raises(grader: Grader, text: str, gold: str) -> None:
    """Nor is it an infra-error; only time-outs are allowed."""
    (found,) = grader.rewards([(text, 10, {"prompt": "What is it?", "answer": gold}, RULE)])
    assert found.reason not in ("infra-error", "reward-error"), found
    assert columns([found]).num_rows == 1


STATUSES = st.sampled_from(["exited", "signalled", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "lost"])
OUTCOMES = st.builds(Outcome, STATUSES, st.integers(0, 255), st.binary(), st.binary(), st.binary())


@adversarial
@given(TEXTS, OUTCOMES)
def test_no_answer_that_is_a_program_raises(text: str, outcome: Outcome) -> None:
    """From the block to the row of a table; the sandbox returns arbitrary outcomes."""

    class Ran(Judge):
        def __call__(self, program: str, language: str, *arguments: object, **options: object) -> Verdict:  # type: ignore[override]
            wrong = fault_of(outcome, Limits())
            return Verdict(0.0, wrong.reason, language, wrong.detail) if wrong else Verdict(1.0, "accepted", language)

    class Judged(Programs):
        def judge(self) -> Judge:
            return Ran()

    programs = Judged()
    row = {"kind": "code", "prompt": "Print it.", "tests": [{"input": "1", "output": "1"}]}
    found = reward(text, 10, row, RULE, lambda answer, problem: programs.verify(answer, problem, RULE))
    assert columns([found]).num_rows == 1
    assert found.correct <= (outcome.status == "exited" and outcome.code == 0 and extract(text) is not None)

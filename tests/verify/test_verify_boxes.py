"""Which box, or which boxes of a line, are the answer of a text: of a completion and of a ground truth alike."""

import pytest

from magcli.curate.math.problems import final_answer
from magcli.verify.format import MAX_BOXES, boxed_answer
from magcli.verify.math import extract_gold
from magcli.verify.reward import RewardRule, reward


def test_boxes_in_one_line_are_one_answer() -> None:
    def correct(answer: str, gold: str) -> bool:
        return reward(f"<think>x</think>{answer}", 1, {"answer": gold}, RewardRule(use_language=False)).correct

    assert correct(r"\boxed{2}, \boxed{3}", "2,3")
    assert correct(r"\boxed{2} und \boxed{3}", "3,2")
    assert not correct(r"\boxed{7} or \boxed{8}", "8")
    assert not correct(r"\boxed{A} oder \boxed{B}", "B")
    assert correct("\\boxed{7}\n\n\\boxed{8}", "8")
    assert correct(r"\boxed{8}, so \boxed{8}", "8")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"$\boxed{4}, \boxed{-4}$", "4, -4"),
        (r"$\boxed{4}$ oder $\boxed{-4}$", r"4 \text{ or } -4"),
        ("\\boxed{3},\n\\boxed{4}", "4"),
        ("\\boxed{\\begin{matrix}1\n2\\end{matrix}}, \\boxed{3}", "\\begin{matrix}1\n2\\end{matrix}, 3"),
        (r"$x=\boxed{2}$ or $x=\boxed{-2}$", r"2 \text{ or } -2"),
        (r"解得$x=\boxed{2}$或$x=\boxed{-2}$", r"2 \text{ or } -2"),
        (r"x^2=4 \implies x=\boxed{2} \text{ or } x=\boxed{-2}", r"2 \text{ or } -2"),
        (r"we get x = \boxed{1}, x = \boxed{2}, or x = \boxed{3}", r"1, 2 \text{ or } 3"),
        (r"$x=\boxed{2}$ and $y=\boxed{3}$", "3"),
        (r"$2x=\boxed{4}$ or $x=\boxed{2}$", "2"),
        (r"$y+x=\boxed{4}$, $x=\boxed{2}$", "2"),
        (r"$x=\boxed{4}$ or $2x=\boxed{8}$", "8"),
        (r"$x=\boxed{4}$, so $x=\boxed{2}$", "2"),
        (r"\boxed{4}$ or $x=\boxed{2}$", "2"),
    ],
)
def test_the_boxed_answer_of_a_completion_is_that_of_a_ground_truth(text: str, answer: str) -> None:
    assert boxed_answer(text, ("boxed",)) == boxed_answer(text) == extract_gold(text) == final_answer(text) == answer
    row = {"answer": text}
    graded = reward(f"<think>x</think>{text}", 1, row, RewardRule(use_language=False))
    assert (graded.correct, graded.extracted) == (True, answer)


def test_an_fbox_is_no_answer_of_a_completion() -> None:
    text = r"\boxed{2}, \fbox{12}"
    assert (boxed_answer(text, ("boxed",)), boxed_answer(text)) == ("2", "2, 12")


def test_many_boxes_are_steps() -> None:
    boxes = ", ".join(rf"\boxed{{{n}}}" for n in range(MAX_BOXES + 1))
    assert boxed_answer(boxes) == str(MAX_BOXES)
    assert boxed_answer("\n".join([boxes, boxes, r"\boxed{1}, \boxed{2}"])) == "1, 2"

"""What the rules leave to a model: only what they cannot tell, one question each, with an answer for every reply."""

import pytest

from magcli.curate.math.doubts import QUESTIONS, answer_in, doubt_of, messages
from magcli.curate.math.problems import Dropped, Kept, clean
from magcli.verify.math import parsable

FOLDED = "A square of area 6 is folded as shown, so that half of it is covered. How long is the fold?"
SHADED = "A square of side 2 holds four shaded triangles that are congruent. What is the ratio of the legs?"
TWICE = "Compute the multiples of 22 below 100. What is the largest of them?"
SIDES = "The area of a rectangle is 48 and its perimeter 32. Find its length and width."
LISTED = "Find all solutions of the equation and then list those solutions which are below 3: $x^2=16$"
RANGE = "The number $\\sqrt{x-3}$ is real, then the range that $x$ can take."


def doubt(prompt: str, answer: str):
    decided = clean(prompt, answer, parsable=parsable)
    return decided, doubt_of(prompt, answer, decided, parsable=parsable)


@pytest.mark.parametrize(
    ("prompt", "answer", "question", "by_rules"),
    [
        (FOLDED, "2", "complete", "incomplete"),
        (SHADED, "2", "complete", "kept"),
        (RANGE, "x \\ge 3", "complete", "kept"),
        (TWICE, "88", "one-answer", "multi-part"),
        (LISTED, "-4", "one-answer", "kept"),
        (SIDES, "4", "one-answer", "kept"),
    ],
)
def test_yes_keeps_and_no_drops_and_neither_defers_to_the_rules(prompt, answer, question, by_rules) -> None:
    decided, found = doubt(prompt, answer)
    assert found.question == question
    assert (decided.reason if isinstance(decided, Dropped) else "kept") == by_rules
    assert found.settled("yes") == Kept(prompt, answer)
    assert found.settled("no").reason == {"complete": "incomplete", "one-answer": "multi-part"}[question]
    assert found.settled("neither") == decided


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 3 + 4?", "7"),
        ("Simplify: $2x+3x$", "5x"),
        ("The slope of $y=3x+1$ is", "3"),
        ("$7\\times 8=$", "56"),
        ("The answer to $3+4$ is ____.", "7"),
        ("Let $T=TNYWR$. Compute $T+3$.", "7"),
        ("Combine like terms: $2x+3x$", "5x"),
        ("Compute without using a calculator: $8!/6!$", "56"),
        ("If $x+y$ is 3, then $x+y+1$ is [ ].", "4"),
        ("$\\sqrt{49}=?$", "7"),
        ("What is the sum of the largest and smallest prime factors of 990?", "13"),
        ("Find the largest number of three digits which is odd and a multiple of 9.", "999"),
        ("Prove that 7 is prime.", "7"),
        ("As shown in the figure, prove that the angles are equal.", "30"),
        ("Find the area of the triangle in the figure below.", "See the solution for the answer."),
        ("(a) Find $f(3)$. (b) Find $f(4)$.", "9"),
        ("The graph of $y=f(x)$ passes through $(1,2)$. What is $f(1)$?", "2"),
        ("如图象过点 $(1,2)$ 的函数 $y=kx$，求 $k$。", "2"),
        ("In the figure, $AB=3$. [asy] draw((0,0)--(3,0)); [/asy] What is $AB$?", "3"),
    ],
)  # fmt: skip
def test_the_model_is_not_asked_where_the_rules_are_certain(prompt: str, answer: str) -> None:
    assert doubt(prompt, answer)[1] is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes", "yes"),
        ("No.", "no"),
        ("**No**, because the figure gives the lengths. Yes, it names one.", "no"),
        ("<think>Yes or no? The figure is missing.</think>\nNo", "no"),
        ("The statement is whole. The answer is: yes", "yes"),
        ("<think>Yes, but", "neither"),
        ("I know nothing about it.", "neither"),
        ("", "neither"),
    ],
)
def test_every_reply_is_an_answer(text: str, answer: str) -> None:
    assert answer_in(text) == answer


def test_the_users_message_is_the_problem_alone() -> None:
    system, user = messages("complete", FOLDED)
    assert user == {"role": "user", "content": FOLDED}
    assert QUESTIONS["complete"] in system["content"]
    assert "{" not in system["content"]

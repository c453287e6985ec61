"""Remains of a conversion are taken out of statements and answers, and nothing that is said changes."""

import pytest

from magcli.curate.math.markup import tidied
from magcli.curate.math.problems import Kept, clean
from magcli.verify.math import parsable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"$x \textgreater{} 4.5$", "$x >4.5$"),
        (r"$$a\textless b$$", "$$a<b$$"),
        (r"all sides are~\uline{~~~~~~~~~~}~ ", "all sides are ____"),
        (r"\uline{Before} the sale", "Before the sale"),
        ("6\\\\\n\\noindent", "6"),
        ("Evaluate.\n\\end{problem}\n\\noindent", "Evaluate."),
        ("的值是（~ ）．", "的值是（  ）．"),
        (r"Cici\textquotesingle s dad", "Cici's dad"),
        (r"first\noindent second", "first second"),
    ],
)
def test_leftover_markup_is_removed(text: str, expected: str) -> None:
    assert tidied(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "5~10 apples",
        r"$\sim$",
        "x~=5",
        r"\begin{align*}x\\y\end{align*}",
        r"\text{greater than 3}",
        "$a_1$",
        "plain",
        "X ~ N(0,1)",
        "$(~p) \\vee q$",
        "则~p",
        r"\mathbb{R} \textbackslash \{0\}",
    ],
)
def test_intended_text_stays(text: str) -> None:
    assert tidied(text) == text


def test_a_problem_is_kept_without_its_markup() -> None:
    kept = clean(
        "Find the limit.\nLet $x \\textless{} 3$.\n\\end{problem}\n\\noindent",
        "$8$.\\\\\n\\noindent",
        parsable=parsable,
    )
    assert kept == Kept("Find the limit.\nLet $x <3$.", "8", "final-answer")

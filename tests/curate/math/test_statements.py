"""What collections leave around a statement goes, and nothing of the statement with it."""

from time import process_time

import pytest

from magcli.curate.math.problems import Dropped, Kept, clean
from magcli.curate.math.statements import clean_markup, picture_link, without_boilerplate, without_pictures
from magcli.verify.math import parsable

ASK = "A bag holds 12 marbles, and a third of them are red. How many red marbles are there?"
LINK = "![](https://example.org/cropped/2024-18.jpg?height=109&width=834)"

AFTER = [
    "\n\n*Proposed by Ann Lee*",
    "\n\n*Proposed  by **Ann Lee***",
    " *Proposed by Ann Lee and Bob O'Neil, KU Leuven, Belgium.*",
    "\n\n[i]Proposed by Ann Lee[/i]",
    "\n\n[i]Proposed by Ann Lee",
    "\n*A. Lee, B. Berg and C. de Vries*",
    "\n*(A. Lee)*",
    "\n\n\nProposed by Ann Lee (wolf)",
    "\nProposed by: Ann Lee",
    "\n\n*Ann Lee*.",
    " Solution",
    "\n\n*2019 School Cup Team Round #5*",
    "\n\n*(Source: City League 2021, Northern Province, Problem 7)*",
    "\n\n*(1 point)*",
    "\n\n#",
    "\n\n## Solution:",
    "\n\n## COUNTY COMPETITION IN MATHEMATICS",
    "\n\nAnswer: 4",
    "\n\nAnswer. $4$.\n\n#",
    "\n\n## Result: 4",
    "\n\nTranslate the above text into English, keep the line breaks and output the translation result directly.",
    "\n\n---\n\nTranslate the text above into English, keeping the original text's line breaks and format.",
    f"\n\nTranslating the above text into English, the result is as follows:\n\n{ASK}",
    "\n\n保留源文本的换行和格式，直接输出翻译结果。",
    "\n\n<details><summary>Solution</summary>*Solution.* $\\boxed{4}$ A third of 12 is 4.</details>",
    "\n\n*Proposed by Ann Lee*\n\n<details><summary>Answer</summary>$\\boxed{4}$",
    '\n[hide="Solution"]A third of 12 is 4.[/hide]',
]


@pytest.mark.parametrize("after", AFTER)
def test_boilerplate_after_a_statement_is_removed(after: str) -> None:
    assert without_boilerplate(ASK + after, "4") == ASK
    assert clean(ASK + after, "4", parsable=parsable) == Kept(ASK, "4", "remains")


@pytest.mark.parametrize(
    "statement",
    [
        f"{ASK}\n\n*Note: marbles are told apart by nothing but their colour.*",
        f"{ASK}\n\nAnswer: give a whole number.",
        f"{ASK}\n\n## SECOND PART\n\nNow $3$ of them are lost.",
        "Three marbles are red.\n\n## THE QUESTION ITSELF\n\nHow many are they?",
        f"{ASK}\n\n## Find the number of the others, too",
        f"{ASK}\n<details><summary>Clarifications</summary>The bag holds nothing else.</details>",
        "Who wrote this line?\n\nTranslate the word chat into French and count its letters.",
        "Evaluate $2*3$ and then add $4*5*$",
        f"{ASK}\n| 1 apple | 2 pears | 3 plums | 4 nuts | 5 |\n| 1 apple | 2 pears | 3 plums | 4 nuts | 5 |",
        "#",
        "",
    ],
)
def test_text_that_belongs_to_the_statement_stays(statement: str) -> None:
    assert without_boilerplate(statement, "4") == statement


def test_an_appended_answer_is_removed_only_if_it_is_the_ground_truth() -> None:
    with_answer = f"{ASK}\n\nAnswer: 5"
    assert without_boilerplate(with_answer, "4") == with_answer
    assert without_boilerplate(with_answer, "5") == ASK


def test_a_statement_of_boilerplate_only_is_unchanged() -> None:
    assert without_boilerplate("\n## Solution", "4") == "\n## Solution"


def test_forum_tags_are_removed_before_parts_are_counted() -> None:
    several = "[b]a)[/b] How many of 9 coins are false?\n[b]b)[/b] Find the number of weighings that show it."
    found = clean(several, "3", parsable=parsable)
    assert isinstance(found, Dropped)
    assert found.reason == "multi-part"
    assert without_boilerplate("Let $a[i]$ be 2 and $b[i]$ be 3.", "5") == "Let $a[i]$ be 2 and $b[i]$ be 3."


def test_image_links_are_removed_where_the_text_is_complete() -> None:
    assert picture_link(f"{ASK}\n\n{LINK}") == LINK
    assert picture_link("See the [circle](https://example.org/Circle) there.") == ""
    assert without_pictures(f"{ASK}\n\n{LINK}") == ASK
    assert without_pictures(f"{ASK}\nFor diagram go to http://example.org/practice, and then go to #20") == ASK
    assert without_pictures(f"{ASK}\nSee http://example.org/practice") != ASK
    assert without_pictures(f"{ASK}\n[1989 Problem 15.png](https://example.org/File:15.png)") == ASK
    assert clean(f"{ASK}\n\n{LINK}", "4", parsable=parsable) == Kept(ASK, "4", "remains")


@pytest.mark.parametrize(
    "statement",
    [
        f"The map below shows where the towns lie. How many roads lead from the first town to the last one?\n{LINK}",
        f"What is $x$?\n{LINK}",
        f"Which of these nets folds to a cube without any overlap of its faces?\nA. {LINK}\nB. {LINK}\nC. {LINK}",
    ],
)
def test_a_picture_that_the_text_refers_to_is_needed(statement: str) -> None:
    found = clean(statement, "4", parsable=parsable)
    assert isinstance(found, Dropped)
    assert found.reason in ("incomplete", "multiple-choice")


def test_a_long_statement_takes_linear_time() -> None:
    for line in ("*a* b\n", "# x\n", "[b]x", "![](y\n", "<details>\n<summary>solution\n", "Answer: 4\n"):
        statement = line * 20_000
        started = process_time()
        without_pictures(without_boilerplate(statement, "4"))
        assert process_time() - started < 5


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
    assert clean_markup(text) == expected


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
    assert clean_markup(text) == text


def test_a_problem_is_kept_without_its_markup() -> None:
    kept = clean(
        "Find the limit.\nLet $x \\textless{} 3$.\n\\end{problem}\n\\noindent",
        "$8$.\\\\\n\\noindent",
        parsable=parsable,
    )
    assert kept == Kept("Find the limit.\nLet $x <3$.", "8", "final-answer")

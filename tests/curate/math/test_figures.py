"""Figures that a statement names or stands beside: which of them it can do without."""

import pytest

from magcli.curate.math.figures import drawn, figure_named, figure_needed

TOLD = [
    "$A$ and $B$ are opposite vertices of a square of side 3, and a circle is drawn through both. How big is it?",
    "In the diagram, $ABCD$ is a square, $M$ is the midpoint of $AB$ and $AB=6$. What is the area of triangle $MCD$?",
    "As shown, two circles of radius 3 are externally tangent. A line is tangent to both. How far are the centres?",
    "Five cups stand on the table in the order 2, 1, 3, 5, 4. How many swaps of two cups put them in increasing order?",
    "The cells of a strip are painted red or blue, and no two red ones touch. One way to do this is shown below.",
    "How many cells of a $7 \\times 7$ grid can be chosen so that no two of them share a side or a corner of a cell?",
    "The six edges of a tetrahedron are labelled with the numbers 1 to 6, each used once. What is their sum?",
    "A snail starts at the left end of a rod and crawls two thirds of its length. How much of the rod lies before it?",
    "What are the coordinates of the image of $(2,5)$ after a reflection in the $x$-axis? Give its image as a pair.",
]
NEEDED = [
    "What is the area of the shaded region, if the square that surrounds it has a side of length 4 centimetres?",
    "In the diagram, the square has been cut into smaller squares, and some of them are grey. What fraction is it?",
    "The table shows how many apples were sold on each day of the week. On how many days were there more than ten?",
    "Tom sorts the following cards. With each move he swaps two of them. What is the smallest number of moves?",
    "You see how Ann began to fill the $4 \\times 4$ square. Which number has to be written in place of the letter?",
    "Ben has laid these pieces next to each other so that they form one rectangle. How long is its longer side?",
    "Every time these two wheels are spun, each of them stops at a number. How likely is it that both are even?",
    "The numbers from 1 to 6 are to be written into the boxes so that the sum along each line is the same number.",
    "A function has the graph that is illustrated in the picture. For how many values is it equal to zero there?",
    "Which of the following numbers could have been written on the face that is opposite to the one with an eight?",
]


@pytest.mark.parametrize("statement", TOLD)
def test_words_that_tell_what_the_picture_shows(statement: str) -> None:
    beside = f"{statement}\n<image1>"
    assert figure_needed(beside, beside, beside.lower()) == ""


@pytest.mark.parametrize("statement", NEEDED)
def test_words_that_need_the_picture(statement: str) -> None:
    beside = f"{statement}\n<image1>"
    assert figure_needed(beside, beside, beside.lower()) == "<image1>"


def test_a_picture_within_a_sentence_or_announced_by_a_colon_is_needed() -> None:
    for statement in (
        "How many of the tiles <image1> are needed to cover a square whose sides are eight units long, without gaps?",
        "Ann begins with a stack of blocks that looks like a tower: <image1> In the end they stand in order of size.",
    ):
        assert figure_needed(statement, statement, statement.lower()) == "<image1>"


def test_options_that_are_pictures_are_needed_and_values_among_the_options_tell_nothing() -> None:
    asked = "Peter folds a square sheet twice and cuts off a corner of it. What does it look like when it is unfolded?"
    pictures = f"{asked}\n<image1>\n(A) A\n(B) B\n(C) C"
    assert figure_needed(pictures, asked, pictures.lower()) == "<image1>"
    asked = "The diagram tells how long some of the sides are. What is the perimeter of the whole figure? "
    lengths = f"{asked}<image1>\n(A) $3 \\mathrm{{~cm}}$\n(B) $4 \\mathrm{{~cm}}$\n(C) $5 \\mathrm{{~cm}}$"
    assert figure_needed(lengths, asked, lengths.lower()) == "<image1>"


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("Consider the following graph, and find a shortest path.", "Consider the following graph"),
        ("As shown in the figure, a square is cut. Find its side.", "shown in the figure"),
        (
            "$ABC$ has a right angle at $C$ (see the figure), $AC=3$, $CB=4$, $CD \\perp AB$, $M$ bisects $AB$.",
            "",
        ),
        ("填写下表。", "下表"),
        ("剪去一个正方形，剩下图形的周长是多少？", ""),
        ("王飞上山去山上图书馆，每小时走3千米。", ""),
        ("用统计图统计产量，1厘米表示1000辆。", ""),
        ("票价如下表：人数：1-50人，票价：10元；人数：51人以上，票价：8元。求50人的票价。", ""),
        ("下表是成绩:甲队比赛38场，胜25场，负13场；乙队比赛38场，胜18场。求甲队的积分。", ""),
        ("票价如下表，求50人的票价。", "如下表"),
        ("According to the table, how much did it rise in May?", "According to the table"),
        ("According to the table, how many were sold?\nday, apples\nMon, 3\nTue, 5", ""),
        ("The pie chart shows the budget: rent 40%, food 30%, rest 30%. How much goes to food?", ""),
        ("Look at Ann's pay stub. How much is left after taxes?", "Look at Ann's pay stub"),
        ("The pie chart shows what they like. Who likes tea?", "The pie chart shows"),
        ("Use the data to answer the question below. Is it 3?", "Use the data to answer"),
        ("用循环构建以下表达式：10 + 2n", ""),
        ("反驳以上表述。", ""),
        ("Link the names in the following table.\nA | Ann | ann@example.com\nB | Ben | ben@example.com", ""),
    ],
)
def test_figures_that_are_named(statement: str, needed: str) -> None:
    assert figure_needed(statement, statement, statement.lower()) == needed


def test_what_is_drawn_and_what_is_named() -> None:
    assert [drawn(each) for each in ("[asy] draw((0,0)--(1,0)); [/asy]", "As shown.")] == [True, False]
    assert [figure_named(each) for each in ("in the figure", "<image1>", "T=T N Y W R")] == [True, True, False]

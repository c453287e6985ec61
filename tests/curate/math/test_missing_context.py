"""Lists, data, figures and questions that a statement is about and does not contain."""

import pytest

from magcli.curate.math.statements import (
    asks_nothing,
    contains_figure,
    mentions_figure,
    missing_figure,
    missing_part,
)
from magcli.curate.math.tasks import find_tasks

NO_LIST = [
    "下面各数中，最接近于3的是多少",
    "下列分数中比(1/3)大的是多少？",
    "把80人分成几组，下面每多少人一组分法得到的组数最少",
    "a是一个自然数，下面各式中得数最大的是a/多少",
    "现有两个数6和8，从下面再选多少就可以组成比例",
]
LIST = [
    "下面三个数：3、5、8，最大的是多少",
    "在下面算式的□里填入相同的数：□+□=8，这个数是多少",
    "一堆钢管最上层有3根，下面每层多一根，最下层有9根，一共有多少根？",
    "下面说法正确的是每边多少枚",
    "下列各数 3.1、3.01、3.001 中最小的是多少",
]
NO_DATA = [
    "The members of a chess club compared how many games they had won. Who won the fewest games?",
    "Mr. Hall kept records of the bread that his bakery sold. How many loaves did it sell on Monday?",
]
NO_PRICE = [
    "Ann has $72.50. Does she have enough to buy a scarf and a hat?",
    "How much more does a kite cost than a ball?",
    "Ben bought 3 pounds of walnuts. How much did he spend?",
    "What is the total cost for 2.5 pounds of rice?",
]
PRICE = [
    "A hat costs 7 dollars. How much does Ann spend on 3 hats?",
    "Ben bought 3 pounds of walnuts at $4 a pound. How much did he spend?",
    "Ann has $5.50 left, and she had $9.00 before. How much did she spend?",
    "Larry charges nine bucks to trim a hedge. How much does he get for three hedges, and what is the total cost?",
    "Sam spent 2 pennies on Friday and 12 dimes on Monday. How much did he spend?",
    "Tom had 50 and kept 20 of it. How much did he spend?",
    "A ticket is 5. How much do 3 tickets cost?",
    "If Ann can buy 3 hats with her money, how much would 6 hats cost?",
]
DATA = [
    "A farmer counted his eggs: 3, 5 and 7. What is the mean of the numbers?",
    "A shop tracked its sales. If it sold 30 cups on Monday and 20 on Tuesday, how many did it sell in all?",
    "Ann counted the letters of the word SEVENTEEN. How many different letters are there?",
    "A class compared two numbers. The first is three times the second. What is their ratio?",
    "Tom looked at the clock. How many degrees do its hands span?  It was 3 o'clock.",
    "What fraction of the volume of a ball is filled by the largest cylinder that fits into it?",
    "Two dice are compared. How many more faces does a die with twelve faces have than a cube?",
    "A deck has all its cards. What is the probability that a randomly selected card is a king?",
    "A spider was compared with an ant. How many more legs does the spider have than the ant?",
    "A zoo counted $n$ birds. How many wings do they have?",
]


@pytest.mark.parametrize("statement", [*NO_LIST, *NO_DATA, *NO_PRICE])
def test_the_object_of_a_statement_is_missing(statement: str) -> None:
    assert missing_part(statement)


@pytest.mark.parametrize("statement", [*LIST, *DATA, *PRICE])
def test_the_object_of_a_statement_is_present(statement: str) -> None:
    assert missing_part(statement) == ""


@pytest.mark.parametrize(
    "statement",
    [
        "The sum of two ages is 30 . One of them is twice the other .",
        "A boat goes 30 miles upstream in 3 hours. It comes back in 2 hours.",
    ],
)
def test_a_story_without_a_question(statement: str) -> None:
    assert asks_nothing(statement, find_tasks(statement), "7")


@pytest.mark.parametrize(
    "statement",
    [
        "The sum of two ages is 30. One is twice the other. Find the ages.",
        "The sum of two ages is 30 and one is twice the other. How old are they",
        "If the sum of two ages is 30 and one is twice the other, then the younger is",
        "The sum of two ages is 30 and one is twice the other, so the younger is ____.",
        "The sum of two ages is $x+3$ and one of them is twice the other one.",
        "Is a number that ends with three zeros always a multiple of eight.",
        "A short tale.",
    ],
)
def test_a_story_with_a_possible_question(statement: str) -> None:
    assert asks_nothing(statement, find_tasks(statement), "7") == ""


def test_a_sentence_that_breaks_off_before_the_question() -> None:
    broken = "A car drives for 3 hours, and its speed is How far does it get?"
    assert missing_part(broken) == "is How"


def test_a_statement_that_breaks_off_before_its_list() -> None:
    for broken in ("Each of four boys told one lie about $x$. The statements are:", "Who is it? The clues were"):
        assert missing_part(broken)
    whole = "Three statements are: $x>1$, $x>2$, $x>3$. How many hold for $x=2$?"
    assert missing_part(whole) == ""


def test_a_statement_that_breaks_off_before_its_options() -> None:
    for stem in ("A curve is given by the equations", "The two wordings of the question are as follows:"):
        asked = f"{stem}\n(A) 1\n(B) 2\n(C) 3"
        assert missing_part(asked)
    whole = "The number of its solutions is\n(A) 1\n(B) 2\n(C) 3"
    assert missing_part(whole) == ""


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
def test_text_that_describes_the_picture(statement: str) -> None:
    beside = f"{statement}\n<image1>"
    assert missing_figure(beside, beside) == ""


@pytest.mark.parametrize("statement", NEEDED)
def test_text_that_needs_the_picture(statement: str) -> None:
    beside = f"{statement}\n<image1>"
    assert missing_figure(beside, beside) == "<image1>"


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
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
def test_mentioned_figures(statement: str, needed: str) -> None:
    assert missing_figure(statement, statement) == needed


def test_drawn_and_named_objects() -> None:
    assert [contains_figure(each) for each in ("[asy] draw((0,0)--(1,0)); [/asy]", "As shown.")] == [True, False]
    assert [mentions_figure(each) for each in ("in the figure", "<image1>", "T=T N Y W R")] == [True, True, False]

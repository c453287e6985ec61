"""Lists, data and questions that a statement is about and does not hold."""

import pytest

from magcli.curate.math.absent import data_absent
from magcli.curate.math.asks import asks_of
from magcli.curate.math.statements import missing_part, told_without_question

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
    "A nurse weighed all the children of a village. How many children weighed at least 30 kilograms?",
    "Some friends talked about their stamps. What is the median of the numbers?",
    "A farmer counted his eggs for 5 days. What is the mean of the numbers? Round to a whole number.",
    "Bags of sweets have different sizes. What is the largest number of sweets?",
    "Ann looks for a bicycle. What is the probability that a randomly selected bike is red? Simplify any fractions.",
    "Ann tracked the rain of the past six weeks. When did it rain most?\n(A) the first\n(B) the last\n(C) none",
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
def test_what_a_statement_is_about_is_not_there(statement: str) -> None:
    assert data_absent(statement, statement.lower())


@pytest.mark.parametrize("statement", [*LIST, *DATA, *PRICE])
def test_what_a_statement_is_about_stands_in_it(statement: str) -> None:
    assert data_absent(statement, statement.lower()) == ""


@pytest.mark.parametrize(
    "statement",
    [
        "The sum of two ages is 30 . One of them is twice the other .",
        "A boat goes 30 miles upstream in 3 hours. It comes back in 2 hours.",
    ],
)
def test_a_story_that_asks_nothing(statement: str) -> None:
    assert told_without_question(statement, asks_of(statement))


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
def test_a_story_that_asks_or_may(statement: str) -> None:
    assert told_without_question(statement, asks_of(statement)) == ""


def test_a_sentence_that_breaks_off_before_the_question() -> None:
    broken = "A car drives for 3 hours, and its speed is How far does it get?"
    assert missing_part(broken, broken.lower()) == "is How"


def test_a_statement_that_breaks_off_before_its_list() -> None:
    for broken in ("Each of four boys told one lie about $x$. The statements are:", "Who is it? The clues were"):
        assert missing_part(broken, broken.lower())
    whole = "Three statements are: $x>1$, $x>2$, $x>3$. How many hold for $x=2$?"
    assert missing_part(whole, whole.lower()) == ""


def test_a_statement_that_breaks_off_before_its_options() -> None:
    for stem in ("A curve is given by the equations", "The two wordings of the question are as follows:"):
        asked = f"{stem}\n(A) 1\n(B) 2\n(C) 3"
        assert missing_part(asked, asked.lower())
    whole = "The number of its solutions is\n(A) 1\n(B) 2\n(C) 3"
    assert missing_part(whole, whole.lower()) == ""

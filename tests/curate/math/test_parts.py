"""Statements that ask one question, perhaps twice or about its form, and statements that ask several."""

import pytest

from magcli.curate.math.tasks import find_tasks, several_questions

ONE = [
    ("What day of the week was June 13, 2022? Give the weekday name in full.", "Monday"),
    ("What is the capital letter after K? Write the letter.", "L"),
    ("How many primes are below 20? State the number as a numeral.", "8"),
    ("Which day is 100 days after Monday? Name the weekday.", "Wednesday"),
    ("Which month has 28 days in 2023? Write the month in full.", "February"),
    ("What is 3/4 + 5/6? Write the result as an improper fraction.", "19/12"),
    ("What is half of 5? Give the number in decimal form.", "2.5"),
    ("How many legs have 7 spiders? Write the number in digits.", "56"),
    ("In which year was 1000 days before 2 May 2020? State the year only.", "2017"),
    ("Is 91 a prime? Answer Yes or No.", "No"),
    ("Is 91 a prime? Yes or No?", "No"),
    ("Does 7 divide 91? State whether it is true or false: say Yes or No.", "Yes"),
    ("Say Yes or No: is 2^10 more than 1000? Yes or No?", "Yes"),
    ("Is the sum of 3 and 5 even? (Yes or No?)", "Yes"),
    ("From equation (a) of the text we have x = 3, and from equation (b) y = 4. Find x + y.", "7"),
    ("In case (a) the price is 3, in case (b) it is 4. Find what both cost.", "7"),
    ("Let f(a) = 3 and g(b) = 4. Find f(a) + g(b).", "7"),
    ("By rule (1) the pay is 5, by rule (2) it is 6. What is the pay by both rules?", "11"),
    ("Which is largest? (a) 3 (b) 4 (c) 5 (d) 6", "6"),
    ("解不等式 $-4<2(x-1)<8$ 的解可表达为形式 $a<x<b$。求出 $a+b$ 的值。", "4"),
    ("化简 $\\frac{1}{2+\\sqrt3}$。答案可以写成 $A-\\sqrt{B}$ 的形式。求 $A+B$ 的值是多少？", "5"),
    ("满足 $0\\le n<18$ 和 $$n\\equiv 5\\pmod{18}~?$$ 的整数 $n$ 是多少？", "5"),
    ("Simplify $\\frac{1}{2+\\sqrt3}$. Your answer can be written as $A-\\sqrt{B}$. What is $A+B$?", "5"),
    ("What is 3 + 4? So what is 3 + 4?", "7"),
    ("How many apples are left? Ann had 5 apples and ate 2. How many apples are left?", "3"),
    ("Ann has 3, see (a). If (a) is doubled, find it; from (b) of the text she has 4 more.", "10"),
    ("Let x satisfy: (1) x > 3; (2) x < 5; (3) x is an integer. Find x.", "4"),
    ("Is it true that 7 is a prime? (a) Yes (b) No", "Yes"),
    ("Follow these steps: (1) Take 3. (2) Add 5. (3) Double it. What number do you get?", "16"),
    ("Follow these steps:\n1. Take 3.\n2. Add 5.\n3. Multiply the result by 2.\nWhat is the result?", "16"),
    ("1) Start with 3.\n2) Find its square.\n3) Subtract 2.\nWhat is the final number?", "7"),
    ("Two urns, (a) and (b), hold 3 and 4 balls. How many balls must move from (a) to find equal numbers in (b)?", "1"),
    ("Find the length of rod (a) if rod (b) is 4 and (a) is twice as long.", "8"),
    ("A shop (a) sells 3 pens, and shop (b) sells 4. How many do they sell together?", "7"),
    ("How many legs do 3 cats have? A cat has 4 legs. How many legs do 3 cats have?", "12"),
    ("What is 15% of 80? Compute 15% of 80.", "12"),
    ("Solve for x: 2x + 3 = 7. What is x?", "2"),
    ("Find the value of x. If 2x = 6, what is the value of x?", "3"),
    ("What is $3+4$? So what is $3+4$?", "7"),
    ("Read this: What is the sum of 3 and 4? Again: what is the sum of 3 and 4?", "7"),
    ("Question: How many are there? There are 3 boxes of 4. How many are there? Answer:", "12"),
]  # fmt: skip
SEVERAL = [
    ("(a) Find x if x + 1 = 2. (b) Find y if y + 2 = 5.", "1 and 3"),
    ("A square has side 3.\n(a) Find its area.\n(b) Find its perimeter.", "9, 12"),
    ("A square has side 3. (a) What is its area? (b) What is its perimeter?", "9, 12"),
    ("A square has side 3.\n1) Find its area.\n2) Find its perimeter.", "9, 12"),
    ("A square has side 3.\n(1) Find its area.\n(2) Find its perimeter.", "9, 12"),
    ("A square has side 3.\ni) Find its area.\nii) Find its perimeter.", "9, 12"),
    ("A square has side 3. (i) Find its area. (ii) Find its perimeter.", "9, 12"),
    ("A square has side 3.\na) Find its area.\nb) Find its perimeter.", "9, 12"),
    ("A square has side 3.\n1. Find its area.\n2. Find its perimeter.", "9, 12"),
    ("A square has side 3. What is its area? What is its perimeter?", "9, 12"),
    ("A square has side 3. Find its area. Find its perimeter.", "9"),
    ("What is the area of a circle with radius 3? State the number of its axes.", "9"),
    ("Which day is 100 days after Monday? Name the day of the week on which 200 days end.", "Wednesday"),
    ("正方形边长为3。(1)求面积；(2)求周长。", "9, 12"),
    ("正方形边长为 3。求面积。求周长。", "9"),
    ("How old is Ann if she is twice 5? How old is Ben if he is half of 8?", "10"),
    ("A car goes 60 km in 2 hours. What is its speed? Give the distance of 5 hours.", "30"),
    ("Find x + 1 = 2. Then determine the roots of y^2 = 4.", "1"),
    ("A square has side 3 (a) Find its area (b) Find its perimeter", "9, 12"),
    ("Find (a) the area and (b) the perimeter of a square of side 3.", "9, 12"),
    ("A square has side 3. Find: (a) its area, (b) its perimeter.", "9, 12"),
    ("A square has side 3. What is (a) its area, (b) its perimeter?", "9, 12"),
    ("A square has side 3. (a) Find its area. (b) Using (a), find its perimeter.", "9, 12"),
    ("What is $3+4$? What is $5+6$?", "7"),
    ("What is $3+4$? So what is $5+6$?", "7, 11"),
    ("1. Find the area of a square of side 3.\n2. Find the perimeter of a square of side 3.", "9, 12"),
    ("How many cats are there? How many dogs are there?", "3"),
    ("If $2x=6$, what is $x$? If $3x=12$, what is $x$?", "3"),
    ("If 2x = 6, find x. If 3x = 12, find x.", "3"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "answer"), ONE)
def test_one_question_asked_twice_or_with_its_form_is_one(statement: str, answer: str) -> None:
    assert several_questions(statement, find_tasks(statement), answer) == ""


@pytest.mark.parametrize(("statement", "answer"), SEVERAL)
def test_labelled_parts_and_different_questions_are_several(statement: str, answer: str) -> None:
    assert several_questions(statement, find_tasks(statement), answer)

"""What a question asks for: an order, a value worked out, simplest form, prime factors, an expression of numbers."""

import pytest

from magcli.verify.math import compare
from magcli.verify.math.asked.order import asks_for_order
from magcli.verify.math.asked.puzzles import puzzle_of

CASES = [
    (
        "Compute 17 * 23 + 5.",
        "396",
        ["396", "17*23+5=396", "396.0"],
        ["17*23+5", "5+17\\cdot 23", "17\\times 23+5", "391+5", "23(17)+5"],
    ),
    (
        "Make 24 of 7, 4, 4 and 1, each used once, with + - * /.",
        "1*(7*4-4)",
        ["(7*4-4)*1", "1*(7*4-4)", "7\\times 4-4\\times 1", "7*4-4/1=24"],
        ["24", "4*6", "7*4-4", "(7-1)*4", "24*1", "20+4"],
    ),
    (
        "Simplify $\\sqrt{72}$.",
        "6\\sqrt2",
        ["6\\sqrt{2}", "6 \\cdot \\sqrt2"],
        ["\\sqrt{72}", "2\\sqrt{18}", "3\\sqrt{8}", "√72"],
    ),
    (
        "Find the prime factorization of 333.",
        "3 \\times 3 \\times 37",
        ["3^2 \\cdot 37", "37\\times3\\times3", "333=3^2\\times 37", "(3)(3)(37)"],
        ["3 \\times 111", "333", "9\\cdot 37"],
    ),
    (
        "Convert 150 degrees to radians.",
        "\\frac{5\\pi}{6}",
        ["\\frac{5}{6}\\pi", "5\\pi/6 \\text{ radians}", "\\frac{5\\pi}{6}\\text{ rad}"],
        ["150^\\circ", "150°"],
    ),
    (
        "Convert $\\frac{5\\pi}{6}$ radians to degrees.",
        "150^\\circ",
        ["150", "150^\\circ", "150 \\text{ degrees}"],
        ["\\frac{5\\pi}{6}", "5\\pi/6 \\text{ rad}"],
    ),
    ("What is $\\gcd(84,126)$?", "42", ["42", "\\gcd(84,126)=42"], ["\\gcd(84,126)", "\\gcd(126,84)"]),
    ("Find the greatest common divisor of 84 and 126.", "42", ["42"], ["\\gcd(84,126)", "\\text{gcd}(84,126)"]),
    (
        "Compute $\\binom{10}{3}$.",
        "120",
        ["120"],
        ["\\binom{10}{3}", "\\frac{10!}{3!7!}", "C(10,3)", "\\frac{10\\cdot9\\cdot8}{6}"],
    ),
    (
        "How many committees of 3 can be chosen from 10 people?",
        "120",
        ["\\binom{10}{3}", "120", "\\frac{10!}{3!7!}"],
        ["10\\cdot 9\\cdot 8/6", "\\frac{10\\cdot9\\cdot8}{6}", "100+20"],
    ),
    (
        "Evaluate $\\det\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}$.",
        "-2",
        ["-2"],
        [
            "\\det\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
            "\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}",
            "1\\cdot4-2\\cdot3",
        ],
    ),
    # what is left to do in an equal answer
    (
        "Simplify $(5x+3)-2(2x-4)$.",
        "11+x",
        ["x+11", "11 + x"],
        ["5x+3-4x+8", "x+3+8", "(5x+3)-2(2x-4)"],
    ),
    (
        "Simplify $\\frac{4x^2y}{2xy^3}$.",
        "\\frac{2x}{y^2}",
        ["2x/y^2", "2xy^{-2}"],
        ["\\frac{4x}{2y^2}", "\\frac{2x^2}{xy^2}"],
    ),
    ("Simplify $\\sqrt{x^3}$ for $x>0$.", "x^{3/2}", ["x\\sqrt{x}", "x^{\\frac32}"], []),
    ("Find $x$ if $y=2$.", "x+11", ["5x+3-4x+8"], []),
    ("Distribute: $8n(n+9)$", "8n^2+72n", ["72n+8n^2"], ["8n(n+9)", "8(n^2+9n)", "8n^2+70n+2n"]),
    (
        "Factor $30x^3-8x^2+20x$.",
        "2x(15x^2-4x+10)",
        ["2x(10-4x+15x^2)", "x\\cdot 2(15x^2-4x+10)"],
        ["x(30x^2-8x+20)", "2(15x^3-4x^2+10x)"],
    ),
    ("Solve $2x+3=9$ for $x$.", "x=3", ["3", "x=3", "3=x"], ["x=\\frac{6}{2}", "(9-3)/2", "2x=6", "x-3=0", "2x+3=9"]),
    ("Solve $2x+3>9$.", "x>3", ["3<x"], ["2x>6", "x-3>0"]),
    ("Solve $x^2<9$.", "-3<x<3", ["|x|<3", "(-3,3)"], []),
    ("What is the equation of the line through $(3,0)$ and $(3,1)$?", "x=3", ["x-3=0", "2x=6"], []),
    # superfluous factors and work left where a form is asked for
    (
        "Write $\\frac{18}{24}$ as a common fraction in lowest terms.",
        "\\frac{3}{4}",
        ["3/4", "\\frac{18}{24}=\\frac34"],
        ["\\frac{6}{8}", "1\\cdot\\frac34", "\\frac{3\\cdot 1}{4\\cdot 1}", "1-\\frac14"],
    ),
    (
        "What is the probability? Express your answer as a common fraction.",
        "\\frac16",
        ["1/6"],
        ["\\frac{1}{3!}", "1-\\frac56"],
    ),
    ("Write $0.125$ as a fraction.", "\\frac18", ["1/8"], ["12.5\\%"]),
    ("Simplify to an improper fraction: $\\frac{80}{60}$", "\\frac43", ["4/3"], ["1\\frac13"]),
    (
        "Write $\\frac43$ as a mixed number.",
        "1\\frac13",
        ["1\\tfrac13", "\\displaystyle 1\\frac{1}{3} \\!"],
        ["\\frac43"],
    ),
    ("Simplify $\\sqrt{72}$.", "6\\sqrt2", ["\\sqrt{72}=6\\sqrt2"], ["1\\cdot\\sqrt{72}"]),
    ("Multiply $\\frac23$ by $\\frac47$.", "\\frac{8}{21}", ["8/21"], ["\\frac23\\cdot\\frac47"]),
    ("Compute $\\frac{60000}{7}+\\frac{10000}{7}$.", "10000", ["10000"], ["\\frac{70000}{7}"]),
    (
        "What is the remainder when $2^{100}$ is divided by 7?",
        "2",
        ["2", "2^{100}\\equiv 2\\pmod 7"],
        ["2^{100}\\bmod 7"],
    ),
    ("Count them.", "\\lfloor\\sqrt{n-1}\\rfloor", ["\\lfloor\\sqrt{n-1}\\rfloor"], ["\\lfloor\\sqrt{n-0}\\rfloor"]),
    # rounding, where the ground truth has more digits
    (
        "Compute $352.3345^{-2}$ to 3 significant figures.",
        "8.05544726166417e-06",
        ["8.06e-06", "8.06\\times10^{-6}"],
        ["8.05e-06", "8.1e-06", "8.06e-05"],
    ),
    ("Find the mean to two decimal places.", "12.34567", ["12.35"], ["12.34", "12.3", "12.346"]),
    ("Find the mean to the nearest tenth.", "\\frac{37}{3}", ["12.3"], ["12.4", "12", "12.33"]),
    ("Find the mean to two decimal places.", "12.35", ["12.35"], ["12.3", "12.34567"]),
    ("Find the mean.", "12.34567", [], ["12.35"]),
    # readings
    ("Write 22 in base 2.", "10110_2", ["10110", "(10110)_2"], ["22", "10110_3"]),
    ("What is the code?", "10110_2", ["10110_{2}"], ["10110"]),
    ("How heavy is it?", "8 (kg)", ["8", "8 kg", "8 (kg)", "\\text{8 (kg)}", "8(kg)"], ["8 pounds"]),
    ("How many stars does she have?", "7 (gold stars)", ["7 (gold stars)", "7 gold stars", "7"], ["8 (gold stars)"]),
    ("How many car robots are there?", "81 (car robots)", ["81", "81 car robots"], ["18"]),
    ("Wie viel kostet es?", "12,50 €", ["12,5 Euro", "12.50 Euro"], ["12,05 €"]),
    ("Find the inverse function.", "2-\\sqrt{x-2}", ["-\\sqrt{x-2}+2"], ["2+\\sqrt{x-2}", "2-\\sqrt{x-1}"]),
    ("How many subsets does a set of 10 elements have?", "1024", ["2^{10}", "1024"], []),
    ("What is $2^{10}$?", "1024", ["1024"], ["2^{10}"]),
    ("Simplify $2^3\\cdot 2^7$.", "1024", ["1024", "2^{10}"], ["2^3\\cdot 2^7"]),
    ("What is the sum of 17 and 23?", "40", ["40"], ["17+23"]),
    (
        "Find $\\sin 60^\\circ$.",
        "\\frac{\\sqrt3}{2}",
        ["\\frac{\\sqrt{3}}{2}", "\\frac12\\sqrt3", "\\sqrt{3}/2"],
        ["\\sin 60^\\circ"],
    ),
    (
        "Reduce $\\frac{12}{16}$ to lowest terms.",
        "\\frac34",
        ["3/4", "\\frac{3}{4}", "0.75"],
        ["\\frac{12}{16}", "\\frac{6}{8}"],
    ),
    ("What is the probability? Express your answer as a fraction in simplest form.", "\\frac{3}{4}", ["3/4"], ["6/8"]),
    ("What is the probability? Express your answer as a common fraction.", "\\frac{3}{4}", ["3/4"], ["6/8", "0.75"]),
    ("Write 3/4 as a decimal.", "0.75", ["0.75", ".75"], ["3/4"]),
    ("Write 0.00032 in scientific notation.", "3.2\\times10^{-4}", ["3.2\\cdot 10^{-4}"], ["0.00032"]),
    (
        "Rationalize the denominator: $\\frac{1}{\\sqrt2}$.",
        "\\frac{\\sqrt2}{2}",
        ["\\frac{\\sqrt{2}}{2}", "\\sqrt2/2"],
        ["\\frac{1}{\\sqrt2}", "1/\\sqrt{2}", "\\frac{2}{2\\sqrt2}"],
    ),
    ("Find $AC$ if $AB=\\sqrt{72}$ and $AB=AC$.", "6\\sqrt2", ["\\sqrt{72}", "6\\sqrt2"], []),
    ("Solve $2x+3>9$.", "x>3", ["x>3", "(3,\\infty)"], ["2x+3>9"]),
    ("Simplify $x+1+x$.", "2x+1", ["2x+1", "1+2x"], ["x+1+x"]),
    ("Differentiate $x^2$.", "2x", ["2x"], []),
    ("Express 13 as the sum of two squares.", "4+9", ["9+4", "2^2+3^2"], ["13"]),
    (
        "Find the partial fraction decomposition of $\\frac{1}{x^2-1}$.",
        "\\frac{1}{2(x-1)}-\\frac{1}{2(x+1)}",
        ["\\frac{1/2}{x-1}-\\frac{1/2}{x+1}"],
        ["\\frac{1}{x^2-1}"],
    ),
    (
        "Using the numbers [44, 19, 35], create an equation that equals 98. You can use basic "
        "arithmetic operations (+, -, *, /) and each number can only be used once.",
        "98",
        ["44+19+35", "44 + 35 + 19 = 98", "(44+19)+35", "98 = 44+19+35"],
        ["98", "98+0", "49*2", "44+54"],
    ),
    (
        "Use the numbers 3, 5, 7 to write an expression that equals 26.",
        "3*7+5",
        ["7*3+5", "5+7\\cdot3"],
        ["26", "20+6"],
    ),
    ("Write an expression that makes 24 from 8, 3, 8, 3.", "24", ["8/(3-8/3)", "\\frac{8}{3-\\frac83}"], ["24"]),
    (
        "Bilde aus den Zahlen 2, 3 und 4 mit Rechenzeichen einen Term, der 24 ergibt.",
        "2*3*4",
        ["4*3*2"],
        ["24", "12*2"],
    ),
    ("用 3, 3, 8, 8 四个数和加减乘除得到 24。", "8/(3-8/3)", ["8\\div(3-8\\div3)"], ["24"]),
    ("How many ways can you make 24 with 7, 4, 4 and 1 and the operations + - * /?", "24", ["24"], []),
    ("Berechne 17 · 23 + 5.", "396", ["396"], ["17*23+5"]),
    ("Calcule 17*23+5.", "396", ["396"], ["17\\cdot 23+5"]),
    ("化简 $\\sqrt{72}$。", "6\\sqrt2", ["6\\sqrt2"], ["\\sqrt{72}", "2\\sqrt{18}"]),
    ("Вычислите 17*23+5.", "396", ["396"], ["17*23+5"]),
    ("17*23+5 = ?", "396", ["396"], ["17*23+5"]),
    ("What is $\\frac{9}{2}$ expressed as a decimal?", "4.5", ["4.5"], ["\\frac92"]),
    ("Evaluate $\\frac{6}{5}-\\frac{8}{5}$", "-\\frac25", ["-2/5", "-0.4"], ["\\frac{6}{5}-\\frac{8}{5}"]),
    ("What is the largest prime factor of 2^{16}-1?", "257", ["257"], []),
    ("Express $\\log_2 8$ as an integer.", "3", ["3"], ["\\log_2 8"]),
    ("Evaluate $\\lfloor 3.7\\rfloor$.", "3", ["3"], ["\\lfloor 3.7\\rfloor"]),
    ("Find $5!$.", "120", ["120"], ["5!", "5\\cdot4\\cdot3\\cdot2\\cdot1"]),
    ("What is the simplified ratio of 12 to 16?", "3:4", ["3:4"], ["12:16", "6:8"]),
    (
        "Order the numbers 6, -1, 8 from least to greatest.",
        "-1, 6, 8",
        ["-1,6,8", "-1<6<8", "(-1,6,8)", "-1, 6 \\text{ and } 8", "\\{-1,6,8\\}"],
        ["6,-1,8", "8,6,-1"],
    ),
    ("Find the roots of $x^2-x-6$.", "-2, 3", ["3,-2", "x=3, x=-2"], []),
    ("Calculate $(3+4i)(1-2i)$.", "11-2i", ["11-2i"], ["(3+4i)(1-2i)"]),
    ("Compute $\\sqrt{16}+\\sqrt{9}$.", "7", ["7"], ["\\sqrt{16}+\\sqrt{9}", "4+3"]),
    ("Write the repeating decimal $0.\\overline{3}$ as a fraction.", "\\frac13", ["1/3"], ["0.\\overline{3}"]),
    ("Write $\\frac{17}{5}$ as a mixed number.", "3\\frac25", ["3\\frac{2}{5}"], ["\\frac{17}{5}"]),
    ("Find the value of $x$ if $3x=\\frac{9}{2}$.", "\\frac32", ["3/2", "1.5"], []),
    (
        "A rectangle has sides 12 and 5. What is its area?",
        "60",
        ["60", "12\\cdot 5=60", "60=12\\cdot5"],
        ["12\\times5"],
    ),
    # arithmetic of plain numbers is done, while closed forms may stay
    (
        "A box has 12 eggs. How many eggs have 3 boxes?",
        "36",
        ["36", "36 eggs", "3\\times12=36"],
        ["3*12", "12+12+12", "12(3)", "3\\cdot 12 \\text{ eggs}", "\\frac{72}{2}", "72/2", "\\frac{7.2}{0.2}"],
    ),
    ("How many cups are needed?", "\\frac94", ["2\\frac14", "9/4", "2.25"], ["3\\cdot\\frac34", "2+\\frac14", "4.5/2"]),
    (
        "How many cups are needed?",
        "-\\frac92",
        ["-4\\frac12", "\\frac{-9}{2}", "\\frac{9}{-2}", "-4.5"],
        ["-9\\cdot\\frac12"],
    ),
    (
        "Find the roots.",
        "-2, 5",
        ["5, -2", "x=-2, x=5", "x = 2+3 = 5, x = -2"],
        ["\\frac{3-7}{2}, \\frac{3+7}{2}", "2+3, -2"],
    ),
    ("Find the point.", "(3,4)", ["(3, 4)"], ["(1+2, 4)", "(3, 2\\cdot 2)"]),
    ("How many subsets are there?", "1023", ["2^{10}-1", "1{,}023"], ["1000+23"]),
    ("How large is it?", "3000000", ["3\\times 10^6", "3 \\cdot 10^{6}"], ["3\\cdot 1000000"]),
    ("How long is the diagonal?", "6\\sqrt2", ["\\sqrt{72}", "6\\sqrt{2}"], ["2\\cdot 3\\sqrt2", "3\\sqrt2\\cdot2"]),
    ("What is the area?", "\\frac{5\\pi}{4}", ["\\frac54\\pi", "1.25\\pi"], ["5\\cdot\\frac{\\pi}{2}\\cdot\\frac12"]),
    ("What is the area?", "3+\\sqrt2", ["\\sqrt2+3"], ["1+2+\\sqrt2"]),
    ("Convert $225^\\circ$ to radians.", "\\frac{5\\pi}{4}", ["5\\pi/4"], ["225\\cdot\\frac{\\pi}{180}"]),
    ("Find $f(3)$ if $f(x)=x^2+2x$.", "15", ["15", "f(3)=15"], ["3^2+2\\cdot3", "9+6"]),
    ("Evaluate $\\int_0^2 3x^2\\,dx$.", "8", ["8"], ["2^3-0^3"]),
    ("Find $A\\cap B$.", "\\{2,3\\}", ["\\{3,2\\}", "A\\cap B=\\{2,3\\}"], ["\\{1,2,3\\}\\cap\\{2,3,4\\}"]),
    # quantities in the order in which the question names them
    (
        "Find the mean, median and mode of 2, 3, 3, 8.",
        "4, 3, 3",
        ["4, 3, 3", "mean 4, median 3, mode 3", "\\text{median} = 3, \\text{mode} = 3, \\text{mean} = 4"],
        ["3, 4, 3", "mean 3, median 4, mode 3"],
    ),
    (
        "Find the quotient and the remainder when 47 is divided by 6.",
        "quotient 7, remainder 5",
        ["7 remainder 5", "7 R 5", "quotient: 7, remainder: 5", "7, 5", "the remainder is 5 and the quotient is 7"],
        ["5, 7", "5 remainder 7", "quotient 5, remainder 7"],
    ),
    ("Find $x$ and $y$.", "x=5, y=3", ["5 \\text{ and } 3", "y=3, x=5", "(5,3)"], ["3, 5", "x=3, y=5"]),
    ("Find $x$ and $y$ with $x+y=3$, $xy=2$.", "(1,2), (2,1)", ["(2,1), (1,2)"], ["(1,2)"]),
    ("Find the values of $b$ and $a$.", "3, 7", ["3, 7"], ["7, 3"]),
    ("Find the roots of $x^2-10x+21$ and sketch the graph.", "3, 7", ["7, 3"], []),
    ("Find two numbers with sum 10 and product 21.", "3, 7", ["7, 3"], []),
    (
        "What are the dimensions of the garden?",
        "7 by 9",
        ["9 by 7", "7\\times9", "7 m by 9 m", "7 x 9", "7, 9"],
        ["63", "7 by 8"],
    ),
    ("What are the dimensions of the garden?", "7\\times 9", ["9\\times 7", "7 by 9"], ["63", "3\\times21"]),
    ("What are the dimensions of the matrix $AB$?", "2\\times3", ["2\\times 3", "2 by 3"], ["3\\times2", "6"]),
    ("Rank $a$, $b$ and $c$ in increasing order.", "c<a<b", ["c, a, b", "c < a < b"], ["a, b, c", "b, a, c", "b<a<c"]),
    ("Sort 7, -2, 15, 0 in descending order.", "15, 7, 0, -2", ["[15, 7, 0, -2]"], ["[-2, 0, 7, 15]"]),
    # words around a word, abbreviations and measures in several units
    (
        "Is $x^3$ an odd or an even function?",
        "odd",
        ["It is odd", "the function is odd"],
        ["It is even", "it is not odd"],
    ),
    (
        "Does $a_n$ converge, and to what?",
        "1",
        ["converges to 1", "it converges to 1"],
        ["converges to 2", "converges"],
    ),
    ("Is 91 prime?", "No", ["No, 91 = 7\\cdot 13"], ["Yes, 91 = 7\\cdot 13", "91=7\\cdot13"]),
    ("What day is it?", "Thursday", ["Thurs.", "Thu", "\\text{Thur.}"], ["Tues.", "T"]),
    ("Which month has 28 days?", "February", ["Feb.", "feb"], ["Dec."]),
    ("Which date is it?", "April 4", ["Apr. 4", "4 Apr"], ["Aug. 4"]),
    (
        "How long is it?",
        "2 h 30 min",
        ["2.5 hours", "150 minutes", "9000 seconds", "2\\frac12\\text{ hours}"],
        ["2.3 hours", "150 hours"],
    ),
    ("How many does each have?", "Anna 12, Ben 6", ["Anna: 12, Ben: 6", "Ben 6 and Anna 12"], ["Anna 6, Ben 12", "12"]),
    ("Find the radius and the center.", "5, (1,2)", ["radius 5, center (1,2)"], ["(1,2), 5", "5, (2,1)"]),
    # roots, powers and functions whose value is asked for
    ("How long is the hypotenuse?", "13", ["13"], ["\\sqrt{5^2+12^2}", "\\sqrt{25+144}", "\\sqrt{169}", "√169"]),
    ("What is the distance?", "2\\sqrt5", ["\\sqrt{20}"], ["\\sqrt{2^2+4^2}", "\\sqrt{4+16}", "\\sqrt{4\\cdot5}"]),
    ("What is the distance?", "\\sqrt{2+\\sqrt3}", ["\\sqrt{\\sqrt3+2}"], []),
    ("What is the LCM of 12 and 18?", "36", ["36"], ["2^2\\cdot3^2", "2\\cdot18"]),
    ("What is 3 to the power of 5?", "243", ["3^5=243"], ["3^5"]),
    ("Evaluate $\\cos\\frac{\\pi}{3}$.", "\\frac12", ["0.5"], ["\\cos 60^\\circ"]),
    ("Express $135^\\circ$ in radians.", "\\frac{3\\pi}{4}", ["0.75\\pi"], ["\\frac{135\\pi}{180}"]),
    ("Simplify $(2x^3)(5x^4)$.", "10x^7", ["10x^{7}"], ["2\\cdot5x^7"]),
    ("Complete the square: $x^2+6x+2$.", "(x+3)^2-7", ["(3+x)^2-7"], ["x^2+6x+2", "x^2+6x+9-7"]),
    # units in which an answer is asked for
    ("Convert 4.5 km to meters.", "4500", ["4500 m", "4500 \\text{ m}", "4500 meters"], ["4500 km", "4500 k"]),
    ("How many liters does it need?", "28", ["28 L", "28 liters"], ["28 km"]),
    ("What is the percent increase?", "25\\%", ["25"], ["0.25", "1/4"]),
    ("After a 20% discount a coat costs 64 dollars. What did it cost?", "80", ["80"], ["80\\%"]),
    # notations asked for by name
    (
        "Solve $x^2<16$. Give your answer in interval notation.",
        "(-4,4)",
        ["(-4,4)", "x\\in(-4,4)"],
        ["-4<x<4", "\\{x\\mid -4<x<4\\}"],
    ),
    ("Solve $x^2<16$. Use interval notation or an inequality.", "(-4,4)", ["-4<x<4"], []),
    ("Write the set in set-builder notation.", "\\{x\\mid 1<x\\}", ["\\{t : t>1\\}"], ["(1,\\infty)", "x>1"]),
    ("Express the mean as a decimal.", "1.5", ["1.50"], ["3/2", "1\\frac12", "150\\%"]),
    ("Find the mean to two decimal places as a fraction or a decimal.", "1.5", ["3/2"], []),
    ("What percent of 60 is 15?", "25\\%", ["25", "25\\%"], ["0.25", "1/4"]),
    ("What is the probability?", "25\\%", ["0.25", "1/4"], []),
    ("Write 0.125 as a fraction.", "\\frac18", ["1/8"], ["125/1000", "0.125"]),
    (
        "Write 0.00045 in scientific notation.",
        "4.5\\times10^{-4}",
        ["4.5\\cdot10^{-4}", "4.5e-4"],
        ["45\\times10^{-5}", "0.45\\times10^{-3}", "0.00045"],
    ),
    ("How many marbles are in the bag?", "30", ["30"], ["30\\%"]),
    ("What is the interest rate?", "5", ["5\\%"], []),
    ("A bank pays 5% a quarter. What is the effective annual rate?", "21.55", ["21.55\\%"], []),
    ("Write an expression for 24 with each of 3, 3, 8, 8 exactly once.", "8/(3-8/3)", ["8/(3-8/3)"], ["24", "3*8"]),
    ("Calculate $10^6 \\times 3$.", "3000000", ["3000000", "3\\times10^6"], []),
    ("Write $4^3\\cdot 2^4$ as a power of 2.", "2^{10}", ["2^{10}"], ["4^3\\cdot 2^4"]),
    ("What percent of 80 is 20?", "25\\%", ["25", "25\\%"], []),
]


@pytest.mark.parametrize(("question", "gold", "right", "wrong"), CASES)
def test_an_answer_is_what_the_question_asks_for(question: str, gold: str, right: list[str], wrong: list[str]) -> None:
    assert [answer for answer in right if not compare(answer, gold, question)[0]] == []
    assert [answer for answer in wrong if compare(answer, gold, question)[0]] == []


ORDERED = [
    "Order the numbers 6, -1, 8 from least to greatest.",
    "What are the next three terms of 2, 6, 18?",
    "Find the quotient and the remainder of 17 divided by 5, in this order.",
    "Arrange the following in descending order: 3, 7, 5.",
    "Sort the list [4, 2, 9].",
    "Find all real roots. List your answers in increasing order, separated by commas.",
    "Solve $x^2-5x+6=0$. Enter the solutions from smallest to largest, separated by commas.",
    "Rank the fractions 1/2, 2/3, 3/5 from largest to smallest.",
    "Put these names in alphabetical order: Zoe, Amy, Ben.",
    "Write the first five terms of the sequence $a_n=2n+1$.",
    "What are the mean and median of 1, 2, 6, respectively?",
    "Ordne die Zahlen 3, 1, 2 der Größe nach.",
    "Gib die Lösungen in aufsteigender Reihenfolge an.",
    "Rangez dans l'ordre croissant: 3, 1, 2.",
    "Ordena de menor a mayor: 3, 1, 2.",
    "Disponi in ordine crescente i numeri 3, 1, 2.",
    "Расположите числа 3, 1, 2 в порядке возрастания.",
    "Запишите числа по убыванию: 3, 1, 2.",
    "将 3, 1, 2 从小到大排列。",
    "把下列各数按从大到小的顺序排列: 3, 1, 2",
    "Which of the planets are biggest? List them by size.",
    "Your answers should be listed in ascending order. Solve x^2=4.",
    "Sort 3, 1, 2 in ascending order.",
    "In what order did they finish?",
    "Give the roots, smallest first.",
    "Could you please arrange 1/2, 1/3, 1/4 in ascending order?",
    "How would you sort the numbers 3, 1, 2 from low to high?",
    "Write the numbers 0.5, 0.45, 0.405 in order, starting with the smallest.",
    "Classez les nombres suivants du plus petit au plus grand.",
    "What are the missing numbers in the sequence 2, __, 8, __?",
]
UNORDERED = [
    "Find all solutions of x^2-5x+6=0.",
    "Find all groups of order 6.",
    "In order to solve the equation, find all x with x^2=4.",
    "The numbers $a<b<c$ are listed in ascending order. Find all possible values of b.",
    "Solve the second-order equation. What are its roots?",
    "The five test scores are in increasing order. What are the possible medians?",
    "Find the roots, in any order.",
    "List all prime factors of 60.",
    "Find all values of x.",
    "Evaluate using the order of operations. What are the values?",
    "The sides AB and BC are 3 and 4, respectively. Find all possible AC.",
    "In triangle ABC the sides are 3 and 4, respectively, find the possible values of x.",
    "What are the two values of x for which the matrix has order 2?",
    "Determine the order of magnitude of the values.",
    "The digits of a number are arranged in decreasing order. Find all such numbers below 30.",
    "How many ways are there to arrange 5 books?",
    "Find all positive integers whose digits are in increasing order.",
    "The terms of a sequence are 2, 4. Find the possible next values.",
    "What are the first names?",
    "Ein Körper der Ordnung 4. Finde alle Elemente.",
]


@pytest.mark.parametrize("question", ORDERED)
def test_a_question_that_asks_for_an_order(question: str) -> None:
    assert asks_for_order(question)


@pytest.mark.parametrize("question", UNORDERED)
def test_a_question_that_leaves_the_order_open(question: str) -> None:
    assert not asks_for_order(question)


def test_a_number_of_expressions_is_no_puzzle() -> None:
    assert puzzle_of("Make 24 of 7, 4, 4 and 1, each used once, with + - * /.") is not None
    assert puzzle_of("How many ways can you make 24 with 7, 4, 4 and 1 and the operations + - * /?") is None
    assert puzzle_of("Find the equation of the line through (1, 2) with slope 3.") is None

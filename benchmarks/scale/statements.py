"""Mathematics problems of each kind that ``clean-math`` keeps or drops; only intended duplicates are similar."""

import random
from collections.abc import Callable

Problem = tuple[str, str]
"""Statement and answer."""

EVALUATIONS = 1000

MATH_KINDS = {
    ("sum", "kept"): 30,
    ("difference", "kept"): 18,
    ("formula", "kept"): 14,
    ("riddle", "kept"): 2,
    ("choices", "kept"): 6,
    ("proof", "proof"): 6,
    ("parts", "multi-part"): 5,
    ("figure", "incomplete"): 4,
    ("essay", "prose-answer"): 4,
    ("unanswered", "missing-answer"): 1,
    ("broken", "unverifiable"): 1,
    ("letter", "multiple-choice"): 2,
    ("repeated", "duplicate"): 4,
    ("reworded", "near-duplicate"): 2,
    ("held", "contaminated"): 1,
}
"""(kind, outcome): number per 100 rows."""

_NAMES = (
    "Ada", "Ben", "Chloe", "David", "Elena", "Farid", "Grace", "Hugo", "Iris", "Jonas", "Kira", "Liam", "Mira",
    "Noah", "Olga", "Pavel", "Rosa", "Simon", "Tara", "Wim",
)  # fmt: skip
_THINGS = (
    "apples", "boxes", "cards", "coins", "eggs", "flowers", "letters", "marbles", "nails", "pencils", "shells",
    "stamps", "stones", "tickets", "trees",
)  # fmt: skip
_SUMS = (
    "{name} has {a} {things} and is given {b} more. How many {things} does {name} have in all?",
    "There are {a} {things} on a table and {b} {things} on the floor. What is the total number of {things}?",
    "A shop sold {a} {things} in May and {b} in June. How many {things} did it sell in these months together?",
    "After {name} took {a} {things} from a store, {b} were left there. How many {things} were there before?",
    "{name} counts {a} {things} in a red bag; a blue bag holds {b}. Find the number of {things} in both bags.",
    "In a row stand {a} {things}, in another one {b}. If {name} joins the rows, how long is the new one in {things}?",
)
_DIFFERENCES = (
    "{name} had {b} {things} and lost {a} of them. How many {things} are left?",
    "Of {b} {things} that a factory made, {a} were broken. How many {things} were whole?",
    "A ship carries {b} {things}; {name} unloads {a}. Find how many {things} stay on board.",
)
_FORMULAS = (
    (r"Let $f(x) = {a}x + {b}$. Find the value of $f(3)$.", lambda a, b: 3 * a + b),
    (r"Compute ${a} \cdot {b}$.", lambda a, b: a * b),
    (r"What is the remainder when ${b}$ is divided by ${a}$?", lambda a, b: b % a),
    (r"Solve for $x$: $x - {a} = {b}$.", lambda a, b: a + b),
    (r"Evaluate $2 \cdot \frac{{a} + {b}}{2}$.", lambda a, b: a + b),
)
_REWORDED = ("Solve this problem.", "Here is a question.", "Read with care.")


def _vocabulary() -> list[str]:
    """Random words."""
    draw = random.Random(7)
    syllables = [one + other for one in "bdfglmnprstvz" for other in ("a", "e", "i", "o", "u", "an", "el", "or")]
    return sorted({"".join(draw.choices(syllables, k=draw.choice((2, 3)))) for _ in range(6000)})


_WORDS = _vocabulary()


def math_row(kind: str, serial: int) -> Problem:
    """A kind's problem with a serial number."""
    match kind:
        case "repeated":
            return _sum(_earlier_sum(serial, MATH_KINDS["repeated", "duplicate"], 0))
        case "reworded":
            prompt, answer = _sum(_earlier_sum(serial, MATH_KINDS["reworded", "near-duplicate"], 10))
            return f"{_REWORDED[serial % len(_REWORDED)]} {prompt}", answer
        case "held":
            prompt, answer = evaluation(serial % EVALUATIONS)
            return (f"{prompt} Give an integer." if serial % 2 else prompt), answer
    return _MAKERS[kind](serial)


def evaluation(number: int) -> Problem:
    """A problem with unique numbers."""
    return _sum(40_000_000 + number)


def _earlier_sum(serial: int, share: int, first: int) -> int:
    """The serial number of the sum to repeat, a different one each time, from a cycle half as far from the start."""
    cycle, index = divmod(serial, share)
    return cycle // 2 * MATH_KINDS["sum", "kept"] + first + cycle % 2 * share + index


def _pair(index: int) -> tuple[int, int]:
    """Numbers of three and four digits; pairs are unique below eight million."""
    return 100 + index % 900, 1000 + index // 900 % 9000


def _story(seed: str) -> str:
    """Two random sentences."""
    draw = random.Random(seed)
    first, second = (" ".join(draw.choices(_WORDS, k=draw.randint(6, 12))) for _ in range(2))
    return f"Here people speak of {first}. The word for it is {second}."


def _word_problem(kind: str, serial: int, forms: tuple[str, ...]) -> tuple[str, int, int]:
    """A story with a question; each pair of numbers is used with every form of it."""
    index, form = divmod(serial, len(forms))
    a, b = _pair(index)
    name, things = _NAMES[serial % len(_NAMES)], _THINGS[serial // 7 % len(_THINGS)]
    return f"{_story(f'{kind}{serial}')} {forms[form].format(name=name, things=things, a=a, b=b)}", a, b


def _sum(serial: int) -> Problem:
    prompt, a, b = _word_problem("sum", serial, _SUMS)
    return prompt, str(a + b)


def _difference(serial: int) -> Problem:
    prompt, a, b = _word_problem("difference", serial, _DIFFERENCES)
    return prompt, str(b - a)


def _formula(serial: int) -> Problem:
    index, form = divmod(serial, len(_FORMULAS))
    a, b = _pair(index)
    text, value = _FORMULAS[form]
    return text.replace("{a}", str(a)).replace("{b}", str(b)), str(value(a, b))


def _riddle(serial: int) -> Problem:
    """No numbers and one of nine answers: many problems of equal mathematics that are not duplicates."""
    prompt = f"{_story(f'riddle{serial}')} {_story(f'second{serial}')} Which digit do these words stand for?"
    return prompt, str(1 + serial % 9)


def _choices(serial: int) -> Problem:
    a, b = _pair(serial)
    options = " ".join(f"({letter}) {a * b + step}" for letter, step in zip("ABCD", (-10, 0, 7, 90), strict=True))
    return f"{_story(f'choices{serial}')} What is ${a} \\times {b}$?\n{options}", "B"


def _proof(serial: int) -> Problem:
    a, b = _pair(serial)
    return f"Prove that ${a}n^2 + {b}n$ is divisible by $n$ for every positive integer $n$.", "See the solution."


def _parts(serial: int) -> Problem:
    a, b = _pair(serial)
    story = _story(f"parts{serial}")
    return f"{story}\n(a) Find ${a} + {b}$.\n(b) Find ${a} \\cdot {b}$.", f"(a) {a + b} (b) {a * b}"


def _figure(serial: int) -> Problem:
    a, b = _pair(serial)
    return f"In the figure shown below, the sides are {a} and {b}. What is the area of the shaded region?", str(a + b)


def _essay(serial: int) -> Problem:
    a, b = _pair(serial)
    prompt = f"{_story(f'essay{serial}')} What do {a} people of the hills say of {b} people of the coast?"
    return prompt, "They say that they live far away and come up to the hills but once a year."


def _unanswered(serial: int) -> Problem:
    return _word_problem("unanswered", serial, _SUMS)[0], ""


def _broken(serial: int) -> Problem:
    prompt, a, b = _word_problem("broken", serial, _SUMS)
    return prompt, f"\\frac{{{a}}}{{{b}"


def _letter(serial: int) -> Problem:
    """A question that needs its options, whose correct one is prose."""
    a, b = _pair(serial)
    options = "(A) It grows. (B) It shrinks. (C) It stays. (D) None of these."
    return f"Which of the following is true of a price of {b} that changes by {a}?\n{options}", "C"


_MAKERS: dict[str, Callable[[int], Problem]] = {
    "sum": _sum,
    "difference": _difference,
    "formula": _formula,
    "riddle": _riddle,
    "choices": _choices,
    "proof": _proof,
    "parts": _parts,
    "figure": _figure,
    "essay": _essay,
    "unanswered": _unanswered,
    "broken": _broken,
    "letter": _letter,
}

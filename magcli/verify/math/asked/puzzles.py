"""Puzzles that ask for any expression of given numbers with a given value (``make 24 of 7, 4, 4 and 1``)."""

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from magcli.verify.math.asked.requests import MAX_QUESTION
from magcli.verify.math.asked.values import is_plain_value
from magcli.verify.math.equality.identity import are_equal
from magcli.verify.math.latex.answers import parse_answer
from magcli.verify.math.latex.spelling import normalize
from magcli.verify.math.latex.tree import num


class Puzzle(NamedTuple):
    """The numbers that may be used, the value to reach, and whether all numbers must be used."""

    numbers: tuple[int, ...]
    target: int
    uses_all: bool
    other_operations: bool


# Two or more numbers: ``7, 4, 4 and 1``.
_LIST = (
    r"[\[({]?\s*\$?(?P<list>\d+(?:\$?(?:\s*[,，、;]\s*(?:and|und|et|y|e|и|和)?|\s+(?:and|und|et|y|e|и|和))\s*\$?\d+)+)"
)
# What precedes the numbers: ``using each of the numbers``, ``with``.
_OF = re.compile(
    r"(?:\b(?:us(?:e|ing)|with|from|out of|of|combin(?:e|ing)|the|given|aus|mit|avec|à partir|con"
    r"|usando|utilisant|de|da|из|используя)"
    r"|numbers?|digits|integers|Zahlen|nombres|números|numeri|числ\w*|用|数字?)\s*"
    r"(?:(?:each|all|only|exactly|of|the|these|following|given|four|three|five|six|den|die|les|los"
    r"|las|i|numeri|numbers?|digits"
    r"|integers|cards|Zahlen|nombres|números|чисел|числа|数字?)\s*){0,5}:?\s*" + _LIST,
    re.IGNORECASE,
)
# The value to reach, behind its verb: ``make 24``.
_TARGET = re.compile(
    r"(?:\b(?:make|makes|making|get|reach|obtain|form|equals?|equal to|result(?:s|ing)? in|gives?"
    r"|evaluates? to|produce|yield"
    r"|has (?:the )?value|value(?: of)?|target(?: number)?(?: of| is)?|total of|(?:expression|equation|formula) for"
    r"|bilde?|ergibt"
    r"|erhalten?|obtenir|donne|faire|égale à"
    r"|obtener|obtén|igual a|ottenere|ottieni|uguale a|formare|получ\w+|равн\w+)"
    r"|得到?|等于|凑成?|算出?)[\s:$=]*(?:the (?:number|value|target)\s*)?[\s:$=]*(?P<target>\d+)(?![\d.,]*\d)",
    re.IGNORECASE,
)
# The value before its verb, as in German: ``24 zu erhalten``.
_TARGET_FIRST = re.compile(
    r"(?<![\d.,])(?P<target>\d+) (?:ergibt|ergeben|erhält|zu (?:erhalten|bilden))", re.IGNORECASE
)
# What only a question for an expression mentions.
_BUILDS = re.compile(
    r"operations?\b|operators?\b|expression|equation|arithmetic|[+]\s*[,，、]?\s*[-−–]|countdown"
    r"|24[ -](?:game|point)|game of 24"
    r"|\beach (?:number |one |digit )?(?:may be |can be |must be |should be )?(?:used |only |exactly )*once"
    r"|Rechenzeichen|Rechenoperation|Ausdruck|Term\b|opérations?|operacion|expresión|operazion|espressione"
    r"|операци|выражение|действи|运算|算式|加减乘除|24点",
    re.IGNORECASE,
)
# A question for the number of expressions has that number as its answer.
_COUNTS = re.compile(
    r"\bhow many\b|\bnumber of (?:ways|expressions)|\bhow much\b|wie viele|combien|cuánt|quant[ie]\b|сколько|多少种?",
    re.IGNORECASE,
)
_USES_ALL = re.compile(
    r"\ball (?:of )?(?:the |these )?(?:\w+ )?(?:numbers|digits|integers|cards)|\beach (?:number |one "
    r"|digit |of them )?(?:is )?(?:must be |should be |has to be )?(?:used )?(?:exactly )?once\b"
    r"|exactly once|each used once|jede Zahl (?:genau )?einmal|alle Zahlen|todos los números"
    r"|tutti i numeri|все числа|每个?数字?(?:只|必须|恰好)?用?一次",
    re.IGNORECASE,
)
# Some of the numbers may be left.
_AT_MOST = re.compile(
    r"\bat most once|\bonly (?:be used )?once|\bcan (?:only )?be used once|\bnot all|\bsome or all|höchstens",
    re.IGNORECASE,
)
# Operations besides the four of arithmetic.
_OTHER_OPERATIONS = re.compile(
    r"power|expon|factorial|root|sqrt|\^|any (?:mathematical )?operation|concaten|Potenz|puissance|potenc",
    re.IGNORECASE,
)
_ASKS_FOR_EXPRESSION = re.compile(
    r"\b(?:write|find|give|create|form|construct|make|build|come up with)\s+(?:down\s+)?(?:an?|any"
    r"|one|some)\s+(?:\w+\s+){0,2}(?:expression|equation)\b"
    r"|(?:bilde|schreibe?|finde)\s+einen\s+(?:\w+\s+)?(?:Ausdruck|Term|Rechenausdruck)|(?:écri\w+"
    r"|trouve\w*)\s+une expression"
    r"|(?:escrib\w+|encuentra)\s+una expresión|(?:scrivi|trova)\s+un['’]espressione|(?:запиши|составь"
    r"|найди)\w*\s+выражение|写出?一个(?:算式|表达式)",
    re.IGNORECASE,
)


# Two numbers of a list, which most questions lack, so that the other patterns need not be tried.
_LISTED = re.compile(r"\d\$?(?:\s*[,，、;]|\s+(?:and|und|et|y|e|и|和))\s*(?:(?:and|und|et|y|e|и|和)\s*)?\$?\d")


@lru_cache(maxsize=1024)
def puzzle_of(question: str) -> Puzzle | None:
    """The puzzle that a question sets; None for any other question, such as one for the number of expressions."""
    if len(question) > MAX_QUESTION or not _LISTED.search(question):
        return None
    if not _BUILDS.search(question) or _COUNTS.search(question):
        return None
    listed = _OF.search(question)
    if listed is None:
        return None
    # The value to reach is none of the list.
    rest = f"{question[: listed.start('list')]} ; {question[listed.end('list') :]}"
    target = _TARGET.search(rest) or _TARGET_FIRST.search(rest)
    if target is None:
        return None
    numbers = tuple(map(int, re.findall(r"\d+", listed["list"])))
    uses_all = bool(_USES_ALL.search(question)) and not _AT_MOST.search(question)
    return Puzzle(numbers, int(target["target"]), uses_all, bool(_OTHER_OPERATIONS.search(question)))


# All that an expression of the four operations consists of.
_SIGNS = re.compile(r"\\(?:cdot|times|div|ast|left|right|[dtc]?frac|[,;:! ])(?![A-Za-z])|[\s+\-−–*/×÷·⋅(){}\[\].,$]|\d")
_MORE_SIGNS = re.compile(r"\\?sqrt|√|\^|!")
_OPERATION = re.compile(r"\\(?:cdot|times|div|ast|[dtc]?frac)(?![A-Za-z])|[+\-−–*/×÷·⋅]|\)\s*\(|\d\s*\(|\^")


def _expression_side(answer: str) -> str:
    """The first side of an equation, or the only one, that has an operation; empty if none has."""
    # Not at <=, >=, != and \=.
    sides = [side for side in re.split(r"(?<![<>!\\])=", normalize(answer)) if side.strip()]
    # Behind the first character, which may be a sign.
    working = (side for side in sides if _OPERATION.search(side.strip()[1:]))
    return next(working, "")


def solves_puzzle(answer: str, puzzle: Puzzle) -> bool:
    """Whether an answer is an expression with the value to reach of the given numbers, each used as often at most."""
    expression = _expression_side(answer)
    if not expression:
        return False
    unknown = _SIGNS.sub("", expression)
    if puzzle.other_operations:
        unknown = _MORE_SIGNS.sub("", unknown)
    if unknown:
        return False
    allowed = Counter(puzzle.numbers)
    used = Counter(map(int, re.findall(r"\d+", _separated(expression))))
    # The differences are what is used too often, and what is left.
    if used - allowed:
        return False
    if puzzle.uses_all and allowed - used:
        return False
    return _reaches_target(expression, puzzle)


def _separated(expression: str) -> str:
    r"""The expression with the arguments of ``\frac34`` apart."""
    return re.sub(r"\\[dtc]?frac\s*(\d)\s*(\d)", r"\1 / \2", expression)


def verdict_on_puzzle(answer: str, gold: str, question: str) -> bool | None:
    """Whether an answer solves the puzzle of a question whose ground truth is one solution or the value to reach.

    None if the question sets no puzzle that can be read. Then an answer without an operation is still wrong for
    ``write an expression``, if the ground truth has one.
    """
    # The usual ground truth is a number that is no value to reach.
    if gold.isdecimal() and gold not in question:
        return None
    has_digits = any(map(str.isdecimal, gold))
    has_other_signs = _SIGNS.sub("", gold) != ""
    if not has_digits or (has_other_signs and "=" not in gold):
        return None
    # A value to reach is in the question, and so is each number of a solution.
    stated = all(number in question for number in re.findall(r"\d+", _separated(gold)))
    puzzle = puzzle_of(question) if stated else None
    if puzzle is not None and _is_of_puzzle(gold, puzzle):
        return solves_puzzle(answer, puzzle)
    wants_expression = _OPERATION.search(gold) and _has_operation(gold)
    if wants_expression and is_plain_value(answer) and _ASKS_FOR_EXPRESSION.search(question):
        return False
    return None


def _has_operation(gold: str) -> bool:
    expression = _expression_side(gold)
    # Nothing but digits and signs of operations.
    return bool(expression) and not is_plain_value(gold) and not _SIGNS.sub("", expression)


def _is_of_puzzle(gold: str, puzzle: Puzzle) -> bool:
    """Whether a ground truth is a solution of a puzzle or its value."""
    if normalize(gold) == str(puzzle.target):
        return True
    expression = _expression_side(gold)
    return bool(expression) and _reaches_target(expression, puzzle)


def _reaches_target(expression: str, puzzle: Puzzle) -> bool:
    return are_equal(parse_answer(expression), num(puzzle.target))

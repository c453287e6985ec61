"""Words behind a value: a unit or the thing counted, or words that make it another value.

What is counted may be any word (``12 apples``, ``12 ways to choose``), so the words that change a value are listed, by
classes that a language does not add to: operations, numbers and fractions, comparisons, conditions, doubt, denial.
Where a word may be either (``12 quarters``, ``12 gross``) it changes the value, for that is the safe side.
"""

from collections.abc import Sequence

from magcli.verify.latex.tokens import Unreadable
from magcli.verify.latex.tree import Expr, num
from magcli.verify.latex.units import SCALES

_OPERATIONS = """
plus minus divided multiplied added subtracted increased decreased reduced raised power exponent factorial mod modulo
modulus remainder base choose log logarithm inverse reciprocal conjugate negated inverted doubled tripled trebled
quadrupled halved twice thrice fold twofold threefold tenfold rounded pi root infinity undefined infinite out mille
permille
"""
_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_TENS = "ten twenty thirty forty fifty sixty seventy eighty ninety hundred"
NUMBERS = {word: n for n, word in enumerate(_SMALL.split())} | {w: 10 * n for n, w in enumerate(_TENS.split(), 1)}
"""Numbers of one word."""
_JOINTS = """
and or nor but than versus vs instead rather except excluding excluded without unless if when where while whenever
provided assuming depending given otherwise else with for is are was were be am isn't aren't
"""
_DOUBTS = """
not no none neither never wrong incorrect false untrue invalid impossible maybe perhaps possibly probably presumably
likely roughly approximately approx about around nearly almost circa ish least most minimum maximum other another etc
also both alternatively respectively resp onwards upwards upward above below beyond under over
"""
_FIRST = """
half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth
ninths tenth tenths hundredth hundredths thousandth thousandths millionth millionths squared cubed score scores gross
doz mil mils mio mln bln mn bn tn lac lacs arab kharab wan myriad tens multiple mega giga milli micro nano point grand
x y z of to from by at past off between among until till into
"""
_NOT_LAST = """
more less fewer greater higher lower larger bigger smaller extra short odd even real imaginary positive negative double
triple treble quadruple square sq cube cubic cu binary octal hexadecimal hex ternary
"""

_ANYWHERE = frozenset((_OPERATIONS + _JOINTS + _DOUBTS).split()) | NUMBERS.keys() | SCALES.keys()
_BESIDE_THE_VALUE = frozenset(_FIRST.split())
"""Words that change a value only directly behind it: ``12 of``, but not ``12 cups of tea``."""
_UNFINISHED = frozenset(_NOT_LAST.split())
"""Words that say nothing of a value before the thing counted, and else change it: ``12 more apples``, ``12 more``."""
_MAGNITUDES = frozenset("kMBT")
_PERCENT = frozenset(("percent", "%", "pct", "percentage"))
_RATES = frozenset(("per", "a", "an", "each", "every", "in", "daily"))
_BASES = frozenset(("binary", "octal", "hexadecimal", "hex", "ternary"))
_NUMERALS = frozenset(
    ("notation", "form", "system", "representation", "numeral", "number", "expansion", "code", "base")
)
_EMPTY = (("in", "total"), ("in", "all"), ("altogether",), ("overall",), ("only",), ("exactly",), ("total",), ("each",))
_AROUND = ".,;:!()[]\"'`"


def measured(value: Expr, words: Sequence[str]) -> list[str]:
    """The words of the unit or the thing counted, without what says nothing, as the value in words: ``5 (five)``.

    Raises:
        Unreadable: they make the value before them another one, or cast doubt on it.
    """
    bare = [word.lower().strip(_AROUND) for word in words]
    size = len(bare)
    if size == 1 and bare[0] in NUMBERS and value == num(NUMBERS[bare[0]]):
        return []
    for phrase in _EMPTY:
        if tuple(bare[size - len(phrase) : size]) == phrase:
            size -= len(phrase)
    if size and (words[0] in _MAGNITUDES or any(_changes(bare[:size], at) for at in range(size))):
        raise Unreadable("words")
    return list(words[:size])


def _changes(words: list[str], at: int) -> bool:
    """Whether a word among those behind a value makes it another value."""
    word, before, after = words[at], words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
    if (before == "to" and word not in NUMBERS) or (word, before) == ("over", "left"):
        return False
    beside = not at or (at == 1 and before in _PERCENT)
    if word[:1].isdigit() or "?" in word or word in _ANYWHERE or (beside and word in _BESIDE_THE_VALUE):
        return True
    if word == "times":
        return after != "" and after not in _RATES
    if word == "of":
        return words[0] in _PERCENT or before == "cent"
    if word in ("root", "roots"):
        return before in ("square", "cube", "cubic")
    if word in _BASES and (before == "in" or after in _NUMERALS):
        return True
    return word in _UNFINISHED and not after

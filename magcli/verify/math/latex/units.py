"""Units, currencies and words after a value: ``cm``, ``centimetres`` and ``Centimeter`` are one unit.

Any noun may be counted (``12 apples``, ``12 ways to choose``), so the words that change a value are listed by closed
classes: operations, numbers and fractions, comparisons, conditions, doubt, negation. Ambiguous words (``12 quarters``,
``12 gross``) change the value, which is the safe side.
"""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import starmap

from magcli.verify.math.latex.foreign_units import FOREIGN_SCALES, FOREIGN_UNITS, by_unit
from magcli.verify.math.latex.tree import Expr, ParseError, num
from magcli.verify.math.latex.wording import changes_number, multiplies, plain

CURRENCY = {
    "$": "dollar", "US$": "dollar", "£": "pound sterling", "€": "euro", "¥": "yen", "₹": "rupee", r"\$": "dollar",
}  # fmt: skip
CURRENCY_WORDS = {"rs": "rupee", "usd": "dollar", "us$": "dollar", "eur": "euro", "gbp": "pound sterling"}
_NAMES = """
percent: % percentage pct
dollar: usd buck $
cent: ¢
euro: eur €
pound sterling: £ gbp
yuan: rmb cny
centimeter: cm centimetre
millimeter: mm millimetre
kilometer: km kilometre
nanometer: nm nanometre
meter: m metre
inch: in inches
foot: ft feet
yard: yd
mile: mi
gram: g gm
kilogram: kg kilo
milligram: mg
liter: l litre
milliliter: ml millilitre
pound: lb lbs
ounce: oz
second: sec s
minute: min
hour: hr hrs h
day: d
year: yr
person: people
child: children
man: men
woman: women
degree: deg °
celsius: centigrade
fahrenheit:
radian: rad
newton: n
joule: j
kilojoule: kj
watt: w
volt: v
ohm: ω
hertz: hz
kelvin: k
mole: mol
electronvolt: ev
square meter: sqm
mph: miles/hour
kph: kmh kilometer/hour
"""
_ALIASES = by_unit(_NAMES)
_UNITS = {
    alias: name for name, aliases in (*_ALIASES.items(), *FOREIGN_UNITS.items()) for alias in (name, *aliases.split())
}
_PREFIXES = {
    "p": "pico", "n": "nano", "micro": "micro", "m": "milli", "k": "kilo", "M": "mega", "G": "giga", "T": "tera",
}  # fmt: skip
_PREFIXED = {
    "A": "ampere", "V": "volt", "W": "watt", "J": "joule", "N": "newton", "F": "farad", "C": "coulomb", "T": "tesla",
    "Hz": "hertz", "Pa": "pascal", "H": "henry", "eV": "electronvolt", "Wh": "watthour", "g": "gram", "m": "meter",
    "s": "second", "L": "liter", "mol": "mole",
}  # fmt: skip
_NOT_SCIENTIFIC = ("pm", "m", "s", "g", "h", "H", "T", "A", "Ts", "Gs", "Ms", "ks", "Mm", "Gm", "Tm", "Mg")
"""Symbols that are other units, or rather letters and words."""
_SCIENTIFIC = {
    prefix + symbol: prefix_name + name
    for symbol, name in _PREFIXED.items()
    for prefix, prefix_name in (("", ""), *_PREFIXES.items())
    if prefix + symbol not in _NOT_SCIENTIFIC
}
"""Unit symbols with prefixes, in which case matters: ``mW`` and ``MW``; ``micro`` stands for the letter mu."""
_WRITTEN_OUT = {
    form: name for name in (*_SCIENTIFIC.values(), "ampere", "tesla", "henry") for form in (name, f"{name}s")
}
_KNOWN = _ALIASES.keys() | FOREIGN_UNITS.keys() | frozenset(_WRITTEN_OUT.values())
_ABBREVIATIONS = {
    "mph": "mile / hour", "kph": "kilometer / hour", "kmh": "kilometer / hour", "sqm": "meter^2", "cc": "centimeter^3",
}  # fmt: skip
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7, "billion": 10**9,
    "trillion": 10**12, "quadrillion": 10**15,
}  # fmt: skip
SCALES = (
    _SCALES
    | {f"{word}s": value for word, value in _SCALES.items()}
    | {word: value for value, words in FOREIGN_SCALES.items() for word in words}
)
"""Words that multiply the number before them, without accents. ``billion`` is the English one."""
PRIME, DOUBLE_PRIME = "'", "''"
"""Units written as signs, which may not be missing."""
_GENERIC = frozenset(("unit", "unit^2", "unit^3", "total", "u", "of"))
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3", "squared": "^2", "cubed": "^3"}
_PARTS_OF_UNITS = """
day 24 hour
hour 60 minute
minute 60 second
week 7 day
year 12 month
yard 3 foot
foot 12 inch
meter 100 centimeter
kilometer 1000 meter
kilogram 1000 gram
pound 16 ounce
"""
_SUBUNITS = {(whole, part): int(count) for whole, count, part in map(str.split, _PARTS_OF_UNITS.strip().splitlines())}
"""How many of a smaller unit make a larger one, in compound measures."""
_CURRENCIES = frozenset(("dollar", "euro"))
_MEASURE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)")
# ``5 ft 11 in``, ``3 hours and 20 minutes``.
_COMPOUND_MEASURE = re.compile(rf"\s*{_MEASURE.pattern}(?:\.?,?\s*(?:and\s+)?{_MEASURE.pattern}){{1,3}}\.?\s*")
# A word or sign, a power, a bracket or slash; other digits one by one.
_SPLIT = re.compile(r"[A-Za-z°%¢$]+|\^ ?\{?-?\d|[/()]|[^\W\d_]+|\d")
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_PER_CENT = re.compile(r"\b(?:per|por|pour)[ -](?:ciento|cento|cent)\b", re.IGNORECASE)
TEMPERATURES = {"c": "celsius", "celsius": "celsius", "f": "fahrenheit", "fahrenheit": "fahrenheit"}
"""Scales of temperature after a degree sign."""
_SYMBOLS = "m s h g l L N J W V K km cm mm nm kg mg ml mL kJ Hz mol min eV rad"
_OHM = {r"\Omega": "ohm"}
SYMBOLS = {symbol: _UNITS[symbol.lower()] for symbol in _SYMBOLS.split()} | _OHM
"""Case-sensitive unit symbols."""


def is_unit(word: str) -> bool:
    """Whether a word names a known unit."""
    lower = word.lower()
    return _canonical(word) in _KNOWN or lower in _ABBREVIATIONS or lower in _POWERS or plain(word) in SCALES


def is_known_unit(name: str) -> bool:
    """Whether a canonical name, as of ``unit_name``, consists of known units only."""
    parts = re.split(r"[/·\s]+", name)
    return all(part.partition("^")[0] in _KNOWN or part in (PRIME, DOUBLE_PRIME) for part in parts)


def unit_name(words: str) -> str:
    """The canonical name of a unit: ``Square Centimeters`` and ``cm^2`` are ``centimeter^2``, ``m per s`` is
    meter/second.

    Products of known units are multiplied out in a fixed order: ``km h^-1`` is kilometer/hour, ``J/(mol K)``
    joule/kelvin/mole. Unknown words are kept in the singular; ``units`` and articles are dropped.
    """
    parts = _factors(_PER_CENT.sub("percent", words) if "cent" in words else words)
    units = [part.partition("^")[0] for part in parts if part not in ("/", "(", ")")]
    if parts and _KNOWN.issuperset(units):
        return format_units(_powers(parts))
    name = " ".join(part for part in parts if part not in _GENERIC and part not in ("(", ")"))
    return name.replace(" / ", "/").replace("/ ", "/")


def _factors(words: str) -> list[str]:
    """The units as ``name^power``, with ``/`` and brackets between them."""
    parts: list[str] = []
    # A power that is written before its unit: square metres.
    power = ""
    for word in _SPLIT.findall(words):
        lower = word.lower().strip(".")
        if lower in ("a", "an", "the", "total", "cdot", "times"):
            continue
        if lower in ("per", "/", "(", ")"):
            parts.append("/" if lower == "per" else lower)
        elif word[0] == "^" or word.isdigit():
            if parts:
                parts[-1] += "^" + word.strip("^{ ")
        elif lower in ("squared", "cubed") and parts:
            parts[-1] += _POWERS[lower]
        elif lower in _POWERS:
            power = _POWERS[lower]
        elif lower in TEMPERATURES and parts[-1:] == ["degree"]:
            parts[-1] = TEMPERATURES[lower]
        else:
            # mph has several parts.
            parts.extend(_ABBREVIATIONS.get(lower, "").split() or [_canonical(word) + power])
            power = ""
    return parts


def _powers(parts: list[str]) -> dict[str, int]:
    """The power of each unit; ``/`` divides by the next unit or bracket."""
    powers: Counter[str] = Counter()
    # A slash turns the sign for the next unit only, or until its bracket closes.
    sign, in_brackets = 1, False
    for part in parts:
        if part == "/":
            sign = -1
        elif part == "(":
            in_brackets = True
        elif part == ")":
            sign, in_brackets = 1, False
        else:
            name, _, power = part.partition("^")
            powers[name] += sign * int(power or 1)
            if not in_brackets:
                sign = 1
    return powers


def format_units(powers: dict[str, int]) -> str:
    """The canonical name of a product of powers of units."""
    ordered = [(name, power) for name, power in sorted(powers.items()) if power]
    above = "·".join(_with_power(name, power) for name, power in ordered if power > 0)
    # Without a unit above the line, those below it have negative powers: second^-1.
    if not above:
        return "·".join(starmap(_with_power, ordered))
    below = "".join(f"/{_with_power(name, -power)}" for name, power in ordered if power < 0)
    return above + below


def _with_power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


def _canonical(word: str) -> str:
    bare = word.strip(".")
    # Before the case is dropped, which tells mW from MW.
    if bare in _SCIENTIFIC:
        return _SCIENTIFIC[bare]
    lower = plain(bare)
    # ``ss`` ends no plural, as in mass; neither do short words, as in gas.
    is_plural = len(lower) > 3 and lower.endswith("s") and not lower.endswith("ss")
    singular = lower[:-1] if is_plural else lower
    return _UNITS.get(lower) or _UNITS.get(singular) or _WRITTEN_OUT.get(lower) or singular


def join_percent(words: list[str]) -> list[str]:
    """The words with ``per cent``, ``pour cent``, ``por ciento`` and ``per cento`` as one."""
    if not any(word.lower() in ("cent", "cento", "ciento") for word in words) and "-cent" not in "".join(words):
        return words
    return _PER_CENT.sub("percent", " ".join(words)).split()


def scaled(word: str) -> tuple[int, str]:
    """The factor of a word that multiplies the number before it and the rest of the word; 1 for other words.

    In Chinese what is counted follows without a space: ``12万元``.
    """
    bare = plain(word)
    if bare in SCALES:
        return SCALES[bare], ""
    if not bare.isascii() and bare[0] in SCALES and not is_unit(bare):
        return SCALES[bare[0]], word[1:]
    return 1, word


def parse_compound(text: str) -> tuple[Fraction, str] | None:
    """A compound measure in its smallest unit: ``3 hours and 20 minutes`` is 200, ``minute``; money in the larger."""
    if not _COMPOUND_MEASURE.fullmatch(text):
        return None
    measures = [(Fraction(amount), _canonical(word)) for amount, word in _MEASURE.findall(text)]
    (total, unit), *smaller = measures
    if unit in _CURRENCIES and len(smaller) == 1:
        cents, name = smaller[0]
        if name == "cent":
            return total + cents / 100, unit
    # From the largest unit to the smallest, as the digits of a number are read.
    for amount, part in smaller:
        parts_of_unit = _SUBUNITS.get((unit, part))
        if parts_of_unit is None:
            return None
        total = total * parts_of_unit + amount
        unit = part
    return total, unit


def is_compound(text: str) -> bool:
    """Whether a text is a sum of measures in several units: ``2 h 30 min``."""
    without_commands = _TEXT_COMMAND.sub(r" \1 ", text)
    bare = " ".join(without_commands.split())
    return _COMPOUND_MEASURE.fullmatch(bare) is not None


def ratio_of_units(larger: str, smaller: str) -> Fraction | None:
    """How many of one unit make one of another, of those that compound measures have; None if they measure different
    things.
    """
    # The number of each unit that makes one of the larger one. A pass over the table reaches at least one more unit
    # of the kind, so that as many passes as it has rows reach all of them.
    ratios = {larger: Fraction(1)}
    for _ in _SUBUNITS:
        for (whole, part), count in _SUBUNITS.items():
            if whole in ratios:
                ratios.setdefault(part, ratios[whole] * count)
            elif part in ratios:
                ratios[whole] = ratios[part] / count
    return ratios.get(smaller)


def compatible(a: str, b: str) -> bool:
    """Whether two units may be equal: the same, one missing, or one a longer name (``distinct integers``).

    A degree sign alone may be any scale of temperature.
    """
    if a == b or not a or not b:
        return True
    if "degree" in (a, b) and {a, b} & {"celsius", "fahrenheit"}:
        return True
    words, other_words = set(a.split()), set(b.split())
    is_longer_name = words <= other_words or other_words <= words
    # A longer name of a known unit is another unit: square meter.
    return is_longer_name and not (words | other_words) & _KNOWN


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
_CONJUNCTIONS = """
and or nor but than versus vs instead rather except excluding excluded without unless if when where while whenever
provided assuming depending given otherwise else with for is are was were be am isn't aren't
"""
_DOUBTS = """
not no none neither never wrong incorrect false untrue invalid impossible maybe perhaps possibly probably presumably
likely roughly approximately approx about around nearly almost circa ish least most minimum maximum other another etc
also both alternatively respectively resp onwards upwards upward above below beyond under over
"""
_ADJACENT = """
half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth
ninths tenth tenths hundredth hundredths thousandth thousandths millionth millionths squared cubed score scores gross
doz mil mils mio mln bln mn bn tn lac lacs arab kharab wan myriad tens multiple mega giga milli micro nano point grand
x y z of to from by at past off between among until till into
"""
_LAST = """
more less fewer greater higher lower larger bigger smaller extra short odd even real imaginary positive negative double
triple treble quadruple square sq cube cubic cu binary octal hexadecimal hex ternary
"""

ALWAYS_CHANGING = frozenset((_OPERATIONS + _CONJUNCTIONS + _DOUBTS).split()) | NUMBERS.keys() | SCALES.keys()
_CHANGING_IF_ADJACENT = frozenset(_ADJACENT.split())
"""Words that change a value only directly after it: ``12 of``, but not ``12 cups of tea``."""
_CHANGING_IF_LAST = frozenset(_LAST.split())
"""Words that change a value unless a noun follows: ``12 more``, but not ``12 more apples``."""
VALUE_CHANGING = ALWAYS_CHANGING | _CHANGING_IF_ADJACENT | _CHANGING_IF_LAST | {"times", "root", "roots"}
"""Every word that may change the value before it."""
_MAGNITUDES = frozenset("kMBT")
_PERCENT = frozenset(("percent", "%", "pct", "percentage"))
_RATES = frozenset(("per", "a", "an", "each", "every", "in", "daily"))
_BASES = frozenset(("binary", "octal", "hexadecimal", "hex", "ternary"))
_NUMERALS = frozenset(
    ("notation", "form", "system", "representation", "numeral", "number", "expansion", "code", "base")
)
_FILLERS = (
    "in total, en total, au total, in totale, insgesamt, zusammen, всего, in all, altogether, overall, only, exactly,"
    " total, each"
)
FILLER = tuple(tuple(phrase.split()) for phrase in _FILLERS.split(", "))
"""Words at the end that say nothing about the value."""
# ``au carré``, ``al cubo``: the number before it is raised to a power.
_RAISED = re.compile(r"\b(?:au|al)\s+(?:carre|cube|cuadrado|cubo|quadrato)\b")
_AROUND = ".,;:!()[]\"'`"


def unit_words(value: Expr, words: Sequence[str]) -> list[str]:
    """The words of the unit or the thing counted, without fillers and the value in words: ``5 (five)``.

    Raises ParseError if they change the value, or cast doubt on it.
    """
    bare = [word.lower().strip(_AROUND) for word in words]
    size = len(bare)
    repeats_value = size == 1 and bare[0] in NUMBERS and value == num(NUMBERS[bare[0]])
    if repeats_value:
        return []
    for phrase in FILLER:
        if tuple(bare[size - len(phrase) : size]) == phrase:
            size -= len(phrase)
    raised = _RAISED.match(plain(" ".join(bare)))
    bare = bare[:size]
    if not bare and not raised:
        return []
    # In their own case: 12k and 12M are numbers, 12 m is a length.
    if words[0] in _MAGNITUDES or any(_changes_value(bare, at) for at in range(size)):
        raise ParseError("words")
    # 千米, kilometres, begins with the sign for thousand.
    if raised or multiplies(bare) or any(changes_number(word) and not is_unit(word) for word in bare):
        raise ParseError("words")
    return list(words[:size])


def _changes_value(words: list[str], at: int) -> bool:
    """Whether a word after a value changes it."""
    word = words[at]
    before = words[at - 1] if at else ""
    after = words[at + 1] if at + 1 < len(words) else ""
    # "left to right" and "left over" say nothing about the value.
    if (before == "to" and word not in NUMBERS) or (before, word) == ("left", "over"):
        return False
    if word[:1].isdigit() or "?" in word or word in ALWAYS_CHANGING:
        return True
    is_adjacent = at == 0 or (at == 1 and before in _PERCENT)
    if is_adjacent and word in _CHANGING_IF_ADJACENT:
        return True
    if word == "times":
        return after != "" and after not in _RATES
    if word == "of":
        return words[0] in _PERCENT or before == "cent"
    if word in ("root", "roots"):
        return before in ("square", "cube", "cubic")
    if word in _BASES and (before == "in" or after in _NUMERALS):
        return True
    return word in _CHANGING_IF_LAST and not after

"""Quantities that a question asks for by name (``the mean, the median and the mode``), and answers that name them."""

import re
from functools import lru_cache

from magcli.verify.math.asked.requests import MAX_QUESTION
from magcli.verify.math.latex.spelling import normalize
from magcli.verify.math.latex.tree import Expr
from magcli.verify.math.latex.units import is_known_unit, unit_name

MAX_ANSWER = 300

# ---- names that a question lists ----

# Words that no name of a quantity contains: before them it ends.
_STOP = (
    r"of|for|that|such|so|with|without|if|when|where|while|why|how|in|into|is|are|was|were|to|from|by|at|on|as|which|who"
    r"|whose|and|or|nor|all|any|both|each|every|than|then|between|using|satisfying|given|the|an?|not|values?"
)
_WORD = rf"(?!(?:{_STOP})\b)[a-z][a-z'-]+"
# A letter with its index, or up to four words.
_NAME = rf"(?:\$?[A-Za-z](?:_\{{?\w\}}?)?\$?(?![\w'-])|{_WORD}(?: {_WORD}){{0,3}})"
_LISTED_NAMES = re.compile(
    r"\b(?:find|what (?:are|is)|determine|give|compute|calculate|state|identify|evaluate)\s+(?:the\s+)?"
    rf"(?:values?\s+of\s+)?(?P<names>{_NAME}(?:\s*,\s*(?:the\s+)?{_NAME})*)\s*,?\s+and\s+(?:the\s+)?(?P<last>{_NAME})(?![\w'-])",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def asked_names(question: str) -> tuple[str, ...]:
    """The names of the quantities that a question asks for, in its order; empty unless it lists several."""
    if len(question) > MAX_QUESTION or " and " not in question:
        return ()
    listed = _LISTED_NAMES.search(question)
    if listed is None:
        return ()
    written = [*re.split(r"\s*,\s*", listed["names"]), listed["last"]]
    names = tuple(re.sub(r"^the\s+", "", name.strip("$ "), flags=re.IGNORECASE) for name in written)
    are_distinct = len(set(names)) == len(names)
    return names if are_distinct else ()


def asks_for_named(question: str, gold: Expr) -> bool:
    """Whether a question lists as many names as the ground truth has values, which so belong to them in order.

    Tuples are no values of letters but several solutions.
    """
    names = asked_names(question)
    if not len(gold.args) == len(names) > 1:
        return False
    return len(names[0]) > 1 or all(part.op != "tuple" for part in gold.args)


# ---- answers with names in words ----

_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}")
# A name in words before or after a number, which most answers lack.
_MAY_HAVE_NAMES = re.compile(r"(?<![\\A-Za-z])[A-Za-z][A-Za-z' -]*[A-Za-z][\s:=}]*-?[\d.\\$(]|\d[\s\\]*[rR]")
_SEPARATOR = re.compile(r"[,;]|\band\b")
# Commas outside brackets, and conjunctions.
_PARTS = re.compile(r"\s*[,;](?![^(]*\))\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)
# ``mean: 4``, ``the mean is 4``, ``Ben 6``.
_LABELLED = re.compile(
    r"(?:the\s+)?(?P<label>[A-Za-z][A-Za-z' -]*[A-Za-z])(?:\s*[:=]\s*|\s+(?:is|are|of|equals)\s+|\s+)"
    r"(?P<value>[-+\d.\\$(].*)",
    re.IGNORECASE,
)
_WITH_REMAINDER = re.compile(r"(?P<quotient>-?\d+)\s*,?\s*(?:remainder|rem\.?|r\.?)\s*:?\s*(?P<remainder>-?\d+)", re.I)


def in_asked_order(text: str, question: str) -> str:
    """Values with names in words as a list in the order in which a question asks for them: ``mean 4, median 3``.

    Anything else is returned as it is.
    """
    if len(text) > MAX_ANSWER or not _MAY_HAVE_NAMES.search(text):
        return text
    names = asked_names(question)
    if not names:
        return text
    bare = _without_text_commands(text)
    # 7 r 2
    remainder = _WITH_REMAINDER.fullmatch(bare)
    last_words = [name.split()[-1].lower() for name in names]
    if remainder and last_words == ["quotient", "remainder"]:
        return f"{remainder['quotient']}, {remainder['remainder']}"
    values = _values_of(names, _labelled(bare))
    return ", ".join(values) if values else text


def by_labels(answer: str, gold: str) -> tuple[str, str] | None:
    """Two answers with the same names in words as tuples in one order: ``Ben 6, Anna 12``; None for any others."""
    if max(len(answer), len(gold)) > MAX_ANSWER:
        return None
    if not (_MAY_HAVE_NAMES.search(gold) and _SEPARATOR.search(gold)):
        return None
    wanted = _labelled(_without_text_commands(gold))
    names = tuple(label for label, _ in wanted)
    if len(names) < 2 or len(set(names)) < len(names):
        return None
    values = _values_of(names, _labelled(_without_text_commands(answer)))
    if not values:
        return None
    wanted_values = [value for _, value in wanted]
    # In brackets, so that the order counts.
    return f"({', '.join(values)})", f"({', '.join(wanted_values)})"


def _without_text_commands(text: str) -> str:
    return " ".join(_TEXT_COMMAND.sub(r" \1 ", normalize(text)).split())


def _labelled(text: str) -> list[tuple[str, str]]:
    """The names and values of a list in which each value has a name in words; empty for anything else."""
    parts = [_LABELLED.fullmatch(part) for part in _PARTS.split(text)]
    labelled = [(match["label"].lower(), match["value"]) for match in parts if match]
    # Fewer, if a part has no name.
    return labelled if len(labelled) == len(parts) else []


def _values_of(names: tuple[str, ...], labelled: list[tuple[str, str]]) -> list[str]:
    """The values in the order of the names; empty unless each name has one."""
    values = {_position(label, names): value for label, value in labelled}
    positions = range(len(names))
    # A label that matches no name, or two of one name, leave a gap.
    complete = len(labelled) == len(names) and sorted(values) == list(positions)
    return [values[at] for at in positions] if complete else []


def _position(label: str, names: tuple[str, ...]) -> int:
    """Which of the names a label is: the only one that has a word in common with it; -1 for none or several."""
    words = set(label.lower().split())
    matching = [at for at, name in enumerate(names) if words & set(name.lower().split())]
    return matching[0] if len(matching) == 1 else -1


# ---- dimensions ----

_SIZE = r"\d+(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\{\d+\}\{\d+\}|\d*\\sqrt\{\d+\}"
_MEASURED = rf"(?:{_SIZE})(?:\s*[A-Za-z]+)?"
_BY = re.compile(rf"{_MEASURED}(?:\s+by\s+{_MEASURED}){{1,2}}")
_TIMES = r"\s*(?:\\times(?![A-Za-z])|×|x|X|\*)\s*"
# ``7 cm x 9 cm``: x is a sign here, not a unit.
_BY_SIGN = re.compile(rf"(?:{_SIZE})(?:\s*(?![xX])[A-Za-z]+)?(?:{_TIMES}(?:{_SIZE})(?:\s*(?![xX])[A-Za-z]+)?){{1,2}}")
_DIMENSIONS = re.compile(
    r"\bdimensions?\b|\bmeasurements\b|\b(?:order|size|shape)\b.*\bmatri|\bmatri.*\b(?:order|size|shape)\b|Abmessungen|dimensiones|dimensioni|размеры|尺寸",
    re.IGNORECASE,
)
_MATRIX = re.compile(r"\bmatri(?:x|ces)\b|matrix|matrice|матриц|矩阵", re.IGNORECASE)


_MAY_BE_SIZES = re.compile(r"\d[^,;=]*(?:\\times|[×xX*])[^,;=]*\d")


@lru_cache(maxsize=1024)
def _asks_for_dimensions(question: str) -> bool:
    return _DIMENSIONS.search(question) is not None


def dimensions_as_list(text: str, question: str) -> str:
    r"""``7 by 9``, or ``7\times 9`` as dimensions that a question asks for, as a list; those of a matrix as a pair."""
    if len(text) > MAX_ANSWER:
        return text
    # With signs it may be a product, unless the question asks for dimensions.
    if " by " not in text and not (_MAY_BE_SIZES.search(text) and _asks_for_dimensions(question)):
        return text
    bare = _without_text_commands(text)
    if _BY.fullmatch(bare):
        sizes = re.split(r"\s+by\s+", bare)
    elif _BY_SIGN.fullmatch(bare) and _asks_for_dimensions(question):
        sizes = re.split(_TIMES, bare)
    else:
        return text
    units = [unit for _, unit in map(_split_unit, sizes) if unit]
    # 3x by 4y are sides with letters.
    if not all(is_known_unit(unit_name(unit)) for unit in units):
        return text
    listed = ", ".join(map(_with_upright_unit, sizes))
    return f"({listed})" if _MATRIX.search(question) else listed


def _split_unit(size: str) -> tuple[str, str]:
    """The number of a measure and its unit, which may be empty."""
    measured = re.match(rf"(?:{_SIZE})", size)
    number = measured[0] if measured else ""
    return number, size[len(number) :].strip()


def _with_upright_unit(size: str) -> str:
    number, unit = _split_unit(size)
    return rf"{number}\text{{ {unit}}}" if unit else number

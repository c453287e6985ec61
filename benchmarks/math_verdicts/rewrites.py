"""Equivalent spellings and near misses of ground truths, whose labels follow from how they are made.

A spelling changes what is invisible in TeX or does not change the value (commas between thousands, a fraction as a
terminating decimal). A near miss changes one digit, the sign, a bracket or the order of a pair.
"""

import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction

Rewrite = Callable[[str], str]

_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_PAIR = re.compile(r"\((-?\d+),\s*(-?\d+)\)")

SPELLINGS: tuple[Rewrite, ...] = (
    lambda gold: re.sub(r"\\[dt]?frac", r"\\dfrac", gold),
    lambda gold: re.sub(r"\\[dt]frac", r"\\frac", gold),
    lambda gold: re.sub(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2", gold),
    lambda gold: _FRACTION.sub(r"\1\2/\3", gold) if _FRACTION.fullmatch(gold) else gold,
    lambda gold: _decimal(gold),
    lambda gold: gold.replace(r"\left", "").replace(r"\right", ""),
    lambda gold: re.sub(r"(?<!\\left)\((.*)\)", r"\\left(\1\\right)", gold) if gold.count("(") == 1 else gold,
    lambda gold: gold.replace(",", r",\ ") if gold.startswith(("(", r"\left(")) else gold,
    lambda gold: re.sub(r"^(\d{1,3})(\d{3})$", r"\1,\2", gold),
    lambda gold: re.sub(r"^(\d{1,3})(\d{3})$", r"\1{,}\2", gold),
    lambda gold: re.sub(r"^(-?\d+)$", r"\1.00", gold),
    lambda gold: re.sub(r"^(-?\d+)$", r"x = \1", gold),
    lambda gold: re.sub(r"^(-?\d+)$", r"\\text{\1}", gold),
    lambda gold: f"{gold}.",
    lambda gold: f"${gold}$",
    lambda gold: f"\\boxed{{{gold}}}",
    lambda gold: rf"\displaystyle {gold}",
    lambda gold: rf" {gold} \!",
    lambda gold: gold.replace(r"\sqrt{", r"\sqrt {").replace("^{2}", "^2"),
    lambda gold: gold.replace(r"^\circ", r"^{\circ}").replace(r"^{{\circ}}", r"^{\circ}"),
    lambda gold: gold.replace(r"\pi", "π").replace(r"\infty", "∞"),
    lambda gold: gold.replace(r"\cdot", r"\times"),
)


def labelled(golds: list[str], *, seed: int) -> Iterator[tuple[str, str, bool]]:
    """One other spelling and, where possible, one near miss of each ground truth."""
    rng = random.Random(seed)
    for gold in golds:
        spellings = [text for text in (rewrite(gold) for rewrite in SPELLINGS) if text.strip() != gold.strip()]
        yield rng.choice(spellings), gold, True
        misses = [text for text in _misses(rng, gold) if text != gold]
        if misses:
            yield rng.choice(misses), gold, False


def _decimal(gold: str) -> str:
    """A fraction as a decimal if it terminates within four places."""
    match = _FRACTION.fullmatch(gold)
    if match is None or not int(match[3]):
        return gold
    value = Fraction(int(match[2]), int(match[3]))
    return gold if 10_000 % value.denominator else f"{match[1]}{float(value):.4f}".rstrip("0").rstrip(".")


def _misses(rng: random.Random, gold: str) -> Iterator[str]:
    """One digit, the sign, a bracket, the order of a pair."""
    positions = [match.start() for match in re.finditer(r"\d", gold)]
    if positions:
        at = rng.choice(positions)
        yield f"{gold[:at]}{(int(gold[at]) + rng.randint(1, 9)) % 10}{gold[at + 1 :]}"
    if re.fullmatch(r"-?[1-9]\d*|-?\\[dt]?frac\{\d+\}\{\d+\}", gold):
        yield gold[1:] if gold.startswith("-") else f"-{gold}"
    if re.fullmatch(r"[\[(].*,.*[\])]", gold) and "\\infty" not in gold:
        yield gold[:-1] + {")": "]", "]": ")"}[gold[-1]] if gold[0] + gold[-1] != "()" else gold
    pair = _PAIR.fullmatch(gold)
    if pair and pair[1] != pair[2]:
        yield f"({pair[2]},{pair[1]})"

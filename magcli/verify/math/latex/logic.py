r"""Formulas of logic from their parts: ``p \land q``, ``\neg p``, ``p \to q``."""

from itertools import pairwise

from magcli.verify.math.latex.tree import Expr, Op

CONNECTIVES = (r"\lor", r"\oplus", r"\land")
"""From the loosest to the tightest."""
IMPLICATIONS = (r"\to", r"\iff")
_NODES: dict[str, Op] = {r"\lor": "or", r"\oplus": "xor", r"\land": "and"}
_PROPOSITIONS: frozenset[Op] = frozenset(
    ("sym", "const", "not", "and", "or", "xor", "forall", "exists", "f", "*", "rel")
)


def are_propositions(operands: list[Expr]) -> bool:
    """Whether operands are statements by letters, so that their connective is part of the answer.

    Relations and numbers joined by a connective are a set of values or a region instead.
    """
    relations = all(operand.op == "rel" and r"\to" not in operand.name for operand in operands)
    return not relations and all(operand.op in _PROPOSITIONS for operand in operands)


def formula(operands: list[Expr], signs: list[str], level: int = 0) -> Expr:
    """The operands joined by connectives with their usual precedence."""
    if not signs:
        return operands[0]
    connective = CONNECTIVES[level]
    # Divided at the loosest connective; the parts between have only tighter ones.
    starts = [0, *(at for at, sign in enumerate(signs, 1) if sign == connective)]
    parts = []
    for start, end in pairwise([*starts, len(operands)]):
        # Between n operands there are n-1 signs.
        inner_signs = signs[start : end - 1]
        parts.append(formula(operands[start:end], inner_signs, level + 1))
    return parts[0] if len(parts) == 1 else Expr(_NODES[connective], tuple(parts))

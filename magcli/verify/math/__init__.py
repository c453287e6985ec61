"""Whether a math answer equals the ground truth: parsing (``latex``), equality of trees (``equality``), and the two
together (``compare``)."""

from magcli.verify.math.compare import (
    MAX_CHARS,
    MAX_WORDS,
    compare,
    correct_anywhere,
    equal,
    extract,
    extract_gold,
    last_number,
    parsable,
)

__all__ = [
    "MAX_CHARS",
    "MAX_WORDS",
    "compare",
    "correct_anywhere",
    "equal",
    "extract",
    "extract_gold",
    "last_number",
    "parsable",
]

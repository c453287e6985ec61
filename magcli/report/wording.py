"""Numbers, times and foreign texts as a page tells them."""

import math
import unicodedata
from collections.abc import Mapping
from pathlib import Path

LONGEST_TEXT = 4_000
"""Characters of a prompt, completion or row on the page; longer ones are cut there, and whole in their tables."""
LINE_ENDS = "\n\t"


def number(value: float) -> str:
    """At most four significant digits, thousands parted by commas, what is very small with an exponent."""
    if value != value:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2g}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"


def share(value: float) -> str:
    """A share of one in percent."""
    return f"{100 * value:.1f} %" if value == value else "-"


def duration(seconds: float) -> str:
    """Seconds in the two units that suit them."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def tail(path: str) -> str:
    """What tells a model or file apart: the last two parts of its path."""
    return "/".join(Path(path).parts[-2:])


def by_size(counts: Mapping[str, float]) -> dict[str, float]:
    """Counts by name, the largest first, those of nothing left out."""
    return {name: count for name, count in sorted(counts.items(), key=lambda item: -item[1]) if count}


def foreign(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text that others wrote, so that nothing in it is unseen: control characters as the pictures that Unicode has
    for them, marks that turn the direction of writing by their number; cut at ``longest`` characters.
    """
    shown = "".join(map(_visible, text[:longest]))
    return shown if len(text) <= longest else f"{shown} [... {len(text) - longest:,} more characters]"


def _visible(letter: str) -> str:
    kind = unicodedata.category(letter)
    if letter in LINE_ENDS or kind not in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return letter
    if ord(letter) < 0x20:
        return chr(0x2400 + ord(letter))
    return letter if letter == "\u200d" else f"[U+{ord(letter):04X}]"

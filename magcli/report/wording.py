"""Numbers, times and foreign texts as a page tells them."""

import math
from collections.abc import Mapping
from pathlib import Path

from magcli.console import visible

LONGEST_TEXT = 4_000
"""Characters of a prompt, completion or row on the page; longer ones are cut there, and whole in their tables."""


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
    """A text that others wrote, ``visible`` and cut at ``longest`` characters."""
    shown = visible(text[:longest])
    return shown if len(text) <= longest else f"{shown} [... {len(text) - longest:,} more characters]"

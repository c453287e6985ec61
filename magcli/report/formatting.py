"""Format numbers, durations and untrusted text for the report."""

from collections.abc import Mapping
from pathlib import Path

from magcli.console import visible

MAX_TEXT = 4_000
"""Prompts and completions on the page are truncated to this many characters."""


def number(value: float) -> str:
    """Four significant digits, thousands separators, an exponent for very small values."""
    if value != value:  # NaN
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2g}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"


def percent(value: float) -> str:
    """A fraction as a percentage."""
    return f"{100 * value:.1f} %" if value == value else "-"


def short_path(path: str) -> str:
    """The last two parts of a path, enough to recognise a model or file."""
    return "/".join(Path(path).parts[-2:])


def largest_first(counts: Mapping[str, float]) -> dict[str, float]:
    """Non-zero counts in descending order."""
    return {name: count for name, count in sorted(counts.items(), key=lambda item: -item[1]) if count}


def sanitize(text: str, limit: int = MAX_TEXT) -> str:
    """Untrusted text with control characters made visible, truncated to ``limit`` characters."""
    # Cut first, because what is made visible gets longer.
    shown = visible(text[:limit])
    return shown if len(text) <= limit else f"{shown} [... {len(text) - limit:,} more characters]"

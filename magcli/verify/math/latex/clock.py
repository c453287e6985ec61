"""Times of day: ``2:35 PM``, ``14:35 Uhr``, ``14h35``, ``14点35分``.

A time with AM or PM is a ratio named ``clock`` on the 24-hour clock. Other times are ratios named ``time``, like the
bare ``14:35``, which may be of either half of the day up to 12:59.
"""

import re

from magcli.verify.math.latex.tree import Expr, num

MAX_TIME = 40
_MINUTES = r":(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d))?"
_HALF = r"(?P<half>[aApP])\.?\s?[mM]\.?"
_HALVES = re.compile(rf"(?P<hours>\d{{1,2}})(?:{_MINUTES})?\s*{_HALF}")
# ``14.35 Uhr``, ``14:35 h``, ``14 Uhr 35``, ``14h35``.
_WHOLE_DAY = (
    re.compile(r"(?P<hours>\d{1,2})[:.](?P<minutes>[0-5]\d)\s*[Uu]hr"),
    re.compile(r"(?P<hours>\d{1,2}):(?P<minutes>[0-5]\d)\s*(?:h|hrs?|ore|heures|horas|часов|часа|час|ч)\.?"),
    re.compile(r"(?P<hours>\d{1,2})\s*(?:[Uu]hr|[点點时時])\s*(?P<minutes>[0-5]\d)\s*分?"),
    re.compile(r"(?P<hours>\d{1,2})\s?[hH]\s?(?P<minutes>[0-5]\d)"),
)
MAX_HOUR, NOON = 24, 12


def parse_time(text: str) -> Expr | None:
    """The time of day that a text is; None for anything else."""
    if len(text) > MAX_TIME or not text[:1].isdigit():
        return None
    if halves := _HALVES.fullmatch(text):
        return _on_half_day(halves)
    for form in _WHOLE_DAY:
        written = form.fullmatch(text)
        if written and int(written["hours"]) <= MAX_HOUR:
            return _time(int(written["hours"]), written["minutes"], None, "time")
    return None


def _on_half_day(written: re.Match[str]) -> Expr | None:
    """A time with AM or PM; None for hours that the 12-hour clock does not have."""
    hours = int(written["hours"])
    if not 1 <= hours <= NOON:
        return None
    afternoon = NOON if written["half"] in "pP" else 0
    return _time(hours % NOON + afternoon, written["minutes"], written["seconds"], "clock")


def _time(hours: int, minutes: str | None, seconds: str | None, kind: str) -> Expr:
    parts = [hours, int(minutes or 0)]
    # 14:35:00 is 14:35.
    if int(seconds or 0):
        parts.append(int(seconds or 0))
    return Expr("ratio", tuple(map(num, parts)), kind)


def same_time(a: Expr, b: Expr) -> bool:
    """Whether two times of day, one with AM or PM, are one.

    A bare time is on the 24-hour clock only where the hour shows it.
    """
    bare = a if a.name == "time" else b
    hour = bare.args[0].number
    # 2:35 may be in the afternoon, but 14:35 and 0:35 cannot.
    return a.args == b.args and (bare.name != "time" or hour > NOON or hour == 0)

"""Dates in the seven languages of the recipe, and ISO dates: ``July 4, 2023`` is ``4 July 2023``."""

import re

from magcli.verify.math.latex.wording import plain

MAX_DATE = 40
_MONTHS = """
january jan januar janvier enero gennaio января
february feb februar fevrier febrero febbraio февраля
march mar marz mars marzo марта
april apr avril abril aprile апреля
may mai mayo maggio мая
june jun juni juin junio giugno июня
july jul juli juillet julio luglio июля
august aug aout agosto августа
september sept sep septembre septiembre settembre сентября
october oct okt oktober octobre octubre ottobre октября
november nov novembre noviembre ноября
december dec dez dezember decembre diciembre dicembre декабря
"""
_NUMBERS = {name: month for month, names in enumerate(_MONTHS.strip().splitlines(), 1) for name in names.split()}
_NAME = r"(?P<month>[^\W\d_]{3,12})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?"
# Also ``de 2023`` and ``2023 года``.
_YEAR = r"(?:\s*,?\s*(?:of|de|del|год[ау]?)?\s*(?P<year>\d{4})(?:\s*г\.?|\s*года?)?)?"
_FORMS = (
    re.compile(rf"{_NAME}\.?\s+{_DAY}{_YEAR}"),
    re.compile(rf"(?:the\s+|le\s+|el\s+|il\s+|am\s+)?{_DAY}\s+(?:of\s+|de\s+)?{_NAME}{_YEAR}"),
    re.compile(r"(?P<year>\d{4})-(?P<number>\d{2})-(?P<day>\d{2})"),
    re.compile(r"(?:(?P<year>\d{4})\s*年\s*)?(?P<number>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*日"),
)

# A number beside a name, which most answers lack, so that the forms need not be tried.
_LIKE_A_DATE = re.compile(r"\d[^\W\d_]{0,2}[ .]{1,2}(?:of |de )?[^\W\d_]{3}|[^\W\d_]{3}\.?\s+\d|\d-\d\d-|月")


def parse_date(text: str) -> str:
    """A date as year-month-day, without a year as month-day; empty for anything else."""
    if len(text) > MAX_DATE or "\\" in text or not _LIKE_A_DATE.search(text):
        return ""
    for form in _FORMS:
        match = form.fullmatch(text.strip())
        if match is None:
            continue
        # Of the number and the name of the month, a form has one.
        parts = match.groupdict()
        number, name = parts.get("number"), parts.get("month") or ""
        month = int(number) if number else _NUMBERS.get(plain(name), 0)
        day = int(parts["day"])
        if 1 <= month <= 12 and 1 <= day <= 31:
            year = f"{parts['year']}-" if parts.get("year") else ""
            return f"{year}{month:02}-{day:02}"
    return ""


_SHORT_NAMES = """
monday mon
tuesday tue tues
wednesday wed weds
thursday thu thur thurs
friday fri
saturday sat
sunday sun
january jan
february feb
march mar
april apr
june jun
july jul
august aug
september sep sept
october oct
november nov
december dec
"""
_FULL_NAMES = {
    short: name for name, *abbreviations in map(str.split, _SHORT_NAMES.strip().splitlines()) for short in abbreviations
}


def abbreviates(short: str, name: str) -> bool:
    """Whether a word is the usual abbreviation of an English weekday or month: ``thurs`` for ``thursday``."""
    return _FULL_NAMES.get(short.lower()) == name.lower()

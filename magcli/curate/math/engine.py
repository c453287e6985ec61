"""The engine of the rules: a word that gives a rule away, then its regular expression.

A rule is one row of a table (``magcli.curate.math.rules``). Looking for words costs nothing beside a regular
expression, and most texts hold none of a rule's; that keeps the filter at thousands of rows a second.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

Language = Literal["en", "zh", "any"]


class Rule(NamedTuple):
    """One row of the table.

    ``reason`` names what a match shows, ``trigger`` the words of which the text must contain one in lower case,
    separated by ``|`` (empty: no word gives the rule away); ``example`` matches, and ``counter`` looks alike and must
    not. A rule for Chinese is not tried on ASCII text.
    """

    id: str
    reason: str
    language: Language
    trigger: str
    pattern: str
    example: str
    counter: str


class Compiled(NamedTuple):
    """A rule ready to be tried."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    chinese: bool


class Engine:
    """A table of rules, compiled and sorted by reason."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_reason: dict[str, list[Compiled]] = {}
        for rule in rules:
            words = tuple(rule.trigger.split("|")) if rule.trigger else ()
            compiled = Compiled(words, re.compile(rule.pattern, re.I | re.M), rule.language == "zh")
            self.by_reason.setdefault(rule.reason, []).append(compiled)

    def every(self, reason: str, text: str) -> Iterator[re.Match[str]]:
        """All matches of all rules of a reason, rule by rule."""
        for pattern in self._tried(reason, text):
            yield from pattern.finditer(text)

    def first(self, reason: str, text: str) -> re.Match[str] | None:
        """The first match of the first rule of a reason that has one."""
        return next(filter(None, (pattern.search(text) for pattern in self._tried(reason, text))), None)

    def matches(self, reason: str, text: str) -> bool:
        """Whether a rule of a reason matches."""
        return self.first(reason, text) is not None

    def words(self, reason: str, text: str) -> str:
        """What the first match of a reason says; empty where there is none."""
        found = self.first(reason, text)
        return found[0].strip(" .;:!?,\n") or reason if found else ""

    def replaced(self, reason: str, text: str, replacement: str | Callable[[re.Match[str]], str]) -> str:
        """A text with each match of a reason replaced."""
        for pattern in self._tried(reason, text):
            text = pattern.sub(replacement, text)
        return text

    def _tried(self, reason: str, text: str) -> Iterator[re.Pattern[str]]:
        """The patterns of a reason whose words and language the text has."""
        lowered, english = text.lower(), text.isascii()
        for words, pattern, chinese in self.by_reason[reason]:
            if not (english and chinese) and (not words or any(word in lowered for word in words)):
                yield pattern

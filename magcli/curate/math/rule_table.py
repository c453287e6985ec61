"""A table of rules: regular expressions, each tried only on texts that contain one of its trigger words.

Searching for words costs little compared to a regular expression, and most texts contain none of a rule's; this keeps
the filter at thousands of rows a second.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

Language = Literal["en", "zh", "any"]


class Rule(NamedTuple):
    """One row of the table.

    ``reason`` says what a match means; several rules may share one. ``trigger``: lower-case words separated by ``|``,
    one of which the text must contain (empty: always tried). ``pattern`` matches ``example`` but not ``counter``, which
    looks similar. A rule for Chinese is not tried on ASCII text.
    """

    id: str
    reason: str
    language: Language
    trigger: str
    pattern: str
    example: str
    counter: str


class RuleTable:
    """Compiled rules by reason, in the order of the table."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_reason: dict[str, list[tuple[tuple[str, ...], re.Pattern[str], bool]]] = {}
        for rule in self.rules:
            words = tuple(rule.trigger.split("|")) if rule.trigger else ()
            pattern = re.compile(rule.pattern, re.I | re.M)
            self._by_reason.setdefault(rule.reason, []).append((words, pattern, rule.language == "zh"))

    def find_all(self, reason: str, text: str) -> Iterator[re.Match[str]]:
        """All matches of all rules of a reason, rule by rule."""
        for pattern in self._candidates(reason, text):
            yield from pattern.finditer(text)

    def find(self, reason: str, text: str) -> re.Match[str] | None:
        """The first match of the first rule of a reason that matches."""
        for pattern in self._candidates(reason, text):
            if match := pattern.search(text):
                return match
        return None

    def matches(self, reason: str, text: str) -> bool:
        """Whether a rule of a reason matches."""
        return self.find(reason, text) is not None

    def matched_text(self, reason: str, text: str) -> str:
        """The text of the first match without punctuation around it, or the reason if that is all; empty for none."""
        match = self.find(reason, text)
        if match is None:
            return ""
        return match[0].strip(" .;:!?,\n") or reason

    def replace(self, reason: str, text: str, replacement: str | Callable[[re.Match[str]], str]) -> str:
        """The text with each match of a reason replaced."""
        for pattern in self._candidates(reason, text):
            text = pattern.sub(replacement, text)
        return text

    def _candidates(self, reason: str, text: str) -> Iterator[re.Pattern[str]]:
        """The patterns of a reason that may match a text, by its words and language."""
        lowered = text.lower()
        is_english = text.isascii()
        for words, pattern, is_chinese in self._by_reason[reason]:
            if is_english and is_chinese:
                continue
            if not words or any(word in lowered for word in words):
                yield pattern

"""Questions that make no sense without their options, and how one that does is asked without them.

"Which of the following is a prime?" is answered by many numbers; "which of the following is its area?" by one.
"""

import re

from magcli.curate.math.choices import Choices
from magcli.curate.math.rules import ENGINE

_ASSIGNED = re.compile(r"[\s$]*[A-Za-z]\s*=\s*[^=,，;<>≠]+(?:[,，;、]\s*\$?\s*[A-Za-z]\s*=\s*[^=,，;<>≠]+)*")
_ENDS_IN_CHINESE = re.compile(r"[\u4e00-\u9fff][^\u4e00-\u9fff]{0,30}\Z")
_NUMBER = re.compile(r"[\s$]*[-+]?\d[\d.,/]*[\s$%]*[\u4e00-\u9fff]{0,3}")
_THREE_DIGITS = re.compile(r"[\D0]{0,20}[1-9](?:\D{0,9}\d){2}")


def needs_options(choices: Choices, content: str = "") -> bool:
    """Whether a question cannot be answered without seeing its options ("which of the following ...").

    "The following" in Chinese may be a table or a rule of the statement: before the last sentence it says nothing
    where the right option's ``content`` is a number. "Then ( )" asks nothing, but where the content tells values of the
    statement's letters. A statement in English and then in Chinese asks in Chinese.
    """
    stem, end = choices.stem, choices.stem[-300:]
    number = _NUMBER.fullmatch(content)
    return (
        "?" in choices.after
        or (not _ENDS_IN_CHINESE.search(end) and ENGINE.matches("needs-options", stem))
        or ENGINE.matches("needs-options-zh", stem)
        or (ENGINE.matches("following-zh-before-number", end) if number else ENGINE.matches("following-zh", stem))
        or (ENGINE.matches("then-what", end) and not _tells_letters(choices, content))
        or (ENGINE.matches("relation", content) and ENGINE.matches("then-relation", stem))
    )


def two_alike(choices: Choices) -> bool:
    """Whether two equations among the options read alike: the indices or signs that told them apart are lost."""
    equations = [
        re.sub(r"[\s${}.．]", "", each) for each in choices.contents.values() if re.search(r"[A-Za-z]\s*=", each)
    ]
    return len(set(equations)) < len(equations)


def without_following(choices: Choices, content: str) -> Choices:
    """ "Which of the following is the area?" as "what is the area?": one quantity, whose value needs no options.

    "Is closest to the area" goes too where the right option's ``content`` has three digits, so that it is the area,
    rounded.
    """
    stem = ENGINE.replaced("one-quantity", choices.stem, _what)
    if _THREE_DIGITS.match(content):
        stem = ENGINE.replaced("closest", stem, lambda found: f"what {found[1]} ")
    return choices._replace(stem=stem)


def _tells_letters(choices: Choices, content: str) -> bool:
    """Whether an option gives letters of the statement their values, as ``a=1, b=2``."""
    letters = re.findall(r"([A-Za-z])\s*=", content)
    alike = len(letters) > 1 or all(_ASSIGNED.fullmatch(each) for each in choices.contents.values())
    assigned = alike and _ASSIGNED.fullmatch(content)
    return bool(assigned) and all(re.search(rf"(?<![A-Za-z\\]){each}(?![A-Za-z])", choices.stem) for each in letters)


def _what(asked: re.Match[str]) -> str:
    noun = (asked[1] or asked[3] or "").strip()
    singular = re.sub(r"ie\Z", "y", noun.removesuffix("s"))
    verb = asked[2] or asked[4]
    return " ".join(filter(None, ("What" if asked[0][0] == "W" else "what", singular, verb)))

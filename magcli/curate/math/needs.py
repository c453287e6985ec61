"""Questions that make no sense without their options, and how one that does is asked without them.

"Which of the following is a prime?" is answered by many numbers; "which of the following is its area?" by one.
"""

import re

from magcli.curate.math.asks import holds
from magcli.curate.math.choices import Choices

_NAMES = "statement|graph|equation|expression|function|option|choice|answer|pair|number|inequalit|system|value|point"
_OF_A_KIND = r"(?:fraction(?!s?\s+of\b)|ratio|sequence|sum|calculation|product|result|decimal|percentage|card)s?"
_AMOUNT = r"(?:\$*\d[\d.,]*\$*|an?|one|two|three|four|five|six|seven|eight|nine|ten|half|twice)"
_ONE_NUMBER = (
    r"(?:number|value)\s+(?:does\s+(?!\W*not\b|n['’]t)"
    rf"|is\s+{_AMOUNT}\s+(?:\w+\s+){{0,2}}?(?:more|less|fewer|great|small|larg|bigg))"
)
"""What follows "which" and names one number: "which number is ten more than 8"."""
_STANDS_THERE = (
    r"(?!\s+(?:\w+\s+){0,3}?\w+\s*[?:.]?\s*(?:\$|\d)|\s+(?:\w+\s+){0,8}?\w+\s*[?:.．]\s+(?:\$|\d)"
    r"|\s+questions\b|[^?]{0,60}\(1\))"
)
"""What follows "the following" in the statement itself: a formula, numbers, a list, or questions."""
_BLANK_LAST = r"[\s_.．:：()（）?~\\]*\Z"
_FOLLOWING = re.compile(
    r"\b(?!each\s+of\s+the\s+following\s+questions)(?:which|what|one|all|any|each|some|none|only|is|are)\s+(?:\w+\s+){0,2}?"
    r"(?:the\s*)?foll?owings?\b"
    rf"|\bof\s+(?:\w+\s+){{0,2}}?(?:the\s*)?following\b{_STANDS_THERE}"
    rf"|\bthe following\b{_STANDS_THERE}(?=[^.?]*[?:]?\s*$)",
    re.I,
)
_WHICH = re.compile(
    r"\A[^$\d]{0,60}\bwhich\s+one\s+(?:is|has|does|can|could|will|would)\b[^$\d]*\Z"
    r"|\bwhich\s+(?:(?:one\s+)?of\s+(?:these|those)\b"
    r"|(?:one\s+)?(?:(?:is|are)\s+(?:\W{0,2}\\\w+\{\s*)?(?:not\b|the\s+only\b|an?\s)|can\b|could\b|might\b)"
    rf"|(?!the\b|{_ONE_NUMBER})(?:\w+\s+){{0,2}}(?:{_NAMES})(?!s?\s+(?:comes?|should\s+come|goes|will\s+come|is\s+missing|did))"
    rf"|(?<!in which )(?<!for which ){_OF_A_KIND}\s+(?:below\s+)?(?:is|are|has|have|does|do|can|could|equals?)\b)"
    r"|\bin\s+which\s+number\b|\bfor\s+which\s*[:,]?\s*\Z",
    re.I,
)
_OPEN_WORDS = (
    *("these", "except", "such that", "satisf", "true", "what", "who is", "best ", "choose", "select", "pick"),
    *("circle", "divisible", "multiple", "factor", "divisor", "same as", "closest", "nearest"),
    *("equivalent", "identical", "antiderivative"),
)
_OPEN = re.compile(
    r"\bone\s+of\s+these\s+(?:statements|options)\b|\b(?:such\s+that|except|satisf(?:y|ies))\s*[:,]?\s*$"
    r"|\bnot (?:necessarily )?true\b|\bmust (?:also )?be true\b|\bwho\s+is\s+(?:correct|right|wrong)\b"
    r"|\bin\s+what\s+number\b|\bwhat\s+(?:could|can|might)\s+be\b|\bbest\s+(?:estimate|approximation)\b"
    r"|\A\W*(?:choose|select|pick|circle)\b[^$\d]*\Z|\b(?:choose|select|pick)\s+the\s+(?:closest|nearest|best)\s+answer\b"
    rf"|\b(?:divisible\s+by|an?\s+(?:multiple|factor|divisor)\s+of|(?:the\s+)?same\s+as){_BLANK_LAST}"
    r"|\b(?:(?:closest|nearest)|(?:equivalent|identical))\s+to\b|\ban\s+antiderivative\s+of\b",
    re.I,
)
_OPEN_ZH = re.compile(
    r"哪个|哪些|哪一|原函数[为是]|可以分别取|正确的是|错误的是|不正确|等价|不能作为"
    r"|(?:说法|命题|结论)[^，。,]{0,8}(?:正确|错误|成立|[真假]命题)"
    r"|(?:不会|不能|不可能)[^，。,]{0,8}的[^，。,]{0,6}[是为][^，。,]{0,12}\Z"
    r"|(?:可以|不可能|(?<!最[大小多少高低])可能)(?:的?是|为|等于|经过)\s*[（(]?[^，。,]{0,12}。?\s*\Z"
    r"|(?<!最[大小多少高低])可能共?有(?:多少|几)"
    rf"|(?:(?:能|可以|满足|成(?!绩)|为)[^，。,最]{{1,60}}的是|满足的?(?:关系式?|条件)){_BLANK_LAST}"
    r"|(?:一定|必然?|恒|不)(?:能|可能)?不?(?:成立|满足)的|[值数]不能(?:是|为|等于|取)"
    r"|(?<![大小多少高低长短]的)一[个组](?:[正负]?整数|可能的?)?(?:解|根|值|因式)[^，。,]{0,12}[是为]\s*[（(]?[^，。,]{0,6}\Z",
)
_CERTAIN = re.compile(r"(?:(?:一定|必)(?:是|为|经过)|(?:必|一定)(?:有|属于))\s*[（(]?[^，。,]{0,12}\Z")
_MAY_BE = re.compile(rf"\b(?:can|could|may|might)(?:\s?not|['’]t)?\s+be(?:\s+true)?{_BLANK_LAST}", re.I)
_EXTREME = re.compile(r"\b(?:most|least|(?:larg|great|bigg|small|high|low|few|long|short)est|maximum|minimum)\b", re.I)
_THEN_WHAT = re.compile(
    r"(?:则有?|那么|可得|必有|[,，]\s*有)\s*[,，:：]?\s*[(（]?\s*(?:\$?\\q?quad\$?)?\s*[)）]*\s*[.。．]?\s*\Z"
)
_THEN_RELATION = re.compile(r"\bthen\b(?:[^.?!=]*:|\s*[(（]\s*[)）]\s*[.．]?)\s*\Z", re.I)
_RELATION = re.compile(r"[<>≤≥≠]|\\(?:[lg](?:eq?|t)|neq?)(?![A-Za-z])")
_ASSIGNED = re.compile(
    r"[\s$]*[A-Za-z]\s*=\s*[^=,，;<>≠]+(?:[,，;、]\s*\$?\s*[A-Za-z]\s*=\s*[^=,，;<>≠]+)+",
)
_ONE_ASSIGNED = re.compile(r"[\s$]*[A-Za-z]\s*=\s*[^=,，;<>≠A-Za-z]*(?:\\[dt]?frac[^=,，;<>≠A-Za-z]*)?")
_BETWEEN_ITEMS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?![A-Za-z])|[\u4e00-\u9fff]+|[\s~]{2,}|(?<=\d)\s(?=\d)")
_SPACING = re.compile(r"[\s$~]+|\\ |[.．。]+\Z")
_VALUE = re.compile(r"[\d\\^_+=]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_ENDS_IN_CHINESE = re.compile(r"[\u4e00-\u9fff][^\u4e00-\u9fff]{0,30}\Z")
_THE_FOLLOWING = re.compile(r"(?:下列|下面|以下|下述)(?!条件|看)")
_THE_FOLLOWING_LAST = re.compile(
    r"(?:下列|下面|以下|下述)(?!条件|看)(?:[^。！？?.．，,：:]|[,，](?!\s*[那则若如])|[.．](?!\s))*[。.．]?\s*\Z"
)
_NUMBER = re.compile(r"[\s$]*[-+]?\d[\d.,/]*[\s$%]*[\u4e00-\u9fff]{0,3}")
_COUNTS_THEM = re.compile(
    r"\bhow many of (?:the following|these|those)\b|\bthe number of (?:true|correct|false|incorrect)\b"
    r"|其中共?有\s*(?:_+|[(（]\s*[)）])?\s*个[^，。,]{0,12}\Z"
    r"|(?<![这那哪每])(?:个数|几个|有多少)(?![^，。,]{0,6}可能)[^，。,]{0,6}[(（]?\s*(?:\$?\\q?quad\$?)?\s*[)）]?\s*[.。．]?\s*\Z",
    re.I,
)
_OF_ONE = r"(?:the|how\s+(?:much|many)|its|his|her|their|this|these|all|(?!a\b)[A-Za-z]\b|\$)"
_ONE_QUANTITY = re.compile(
    r"\b(?:which|what)\s+(?:one\s+)?of\s+the\s+following(\s+(?:numeric\s+|linear\s+)?"
    r"(?:expression|value|number|fraction|percentage|ratio|equation|inequalitie|function)s?)?\s+"
    rf"((?:is|was|gives?|represents?|shows?|equals?|describes?|models?|defines?|expresses|will\s+be|would\s+be)\s+(?={_OF_ONE})"
    r"(?!(?<=is )the\s+(?:original\s+)?number\s*[?.])"
    r"(?!(?:the|its|their|a)\s+(?:multiple|factor|divisor|graph|best|correct|following|reason|only|most|least|great|larg|small|high|low|equation(?!\s+of\s+the\s+(?:horizontal|vertical|axis|directrix))|interpretation|function(?!\s+in\s+[\w-]+\s+form)|set\b|same\b|simplest\b(?!\s+form))))"
    r"|\bwhich(\s+(?:linear\s+|quadratic\s+|exponential\s+)?(?:expression|equation|inequality|function|value|number))\s+"
    rf"((?:gives|represents|models|defines|expresses|describes|shows(?=\s+how\b|[^?.]{{0,80}}\bin\s+[\w-]+\s+form\b)|is(?=\s+the\s+simplest\s+form\b))\s+(?={_OF_ONE}))",
    re.I,
)
_CLOSEST = re.compile(
    r"\b(?:which|what)\s+(?:one\s+)?of\s+the\s+following\s+(?:\w+\s+)?(is|was|would\s+be)\s+(?:the\s+)?(?:closest|nearest)\s+to\s+"
    r"(?=the\b|its\b|his\b|her\b|their\b)",
    re.I,
)
_EQUATION = re.compile(r"[A-Za-z]\s*=\s*\S")
_TOLD_EXACTLY = re.compile(r"[\D0]{0,20}[1-9](?:\D{0,9}\d){2}")


def needs_options(choices: Choices, content: str = "") -> bool:
    """Whether a question cannot be answered without seeing its options ("which of the following ...").

    "The following" in Chinese may be a table or a rule of the statement: before the last sentence it says nothing
    where the right option's ``content`` is a number. "Then ( )" asks nothing, but where the content tells values of the
    statement's letters. Options that the statement lists itself are not lost. A statement in English and then in
    Chinese asks in Chinese.
    """
    stem = choices.stem
    if "?" in choices.after:
        return True
    counted = bool(_NUMBER.fullmatch(content))
    asked = (
        (not _ENDS_IN_CHINESE.search(stem, max(0, len(stem) - 40)) and _names_several(stem))
        or (_chinese_names_several(stem, counted=counted) if not stem.isascii() else False)
        or (_THEN_WHAT.search(stem) and not _tells_letters(choices, content))
        or (_RELATION.search(content) and _THEN_RELATION.search(stem))
    )
    return bool(asked) and not (_COUNTS_THEM.search(stem) or _listed(choices))


def _names_several(stem: str) -> bool:
    """Whether English words ask for one of several things that would do, as "which is a prime?"."""
    lowered = stem.lower()
    return bool(
        (holds(("follow", "folow"), lowered) and _FOLLOWING.search(stem))
        or ("which" in lowered and _WHICH.search(stem))
        or (holds(_OPEN_WORDS, lowered) and _OPEN.search(stem))
        or ("be" in lowered and _MAY_BE.search(stem) and not _EXTREME.search(stem))
    )


def _chinese_names_several(stem: str, *, counted: bool) -> bool:
    """The same in Chinese; ``counted``: the right option is a number, which may be the only one that fits."""
    following = _THE_FOLLOWING_LAST.search(stem, max(0, len(stem) - 300)) if counted else _THE_FOLLOWING.search(stem)
    return bool(following or _OPEN_ZH.search(stem) or (not counted and _CERTAIN.search(stem)))


def twice_the_same(choices: Choices) -> bool:
    """Whether two equations among the options read alike: the indices or signs that told them apart are lost."""
    spaceless = [re.sub(r"[\s${}.．]", "", each) for each in choices.contents.values() if _EQUATION.search(each)]
    return len(set(spaceless)) < len(spaceless)


def without_following(choices: Choices, content: str) -> Choices:
    """ "Which of the following is the area?" as "what is the area?": one quantity, whose value needs no options.

    "Is closest to the area" goes too where the right option's ``content`` has three digits, so that it is the area,
    rounded.
    """
    stem = _ONE_QUANTITY.sub(_what, choices.stem)
    return choices._replace(stem=_CLOSEST.sub(r"what \1 ", stem) if _TOLD_EXACTLY.match(content) else stem)


def _tells_letters(choices: Choices, content: str) -> bool:
    """Whether an option gives letters of the statement their values, as ``a=1, b=2``; one letter, if all options do."""
    letters = re.findall(r"([A-Za-z])\s*=", content)
    alike = sum(bool(_ONE_ASSIGNED.fullmatch(each)) for each in choices.contents.values()) >= 3
    assigned = _ASSIGNED.fullmatch(content) or (alike and _ONE_ASSIGNED.fullmatch(content))
    return bool(assigned) and all(re.search(rf"(?<![A-Za-z\\]){each}(?![A-Za-z])", choices.stem) for each in letters)


def _listed(choices: Choices) -> bool:
    """Whether all options but words stand side by side in the statement, as in "which of 12, 15 and 21 is even?"."""
    options = {_spaceless(each) for each in choices.contents.values() if _VALUE.search(each)} - {""}
    if len(options) < 3:
        return False
    flat = _spaceless(_BETWEEN_ITEMS.sub(",", choices.stem[-1000:]))
    places = [_places(option, flat) for option in options]
    spread = sum(map(len, options)) + 5 * len(options)
    return all(places) and any(
        all(any(first <= place < first + spread for place in each) for each in places) for first in set().union(*places)
    )


def _places(option: str, flat: str) -> set[int]:
    """Where an option stands in a text by itself, not within a longer number or word."""
    return {found.start() for found in re.finditer(rf"(?<![\w.^]){re.escape(option)}(?![\w^]|\.\d)", flat)}


def _spaceless(text: str) -> str:
    return _SPACING.sub("", text)


def _what(asked: re.Match[str]) -> str:
    noun = (asked[1] or asked[3] or "").strip()
    singular = re.sub(r"ie\Z", "y", noun.removesuffix("s"))
    verb = asked[2] or asked[4]
    return " ".join(filter(None, ("What" if asked[0][0] == "W" else "what", singular, verb)))

"""The words of a text that mixes prose with what has no language: LaTeX, code, URLs, tags, numbers, variables.

Dollar signs follow Pandoc's rule, so that the text between two prices is not taken for a formula: nothing blank after
the first, nothing blank before the second, no digit after it. Takes time linear in the text.
"""

import re

MAX_CHARS = 20_000
"""No more than this much of the words is kept."""

_NOISE = tuple(
    (sign, re.compile(pattern, re.DOTALL))
    for sign, pattern in (
        ("```", r"```.*?(?:```|\Z)"),
        ("`", r"`[^`\n]{1,400}`"),
        (
            r"\begin",
            r"\\begin\{(equation|align|gather|aligned|cases|array|[bpvV]?matrix)\*?\}.*?(?:\\end\{\1\*?\}|\Z)",
        ),
        ("$$", r"\$\$[^$]*\$\$"),
        ("$", r"\$(?=\S)[^$\n]{1,400}(?<=\S)\$(?!\d)"),
        (r"\[", r"\\\[.*?(?:\\\]|\Z)"),
        (r"\(", r"\\\(.*?(?:\\\)|\Z)"),
        ("[asy]", r"\[asy\].*?(?:\[/asy\]|\Z)"),
        ("://", r"\b[a-z]{3,6}://\S+"),
        ("www.", r"\bwww\.\S+"),
        ("<", r"<[^<>\n]{1,100}>"),
        ("boxed", r"\\(?:boxed|fbox)\s*\{[^{}]*\}"),
        ("\\", r"\\[A-Za-z]+"),
    )
)
_ANY_NOISE = re.compile(r"[`\\$<]|\[asy|://|www\.")
_WORD = re.compile(r"[^\W\d_]{2,}|[^\W\d_a-zA-Z]")


def noisy(text: str) -> bool:
    """Whether there may be something besides prose: a sign that a formula, code, a URL or a tag begins with."""
    return _ANY_NOISE.search(text) is not None


def words(text: str) -> str:
    """The words, one space between them: without formulas, code, URLs, tags, numbers and single Latin letters."""
    if noisy(text):
        for sign, pattern in _NOISE:
            if sign in text:
                text = pattern.sub(" ", text)
    return plain_words(text)[:MAX_CHARS]


def plain_words(text: str) -> str:
    """``words`` of a text that is not ``noisy``."""
    return " ".join(_WORD.findall(text))

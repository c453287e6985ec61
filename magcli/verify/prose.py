"""The words of a text that mixes prose with what has no language: LaTeX, code, URLs, tags, numbers, variables.

Dollar signs follow Pandoc's rule, so that the text between two prices is not taken for a formula: nothing blank after
the first, nothing blank before the second, no digit after it. Takes time linear in the text.
"""

import re

MAX_CHARS = 20_000
"""No more than this much of the words is kept."""
MAX_WORDS = 25
"""Words of a sentence; a longer one is cut."""

_NOISE = tuple(
    (sign, re.compile(pattern, re.DOTALL))
    for sign, pattern in (
        ("```", r"```.*?(?:```|\Z)"),
        ("`", r"`[^`\n]{1,400}`"),
        (
            r"\begin",
            r"\\begin\{(equation|align|gather|multline|eqnarray|aligned|gathered|split|cases|array|tabular|[bpvV]?matrix"
            r"|smallmatrix|tikzpicture|asy|verbatim|lstlisting)\*?\}.*?(?:\\end\{\1\*?\}|\Z)",
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
_BLOCKS = frozenset(("```", r"\begin", "$$", r"\[", "[asy]"))
"""Signs of what stands on lines of its own: a sentence ends there."""
_ANY_NOISE = re.compile(r"[`\\$<]|\[asy|://|www\.")
_WORD = re.compile(r"[^\W\d_]{2,}|[^\W\d_a-zA-Z]")
_WORD_OR_END = re.compile(_WORD.pattern + r"|[.?!](?![^\W_\u2e80-\ud7af])|[\u3002\uff01\uff1f\uff1b\n]")
_ENDS = frozenset(".?!\u3002\uff01\uff1f\uff1b\n")


def noisy(text: str) -> bool:
    """Whether there may be something besides prose: a sign that a formula, code, a URL or a tag begins with."""
    return _ANY_NOISE.search(text) is not None


def words(text: str) -> str:
    """The words, one space between them: without formulas, code, URLs, tags, numbers and single Latin letters."""
    return plain_words(_without_noise(text))[:MAX_CHARS]


def plain_words(text: str) -> str:
    """``words`` of a text that is not ``noisy``."""
    return " ".join(_WORD.findall(text))


def sentences(text: str) -> list[list[str]]:
    """The words of ``words``, sentence by sentence, in lower case; none is empty.

    A sentence ends at its sign, in Chinese too, at the end of a line, and at a block of code or a displayed formula.
    """
    found: list[list[str]] = []
    sentence: list[str] = []
    left = MAX_CHARS
    for word in _WORD_OR_END.findall(_without_noise(text).lower()):
        ended = word in _ENDS
        if not ended:
            sentence.append(word[:left])
            left -= len(word) + 1
        if sentence and (ended or len(sentence) == MAX_WORDS or left <= 0):
            found.append(sentence)
            sentence = []
        if left <= 0:
            break
    return [*found, sentence] if sentence else found


def _without_noise(text: str) -> str:
    if noisy(text):
        for sign, pattern in _NOISE:
            if sign in text:
                text = pattern.sub("\n" if sign in _BLOCKS else " ", text)
    return text

"""The words of a text without LaTeX, code, URLs, tags, numbers and variables.

Dollar signs follow Pandoc's rule, so the text between two prices is not a formula: no blank after the first, no blank
before the second, no digit after it. Linear time.
"""

import re

MAX_CHARS = 100_000
"""Characters of words that are returned."""
MAX_WORDS = 25
"""Words of a sentence; longer ones are split."""

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
        ("://", r"(?<![a-z])[a-z]{3,6}://[^\s\u2e80-\uffef]+"),
        ("www.", r"(?<![a-z])www\.[^\s\u2e80-\uffef]+"),
        ("<", r"<[^<>\n]{1,100}>"),
        ("boxed", r"\\(?:boxed|fbox)\s*\{[^{}]*\}"),
        ("\\", r"\\[A-Za-z]+"),
    )
)
_BLOCKS = frozenset(("```", r"\begin", "$$", r"\[", "[asy]"))
"""Markers of display blocks, which end a sentence."""
_ANY_NOISE = re.compile(r"[`\\$<]|\[asy|://|www\.")
_WORD = re.compile(r"[^\W\d_]{2,}|[^\W\d_a-zA-Z]")
_WORD_AT_MOST = re.compile(r"[^\W\d_]{2,40}|[^\W\d_a-zA-Z]")
_MARKS = r"\"\u00ab\u00bb\u201c-\u201e\u300a-\u300f"
_QUOTATION = re.compile(rf"[{_MARKS}][^{_MARKS}\n]{{1,60}}[{_MARKS}]")
_END = re.compile(r"[.?!\n()\u3002\uff01\uff08\uff09\uff1b\uff1f](?:(?<!\.)|(?![^\W_\u2e80-\ud7af]))")
"""The end of a sentence, or a bracket; a full stop unless a letter of an alphabet or a digit follows."""


def noisy(text: str) -> bool:
    """Whether a formula, code, a URL or a tag may begin somewhere."""
    return _ANY_NOISE.search(text) is not None


def words(text: str) -> str:
    """The words joined by spaces, without formulas, code, URLs, tags, numbers and single Latin letters."""
    return " ".join(_WORD.findall(_without_noise(text)))[:MAX_CHARS]


def sentences(text: str) -> list[list[str]]:
    """The lower-case words of each non-empty sentence; words of over 40 letters are split.

    A sentence ends at its punctuation (also Chinese), a line break, a code block or a displayed formula; text in
    brackets is its own sentence. Short quotations are omitted: titles and terms may be in any language.
    """
    found: list[list[str]] = []
    left = MAX_CHARS
    for part in _END.split(_QUOTATION.sub(" ", _without_noise(text)).lower()):
        sentence = _WORD_AT_MOST.findall(part[:left])
        if len(sentence) <= MAX_WORDS:
            found.append(sentence)
        else:
            found += [sentence[start : start + MAX_WORDS] for start in range(0, len(sentence), MAX_WORDS)]
        left -= len(part)
        if left <= 0:
            break
    return [sentence for sentence in found if sentence]


def _without_noise(text: str) -> str:
    if noisy(text):
        for sign, pattern in _NOISE:
            if sign in text:
                text = pattern.sub("\n" if sign in _BLOCKS else " ", text)
    return text

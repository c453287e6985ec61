"""One spelling for answers that mean the same: Unicode, wrappers, spacing, LaTeX variants.

Nothing here weighs values; that is for ``units``, ``rational`` and ``symbolic``. Every function is pure, and meant for
the short text of an answer.
"""

import re
from functools import lru_cache

from magcli.verify.box import last_box

_UNICODE = {
    **{ord(c): "-" for c in "−–—‐‑﹣－"},
    **{ord(c): " " for c in "\u00a0\u2002\u2003\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000\t\n\r\x0b\x0c"},
    **{ord(c): "" for c in "\u200b\u200c\u200d\u2060\ufeff\u200e\u200f"},
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != 0xFF0D},
    **{ord(c): f"^{{{i}}}" for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{ord(c): f"\\frac{{{a}}}{{{b}}}" for c, a, b in ("½12", "⅓13", "⅔23", "¼14", "¾34", "⅕15", "⅙16", "⅛18")},
    **{ord(c): f"{command} " for c, command in zip("×÷·⋅∙±√π∞∪∩∈θαβ∅", (
        r"\times", r"\div", r"\cdot", r"\cdot", r"\cdot", r"\pm", r"\sqrt", r"\pi", r"\infty", r"\cup", r"\cap",
        r"\in", r"\theta", r"\alpha", r"\beta", r"\emptyset"), strict=True)},
    ord("≤"): r"\leq ", ord("≥"): r"\geq ", ord("≠"): r"\neq ", ord("≈"): r"\approx ",
    ord("°"): r"^\circ ", ord("º"): r"^\circ ", ord("、"): ",", ord("。"): ".", ord("…"): r"\ldots ",
}  # fmt: skip

_SPELLING: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"(?<=\d)(?:\{,\}|,\\!|\\[,;:! ]|~)(?=\d{3}(?!\d))", ""),  # 1{,}000 and 1\,000 are one number
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:mathrm|text|textrm)\{([eid])\}", r"\1"),
        (r"\\(?:mathrm|mathbf|textbf|textit|textrm|textnormal|mathit|operatorname|mbox|hbox|bf|rm)\s*\{", r"\\text{"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", ""),
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[()\[\]]", " "),
        (r"\\q?quad(?![A-Za-z])|(?<!\\)\\[,;:> ]|~", " "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\(?:[lr]?vert|mid)(?![A-Za-z])", "|"),
        (r"\\(?:le|leqslant)(?![A-Za-z])|<=", r"\\leq "),
        (r"\\(?:ge|geqslant)(?![A-Za-z])|>=", r"\\geq "),
        (r"\\ne(?![A-Za-z])|!=", r"\\neq "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
        (r"\\(?:[cld]?dots)(?![A-Za-z])|\.\.\.", r"\\ldots "),
        (r"\\([%&#_])", r"\1"),
        (r"\\frac\s*(\d|\\pi|(?<=\s)[a-z])\s*(?=[\w{\\])", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\w)", r"\1{\2}"),
        (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r" +", " "),
        (r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])", ""),
    )
)

_PLAIN = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]{1,100})?")
_DOLLAR = re.compile(r"(?<!US)\$")
_PAIRS = (("**", "**"), (r"\text{", "}"), ("{", "}"))


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """The one spelling of an answer: wrappers and a final dot off, LaTeX variants and spacing made equal.

    A box, ``**..**`` or ``\\text{..}`` around the whole answer goes, and so do ``$`` and ``\\(``; ``\\dfrac`` becomes
    ``\\frac``; degree signs go; a space stays only between two letters or digits, so that ``1 1/2`` is not ``11/2``.
    """
    if _PLAIN.fullmatch(text):
        return text
    text = _undelimit(text.translate(_UNICODE))
    for _ in range(8):
        bare = _unwrap(text)
        for pattern, new in _SPELLING:
            bare = pattern.sub(new, bare)
        if bare == text:
            break
        text = bare
    return text


def _undelimit(text: str) -> str:
    """Without the ``$`` that open and close formulas; ``\\$`` is money and becomes ``US$``."""
    text = text.replace(r"\$", "US$").strip()
    loose = len(_DOLLAR.findall(text))
    return text if loose % 2 else _DOLLAR.sub(" ", text).strip()


def _unwrap(text: str) -> str:
    """One layer of wrapping off, and one final mark of punctuation."""
    text = text.strip().rstrip(",;").removeprefix(r"\approx").strip()
    if text.endswith((".", "。")) and not text.endswith(".."):
        text = text[:-1].rstrip()
    if re.match(r"\\f?box(?:ed)?\s*\{", text) and text.endswith("}"):
        return last_box(text) or text
    for opening, closing in _PAIRS:
        inner = text[len(opening) : len(text) - len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner and _closed(inner, opening):
            return inner
    return text


def _closed(inner: str, opening: str) -> bool:
    """Whether the wrapper's two ends belong together: braces inside never close more than they open."""
    if not opening.endswith("{"):
        return opening not in inner
    depth = 0
    for brace in re.findall(r"\\.|[{}]", inner):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return False
    return depth == 0

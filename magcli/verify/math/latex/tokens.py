"""Tokens of an answer in LaTeX or plain text, without spacing, sizes and fonts, with one spelling of variants.

One pass of one regular expression. Bounds on the number of tokens and their nesting keep the recursive parsers shallow.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from magcli.verify.math.latex.tree import Expr, ParseError
from magcli.verify.math.latex.units import SYMBOLS

_GREEK_LETTERS = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi chi psi omega
Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar partial nabla
"""
_FUNCTION_NAMES = """
sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch ln log lg exp gcd lcm
max min det sqrt arsinh arcosh artanh arcsinh arccosh arctanh asin acos atan sgn cis
"""
_FOREIGN_FUNCTIONS = {
    "sen": "sin", "senh": "sinh", "arcsen": "arcsin", "tg": "tan", "arctg": "arctan", "ctg": "cot", "cotg": "cot",
    "arcctg": "arccot", "cosec": "csc",
}  # fmt: skip
"""What Spanish, Italian, Portuguese and Russian call functions."""
_DECORATION_NAMES = "overline vec hat bar tilde dot ddot widetilde underline angle triangle odot"

_POINT_NAMES = """
point points vertex center centre focus origin midpoint centroid orthocenter circumcenter incenter intersection pair
ordered coordinates minimum maximum vector solution at
"""

GREEK = frozenset(_GREEK_LETTERS.split())
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
DECORATIONS = frozenset(_DECORATION_NAMES.split())
NEGATIONS = frozenset(("not", "no", "never", "wrong", "incorrect", "false"))
POINT_WORDS = frozenset(_POINT_NAMES.split())
"""Words before a bracket that say which point it is."""
CONJUNCTIONS = frozenset(("and", "or"))
_WORDS_FOR_OR = "oder ou o oppure или либо 或 或者 または 또는 혹은"
_WORDS_FOR_AND = "und et y e ed и 和 与 及 且 以及 并且 および かつ 그리고 및"
_FOREIGN_CONJUNCTIONS = dict.fromkeys(_WORDS_FOR_OR.split(), "or") | dict.fromkeys(_WORDS_FOR_AND.split(), "and")
_WIDE_SPACE = r"(?:\\[ ;:]|~|\\q?quad)"
_SPACE_BEFORE = re.compile(rf"{_WIDE_SPACE}\s*\Z")
_SPACE_AFTER = re.compile(rf"\s*{_WIDE_SPACE}")
MAX_SPACE = 8
"""Characters before a word that are searched for a space."""
_BARE_CONJUNCTIONS = frozenset(("oder", "und", "oppure"))
"""Those that cannot be a product of letters."""
AMBIGUOUS = frozenset(("min", "max", "sec", "lg", "det"))
"""Functions only before a bracket; otherwise units or letters."""


MAX_TOKENS = 2_000
MAX_DEPTH = 40
"""Maximum nesting of brackets, and of powers."""


class Token(NamedTuple):
    """``kind`` is num, word (bare letters), text (``\\text{..}``), cmd, op or end; ``spaced``: after white space."""

    kind: str
    value: str
    spaced: bool = False


END = Token("end", "")

_NAMED_SIGNS = """
×times ÷div ·cdot ⋅cdot ∙cdot ∗cdot ±pm ∓mp √sqrt ∛cbrt πpi ∞infty ∪cup ∩cap ∈in ≤le ≥ge ⩽le ⩾ge ≠ne ≈approx
≡equiv ∅emptyset →to ∖setminus αalpha βbeta γgamma δdelta εepsilon ζzeta ηeta θtheta ιiota κkappa λlambda μmu
νnu ξxi ρrho σsigma τtau φphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΠPi ΣSigma ΦPhi ΨPsi ΩOmega
ϕphi …ldots ⟨langle ⟩rangle ⌊lfloor ⌋rfloor µmu ∧land ∨lor ¬neg ⇒to ⟹to ⇔iff ⟺iff ↔iff ⊕oplus ∀forall ∃exists
∉notin ⊆subseteq ⊂subset ⊇supseteq ⊃supset ∥parallel ⊥perp ∼sim △triangle ∠angle ≢nequiv ≅cong ∝propto ≪ll ≫gg
⌈lceil ⌉rceil
"""
_FRACTIONS = "½12 ⅓13 ⅔23 ¼14 ¾34 ⅕15 ⅖25 ⅗35 ⅘45 ⅙16 ⅚56 ⅛18 ⅜38 ⅝58 ⅞78"
_FULL_WIDTH_HYPHEN = 0xFF0D
_UNICODE = str.maketrans({
    **dict.fromkeys("−–—‐‑﹣－", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", " "),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u200e\u200f", ""),
    # The full-width forms are in the order of ASCII; the hyphen among them is a sign above.
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != _FULL_WIDTH_HYPHEN},
    **{digits[0]: rf"\frac{{{digits[1]}}}{{{digits[2]}}}" for digits in _FRACTIONS.split()},
    **{named[0]: f"\\{named[1:]} " for named in _NAMED_SIGNS.split()},
    **{sign: rf"\mathbb{{{letter}}}" for sign, letter in zip("ℝℤℕℚℂ", "RZNQC", strict=True)},
    **dict.fromkeys("°º", r"^\circ "), **dict.fromkeys("⁄∕", "/"), **dict.fromkeys("′’", "'"),
    "、": ",", "。": ".", "【": "[", "】": "]", "∣": "|", "￡": "£",
    "℃": r"^\circ C", "℉": r"^\circ F", "¢": r"\text{ cent}",
})  # fmt: skip
"""What each sign is in LaTeX; a space ends the name of a command."""

_ROOTS = {"√": r"\sqrt", "∛": r"\sqrt[3]", "³√": r"\sqrt[3]", "⁴√": r"\sqrt[4]"}
_ROOT = re.compile(r"([³⁴]√|∛)\s*(\d+(?:\.\d+)?)|(√)\s*(\d+\.\d+|\d\d+)")
"""Before digits the Unicode sign covers all of them, unlike LaTeX's command."""

_HIGH, _LOW = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
# ``³⁄₄``.
_SLASHED = re.compile(f"([{_HIGH}]+)[⁄∕/]([{_LOW}]+)")
_RAISED = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱᵏᵐˣ]+")
_LOWERED = re.compile(r"[₀₁₂₃₄₅₆₇₈₉₊₋ₙₖᵢₘ]+")
_TO_LINE = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱᵏᵐˣ₀₁₂₃₄₅₆₇₈₉₊₋ₙₖᵢₘ", "0123456789+-nikmx0123456789+-nkim")
_TO_DIGITS = str.maketrans(_HIGH + _LOW, "0123456789" * 2)

_TOKEN = re.compile(
    r"(?P<skip>\s+|\\[,;:!>/ ]|~|\\q?quad|\\(?:hspace\s*\{[^{}]*\}"
    r"|(?:left|right|middle|mathopen|mathclose|[bB]igg?[lrm]?)(?![A-Za-z])\.?"
    r"|(?:display|text|script|scriptscript)style|limits|nolimits|thinspace|nobreak|hfill|medskip|bf|rm|it|large|Large"
    r"|allowbreak|negthinspace|enspace|(?:color|textcolor)\s*\{[^{}]*\}|label\s*\{[^{}]*\}|(?:bold|un)math)(?![A-Za-z]))"
    r"|(?P<num>(?:\d+(?:\.\d+|\.(?=/))?|\.\d+)(?:[eE][+-]?\d{1,6}(?![\d.]))?)"
    r"|(?P<font>\\(?:text(?:bf|it|rm|sf|tt|normal|up)?|math(?:rm|bf|it|sf|tt|cal|frak|scr|bb|normal)|boldsymbol|bm|mbox"
    r"|hbox|operatorname\*?|emph|underline)(?![A-Za-z])\s*(?:\{(?P<inner>[^{}]*)\})?)"
    r"|(?P<row>\\\\(?:\s*\[-?[\d.]+\s*(?:pt|em|ex|cm|mm|in)\])?|\\cr(?![A-Za-z]))"
    r"|(?P<env>\\(?:begin|end)\s*\{\s*[A-Za-z]+\*?\s*\})"
    r"|(?P<cmd>\\[A-Za-z]+|\\[{}|%$&#_'])"
    r"|(?P<ideographs>[\u3400-\u9fff]+)"
    r"|(?P<foreign>[A-Za-z]*[^\W\d_A-Za-z\u3400-\u9fff](?:[^\W\d_](?<![\u3400-\u9fff]))*)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<op>!=|<=|>=|:=|\*\*|\.\.\.|[^\s])",
    re.DOTALL,
)

_SPELLINGS = r"""
\frac \dfrac \tfrac \cfrac \nicefrac \sfrac
\le \leq \leqslant \leqq <=
\ge \geq \geqslant \geqq >=
\ne \neq \not= !=
< \lt
> \gt
\{ \lbrace
\} \rbrace
\emptyset \varnothing \empty
| \vert \lvert \rvert \Vert \|
\ldots \dots \cdots \dotsc ...
* \ast
[ \lbrack
] \rbrack
\epsilon \varepsilon
\phi \varphi
\theta \vartheta
\binom \dbinom \tbinom
% \%
\mod \bmod
£ \pounds
€ \euro
\circ \degree \degrees
: \colon
\lor \vee
\land \wedge
\neg \lnot
\approx \simeq \doteq
\to \Rightarrow \implies \Longrightarrow \longrightarrow \rightarrow
\iff \Leftrightarrow \leftrightarrow \Longleftrightarrow
\triangle \bigtriangleup
\setminus \backslash
# \#
& \&
_ \_
\overline \mathring
\hat \widehat
\vec \overrightarrow
= := \colonequals
^ **
mid \mid
\infty \infinity
\langle \lang
\rangle \rang
"""
_SYNONYMS = {rf"\{name}": rf"\{ours}" for name, ours in _FOREIGN_FUNCTIONS.items()} | {
    other: spelling for spelling, *others in map(str.split, _SPELLINGS.strip().splitlines()) for other in others
}
"""For a command or sign the one that stands for it in the tokens: the first of its line above."""
_IGNORED = frozenset(
    (r"\relax", r"\null", r"\strut", r"\notag", r"\nonumber", r"\therefore", r"\because", r"\centering", r"\noindent")
)
_WORD_COMMANDS = {"pi": r"\pi", "infinity": r"\infty", "infty": r"\infty", "oo": r"\infty", "inf": r"\infty"}
_LETTERS = re.compile(r"[^\W\d_]")
_INDEXED = re.compile(r"(?=.*(?:_|\^\d?[+-]$))[\dA-Za-z_^+-]+")
r"""Letters with indices or a charge, not words: ``\mathrm{H_2O}``, ``\mathrm{Na^+}``."""
_COMMAND = re.compile(r"\\[A-Za-z]+")
_OPEN = frozenset(("(", "[", "{", r"\{", r"\langle"))
_CLOSE = frozenset((")", "]", "}", r"\}", r"\rangle"))


def ascii_math(text: str) -> str:
    """The text with Unicode symbols as LaTeX."""
    if text.isascii():
        return text
    # What several signs are together comes before what each of them is.
    text = _SLASHED.sub(_as_fraction, text)
    text = _ROOT.sub(_as_root, text)
    text = _RAISED.sub(lambda run: f"^{{{run[0].translate(_TO_LINE)}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{run[0].translate(_TO_LINE)}}}", text)
    return text.translate(_UNICODE)


def _as_fraction(slashed: re.Match[str]) -> str:
    above, below = (digits.translate(_TO_DIGITS) for digits in slashed.groups())
    return rf"\frac{{{above}}}{{{below}}}"


def _as_root(written: re.Match[str]) -> str:
    # Each kind of root has two groups of its own.
    sign, digits = filter(None, written.groups())
    return f"{_ROOTS[sign]}{{{digits}}}"


@lru_cache(maxsize=4096)
def tokenize(text: str) -> tuple[Token, ...]:
    """The tokens of an answer. Raises ParseError beyond ``MAX_TOKENS`` or ``MAX_DEPTH``."""
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(ascii_math(text)):
        # Of a group within another, as the content of a font, the outer one is the last.
        kind = match.lastgroup or "op"
        if kind == "skip":
            spaced = True
            continue
        if len(tokens) >= MAX_TOKENS:
            raise ParseError("too-long")
        new_tokens = _token(kind, match, spaced)
        is_beside_number = kind == "font" and bool(tokens) and tokens[-1].kind == "num"
        if is_beside_number and new_tokens and _is_unit(new_tokens[0]):
            new_tokens = (new_tokens[0]._replace(kind="text"), *new_tokens[1:])
        tokens.extend(new_tokens)
        spaced = False
    # Line breaks at the end begin no row.
    while tokens and tokens[-1].value == r"\\":
        tokens.pop()
    _check_depth(tokens)
    return tuple(tokens)


def _is_unit(token: Token) -> bool:
    """Whether an upright letter after a number is a unit: ``5\\mathrm{m}``; ``12\\text{K}`` may be 12,000."""
    return token.value in SYMBOLS and (token.spaced or token.value != "K")


def _token(kind: str, match: re.Match[str], spaced: bool) -> tuple[Token, ...]:
    """The tokens of one match of the lexer: usually one, none of what is ignored, several in a font."""
    value = match[0]
    if kind == "font":
        return _font(match, spaced)
    if kind == "row":
        return (Token("cmd", r"\\", spaced),)
    if kind == "env":
        return (Token("cmd", "".join(value.split()), spaced),)
    if kind == "word":
        return (_word(value, spaced),)
    if kind in ("ideographs", "foreign"):
        conjunction = _FOREIGN_CONJUNCTIONS.get(value.lower())
        return (Token("op", conjunction, spaced) if conjunction else Token("text", value, spaced),)
    value = _SYNONYMS.get(value, value)
    if value in _IGNORED:
        return ()
    if value.startswith("\\") and len(value) > 1:
        kind = "cmd"
    elif kind != "num":
        kind = "op"
    return (Token(kind, value, spaced),)


def _word(word: str, spaced: bool) -> Token:
    """A run of letters: a function, a conjunction, or letters that the parser interprets."""
    word = _FOREIGN_FUNCTIONS.get(word, word)
    lower = word.lower()
    if lower in _WORD_COMMANDS:
        return Token("cmd", _WORD_COMMANDS[lower], spaced)
    if word in FUNCTIONS and word not in AMBIGUOUS:
        return Token("cmd", "\\" + word, spaced)
    if lower in ("and", "or"):
        return Token("op", lower, spaced)
    # Without a space before them, ou and et may be products of letters.
    if lower in _BARE_CONJUNCTIONS or (spaced and lower in ("ou", "et")):
        return Token("op", _FOREIGN_CONJUNCTIONS[lower], spaced)
    return Token("word", word, spaced)


def _font(match: re.Match[str], spaced: bool) -> tuple[Token, ...]:
    """The content of ``\\text{..}`` or a font: words are text, anything else is mathematics."""
    inner = match["inner"]
    if inner is None:
        return ()
    if match[0].startswith(r"\mathbb"):
        return (Token("cmd", rf"\mathbb{inner.strip()}", spaced),)
    words = inner.replace("~", " ").strip(" \t\n,;:")
    words = _FOREIGN_FUNCTIONS.get(words, words)
    if not words:
        # \text{, } separates as a comma does.
        return (Token("op", ",", True),) if inner.strip() else ()
    lower = words.lower()
    begins_with_space = inner[:1] in " ~"
    if lower in CONJUNCTIONS:
        return (Token("op", lower, True),)
    # The Spanish "y" and the Italian "e" may be letters too.
    if lower in _FOREIGN_CONJUNCTIONS and (begins_with_space or not words.isascii() or _is_set_apart(match)):
        return (Token("op", _FOREIGN_CONJUNCTIONS[lower], True),)
    # Upright, min and sec are units.
    if words in FUNCTIONS and words not in ("min", "sec", "lg"):
        return (Token("cmd", "\\" + words, spaced),)
    # 5\text{ m}: a unit, not a factor.
    if len(words) == 1 and words.isalpha() and begins_with_space:
        return (Token("text", words, True),)
    is_mathematics = not _LETTERS.search(_COMMAND.sub("", words)) or _INDEXED.fullmatch(words)
    if len(words) == 1 or is_mathematics:
        return tuple(token._replace(spaced=token.spaced or spaced) for token in tokenize(words))
    text = Token("text", " ".join(words.split()), spaced or begins_with_space)
    is_label = inner.rstrip(" ~").endswith(":")
    return (text, Token("op", ":")) if is_label else (text,)


def _is_set_apart(match: re.Match[str]) -> bool:
    r"""Whether a text has spaces of its own on both sides, unlike a factor: ``2\ \text{y}\ 3``."""
    text = match.string
    if not match[0].startswith((r"\text", r"\mbox")):
        return False
    before = _SPACE_BEFORE.search(text[max(0, match.start() - MAX_SPACE) : match.start()])
    return before is not None and _SPACE_AFTER.match(text, match.end()) is not None


def _check_depth(tokens: list[Token]) -> None:
    """Raise ParseError for tokens whose brackets or powers are nested too deep to parse recursively."""
    depth = carets = 0
    for token in tokens:
        if token.kind not in ("op", "cmd"):
            continue
        depth += (token.value in _OPEN) - (token.value in _CLOSE)
        # Powers of powers nest without brackets.
        if token.value == "^":
            carets += 1
        elif token.value in (",", "+", "-"):
            carets = 0
        if max(depth, carets) > MAX_DEPTH:
            raise ParseError("too-deep")


MAX_NESTING = 60
Reader = Callable[["Cursor"], Expr]


class Cursor:
    """A position in the tokens, and the parsers of brackets, commands and table cells from later modules.

    ``points``: ``C(5,2)`` is a point, not a number of combinations. ``bars`` counts open absolute values, ``depth``
    nesting; ``bound`` are the index letters of sums, which are not constants.
    """

    __slots__ = ("at", "bars", "bound", "cell", "command", "depth", "group", "points", "tokens")

    def __init__(self, tokens: Sequence[Token], group: "Reader", command: "Reader", cell: "Reader") -> None:
        self.tokens = list(tokens)
        self.group = group
        self.command = command
        self.cell = cell
        self.at = self.bars = self.depth = 0
        self.bound: set[str] = set()
        self.points = False

    def peek(self, ahead: int = 0) -> Token:
        """A token ahead."""
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else END

    def comes_next(self, *values: str) -> bool:
        """Whether the next tokens have these values."""
        ahead = self.tokens[self.at : self.at + len(values)]
        return tuple(token.value for token in ahead) == values

    def next(self) -> Token:
        """Consume a token; the end repeats."""
        token = self.peek()
        self.at += 1
        return token

    def eat(self, *values: str) -> str:
        """Consume the next token if it is one of these signs; returns it, else an empty string."""
        token = self.peek()
        if token.value in values and token.kind in ("op", "cmd"):
            self.at += 1
            return token.value
        return ""

    def expect(self, value: str) -> None:
        """Consume a sign that must come next; raises ParseError if it does not."""
        if not self.eat(value):
            raise ParseError("unparsable")

    def deeper(self) -> None:
        """Enter a level of nesting; raises ParseError beyond ``MAX_NESTING``."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ParseError("too-deep")

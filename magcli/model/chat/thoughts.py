"""How models write their thoughts before their answer: the one table of forms.

A model's form is found in its chat template and its tokenizer (``find``), that of completions in their texts
(``count_forms``). A form that is not in the table is written as ``OPENING...CLOSING`` (``form_named``).
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from magcli.errors import UsageError

GAP = "..."
"""What stands for the thoughts where a form is written as text."""


@dataclass(frozen=True, slots=True)
class ThoughtForm:
    """What a model writes around its thoughts.

    ``opening`` and ``closing`` are the tags. ``answer_opening`` is what opens the answer after the closing tag, in
    forms that have such a text. ``inside`` is the whitespace between tags and thoughts, and ``after`` that before the
    answer: ``join`` writes them, reading a completion does not need them. ``special``: the tags are special tokens,
    which decoders skip unless told otherwise. ``marks`` are texts that only templates and tokenizers of this form
    contain.
    """

    name: str
    opening: str
    closing: str
    answer_opening: str = ""
    inside: str = ""
    after: str = ""
    special: bool = False
    marks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The form for messages, such as ``<think>...</think>``."""
        return f"{self.opening}{GAP}{self.ending}"

    @property
    def ending(self) -> str:
        """All that stands between the thoughts and the answer, without whitespace."""
        return self.closing + self.answer_opening

    def join(self, thoughts: str, answer: str) -> str:
        """The completion of a model that has these thoughts and gives this answer."""
        # The form's own line breaks stand around them.
        inner = thoughts.strip("\n")
        return f"{self.opening}{self.inside}{inner}{self.inside}{self.ending}{self.after}{answer}"

    def split(self, text: str) -> tuple[str, str]:
        """The thoughts and the answer of a completion, without tags; no thoughts if they are not closed."""
        # Without an end all of it counts as the answer.
        before, closed, after = text.partition(self.ending)
        if not closed:
            return "", text
        return before.replace(self.opening, "", 1).strip(), after.strip()

    def answer(self, text: str) -> str:
        """What follows the last thoughts of a completion; all of it if there are none."""
        return text.rpartition(self.ending)[2]

    def opens(self, text: str) -> bool:
        """Whether a completion begins with thoughts in this form."""
        return text.lstrip().startswith(self.opening)


THINK = ThoughtForm("think", "<think>", "</think>", inside="\n", after="\n\n", marks=("<think>", "</think>"))
"""The form of the recipe (section 2), of DeepSeek-R1, Qwen3 and Magistral 1.0."""
BRACKETS = ThoughtForm("brackets", "[THINK]", "[/THINK]", special=True, marks=("[THINK]", "[/THINK]"))
"""The form of Magistral from 1.1 on and of Ministral 3."""
CHANNELS = ThoughtForm(
    "channels",
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|start|>assistant<|channel|>final<|message|>",
    special=True,
    marks=("<|channel|>",),
)
"""The form of gpt-oss."""

FORMS = (THINK, BRACKETS, CHANNELS)
"""The forms that are found by themselves."""


@lru_cache
def form_named(text: str) -> ThoughtForm:
    r"""The form of a name, of an opening tag, or one written as ``OPENING...CLOSING``.

    In the last, ``\n`` is a line break. Whitespace at the end of OPENING stands on both inner sides of the tags, and
    whitespace at the end of CLOSING before the answer.

    Raises:
        UsageError: it is none of these.
    """
    # By its name or its opening tag.
    shipped = next((form for form in FORMS if text in (form.name, form.opening)), None)
    if shipped is not None:
        return shipped
    # A shell passes no line breaks on.
    written = text.replace("\\n", "\n")
    opening, _, closing = written.partition(GAP)
    if not opening.strip() or not closing.strip():
        names = ", ".join(form.name for form in FORMS)
        raise UsageError(f"--thoughts {text!r}: no such form; give {names}, or one of your own as OPENING{GAP}CLOSING")
    return ThoughtForm(
        text,
        opening.strip(),
        closing.strip(),
        inside=opening[len(opening.rstrip()) :],
        after=closing[len(closing.rstrip()) :],
    )


def find(template: str, vocabulary: Collection[str]) -> ThoughtForm:
    """The form of a model with this chat template and these tokens: the one that the template writes.

    If the template has none or several, the tokens decide; if they do not, it is that of the recipe.
    """
    written = [form for form in FORMS if any(mark in template for mark in form.marks)]
    if len(written) == 1:
        return written[0]
    # A template that writes none of them leaves all.
    candidates = written or FORMS
    tokenized = [form for form in candidates if any(mark in vocabulary for mark in form.marks)]
    return tokenized[0] if len(tokenized) == 1 else THINK


def form_of_text(text: str) -> ThoughtForm | None:
    """The form of a completion: that which opens it, else the one that ends thoughts in it; None without thoughts."""
    opened = next((form for form in FORMS if form.opens(text)), None)
    return opened or next((form for form in FORMS if form.ending in text), None)


def count_forms(texts: Iterable[str]) -> Counter[ThoughtForm]:
    """How many completions are in each form; those without thoughts are not counted."""
    return Counter(filter(None, map(form_of_text, texts)))


def rewritten(text: str, form: ThoughtForm) -> str:
    """A completion that begins with thoughts in another form of the table, in this one; other texts as they are."""
    other = next((candidate for candidate in FORMS if candidate.opens(text)), None)
    if other is None or other == form or other.ending not in text:
        return text
    # Whitespace becomes that of the new form.
    return form.join(*other.split(text))

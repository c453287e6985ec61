"""What one rollout tells by itself: its answer, its languages, how much of it is repeated, ratios of its tokens.

All functions are pure and take time linear in the text; of languages only the start of a text counts.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from magcli.model.chat.thoughts import ThoughtForm
from magcli.verify import language
from magcli.verify.format import blocks, boxed, boxed_answer
from magcli.verify.math import last_number

NGRAM = 8
"""Words of the n-grams that are counted."""
MIN_WORDS = 40
"""Words from which a text may be a loop; shorter ones repeat by chance."""
# A word of letters and digits, or a single character of a script that writes no spaces, or a sign.
_WORD = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\S")
_BOX = "\\boxed{"
MAX_ANSWER = 200
"""Characters of an answer that are kept."""


class Answer(NamedTuple):
    """The final answer of a completion; ``is_boxed`` tells one in a box from the last number of the text."""

    text: str
    is_boxed: bool


class Languages(NamedTuple):
    """The languages of prompt and completion; ``drifts`` is None if one is undecided."""

    prompt: str
    completion: str
    drifts: bool | None


class Ratios(NamedTuple):
    """Factors by which the probabilities of tokens differ between sampler and trainer: at most, and on average.

    A factor is at least 1: ``exp(|difference of log-probs|)``.
    """

    highest: float
    mean: float


def answer_of(text: str, *, is_code: bool = False) -> Answer | None:
    """The final answer; of a program the language of its first closed block. None if there is none."""
    if is_code:
        block = next((block for block in blocks(text) if block.closed), None)
        return Answer(block.language, True) if block else None
    # An empty box is as none.
    in_box = (boxed_answer(text, ("boxed",)) or "").strip()
    if in_box:
        return Answer(in_box[:MAX_ANSWER], True)
    number = last_number(text)
    return Answer(number[:MAX_ANSWER], False) if number else None


def ends_within(text: str, form: ThoughtForm) -> bool:
    """Whether a completion ends within its thoughts, a box or a block of code, as if it was cut off."""
    in_thoughts = form.opens(text) and form.closing not in text
    # Only the last one can be open because the text was cut.
    last_box = text.rfind(_BOX)
    in_box = last_box >= 0 and boxed(text[last_box:]) is None
    return in_thoughts or in_box or any(not block.closed for block in blocks(text))


def languages_of(prompt: str, completion: str) -> Languages:
    """The languages of prompt and completion, and whether the completion leaves that of the prompt."""
    of_prompt = language.detect(prompt)
    of_completion = language.detect(completion)
    agreement = language.agree([of_prompt, of_completion])
    drifts = None if agreement is None else not agreement
    return Languages(of_prompt.label, of_completion.label, drifts)


def repetition(text: str) -> float:
    """The share of 8-word sequences that occurred earlier in the text (rep-n of Welleck et al. 2019); 0 if it is short.

    Where a script has no spaces, each character counts as a word.
    """
    words = _WORD.findall(text)
    if len(words) < MIN_WORDS:
        return 0.0
    # Hashes instead of the n-grams: a long text has thousands.
    ngrams = [hash(tuple(words[start : start + NGRAM])) for start in range(len(words) - NGRAM + 1)]
    # Each n-gram but its first occurrence is a repetition.
    return 1 - len(set(ngrams)) / len(ngrams)


def ratios_of(sampler: Sequence[float] | None, trainer: Sequence[float] | None) -> Ratios | None:
    """How far the log-probs of sampler and trainer are apart; None without both or where they do not fit together."""
    if not sampler or not trainer or len(sampler) != len(trainer):
        return None
    factors = []
    for one, other in zip(sampler, trainer, strict=True):
        if one is None or other is None or not math.isfinite(one - other):
            continue
        difference = min(abs(one - other), 50.0)  # exp overflows from 710 on
        factors.append(math.exp(difference))
    if not factors:
        return None
    return Ratios(max(factors), math.fsum(factors) / len(factors))

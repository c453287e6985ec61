"""Traces from worked solutions: the solution becomes the thoughts, its final answer the boxed answer.

A worked solution is in a column of its own beside a short answer, or ends in its answer: in a box, or after ``####`` as
in GSM8K.
"""

import re
from collections.abc import Mapping
from typing import Any

from magcli.layouts.names import WORKED
from magcli.model.chat.thoughts import ThoughtForm
from magcli.verify.format import boxed_answer

_FINAL = re.compile(r"\n\s*#{4}\s*(?P<answer>[^\n]+?)\s*\Z")
_CALCULATION = re.compile(r"<<[^<>\n]*>>")
"""A calculator annotation of GSM8K, such as <<48/2=24>>."""


def worked_solution(row: Mapping[str, Any], form: ThoughtForm) -> dict[str, Any] | None:
    """A trace from the worked solution of a problem: its ``completion``, ``answer`` and ``own_answer``.

    ``own_answer`` is the answer that the solution itself arrives at, empty if it states none. Returns None if there is
    no solution or no answer, or if the solution already has thoughts in this form and so is a completion.
    """
    answer = _text(row.get("answer"))
    solutions = [_text(_first(row.get(name))) for name in WORKED]
    text = next(filter(None, solutions), "")
    if not text and _FINAL.search(answer):
        # GSM8K has the whole solution as the answer.
        text, answer = answer, ""
    # An answer after #### counts more than a box in the text.
    own_answer = boxed_answer(text) or ""
    final = _FINAL.search(text)
    if final:
        own_answer = final["answer"]
        text = _CALCULATION.sub("", text[: final.start()])
    answer = answer or own_answer
    if not text.strip() or not answer or form.opening in text:
        return None
    completion = form.join(text.strip(), f"\\boxed{{{answer}}}")
    return {"completion": completion, "answer": answer, "own_answer": own_answer}


def _first(value: Any) -> Any:
    """The first of several solutions."""
    return value[0] if isinstance(value, list) and value else value


def _text(value: Any) -> str:
    """A text or a number as text, or those of a list, joined by commas; empty for anything else."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_text, value)))
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    # A truth value is an integer to Python.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else ""

"""Convert published reasoning traces to one row per trace.

Three formats are supported besides magcli's own: rows with several samples in lists, with or without a list of verdicts
(evaluations of Qwen2.5-Math, OpenR1-Math); conversations of ``from`` and ``value`` (ShareGPT, OpenThoughts); and
reasoning in a separate column (s1K, servers with ``reasoning_content``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PROMPTS = ("prompt", "question", "problem", "instruction", "query")
COMPLETIONS = (
    "completion",
    "generations",
    "completions",
    "responses",
    "samples",
    "code",
    "response",
    "attempt",
    "generation",
    "solution",
    "output",
)
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thinking_trajectories", "thinking_trajectory")
VERDICTS = ("correct", "correctness_math_verify", "score", "is_correct", "correctness")
CONVERSATION_VERDICTS = tuple(name for name in VERDICTS if name != "score")
"""Verdicts on conversations, where ``score`` rates the conversation; in OpenR1-Math they sit next to samples."""
CONVERSATIONS = ("messages", "conversations", "conversation")
BOOLEANS = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "no"), False),
}
"""Verdicts in lower case."""
ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
MARKERS = (
    ("<|begin_of_thought|>", "<think>"),
    ("<|end_of_thought|>", "</think>"),
    ("<|begin_of_solution|>", ""),
    ("<|end_of_solution|>", ""),
)
"""Markers of OpenThoughts and their replacements in the recipe's format (section 2)."""

Row = Mapping[str, Any]


def readable(names: Sequence[str]) -> bool:
    """Whether a table with these columns holds traces."""
    return bool(_first(CONVERSATIONS, names)) or bool(_first(PROMPTS, names) and _first(COMPLETIONS, names))


def columns_read(names: Sequence[str]) -> list[str]:
    """The columns to read; tokens and log-probs of rollouts are large and not needed."""
    metadata = ("id", "group", "sample", "step", "num_tokens", "finish", "reason", "source")
    chosen = [_first(each, names) for each in (PROMPTS, COMPLETIONS, THOUGHTS, CONVERSATIONS)]
    return [name for name in names if name in {*metadata, *chosen, *VERDICTS, "system", "input"}]


def traces_of(row: Row) -> Iterator[dict[str, Any]]:
    """Convert a row to traces: ``messages``, or ``prompt`` and ``completion``; ``correct`` if there is a verdict.

    A verdict that is neither true nor false becomes ``unclear``. Each of several samples is a trace, with its index as
    ``sample``.
    """
    names = [name for name, value in row.items() if value is not None]
    if turns := _first(CONVERSATIONS, names):
        plain = {name: value for name, value in row.items() if name not in VERDICTS}
        verdict = _only(row.get(_first(CONVERSATION_VERDICTS, names) or ""))
        yield {**plain, "messages": _messages(row[turns], row.get("system")), **_verdict(verdict)}
        return
    own = row.get("prompt") is not None and "completion" in row
    asked, said = ("prompt", "completion") if own else (_first(PROMPTS, names), _first(COMPLETIONS, names))
    plain = {name: row.get(name) for name in row if name not in (*COMPLETIONS, *VERDICTS, *THOUGHTS)}
    plain["prompt"] = _prompt(row, asked) if asked else None
    samples = row.get(said) if said else None
    thoughts = row.get(_first(THOUGHTS, names) or "")
    verdicts = _verdicts(row.get(_first(VERDICTS, names) or ""), len(samples) if isinstance(samples, list) else 1)
    if not isinstance(samples, list):
        yield {**plain, "completion": _completion(_only(thoughts), samples), **_verdict(verdicts[0])}
        return
    for number, text in enumerate(samples):
        completion = _completion(_at(thoughts, number), text)
        yield {**plain, "sample": number, "completion": completion, **_verdict(verdicts[number])}


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _prompt(row: Row, column: str) -> Any:
    """The prompt; for an instruction (Alpaca) followed by the column ``input``."""
    asked, about = row[column], row.get("input")
    if column == "instruction" and isinstance(asked, str) and isinstance(about, str) and about.strip():
        return f"{asked}\n\n{about}"
    return asked


def _messages(turns: Any, system: Any) -> list[dict[str, Any]]:
    """Messages with role and content, preceded by a system prompt from a separate column."""
    given = [turn for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []
    made = [_turn(turn) for turn in given]
    if isinstance(system, str) and system and made and made[0]["role"] != "system":
        made.insert(0, {"role": "system", "content": system})
    return made


def _turn(turn: Row) -> dict[str, Any]:
    role, text = turn.get("role") or turn.get("from"), turn.get("content", turn.get("value"))
    return {"role": ROLES.get(str(role), role), "content": _marked(text)}


def _marked(text: Any) -> Any:
    if isinstance(text, str) and MARKERS[0][0] in text:
        for theirs, ours in MARKERS:
            text = text.replace(theirs, ours)
    return text


def _completion(thoughts: Any, answer: Any) -> Any:
    """The completion: reasoning in <think> tags followed by the answer, or only the answer."""
    return f"<think>{thoughts}</think>{answer}" if thoughts and isinstance(answer, str) else _marked(answer)


def _verdicts(given: Any, samples: int) -> list[Any]:
    """The verdict of each sample; if their number differs, all of them for each, which is unclear."""
    each = given if isinstance(given, list) else [given]
    if all(one is None for one in each):
        return [None] * samples
    return each if len(each) == samples else [each] * samples


def _verdict(verdict: Any) -> dict[str, Any]:
    """``correct``, or ``unclear`` with the original verdict; empty without a verdict."""
    text = str("" if verdict is None else verdict).strip().lower()
    if not text:
        return {}
    return {"correct": BOOLEANS[text]} if text in BOOLEANS else {"unclear": str(verdict)}


def _only(value: Any) -> Any:
    """A single value, possibly in a list of one."""
    if isinstance(value, list):
        return value[0] if len(value) == 1 else None
    return value


def _at(value: Any, number: int) -> Any:
    """The item of a list; None if it has no such item or is not a list."""
    return value[number] if isinstance(value, list) and number < len(value) else None

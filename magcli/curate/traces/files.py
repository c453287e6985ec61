"""Reasoning traces as other projects publish them, one row a trace.

Three forms are read besides magcli's own: a row with several samples in lists, with or without a list of verdicts
(evaluations of Qwen2.5-Math, OpenR1-Math); conversations of ``from`` and ``value`` (ShareGPT, OpenThoughts); and
thoughts in a column of their own (s1K, answers of servers with ``reasoning_content``).
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
JUDGED = tuple(name for name in VERDICTS if name != "score")
"""Verdicts on conversations, whose score tells how good a talk is; several are on samples beside it (OpenR1-Math)."""
CONVERSATIONS = ("messages", "conversations", "conversation")
SAYS = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "no"), False),
}
"""How verdicts are written, in small letters."""
ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
MARKS = (
    ("<|begin_of_thought|>", "<think>"),
    ("<|end_of_thought|>", "</think>"),
    ("<|begin_of_solution|>", ""),
    ("<|end_of_solution|>", ""),
)
"""How OpenThoughts marks thoughts and answer, and what the recipe's format has in their place (section 2)."""

Row = Mapping[str, Any]


def readable(names: Sequence[str]) -> bool:
    """Whether columns of these names hold traces."""
    return bool(_first(CONVERSATIONS, names)) or bool(_first(PROMPTS, names) and _first(COMPLETIONS, names))


def columns_read(names: Sequence[str]) -> list[str]:
    """The columns that matter of a table; tokens and log-probs of rollouts are large and do not."""
    told = ("id", "group", "sample", "step", "num_tokens", "finish", "reason", "source")
    chosen = [_first(each, names) for each in (PROMPTS, COMPLETIONS, THOUGHTS, CONVERSATIONS)]
    return [name for name in names if name in {*told, *chosen, *VERDICTS, "system", "input"}]


def traces_of(row: Row) -> Iterator[dict[str, Any]]:
    """A row as traces: ``messages``, or ``prompt`` and ``completion``; ``correct`` where there is a verdict.

    A verdict that says neither yes nor no is ``unclear``. Of a row with several samples each is a trace, with its place
    in the list as ``sample``.
    """
    names = [name for name, value in row.items() if value is not None]
    if turns := _first(CONVERSATIONS, names):
        plain = {name: value for name, value in row.items() if name not in VERDICTS}
        verdict = _only(row.get(_first(JUDGED, names) or ""))
        yield {**plain, "messages": _messages(row[turns], row.get("system")), **_verdict(verdict)}
        return
    own = row.get("prompt") is not None and "completion" in row
    asked, said = ("prompt", "completion") if own else (_first(PROMPTS, names), _first(COMPLETIONS, names))
    plain = {name: row.get(name) for name in row if name not in (*COMPLETIONS, *VERDICTS, *THOUGHTS)}
    plain["prompt"] = _asked(row, asked) if asked else None
    samples = row.get(said) if said else None
    thoughts = row.get(_first(THOUGHTS, names) or "")
    verdicts = _verdicts(row.get(_first(VERDICTS, names) or ""), len(samples) if isinstance(samples, list) else 1)
    if not isinstance(samples, list):
        yield {**plain, "completion": _told(_only(thoughts), samples), **_verdict(verdicts[0])}
        return
    for number, text in enumerate(samples):
        told = {"sample": number, "completion": _told(_at(thoughts, number), text), **_verdict(verdicts[number])}
        yield {**plain, **told}


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _asked(row: Row, column: str) -> Any:
    """What is asked; of an instruction (Alpaca) with what it is about, which stands in column ``input``."""
    asked, about = row[column], row.get("input")
    if column == "instruction" and isinstance(asked, str) and isinstance(about, str) and about.strip():
        return f"{asked}\n\n{about}"
    return asked


def _messages(turns: Any, system: Any) -> list[dict[str, Any]]:
    """Turns with roles and contents; a system prompt in a column of its own comes first."""
    given = [turn for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []
    made = [_turn(turn) for turn in given]
    if isinstance(system, str) and system and made and made[0]["role"] != "system":
        made.insert(0, {"role": "system", "content": system})
    return made


def _turn(turn: Row) -> dict[str, Any]:
    role, text = turn.get("role") or turn.get("from"), turn.get("content", turn.get("value"))
    return {"role": ROLES.get(str(role), role), "content": _marked(text)}


def _marked(text: Any) -> Any:
    if isinstance(text, str) and MARKS[0][0] in text:
        for theirs, ours in MARKS:
            text = text.replace(theirs, ours)
    return text


def _told(thoughts: Any, answer: Any) -> Any:
    """The completion: thoughts in the recipe's marks before the answer, or the answer alone."""
    return f"<think>{thoughts}</think>{answer}" if thoughts and isinstance(answer, str) else _marked(answer)


def _verdicts(given: Any, samples: int) -> list[Any]:
    """What is said of each sample; where the number of verdicts is another, all of them of each, which is unclear."""
    each = given if isinstance(given, list) else [given]
    if all(one is None for one in each):
        return [None] * samples
    return each if len(each) == samples else [each] * samples


def _verdict(verdict: Any) -> dict[str, Any]:
    """What a source says of a sample, where it says anything: yes or no, else that it is unclear and what it was."""
    said = str("" if verdict is None else verdict).strip().lower()
    if not said:
        return {}
    return {"correct": SAYS[said]} if said in SAYS else {"unclear": str(verdict)}


def _only(value: Any) -> Any:
    """A value that belongs to the one trace of its row, itself or in a list of one."""
    if isinstance(value, list):
        return value[0] if len(value) == 1 else None
    return value


def _at(value: Any, number: int) -> Any:
    """What a list says of one sample; None where it has no such entry, or is no list."""
    return value[number] if isinstance(value, list) and number < len(value) else None

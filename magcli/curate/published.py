"""Published traces as conversations (recipe, section 5, "Small").

Formats besides magcli's own and those of ``magcli.layouts``: rows with several samples in lists, with or without a list
of verdicts (evaluations of Qwen2.5-Math); conversations of ``from`` and ``value`` (ShareGPT, OpenThoughts); and a
separate column with the reasoning (servers with ``reasoning_content``). A worked solution becomes thoughts and a boxed
answer (``magcli.curate.worked``). Thoughts come out in one form, that of the model to train.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from magcli.curate.worked import worked_solution
from magcli.errors import DataError
from magcli.layouts.names import (
    CONVERSATIONS,
    TRACE_COMPLETIONS,
    TRACE_PROMPTS,
    TRACE_THOUGHTS,
    TRACE_VERDICTS,
    WORKED,
)
from magcli.layouts.readers import as_text, with_input
from magcli.layouts.responses import ROLES
from magcli.model.chat.messages import text_of, thoughts_of, without_thoughts
from magcli.model.chat.thoughts import THINK, ThoughtForm, rewritten

Row = Mapping[str, Any]
CONVERSATION_VERDICTS = tuple(name for name in TRACE_VERDICTS if name != "score")
"""Verdicts on conversations, where ``score`` rates the conversation; in OpenR1-Math they sit next to samples."""
BOOLEANS = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "no"), False),
}
"""Verdicts in lower case."""

OPEN_THOUGHTS = ("<|begin_of_thought|>", "<|end_of_thought|>", "<|begin_of_solution|>", "<|end_of_solution|>")
"""Markers of OpenThoughts."""


def readable(names: Sequence[str], answer: str | None = None) -> bool:
    """Whether a table with these columns may hold traces; in column ``answer`` a worked solution may precede it."""
    # What a row needs besides its prompt.
    texts = _first((*TRACE_COMPLETIONS, *WORKED), names) or answer
    return bool(_first(CONVERSATIONS, names)) or bool(_first(TRACE_PROMPTS, names) and texts)


def columns_read(names: Sequence[str], answer: str | None = None) -> list[str]:
    """The columns to read; tokens and log-probs of rollouts are large and not needed."""
    # What decides about a trace, what its drop reasons name, and what identifies it.
    metadata = ("id", "group", "sample", "step", "num_tokens", "finish", "reason", "source", "kind", answer, *WORKED)
    synonyms = (TRACE_PROMPTS, TRACE_COMPLETIONS, TRACE_THOUGHTS, CONVERSATIONS)
    chosen = [_first(columns, names) for columns in synonyms]
    return [name for name in names if name in {*metadata, *chosen, *TRACE_VERDICTS, "system", "input"}]


def check_distinct(names: Sequence[str]) -> None:
    """Check that there is one prompt and one kind of completion.

    Raises:
        DataError: several columns could be it; the message names them.
    """
    if _first(CONVERSATIONS, names):
        return
    # A solution beside a completion is no second one: it is the reference.
    samples = [name for name in TRACE_COMPLETIONS if name not in WORKED]
    synonyms = {"prompt": TRACE_PROMPTS, "completion": samples, "reasoning_content": TRACE_THOUGHTS}
    for role, columns in synonyms.items():
        present = [name for name in columns if name in names]
        if len(present) > 1 and role not in present:
            fix = f"name one: magcli convert INPUT --rename {role}={present[0]} -o OUTPUT"
            raise DataError(f"column {role} is missing and could be {' or '.join(present)}; {fix}")


def texts_of(row: Row) -> Iterator[Any]:
    """What assistants say in a row, unchanged: completions, and their turns of conversations."""
    for column in (*TRACE_COMPLETIONS, *CONVERSATIONS):
        value = row.get(column)
        items = value if isinstance(value, list) else [value]
        # Samples are texts, or messages of a conversation.
        for item in items:
            if not isinstance(item, Mapping):
                yield item
            elif _role(item) == "assistant":
                yield item.get("content", item.get("value"))


def traces_of(row: Row, form: ThoughtForm = THINK) -> Iterator[dict[str, Any]]:
    """Convert a row to traces: ``messages``, or ``prompt`` and ``completion``; ``correct`` if there is a verdict.

    Thoughts are written in ``form``, also those that the table has in another form.

    A verdict that is neither true nor false becomes ``unclear``. Each of several samples is a trace, with its index as
    ``sample``. The trace of a worked solution has its ``answer``, the row's if it has one, and ``own_answer``, at which
    the solution itself arrives. A row without any of these has neither messages nor a completion.
    """
    names = [name for name, value in row.items() if value is not None]
    turns = _first(CONVERSATIONS, names)
    if turns:
        yield _conversation(row, turns, names, form)
        return
    # magcli's own columns come first, also if the completion is null.
    is_completion = row.get("prompt") is not None and "completion" in row
    prompt = "prompt" if is_completion else _first(TRACE_PROMPTS, names)
    column = "completion" if is_completion else _first(TRACE_COMPLETIONS, names)
    samples = row.get(column or "")
    converted = (*TRACE_COMPLETIONS, *TRACE_VERDICTS, *TRACE_THOUGHTS)
    plain = {name: value for name, value in row.items() if name not in converted}
    plain["prompt"] = _prompt(row, prompt) if prompt else None
    # Programs are no worked solutions: their thoughts would be code.
    may_be_worked = column in (None, *WORKED) and row.get("kind") != "code"
    worked = worked_solution(row, form) if may_be_worked else None
    if worked is not None:
        yield plain | worked
        return
    reasoning = row.get(_first(TRACE_THOUGHTS, names) or "")
    verdict_column = _first(TRACE_VERDICTS, names) or ""
    num_samples = len(samples) if isinstance(samples, list) else 1
    verdicts = _verdicts(row.get(verdict_column), num_samples)
    # Whether scores are verdicts shows only once all rows are read.
    if verdict_column == "score":
        plain |= _score(row["score"])
    if not isinstance(samples, list):
        completion = _completion(_only(reasoning), samples, form)
        yield {**plain, "completion": completion, **_verdict(verdicts[0])}
        return
    # An empty list is a row without a completion, which is counted as such.
    if not samples:
        yield {**plain, "completion": None}
    for number, text in enumerate(samples):
        thoughts = reasoning[number] if isinstance(reasoning, list) and number < len(reasoning) else None
        completion = _completion(thoughts, text, form)
        yield {**plain, "sample": number, "completion": completion, **_verdict(verdicts[number])}


def _conversation(row: Row, turns: str, names: Sequence[str], form: ThoughtForm) -> dict[str, Any]:
    """The trace of a row with a conversation in column ``turns``."""
    plain = {name: value for name, value in row.items() if name not in TRACE_VERDICTS}
    messages = _messages(row[turns], row.get("system"), form)
    # Several verdicts belong to samples, of which a conversation has none.
    verdict = _only(row.get(_first(CONVERSATION_VERDICTS, names) or ""))
    return {**plain, "messages": messages, **_verdict(verdict)}


def _first(candidates: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of the candidates that is among the names."""
    return next((name for name in candidates if name in names), None)


def _prompt(row: Row, column: str) -> Any:
    """The prompt; for an instruction (Alpaca) followed by the column ``input``."""
    return with_input(row[column], row.get("input")) if column == "instruction" else row[column]


def _messages(turns: Any, system: Any, form: ThoughtForm) -> list[dict[str, Any]]:
    """Messages with role and content, preceded by a system prompt from a separate column.

    What is no message becomes one without a role, so that the row is dropped with what it has.
    """
    messages = []
    for turn in turns if isinstance(turns, list) else [turns]:
        if isinstance(turn, Mapping):
            messages.append(_message(turn, form))
        elif turn is not None:
            messages.append({"role": None, "content": as_text(turn)})
    if isinstance(system, str) and system and messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _message(turn: Mapping[str, Any], form: ThoughtForm) -> dict[str, Any]:
    """A message as role and text, with the thoughts beside an assistant's content in front of it.

    Content that is not text, and tool calls, are passed on, so that the row is dropped with that reason.
    """
    role = _role(turn)
    content = turn.get("content", turn.get("value"))
    if role == "assistant":
        content = without_thoughts(content)
    try:
        text = _with_tags(text_of(content), form)
    except DataError:
        text = content
    if role == "assistant":
        text = _completion(thoughts_of(turn), text, form)
    message = {"role": role, "content": text}
    calls = turn.get("tool_calls")
    return {**message, "tool_calls": calls} if calls else message


def _role(turn: Mapping[str, Any]) -> Any:
    """The role of a turn by the name that chat templates use."""
    role = turn.get("role") or turn.get("from")
    return ROLES.get(str(role), role)


def _with_tags(text: Any, form: ThoughtForm) -> Any:
    """Text with the markers of OpenThoughts replaced by the tags of the form."""
    if isinstance(text, str) and OPEN_THOUGHTS[0] in text:
        # The form marks only thoughts, so the markers of the solution become nothing.
        for theirs, ours in zip(OPEN_THOUGHTS, (form.opening, form.ending, "", ""), strict=True):
            text = text.replace(theirs, ours)
    return text


def _completion(thoughts: Any, answer: Any, form: ThoughtForm) -> Any:
    """The completion: thoughts followed by the answer, or only the answer; an answer that is no text is unchanged."""
    if not isinstance(answer, str):
        return answer
    return form.join(str(thoughts), answer) if thoughts else rewritten(_with_tags(answer, form), form)


def _verdicts(value: Any, num_samples: int) -> list[Any]:
    """The verdict of each sample; if the numbers differ, each gets the whole list, which counts as unclear."""
    verdicts = value if isinstance(value, list) else [value]
    if all(verdict is None for verdict in verdicts):
        return [None] * num_samples
    return verdicts if len(verdicts) == num_samples else [verdicts] * num_samples


def _verdict(verdict: Any) -> dict[str, Any]:
    """``correct``, or ``unclear`` with the original verdict; empty without a verdict."""
    text = str("" if verdict is None else verdict).strip().lower()
    if not text:
        return {}
    return {"correct": BOOLEANS[text]} if text in BOOLEANS else {"unclear": str(verdict)}


def _score(value: Any) -> dict[str, float]:
    """A score that is a number, from which the caller tells whether the column has verdicts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"score": float(value)} if is_number else {}


def _only(value: Any) -> Any:
    """A single value, possibly in a list of one."""
    if isinstance(value, list):
        return value[0] if len(value) == 1 else None
    return value
